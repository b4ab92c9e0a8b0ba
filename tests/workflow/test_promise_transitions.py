"""The promise of fresh runs where changes of clocks count, on a world with a known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.rooflines import Bench, Noise, World, noisy_sweep, world

from joulewise.domain.plan import Granularity, PlanRequest, Scope
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.plan.statics import best_static
from joulewise.plan.table import plan_table
from joulewise.workflow.guard import launch_counts, launched_cells, solve_guarded, time_errors
from joulewise.workflow.promise import PromiseResult, keep_promise, plan_with_guard

NOISE = Noise(time_ratio=0.003, power_ratio=0.01, shift_ratio=0.0045)
# Launches take 5 to 20 ms here, three of each of six kernels.
STALL = uniform_transition("stall", "a test", stall_s=50e-6, energy_j=3e-3)
LAG = uniform_transition("lag", "a test", lag_s=5e-3)
# Every launch alone keeps 2 % with ease; it is the changes that fill the budget.
FILLING = uniform_transition("filling", "a test", stall_s=4e-4, energy_j=1e-3)
SEED_COUNTS = [(STALL, 5), (LAG, 3), (FILLING, 4)]
BUDGET = 0.02
TRUTH = world(kernel_count=6)


def kept(
    model: TransitionModel, seed: int, truth: World = TRUTH, scope: Scope = Scope.GLOBAL
) -> PromiseResult:
    request = PlanRequest(max_slowdown_ratio=BUDGET, transition=model, scope=scope)
    sweep = noisy_sweep(truth, NOISE, seed=seed)
    return keep_promise(sweep, truth.workload(), request, Bench(truth, NOISE, seed=seed))


@pytest.mark.parametrize(
    ("model", "seed_count"), SEED_COUNTS, ids=lambda one: getattr(one, "name", str(one))
)
def test_true_slowdowns_stay_within_the_budget_changes_included(
    model: TransitionModel, seed_count: int
) -> None:
    exact = plan_table(TRUTH.exact_sweep(), TRUTH.workload(), Granularity.KERNEL, model)
    static = best_static(exact, BUDGET)
    slowdowns, savings, changes = [], [], []
    for seed in range(seed_count):
        solution = kept(model, seed).solution
        time_s, energy_j = exact.totals(solution.choice)
        slowdowns.append(time_s / exact.baseline_time_s)
        savings.append(1.0 - energy_j / exact.baseline_energy_j)
        changes.append(exact.change_totals(solution.choice)[0])

    assert static is not None
    assert max(slowdowns) <= 1.0 + BUDGET
    assert max(changes) > 0
    assert np.mean(savings) > static.saving_ratio - 0.01


@pytest.mark.parametrize(
    ("model", "seed_count"), SEED_COUNTS, ids=lambda one: getattr(one, "name", str(one))
)
def test_with_a_local_scope_launches_and_total_keep_the_budget_in_truth(
    model: TransitionModel, seed_count: int
) -> None:
    exact = plan_table(TRUTH.exact_sweep(), TRUTH.workload(), Granularity.KERNEL, model)
    baseline_s = exact.time_s[:, exact.baseline_index]
    changes = []
    for seed in range(seed_count):
        solution = kept(model, seed, scope=Scope.LOCAL).solution
        own_s = exact.time_s[np.arange(baseline_s.size), solution.choice]
        time_s, _ = exact.totals(solution.choice)
        changes.append(exact.change_totals(solution.choice)[0])

        assert (own_s / baseline_s).max() <= 1.0 + BUDGET
        assert time_s / exact.baseline_time_s <= 1.0 + BUDGET
        assert solution.slowdown_ratio <= 1.0 + BUDGET - solution.guard_band_ratio + 1e-9
    assert max(changes) > 0


def test_the_plan_stands_on_fresh_cells_and_on_its_own_changes() -> None:
    result = kept(STALL, 1)
    table = plan_table(result.sweep, TRUTH.workload(), Granularity.KERNEL, STALL)
    change_count, stalled_s, _ = table.change_totals(result.solution.choice)

    assert (18,) == result.solution.choice.shape
    assert table.totals(result.solution.choice) == (
        result.solution.time_s,
        result.solution.energy_j,
    )
    assert pytest.approx(change_count * 50e-6) == stalled_s
    assert result.guard_band_ratio > 0.0


def test_a_table_alone_is_guarded_with_its_changes() -> None:
    sweep = noisy_sweep(TRUTH, NOISE, seed=5)
    request = PlanRequest(max_slowdown_ratio=BUDGET, transition=STALL)
    free = plan_with_guard(sweep, TRUTH.workload(), replace(request, transition=None))
    paid = plan_with_guard(sweep, TRUTH.workload(), request)
    dear = replace(request, transition=uniform_transition("dear", "a test", stall_s=1.0))
    single = plan_with_guard(sweep, TRUTH.workload(), dear)

    assert paid.solution.slowdown_ratio <= 1.0 + BUDGET - paid.solution.guard_band_ratio + 1e-9
    assert free.solution.saving_ratio > paid.solution.saving_ratio
    assert 1 == len(set(single.solution.choice.tolist()))


def test_launches_of_one_kernel_are_counted_at_each_of_their_points() -> None:
    table = plan_table(TRUTH.exact_sweep(), TRUTH.workload(), Granularity.KERNEL, STALL)
    counts = launch_counts(table, TRUTH.kernels)
    choice = np.zeros(18, dtype=np.int64)
    choice[6:12] = 3

    cells = launched_cells(table, choice, counts)

    assert {(2.0, 1.0)} == {(row[0], row[3]) for row in cells.tolist()}
    assert 18.0 == cells.sum()


def test_the_guard_of_a_strict_budget_counts_the_changes() -> None:
    table = plan_table(TRUTH.exact_sweep(), TRUTH.workload(), Granularity.KERNEL, STALL)
    counts = launch_counts(table, TRUTH.kernels)
    errors = time_errors(
        TRUTH.time_s,
        np.full(TRUTH.time_s.shape, 0.002),
        np.zeros(len(TRUTH.points)),
        np.ones(TRUTH.time_s.shape, dtype=np.bool_),
    )
    request = PlanRequest(max_slowdown_ratio=BUDGET, transition=STALL)

    solution = solve_guarded(table, request, counts, errors)

    assert 0.0 < solution.guard_band_ratio
    assert solution.slowdown_ratio <= 1.0 + BUDGET - solution.guard_band_ratio + 1e-9
