"""Planning, measuring afresh and planning again, on a small world with a known truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.rooflines import Bench, Noise, World, noisy_sweep, world

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InfeasibleBudget, MeasurementError, PlanError
from joulewise.domain.measurement import CellMeasurement
from joulewise.domain.plan import Granularity, Objective, PlanRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.plan.solve import solve
from joulewise.plan.table import plan_table
from joulewise.workflow.promise import (
    ROUND_COUNT,
    WINDOW_COUNT,
    PromiseResult,
    keep_promise,
    plan_with_guard,
)

NOISE = Noise(time_ratio=0.003, power_ratio=0.01, shift_ratio=0.0045)
REQUEST = PlanRequest(max_slowdown_ratio=0.006)


def _true_slowdown_ratio(truth: World, result: PromiseResult) -> float:
    table = plan_table(truth.exact_sweep(), truth.workload(), result.solution.request.granularity)
    return table.totals(result.solution.choice)[0] / table.baseline_time_s


def _kept(truth: World, seed: int, request: PlanRequest = REQUEST) -> PromiseResult:
    sweep = noisy_sweep(truth, NOISE, seed=seed)
    return keep_promise(sweep, truth.workload(), request, Bench(truth, NOISE, seed=seed))


def test_true_slowdowns_stay_within_the_budget_where_naive_plans_break_it() -> None:
    truth = world(kernel_count=16)
    exact = plan_table(truth.exact_sweep(), truth.workload(), Granularity.KERNEL)
    optimum = solve(exact, REQUEST).saving_ratio
    naive, kept, lost = [], [], []
    for seed in range(12):
        sweep = noisy_sweep(truth, NOISE, seed=seed)
        choice = solve(plan_table(sweep, truth.workload(), Granularity.KERNEL), REQUEST).choice
        naive.append(exact.totals(choice)[0] / exact.baseline_time_s)
        result = _kept(truth, seed)
        time_s, energy_j = exact.totals(result.solution.choice)
        kept.append(time_s / exact.baseline_time_s)
        lost.append(optimum - (1 - energy_j / exact.baseline_energy_j))
    assert sum(ratio <= 1.006 for ratio in naive) <= 6
    assert sum(ratio <= 1.006 for ratio in kept) >= 11
    assert np.mean(lost) < 0.01


def test_the_plans_numbers_are_medians_of_fresh_windows() -> None:
    truth = world(kernel_count=5)
    bench = Bench(truth, NOISE)
    seen: dict[tuple[str, OperatingPoint], list[float]] = {}

    def remeasure(
        cells: Sequence[tuple[str, OperatingPoint]], window_count: int
    ) -> tuple[CellMeasurement, ...]:
        found = bench(cells, window_count)
        for cell in found:
            windows = [window.time_s for window in cell.windows]
            seen.setdefault((cell.kernel, cell.point), []).extend(windows)
        return found

    sweep = noisy_sweep(truth, NOISE)
    result = keep_promise(sweep, truth.workload(), REQUEST, remeasure)
    for k, kernel in enumerate(sweep.kernels):
        for p, point in enumerate(sweep.points):
            fresh = seen.get((kernel, point))
            assert result.sweep.is_present[k, p] == (fresh is not None)
            if fresh is not None:
                assert result.sweep.time_s[k, p] == pytest.approx(np.median(fresh))
    table = plan_table(result.sweep, truth.workload(), Granularity.KERNEL)
    time_s, energy_j = table.totals(result.solution.choice)
    assert (time_s, energy_j) == (result.solution.time_s, result.solution.energy_j)
    assert result.solution.baseline_time_s == table.baseline_time_s


def test_chosen_and_baseline_cells_are_measured_twice_and_others_once() -> None:
    truth = world(kernel_count=8)
    bench = Bench(truth, NOISE)
    sweep = noisy_sweep(truth, NOISE)
    result = keep_promise(sweep, truth.workload(), REQUEST, bench)
    *searches, confirmation = bench.asked
    first = [cell for batch in searches for cell in batch]
    assert len(first) == len(set(first))
    assert set(confirmation) <= set(first)
    assert {(kernel, AUTO) for kernel in truth.kernels} <= set(confirmation)
    assert len(bench.asked) == result.round_count <= ROUND_COUNT + 1
    counts = result.sweep.window_count
    assert counts is not None
    assert set(counts[result.sweep.is_present].tolist()) <= {WINDOW_COUNT, 2 * WINDOW_COUNT}


@pytest.mark.parametrize("granularity", [Granularity.ITERATION, Granularity.PASS])
def test_coarser_plans_are_kept_too(granularity: Granularity) -> None:
    truth = world(kernel_count=6)
    request = PlanRequest(max_slowdown_ratio=0.03, granularity=granularity)
    result = _kept(truth, 3, request)
    assert len(result.table.class_names) == 1
    assert _true_slowdown_ratio(truth, result) <= 1.03


def test_without_a_budget_there_is_no_guard_band() -> None:
    truth = world(kernel_count=6)
    request = PlanRequest(objective=Objective.MIN_ENERGY, max_slowdown_ratio=None)
    result = _kept(truth, 0, request)
    assert result.guard_band_ratio == 0.0
    exact = plan_table(truth.exact_sweep(), truth.workload(), Granularity.KERNEL)
    best = solve(exact, request).saving_ratio
    assert result.solution.saving_ratio == pytest.approx(best, abs=0.01)


def test_a_sweep_without_scatter_is_replanned_with_a_caveat() -> None:
    truth = world(kernel_count=8)
    sweep = replace(noisy_sweep(truth, NOISE), time_std_s=None, energy_std_j=None)
    result = keep_promise(sweep, truth.workload(), REQUEST, Bench(truth, NOISE))
    assert [caveat.kind for caveat in result.caveats] == [CaveatKind.NO_UNCERTAINTY]
    assert result.guard_band_ratio > 0.0
    assert _true_slowdown_ratio(truth, result) <= 1.006


def test_exact_measurements_lead_to_the_exact_optimum() -> None:
    truth = world(kernel_count=8)
    silent = Noise(time_ratio=0.0, power_ratio=0.0)
    sweep = noisy_sweep(truth, silent)
    result = keep_promise(sweep, truth.workload(), REQUEST, Bench(truth, silent))
    exact = plan_table(truth.exact_sweep(), truth.workload(), Granularity.KERNEL)
    optimum = solve(exact, REQUEST)
    assert result.guard_band_ratio == pytest.approx(0.0, abs=1e-9)
    assert result.solution.energy_j == pytest.approx(optimum.energy_j, rel=1e-4)


def test_only_kernels_of_the_workload_are_measured() -> None:
    truth = world(kernel_count=4)
    bench = Bench(truth, NOISE)
    workload = replace(truth.workload(), launches=truth.workload().launches[:2])
    keep_promise(noisy_sweep(truth, NOISE), workload, REQUEST, bench)
    assert {kernel for batch in bench.asked for kernel, _ in batch} == {"kernel-0", "kernel-1"}


def test_progress_is_told_up_to_the_end() -> None:
    truth = world(kernel_count=4)
    told: list[tuple[str, int, int]] = []
    keep_promise(
        noisy_sweep(truth, NOISE),
        None,
        REQUEST,
        Bench(truth, NOISE),
        progress=lambda what, done, total: told.append((what, done, total)),
    )
    assert told[-1][1] == told[-1][2]
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_a_sweep_against_another_baseline_is_refused() -> None:
    truth = world(kernel_count=3)
    sweep = replace(noisy_sweep(truth, NOISE), baseline=truth.points[1])
    with pytest.raises(PlanError, match="baseline is 600/auto"):
        keep_promise(sweep, None, REQUEST, Bench(truth, NOISE))


def test_windows_counted_anew_are_refused() -> None:
    truth = world(kernel_count=3)

    def forgetful(
        cells: Sequence[tuple[str, OperatingPoint]], window_count: int
    ) -> tuple[CellMeasurement, ...]:
        return Bench(truth, NOISE)(cells, window_count)

    with pytest.raises(MeasurementError, match="came twice"):
        keep_promise(noisy_sweep(truth, NOISE), None, REQUEST, forgetful)


def test_one_window_a_cell_is_too_few() -> None:
    truth = world(kernel_count=3)
    with pytest.raises(MeasurementError, match="at least two fresh windows"):
        keep_promise(noisy_sweep(truth, NOISE), None, REQUEST, Bench(truth, NOISE), window_count=1)


def test_a_budget_that_nothing_keeps_is_infeasible() -> None:
    truth = world(kernel_count=3)
    request = PlanRequest(max_slowdown_ratio=-0.9)
    with pytest.raises(InfeasibleBudget):
        keep_promise(noisy_sweep(truth, NOISE), None, request, Bench(truth, NOISE))


def test_planning_on_the_sweep_alone_helps_but_promises_less() -> None:
    truth = world(kernel_count=16)
    exact = plan_table(truth.exact_sweep(), truth.workload(), Granularity.KERNEL)
    naive, guarded = [], []
    for seed in range(12):
        sweep = noisy_sweep(truth, NOISE, seed=seed)
        plain = solve(plan_table(sweep, truth.workload(), Granularity.KERNEL), REQUEST)
        wary = plan_with_guard(sweep, truth.workload(), REQUEST).solution
        assert wary.guard_band_ratio > 0.0
        naive.append(exact.totals(plain.choice)[0] / exact.baseline_time_s)
        guarded.append(exact.totals(wary.choice)[0] / exact.baseline_time_s)
    assert sum(ratio <= 1.006 for ratio in naive) <= 5
    assert sum(ratio <= 1.006 for ratio in guarded) >= 8


def test_a_shift_between_visits_widens_the_guard_band_of_a_sweep() -> None:
    truth = world(kernel_count=16)
    still = replace(NOISE, shift_ratio=0.0)
    bands = [
        plan_with_guard(
            noisy_sweep(truth, noise), truth.workload(), REQUEST
        ).solution.guard_band_ratio
        for noise in (still, NOISE)
    ]
    assert bands[1] > 2 * bands[0]


def test_planning_on_a_sweep_without_scatter_is_planning_as_it_stands() -> None:
    truth = world(kernel_count=5)
    sweep = truth.exact_sweep()
    guarded = plan_with_guard(sweep, truth.workload(), REQUEST)
    plain = solve(plan_table(sweep, truth.workload(), Granularity.KERNEL), REQUEST)
    assert guarded.solution.choice.tolist() == plain.choice.tolist()
    assert guarded.solution.guard_band_ratio == 0.0
    assert [caveat.kind for caveat in guarded.sweep.caveats] == [CaveatKind.NO_UNCERTAINTY]
