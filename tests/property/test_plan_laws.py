"""Laws of the planner, against brute force and on random tables."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan_tables import granularities, jobs, random_table, ratios, scopes

from joulewise.domain.errors import InfeasibleBudget
from joulewise.domain.plan import Granularity, Objective, PlanRequest, Scope, Status
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import Workload
from joulewise.plan.knapsack import cheapest_within
from joulewise.plan.options import options_of
from joulewise.plan.solve import Solution, solve
from joulewise.plan.statics import best_pass_level, best_static
from joulewise.plan.table import PlanTable, plan_table

EXPONENTS = {Objective.ENERGY: 0, Objective.MIN_ENERGY: 0, Objective.EDP: 1, Objective.ED2P: 2}

budgets = st.none() | ratios(-0.4, 0.8)
objectives = st.sampled_from(Objective)


def brute_force(
    sweep: Sweep, workload: Workload, request: PlanRequest
) -> tuple[float, float, float] | None:
    """Least objective, its time and its energy over all choices of points."""
    groups: dict[str, list[int]] = {}
    for launch in workload.launches:
        name = {
            Granularity.KERNEL: launch.kernel,
            Granularity.PASS: launch.pass_.value,
            Granularity.ITERATION: "all",
        }[request.granularity]
        groups.setdefault(name, []).append(sweep.kernels.index(launch.kernel))
    rows = list(groups.values())
    best: tuple[float, float, float] | None = None
    for columns in product(range(len(sweep.points)), repeat=len(rows)):
        parts = [
            (
                sweep.time_s[group, c].sum(),
                sweep.energy_j[group, c].sum(),
                sweep.time_s[group, 0].sum(),
            )
            for group, c in zip(rows, columns, strict=True)
        ]
        value = _value(parts, request)
        if value is not None and (best is None or value < best):
            best = value
    return best


def _value(
    parts: list[tuple[float, float, float]], request: PlanRequest
) -> tuple[float, float, float] | None:
    exponent = EXPONENTS[request.objective]
    limit = np.inf if request.max_slowdown_ratio is None else 1.0 + request.max_slowdown_ratio
    time_s = sum(part[0] for part in parts)
    energy_j = sum(part[1] for part in parts)
    baseline_s = sum(part[2] for part in parts)
    if not np.isfinite(time_s):
        return None
    if request.scope is Scope.GLOBAL:
        if time_s > limit * baseline_s * (1 + 1e-12):
            return None
        return time_s**exponent * energy_j, time_s, energy_j
    if any(part[0] > limit * part[2] * (1 + 1e-12) for part in parts):
        return None
    return sum(part[0] ** exponent * part[1] for part in parts), time_s, energy_j


def own_value(table: PlanTable, solution: Solution) -> float:
    """The objective as brute force counts it: of totals (global), or summed by class (local)."""
    exponent = EXPONENTS[solution.request.objective]
    if solution.request.scope is Scope.GLOBAL:
        return solution.time_s**exponent * solution.energy_j
    rows = np.arange(len(table.class_names))
    times, energies = table.time_s[rows, solution.choice], table.energy_j[rows, solution.choice]
    return float((times**exponent * energies).sum())


@settings(max_examples=250, deadline=None)
@given(jobs(), objectives, scopes, granularities, budgets)
def test_a_solution_is_as_good_as_brute_force(
    job: tuple[Sweep, Workload],
    objective: Objective,
    scope: Scope,
    granularity: Granularity,
    budget: float | None,
) -> None:
    sweep, workload = job
    request = PlanRequest(
        objective=objective, scope=scope, granularity=granularity, max_slowdown_ratio=budget
    )
    table = plan_table(sweep, workload, granularity)
    expected = brute_force(sweep, workload, request)
    if expected is None:
        with pytest.raises(InfeasibleBudget):
            solve(table, request)
        return
    solution = solve(table, request)
    if solution.status is Status.NO_GAIN:
        # Local products may multiply to more than the baseline's; then the baseline stays.
        exponent = EXPONENTS[objective]
        baseline = table.baseline_time_s**exponent * table.baseline_energy_j
        assert expected[1] ** exponent * expected[2] >= baseline * (1 - 1e-9)
        return
    assert solution.status is Status.OPTIMAL
    assert own_value(table, solution) == pytest.approx(expected[0], rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(2, 6), budgets)
def test_a_larger_table_is_solved_as_well_as_by_listing_all_undominated_sums(
    seed: int, class_count: int, point_count: int, budget: float | None
) -> None:
    table = random_table(seed, class_count, point_count)
    ratio = np.inf if budget is None else 1.0 + budget
    budget_s = ratio * table.baseline_time_s * (1.0 + 1e-12)
    options = options_of(table.time_s, table.energy_j)
    answer = cheapest_within(options, budget_s)
    expected = _every_sum(table, budget_s)
    if expected is None:
        assert answer is None
    else:
        assert answer is not None
        assert answer.energy_j == pytest.approx(expected, rel=1e-9)
        assert answer.bound_j <= answer.energy_j


def _every_sum(table: PlanTable, budget_s: float) -> float | None:
    """Least energy over all sums, dominated ones dropped: slow and plain."""
    plans = [(0.0, 0.0)]
    for times, energies in zip(table.time_s, table.energy_j, strict=True):
        sums = sorted(
            (t + dt, e + de)
            for t, e in plans
            for dt, de in zip(times.tolist(), energies.tolist(), strict=True)
        )
        plans = []
        for time_s, energy_j in sums:
            if time_s <= budget_s and (not plans or energy_j < plans[-1][1]):
                plans.append((time_s, energy_j))
    return plans[-1][1] if plans else None


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), objectives, scopes, st.floats(1e-6, 1e6), ratios(0.0, 0.3))
def test_scaling_all_energies_changes_no_plan(
    seed: int, objective: Objective, scope: Scope, scale: float, budget: float
) -> None:
    table = random_table(seed, 20, 30)
    scaled = PlanTable(
        class_names=table.class_names,
        points=table.points,
        baseline_index=table.baseline_index,
        time_s=table.time_s,
        energy_j=table.energy_j * scale,
        launch_classes=table.launch_classes,
        launches=table.launches,
    )
    request = PlanRequest(objective=objective, scope=scope, max_slowdown_ratio=budget)
    plain, other = solve(table, request), solve(scaled, request)
    assert other.choice.tolist() == plain.choice.tolist()
    assert other.status is plain.status


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), scopes, st.lists(ratios(-0.1, 0.6), min_size=2, max_size=6))
def test_relaxing_the_budget_never_costs_energy(
    seed: int, scope: Scope, budget_list: list[float]
) -> None:
    table = random_table(seed, 16, 20)
    least_j = np.inf
    for budget in sorted(budget_list):
        try:
            solution = solve(table, PlanRequest(scope=scope, max_slowdown_ratio=budget))
        except InfeasibleBudget:
            assert least_j == np.inf
            continue
        assert solution.energy_j <= least_j * (1 + 1e-9)
        least_j = solution.energy_j


@settings(max_examples=100, deadline=None)
@given(jobs(), objectives, scopes, granularities, st.none() | ratios(0.0, 0.5), ratios(0.0, 0.1))
def test_no_plan_is_worse_than_the_baseline_in_its_own_table(
    job: tuple[Sweep, Workload],
    objective: Objective,
    scope: Scope,
    granularity: Granularity,
    budget: float | None,
    guard: float,
) -> None:
    table = plan_table(*job, granularity)
    request = PlanRequest(objective=objective, scope=scope, max_slowdown_ratio=budget)
    solution = solve(table, request, guard_band_ratio=guard)
    baseline_s, baseline_j = table.baseline_time_s, table.baseline_energy_j
    assert solution.objective_value <= baseline_s ** EXPONENTS[objective] * baseline_j
    if solution.status is Status.NO_GAIN:
        assert set(solution.choice.tolist()) == {table.baseline_index}
    elif budget is not None:
        assert solution.time_s <= (1 + budget - guard) * baseline_s * (1 + 1e-12) or (
            scope is Scope.LOCAL
        )
        assert solution.time_s <= (1 + budget) * baseline_s * (1 + 1e-12)


@settings(max_examples=100, deadline=None)
@given(jobs(), ratios(-0.3, 0.5))
def test_a_kernel_plan_is_never_worse_than_the_best_static_point_or_passes(
    job: tuple[Sweep, Workload], budget: float
) -> None:
    table = plan_table(*job, Granularity.KERNEL)
    request = PlanRequest(max_slowdown_ratio=budget)
    try:
        energy_j = solve(table, request).energy_j
    except InfeasibleBudget:
        assert best_static(table, budget) is None
        return
    static = best_static(table, budget)
    if static is not None:
        assert energy_j <= static.energy_j * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(jobs(), ratios(-0.3, 0.5))
def test_statics_from_a_kernel_table_equal_those_from_the_sweep(
    job: tuple[Sweep, Workload], budget: float
) -> None:
    table = plan_table(*job, Granularity.KERNEL)
    for coarse, granularity in (
        (best_static(table, budget), Granularity.ITERATION),
        (best_pass_level(table, budget), Granularity.PASS),
    ):
        own = plan_table(*job, granularity)
        if coarse is None:
            with pytest.raises(InfeasibleBudget):
                solve(own, PlanRequest(max_slowdown_ratio=budget))
        else:
            solution = solve(own, PlanRequest(max_slowdown_ratio=budget))
            assert coarse.energy_j == pytest.approx(solution.energy_j, rel=1e-9)
            assert coarse.class_names == own.class_names
