"""`replay` and `probe transitions` as the command line calls them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.replays import DEVICE, launches_at, plan_of

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.plan import Objective, Plan
from joulewise.domain.points import AUTO, ClockGrid, OperatingPoint
from joulewise.domain.ports import no_progress
from joulewise.domain.transition import TransitionDomain
from joulewise.domain.transition_presets import transition_preset
from joulewise.simulator.virtual import open_virtual
from joulewise.store.documents import write_plan
from joulewise.store.transition_files import read_transition
from joulewise.workflow.replaying import ReplayJob, replay_to_result
from joulewise.workflow.transitions_measuring import (
    TransitionsJob,
    measure_transitions_to_file,
    points_to_change,
)
from joulewise.workload.gpt3_xl import gpt3_xl

WORKLOAD = gpt3_xl()
LOW_MEMORY = OperatingPoint(sm_clock_mhz=1890, mem_clock_mhz=5001)
HOPPER = transition_preset("hopper")


def _plan_file(folder: Path) -> tuple[Path, Plan]:
    plan = plan_of(WORKLOAD, launches_at(WORKLOAD.launches, (AUTO, LOW_MEMORY), 300), HOPPER)
    plan = replace(plan, sweep_sha256="0" * 64)
    file = folder / "plan.json"
    write_plan(plan, file)
    return file, plan


def test_a_silent_virtual_device_plays_the_model_of_the_plan(tmp_path: Path) -> None:
    file, plan = _plan_file(tmp_path)
    result = replay_to_result(ReplayJob(plan=file), no_progress)
    assert result.transition == HOPPER
    assert result.predicted_time_s == plan.time_s
    assert abs(result.time_difference_ratio) < 1e-6
    assert abs(result.energy_difference_ratio) < 2e-3
    assert result.window.request_count == len(plan.requests)
    assert CaveatKind.TRANSITIONS_ASSUMED in {caveat.kind for caveat in result.caveats}


def test_a_replay_that_misses_the_plan_says_so_and_what_is_really_saved(tmp_path: Path) -> None:
    file, plan = _plan_file(tmp_path)

    result = replay_to_result(
        ReplayJob(plan=file, device=f"{DEVICE},stall=100ms", iteration_count=2), no_progress
    )

    kinds = {caveat.kind for caveat in result.caveats}
    assert not result.is_as_planned
    assert {CaveatKind.PREDICTION_MISSED, CaveatKind.PROMISE_NOT_SHOWN} <= kinds
    assert result.baseline.time_s == pytest.approx(plan.baseline_time_s, rel=1e-6)
    assert result.slowdown_ratio == result.window.time_s / result.baseline.time_s
    assert result.saving_ratio == 1.0 - result.window.energy_j / result.baseline.energy_j
    assert result.is_within_budget is False


def test_a_replay_as_planned_says_whether_the_budget_is_kept(tmp_path: Path) -> None:
    file, plan = _plan_file(tmp_path)
    for budget, is_kept in ((plan.slowdown_ratio - 1.0, True), (0.001, False), (None, None)):
        asked = replace(
            plan,
            request=replace(
                plan.request,
                max_slowdown_ratio=budget,
                objective=plan.request.objective if budget is not None else Objective.ED2P,
            ),
        )
        write_plan(asked, file)
        result = replay_to_result(ReplayJob(plan=file, iteration_count=1), no_progress)
        kinds = {caveat.kind for caveat in result.caveats}

        assert result.is_as_planned
        assert CaveatKind.PREDICTION_MISSED not in kinds
        assert result.is_within_budget is is_kept
        assert (CaveatKind.PROMISE_NOT_SHOWN in kinds) == (is_kept is False)


def test_a_plan_without_a_model_is_told_not_to_have_counted_its_changes(tmp_path: Path) -> None:
    file, counted = _plan_file(tmp_path)
    plan = plan_of(WORKLOAD, counted.launches, None)
    write_plan(replace(plan, sweep_sha256="0" * 64), file)

    result = replay_to_result(ReplayJob(plan=file, iteration_count=1), no_progress)

    assert CaveatKind.TRANSITIONS_NOT_COUNTED in {caveat.kind for caveat in result.caveats}


def test_every_bar_of_a_replay_comes_to_its_end(tmp_path: Path) -> None:
    file, _ = _plan_file(tmp_path)
    last: dict[str, tuple[int, int]] = {}

    def progress(what: str, done_count: int, total_count: int) -> None:
        last[what] = (done_count, total_count)

    replay_to_result(ReplayJob(plan=file, iteration_count=1), progress)
    stages = ("warming up", "replaying")
    assert {*stages, *(f"{stage} the baseline" for stage in stages)} == set(last)
    assert all(done_count == total_count for done_count, total_count in last.values())


def test_a_device_string_that_says_what_changes_cost_wins(tmp_path: Path) -> None:
    file, plan = _plan_file(tmp_path)
    job = ReplayJob(plan=file, device=f"{DEVICE},stall=20ms", iteration_count=2)
    result = replay_to_result(job, no_progress)
    more_s = len(plan.requests) * (0.020 - 0.006)
    assert result.window.time_s == pytest.approx(plan.time_s + more_s, rel=1e-6)
    assert result.window.iteration_count == 2
    assert CaveatKind.TRANSITIONS_ASSUMED not in {caveat.kind for caveat in result.caveats}


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (ReplayJob(plan=Path(), iteration_count=0), "iterations"),
        (ReplayJob(plan=Path(), device="virtual:a100-sxm"), "device_name"),
        (ReplayJob(plan=Path(), workload="gpt3-xl,batch=2"), None),
    ],
)
def test_what_does_not_fit_the_plan_is_refused(
    job: ReplayJob, field: str | None, tmp_path: Path
) -> None:
    file, _ = _plan_file(tmp_path)
    with pytest.raises(InputError) as caught:
        replay_to_result(replace(job, plan=file), no_progress)
    if field is not None:
        assert caught.value.field == field


def test_a_measured_model_is_written_and_says_where_it_comes_from(tmp_path: Path) -> None:
    out = tmp_path / "transition.json"
    device = "virtual:a100-sxm,noise=0,transition=hopper"
    job = TransitionsJob(device=device, workload="gpt3-xl", out=out)
    result = measure_transitions_to_file(job, no_progress)
    assert read_transition(out) == result.model
    assert {TransitionDomain.SM} == {cost.domain for cost in result.model.costs}
    assert [False, False, False, True] == [cost.target is None for cost in result.model.costs]
    assert AUTO in {cost.target for cost in result.model.costs}
    for cost in result.model.costs:
        assert cost.stall_s == pytest.approx(0.006, rel=1e-3)
        assert cost.energy_j == pytest.approx(0.36, rel=0.05)
    assert (result.model.device_name, result.model.is_simulated) == (result.device_name, True)
    assert result.device == device
    assert result.kernel in WORKLOAD.kernels
    assert len(result.changes) == 6


def test_an_unknown_kernel_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    job = TransitionsJob(
        device=DEVICE, workload="gpt3-xl", kernel="nothing", out=tmp_path / "transition.json"
    )
    with pytest.raises(InputError, match="nothing") as caught:
        measure_transitions_to_file(job, no_progress)
    assert caught.value.field == "kernel"
    assert list(tmp_path.iterdir()) == []


def test_points_to_change_are_few_and_listed() -> None:
    grid = open_virtual("virtual:rtx3080ti", ()).gpu.clock_grid()
    points = points_to_change(grid)
    assert len(points) == 6
    assert {point.sm_clock_mhz for point in points} < {None, *grid.sm_clocks_mhz}
    assert {point.mem_clock_mhz for point in points} < {None, *grid.mem_clocks_mhz}
    assert AUTO in points
    lone = ClockGrid(sm_clocks_mhz=(100,), mem_clocks_mhz=(500,))
    assert {AUTO, OperatingPoint(sm_clock_mhz=100)} == set(points_to_change(lone))
    with pytest.raises(InputError, match="123"):
        points_to_change(grid, [123])
    with pytest.raises(InputError, match="only point") as caught:
        points_to_change(grid, [840], [9501])
    assert "--sm-clocks" in str(caught.value.hint)
    assert "--mem-clocks" in str(caught.value.hint)
