"""`tune` against the simulator's noise-free truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulewise.cli.verdicts import plan_caveats
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.plan import PlanRequest
from joulewise.domain.ports import no_progress
from joulewise.plan.statics import best_pass_level, best_static
from joulewise.plan.table import plan_table
from joulewise.report.compare import Role
from joulewise.simulator.oracle import open_oracle
from joulewise.store.sweeps import read_sweep
from joulewise.workflow.tuning import TuneJob, TuneResult, rival_cells, tune_to_folder
from joulewise.workflow.workloads import load_workload

BUDGET = 0.006


def tuned(folder: Path, device: str, budget: float = BUDGET) -> TuneResult:
    job = TuneJob(
        device=device,
        workload="gpt3-xl",
        request=PlanRequest(max_slowdown_ratio=budget),
        sm_clocks_mhz=(None, 1680, 1050),
        mem_clocks_mhz=(None, 9501, 5001),
        pair_count=4,
        out=folder,
    )
    return tune_to_folder(job, no_progress)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    return tuned(tmp_path_factory.mktemp("run"), "virtual:rtx3080ti,seed=11")


def test_the_plan_keeps_its_budget_in_truth(result: TuneResult) -> None:
    workload = load_workload("gpt3-xl")
    oracle = open_oracle("virtual:rtx3080ti", workload.works)
    true_s, _ = oracle.true_iteration(result.plan.launches)
    points = read_sweep(result.folder / "sweep.parquet").points
    times, _ = oracle.table(points)
    counts = workload.launch_counts()
    baseline = points.index(result.plan.baseline)
    baseline_s = sum(
        times[row, baseline] * counts[kernel] for row, kernel in enumerate(oracle.kernels)
    )

    assert true_s <= (1 + BUDGET) * baseline_s


def test_rivals_are_judged_by_cells_measured_beside_the_plan(result: TuneResult) -> None:
    bases = {row.role: row.basis for row in result.comparison}

    assert "measured again beside the plan" == bases[Role.BEST_STATIC] == bases[Role.BEST_PASS]


def test_the_rows_of_the_comparison_agree_with_their_ratios(result: TuneResult) -> None:
    baseline = result.comparison[0]

    for row in result.comparison:
        assert pytest.approx(row.slowdown_ratio) == row.time_s / baseline.time_s
        assert pytest.approx(row.saving_ratio) == 1 - row.energy_j / baseline.energy_j


def test_every_rival_around_the_budget_is_measured_afresh(result: TuneResult) -> None:
    workload = load_workload("gpt3-xl")
    sweep = read_sweep(result.folder / "sweep.parquet")
    remeasured = read_sweep(result.folder / "remeasured.parquet")
    table = plan_table(sweep, workload, result.plan.request.granularity)
    present = {
        (kernel, point)
        for row, kernel in enumerate(remeasured.kernels)
        for column, point in enumerate(remeasured.points)
        if remeasured.is_present[row, column]
    }

    best = best_static(table, BUDGET)
    pair = best_pass_level(table, BUDGET)

    assert best is not None
    assert pair is not None
    assert present >= {(kernel, best.points[0]) for kernel in workload.kernels}
    assert present >= set(rival_cells(sweep, workload, result.plan))


def test_a_plan_of_fresh_cells_is_not_called_biased(tmp_path: Path) -> None:
    quiet = tuned(tmp_path, "virtual:rtx3080ti,noise=0")
    kinds = {caveat.kind for caveat in plan_caveats(quiet.plan, quiet.verification)}

    assert CaveatKind.SELECTION_BIAS not in kinds
    assert CaveatKind.PROMISE_NOT_SHOWN not in kinds
    assert CaveatKind.SIMULATED_DEVICE in kinds


@pytest.mark.integration
def test_without_noise_promise_verification_and_truth_agree(tmp_path: Path) -> None:
    quiet = tuned(tmp_path, "virtual:rtx3080ti,noise=0")
    oracle = open_oracle("virtual:rtx3080ti", load_workload("gpt3-xl").works)
    true_s, true_j = oracle.true_iteration(quiet.plan.launches)

    assert pytest.approx(true_s, rel=1e-9) == quiet.plan.time_s
    assert pytest.approx(true_j, rel=1e-3) == quiet.plan.energy_j
    assert pytest.approx(quiet.plan.slowdown_ratio, rel=1e-9) == quiet.verification.slowdown_ratio
