"""A plan carried out takes what it predicts, changes of clocks included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.replays import DEVICE, launches_at, plan_of

from joulewise.control.lease import hold
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import DeviceLost, InputError, NotPermitted, NotSupported
from joulewise.domain.measurement import ReplayWindow
from joulewise.domain.plan import Plan
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.domain.transition_presets import transition_preset
from joulewise.measure.replay import replay_plan
from joulewise.measure.settings import MeasureSettings
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual
from joulewise.workload.gpt3_xl import gpt3_xl

WORKLOAD = gpt3_xl()
POINTS = (
    AUTO,
    OperatingPoint(sm_clock_mhz=1680, mem_clock_mhz=9501),
    OperatingPoint(sm_clock_mhz=1680, mem_clock_mhz=5001),
    OperatingPoint(sm_clock_mhz=1890, mem_clock_mhz=5001),
)
SETTINGS = MeasureSettings()
LAG = uniform_transition("lag", "a test", lag_s=0.005)
BOTH = uniform_transition("both", "a test", lag_s=0.005, stall_s=0.001, energy_j=0.1)


def _preset(name: str) -> TransitionModel:
    model = transition_preset(name)
    assert model is not None
    return model


def _plan(
    model: TransitionModel | None, region_length: int, launch_count: int | None = None
) -> Plan:
    launches = launches_at(WORKLOAD.launches[:launch_count], POINTS, region_length)
    return plan_of(WORKLOAD, launches, model)


def _replay(
    plan: Plan,
    state_dir: Path,
    *,
    device: str = DEVICE,
    run: str = "replay",
    window: int = 0,
    iteration_count: int | None = None,
) -> ReplayWindow:
    session = open_virtual(device, WORKLOAD.works, plan.request.transition)
    with hold(session.gpu, state_dir=state_dir) as lease:
        return replay_plan(
            session,
            lease,
            plan,
            settings=SETTINGS,
            run=run,
            window=window,
            iteration_count=iteration_count,
        )


def _kinds(window: ReplayWindow) -> set[CaveatKind]:
    return {caveat.kind for caveat in window.caveats}


@pytest.mark.parametrize(
    ("model", "region_length"),
    [
        (_preset("ascend"), 90),
        (_preset("hopper"), 200),
        (LAG, 60),
        (BOTH, 60),
        (_preset("free"), 300),
    ],
    ids=lambda value: value.name if isinstance(value, TransitionModel) else str(value),
)
def test_a_replay_takes_the_time_and_energy_that_the_plan_predicts(
    model: TransitionModel, region_length: int, tmp_path: Path
) -> None:
    plan = _plan(model, region_length)
    window = _replay(plan, tmp_path)
    assert window.time_s == pytest.approx(plan.time_s, rel=1e-6)
    assert window.energy_j == pytest.approx(plan.energy_j, rel=1e-3)
    assert len(plan.requests) == window.request_count
    assert not {CaveatKind.CHANGES_LATE, CaveatKind.CHANGES_EARLY} & _kinds(window)


def test_a_naive_plan_of_many_changes_takes_a_millisecond_for_each(tmp_path: Path) -> None:
    plan = _plan(_preset("ascend"), 1)
    launches_s, _ = open_oracle(DEVICE, WORKLOAD.works).true_iteration(plan.launches)
    assert len(plan.requests) > 800
    window = _replay(plan, tmp_path)
    assert window.time_s == pytest.approx(launches_s + 0.001 * len(plan.requests), rel=1e-6)
    assert window.energy_j == pytest.approx(plan.energy_j, rel=1e-3)


def test_a_plan_that_takes_changes_for_free_is_slower_on_a_board_where_they_cost(
    tmp_path: Path,
) -> None:
    plan = replace(_plan(_preset("free"), 90), device="virtual:rtx3080ti,noise=0,stall=2ms")
    window = _replay(plan, tmp_path, device=plan.device)
    expected_s = plan.time_s + 0.002 * len(plan.requests)
    assert window.time_s == pytest.approx(expected_s, rel=1e-6)


def test_requests_without_their_lead_take_effect_too_late(tmp_path: Path) -> None:
    """Each region then begins with 50 ms at the point of the region before."""
    lag = uniform_transition("lag", "a test", lag_s=0.05)
    plan = _plan(lag, 300)
    hasty = replace(plan, requests=tuple(replace(one, lead_s=0.0) for one in plan.requests))
    punctual_s, late_s = (_replay(one, tmp_path).time_s for one in (plan, hasty))
    assert abs(late_s / punctual_s - 1) > 1e-4


def test_changes_too_near_to_one_another_fall_away_and_are_told(tmp_path: Path) -> None:
    plan = _plan(uniform_transition("slow", "a test", lag_s=0.02), 1)
    window = _replay(plan, tmp_path)
    assert window.skipped_count > 400
    assert window.request_count + window.skipped_count == pytest.approx(
        len(plan.requests), rel=0.01
    )
    assert CaveatKind.CHANGES_LATE in _kinds(window)


def test_what_became_of_requests_is_told_per_iteration_and_not_rounded_away(
    tmp_path: Path,
) -> None:
    """In one of three iterations a request is made late."""
    window = _replay(_plan(uniform_transition("lazy", "a test", dwell_s=20.0), 300), tmp_path)
    (said,) = [one.seen for one in window.caveats if one.kind is CaveatKind.CHANGES_LATE]

    assert 0 < window.late_count < 0.5
    assert f"{window.late_count:g} came into force up to" in said
    assert f"{window.skipped_count:g} fell away" in said
    assert "per iteration" in said


@pytest.mark.parametrize("lag_ms", [5, 20, 50])
def test_points_that_all_come_late_are_counted_and_timed(lag_ms: int, tmp_path: Path) -> None:
    """Asked for when their launches begin, on a board on which they take a while."""
    plan = _plan(_preset("ascend"), 90)

    window = _replay(plan, tmp_path, device=f"{DEVICE},lag={lag_ms}ms")

    assert len(plan.requests) == window.late_count
    assert window.max_late_s == pytest.approx(lag_ms * 1e-3, rel=1e-6)
    assert CaveatKind.CHANGES_LATE in _kinds(window)


@pytest.mark.parametrize("stall", ["", ",stall=1ms"])
def test_points_that_all_come_early_are_counted_and_timed(stall: str, tmp_path: Path) -> None:
    """The board takes 2 ms, the plan asks 5 ms ahead. A stall is no part of that."""
    plan = _plan(LAG, 60)

    window = _replay(plan, tmp_path, device=f"{DEVICE},lag=2ms{stall}")

    assert (window.late_count, window.max_late_s) == (0, 0.0)
    assert len(plan.requests) == window.early_count
    assert window.max_early_s == pytest.approx(3e-3, rel=0.01)
    assert CaveatKind.CHANGES_EARLY in _kinds(window)
    assert CaveatKind.CHANGES_LATE not in _kinds(window)


def test_a_single_short_launch_warms_up_as_many_of_them(tmp_path: Path) -> None:
    launches = launches_at(WORKLOAD.launches[:1], POINTS[1:2], 1)
    told: list[tuple[str, int, int]] = []
    session = open_virtual(DEVICE, WORKLOAD.works)
    with hold(session.gpu, state_dir=tmp_path) as lease:
        window = replay_plan(
            session,
            lease,
            plan_of(WORKLOAD, launches, None),
            settings=SETTINGS,
            iteration_count=3,
            progress=lambda *said: told.append(said),
        )

    # Two steps of the energy counter hold more of them than were asked for.
    assert 3 < window.iteration_count < 1000
    assert window.time_s == pytest.approx(plan_of(WORKLOAD, launches, None).time_s, rel=1e-6)
    assert [number for what, number, total in told if what == "replaying"] == [0, 3]


def test_dwell_holds_requests_apart(tmp_path: Path) -> None:
    plan = _plan(uniform_transition("lazy", "a test", dwell_s=0.1), 1)
    window = _replay(plan, tmp_path)
    assert window.request_count <= window.time_s / 0.1
    assert CaveatKind.CHANGES_LATE in _kinds(window)


def test_one_point_for_all_launches_is_the_sum_of_its_cells(tmp_path: Path) -> None:
    launches = launches_at(WORKLOAD.launches, POINTS[1:2], 1)
    plan = plan_of(WORKLOAD, launches, _preset("hopper"))
    assert plan.requests == ()
    window = _replay(plan, tmp_path)
    assert window.time_s == pytest.approx(plan.time_s, rel=1e-6)
    assert window.energy_j == pytest.approx(plan.energy_j, rel=1e-3)
    assert window.request_count == 0


def test_short_iterations_fill_a_window_by_their_number(tmp_path: Path) -> None:
    plan = _plan(_preset("ascend"), 4, launch_count=12)
    window = _replay(plan, tmp_path)
    assert window.iteration_count > 50
    assert window.duration_s >= SETTINGS.window_s
    assert window.time_s == pytest.approx(plan.time_s, rel=1e-6)
    assert window.energy_j == pytest.approx(plan.energy_j, rel=2e-3)


def test_so_many_iterations_as_asked_for_are_measured(tmp_path: Path) -> None:
    assert _replay(_plan(LAG, 300), tmp_path, iteration_count=1).iteration_count == 1


def test_noise_is_that_of_the_cells_and_of_the_run(tmp_path: Path) -> None:
    plan = _plan(LAG, 20, launch_count=60)
    device = "virtual:rtx3080ti,seed=4"
    first = _replay(plan, tmp_path, device=device)
    assert first == _replay(plan, tmp_path, device=device)
    others = [
        _replay(plan, tmp_path, device=device, run="other"),
        _replay(plan, tmp_path, device=device, window=1),
        _replay(plan, tmp_path, device="virtual:rtx3080ti,seed=5"),
    ]
    assert len({one.time_s for one in (first, *others)}) == 4
    assert all(one.time_s == pytest.approx(plan.time_s, rel=0.03) for one in others)


def test_a_window_that_another_process_disturbed_is_measured_again(tmp_path: Path) -> None:
    plan = _plan(LAG, 20, launch_count=60)
    clean = _replay(plan, tmp_path)
    disturbed = _replay(plan, tmp_path, device=f"{DEVICE},foreign=0..60")
    assert disturbed.time_s == pytest.approx(clean.time_s, rel=1e-6)
    assert CaveatKind.OTHER_PROCESS_ON_GPU not in _kinds(disturbed)


def test_a_device_lost_on_the_way_says_so(tmp_path: Path) -> None:
    with pytest.raises(DeviceLost):
        _replay(_plan(LAG, 20, launch_count=60), tmp_path, device=f"{DEVICE},lost_after=12")


def test_without_rights_nothing_is_replayed_and_nothing_stays_set(tmp_path: Path) -> None:
    plan = _plan(LAG, 20, launch_count=60)
    session = open_virtual(f"{DEVICE},control=denied", WORKLOAD.works)
    with (
        pytest.raises(NotPermitted),
        hold(session.gpu, state_dir=tmp_path) as lease,
    ):
        replay_plan(session, lease, plan, settings=SETTINGS)
    assert list(tmp_path.glob("*.journal.json")) == []


def test_the_clocks_go_back_when_a_replay_ends(tmp_path: Path) -> None:
    plan = _plan(LAG, 20, launch_count=60)
    session = open_virtual(DEVICE, WORKLOAD.works, LAG)
    kernel = WORKLOAD.kernels[0]
    with session.runner.loop(kernel, run="r") as loop:
        loop.run_for(1.0)
        before = session.gpu.sample().sm_clock_mhz
    with hold(session.gpu, state_dir=tmp_path) as lease:
        replay_plan(session, lease, plan, settings=SETTINGS)
    with session.runner.loop(kernel, run="r") as loop:
        loop.run_for(1.0)
        assert before == session.gpu.sample().sm_clock_mhz


def test_a_plan_without_its_requests_is_refused(tmp_path: Path) -> None:
    plan = replace(_plan(LAG, 20, launch_count=60), requests=())
    with pytest.raises(InputError, match="do not lead to") as caught:
        _replay(plan, tmp_path)
    assert caught.value.field == "requests"


def test_a_plan_without_launches_is_refused(tmp_path: Path) -> None:
    plan = replace(_plan(LAG, 20, launch_count=60), launches=(), requests=())
    with pytest.raises(InputError, match="no launches"):
        _replay(plan, tmp_path)


def test_a_device_that_runs_kernels_alone_cannot_replay(tmp_path: Path) -> None:
    session = replace(open_virtual(DEVICE, WORKLOAD.works), iterations=None)
    with (
        hold(session.gpu, state_dir=tmp_path) as lease,
        pytest.raises(NotSupported, match="alone"),
    ):
        replay_plan(session, lease, _plan(LAG, 20, 60), settings=SETTINGS)
