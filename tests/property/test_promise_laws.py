"""Laws of the guard band and of the promise, on random worlds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rooflines import Bench, Noise, noisy_sweep, world

from joulewise.domain.plan import Granularity, PlanRequest, Scope
from joulewise.plan.table import plan_table
from joulewise.workflow.guard import (
    GUARD_ERROR_COUNT,
    launch_counts,
    slowdown_error_ratio,
    solve_guarded,
    time_errors,
)
from joulewise.workflow.promise import keep_promise

seeds = st.integers(0, 10_000)
budgets = st.sampled_from([0.0, 0.006, 0.05])
error_ratios = st.sampled_from([0.0, 0.001, 0.005, 0.05])
granularities = st.sampled_from(list(Granularity))


@settings(max_examples=60, deadline=None)
@given(seeds, budgets, error_ratios, error_ratios, granularities)
def test_plan_and_two_standard_errors_fit_in_the_budget(
    seed: int, budget: float, cell: float, point: float, granularity: Granularity
) -> None:
    truth = world(kernel_count=4, seed=seed)
    sweep = noisy_sweep(truth, Noise(), seed=seed)
    table = plan_table(sweep, truth.workload(), granularity)
    counts = launch_counts(table, sweep.kernels)
    shape = sweep.time_s.shape
    errors = time_errors(
        sweep.time_s, np.full(shape, cell), np.full(shape[1], point), sweep.is_present
    )
    request = PlanRequest(max_slowdown_ratio=budget, granularity=granularity)
    solution = solve_guarded(table, request, counts, errors)
    needed = GUARD_ERROR_COUNT * slowdown_error_ratio(table, solution.choice, counts, errors)
    assert needed <= solution.guard_band_ratio + 1e-8
    is_baseline = bool((solution.choice == table.baseline_index).all())
    assert is_baseline or solution.slowdown_ratio + needed <= 1 + budget + 1e-8


@settings(max_examples=60, deadline=None)
@given(seeds, budgets, error_ratios)
def test_local_scope_keeps_every_kernel_within_the_budget(
    seed: int, budget: float, cell: float
) -> None:
    truth = world(kernel_count=4, seed=seed)
    table = plan_table(noisy_sweep(truth, Noise(), seed=seed), None, Granularity.KERNEL)
    shape = truth.time_s.shape
    errors = time_errors(
        table.time_s, np.full(shape, cell), np.zeros(shape[1]), np.ones(shape, dtype=np.bool_)
    )
    request = PlanRequest(max_slowdown_ratio=budget, scope=Scope.LOCAL)
    solution = solve_guarded(table, request, launch_counts(table, truth.kernels), errors)
    rows = np.arange(shape[0])
    base_s = table.time_s[:, table.baseline_index]
    chosen_s = table.time_s[rows, solution.choice]
    guard_s = GUARD_ERROR_COUNT * cell * np.hypot(chosen_s, base_s)
    moved = solution.choice != table.baseline_index
    assert (chosen_s + guard_s <= (1 + budget) * base_s * (1 + 1e-9))[moved].all()


@settings(max_examples=10, deadline=None)
@given(seeds, budgets, st.sampled_from(list(Scope)))
def test_the_promise_stands_on_fresh_windows_of_one_run(
    seed: int, budget: float, scope: Scope
) -> None:
    truth = world(kernel_count=6, seed=seed)
    noise = Noise(time_ratio=0.004, power_ratio=0.01, shift_ratio=0.0045)
    bench = Bench(truth, noise, seed=seed)
    request = PlanRequest(max_slowdown_ratio=budget, scope=scope)
    kept = keep_promise(noisy_sweep(truth, noise, seed=seed), truth.workload(), request, bench)
    rows, choice = np.arange(6), kept.solution.choice
    measured = {cell for batch in bench.asked for cell in batch}
    chosen = {(truth.kernels[k], truth.points[choice[k]]) for k in rows}
    baseline = {(kernel, truth.points[truth.baseline_index]) for kernel in truth.kernels}
    assert chosen | baseline <= measured
    assert kept.sweep.is_present.sum() == len(measured) == kept.remeasured_cell_count
    assert kept.solution.time_s == kept.table.time_s[rows, choice].sum()
    is_baseline = bool((choice == truth.baseline_index).all())
    total = kept.solution.slowdown_ratio + kept.guard_band_ratio
    assert is_baseline or scope is Scope.LOCAL or total <= 1 + budget + 1e-8


@settings(max_examples=5, deadline=None)
@given(seeds, st.sampled_from([1e-3, 7.0, 1e4]))
def test_other_units_of_energy_change_no_choice(seed: int, factor: float) -> None:
    truth = world(kernel_count=5, seed=seed)
    noise = Noise(time_ratio=0.003, shift_ratio=0.0045)
    request = PlanRequest(max_slowdown_ratio=0.006)
    choices = []
    for scaled in (truth, replace(truth, power_w=truth.power_w * factor)):
        sweep = noisy_sweep(scaled, noise, seed=seed)
        kept = keep_promise(sweep, None, request, Bench(scaled, noise, seed=seed))
        choices.append(kept.solution.choice.tolist())
    assert choices[0] == choices[1]
