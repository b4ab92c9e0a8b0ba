"""`tune` with transitions, against the simulator's noise-free truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulewise.cli.verdicts import plan_caveats
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.plan import PlannedLaunch, PlanRequest
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import no_progress
from joulewise.plan.statics import best_pass_level
from joulewise.plan.table import plan_table
from joulewise.simulator.oracle import open_oracle
from joulewise.store.documents import read_plan
from joulewise.store.sweeps import read_sweep
from joulewise.workflow.tuning import TuneJob, TuneResult, rival_cells, tune_to_folder
from joulewise.workflow.workloads import load_workload

# Long: whole tunings and verifications.
pytestmark = pytest.mark.integration

BUDGET = 0.006


def tuned(folder: Path, device: str, transition: str) -> TuneResult:
    job = TuneJob(
        device=device,
        workload="gpt3-xl",
        request=PlanRequest(max_slowdown_ratio=BUDGET),
        sm_clocks_mhz=(None, 1680),
        mem_clocks_mhz=(None, 9501, 5001),
        pair_count=4,
        out=folder,
        transition=transition,
    )
    return tune_to_folder(job, no_progress)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    return tuned(tmp_path_factory.mktemp("run"), "virtual:rtx3080ti,seed=11", "ascend")


def at(launches: tuple[PlannedLaunch, ...], point: OperatingPoint) -> tuple[PlannedLaunch, ...]:
    """The same launches, all at one point."""
    return tuple(
        PlannedLaunch(kernel=launch.kernel, pass_=launch.pass_, point=point) for launch in launches
    )


def test_the_plan_keeps_its_budget_in_truth_with_its_changes(result: TuneResult) -> None:
    oracle = open_oracle("virtual:rtx3080ti", load_workload("gpt3-xl").works)
    plan = result.plan
    baseline_s, _ = oracle.true_iteration(at(plan.launches, plan.baseline))
    work_s, _ = oracle.true_iteration(plan.launches)

    assert 0 < len(plan.requests) < 100
    assert pytest.approx(len(plan.requests) * 1e-3) == plan.transition_time_s
    assert work_s + plan.transition_time_s <= (1 + BUDGET) * baseline_s


def test_the_plan_keeps_its_budget_when_it_is_replayed(result: TuneResult) -> None:
    seen = result.verification

    assert seen.is_within_budget is True
    assert pytest.approx(seen.promised_saving_ratio, abs=0.01) == seen.saving_ratio
    assert seen.saving_interval.low_ratio > 0.0


def test_changes_are_counted_as_assumed_not_as_left_out(result: TuneResult) -> None:
    kinds = {caveat.kind for caveat in plan_caveats(result.plan, result.verification)}

    assert CaveatKind.TRANSITIONS_ASSUMED in kinds
    assert CaveatKind.TRANSITIONS_NOT_COUNTED not in kinds


def test_the_rivals_pay_for_their_changes_and_are_measured_beside_the_plan(
    result: TuneResult,
) -> None:
    workload = load_workload("gpt3-xl")
    sweep = read_sweep(result.folder / "sweep.parquet")
    remeasured = read_sweep(result.folder / "remeasured.parquet")
    present = {
        (kernel, point)
        for row, kernel in enumerate(remeasured.kernels)
        for column, point in enumerate(remeasured.points)
        if remeasured.is_present[row, column]
    }
    cells = set(rival_cells(sweep, workload, result.plan))
    table = plan_table(
        sweep, workload, result.plan.request.granularity, result.plan.request.transition
    )
    pair = best_pass_level(table, BUDGET)

    assert pair is not None
    assert present >= cells
    assert cells >= {
        (launch.kernel, pair.points[own_class])
        for launch, own_class in zip(workload.launches, pair.launch_classes, strict=True)
    }


def test_the_written_plan_is_the_one_that_was_verified(result: TuneResult) -> None:
    assert result.plan == read_plan(result.folder / "plan.json")


def test_without_noise_a_lagging_board_does_what_the_plan_says(tmp_path: Path) -> None:
    quiet = tuned(tmp_path, "virtual:rtx3080ti,noise=0", "lag=5ms")

    assert {0.005} == {request.lead_s for request in quiet.plan.requests}
    assert 0.0 == quiet.plan.transition_time_s
    assert pytest.approx(quiet.plan.slowdown_ratio, rel=1e-3) == quiet.verification.slowdown_ratio
    assert pytest.approx(quiet.plan.saving_ratio, abs=2e-3) == quiet.verification.saving_ratio
