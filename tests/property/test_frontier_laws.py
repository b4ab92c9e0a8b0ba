"""Laws of the frontier, against the planner itself and on random tables."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.plan_tables import granularities, jobs, random_table, ratios, scopes, sweeps

from joulewise.domain.errors import InfeasibleBudget
from joulewise.domain.plan import FrontierPoint, Granularity, PlanRequest, Scope
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import Launch, Workload
from joulewise.plan.frontier import frontier
from joulewise.plan.options import options_of, relaxation_of
from joulewise.plan.solve import solve
from joulewise.plan.table import plan_table


@settings(max_examples=150, deadline=None)
@given(jobs(), granularities, ratios(-0.3, 0.8))
def test_a_small_frontier_is_exactly_what_solving_for_every_budget_finds(
    job: tuple[Sweep, Workload], granularity: Granularity, budget: float
) -> None:
    table = plan_table(*job, granularity)
    points = frontier(table)
    _assert_falling(points)
    for ratio in [1.0 + budget, *(_own_budget(point.slowdown_ratio) + 1.0 for point in points)]:
        request = PlanRequest(max_slowdown_ratio=ratio - 1.0)
        within = [point for point in points if point.slowdown_ratio <= ratio]
        if not within:
            with pytest.raises(InfeasibleBudget):
                solve(table, request)
        else:
            expected_j = within[-1].energy_j
            assert solve(table, request).energy_j == pytest.approx(expected_j, rel=1e-9)


@settings(max_examples=150, deadline=None)
@given(jobs(), granularities, ratios(0.0, 0.8))
def test_the_local_frontier_holds_what_solving_locally_finds(
    job: tuple[Sweep, Workload], granularity: Granularity, budget: float
) -> None:
    table = plan_table(*job, granularity)
    points = frontier(table, scope=Scope.LOCAL)
    _assert_falling(points)
    solution = solve(table, PlanRequest(scope=Scope.LOCAL, max_slowdown_ratio=budget))
    assert any(
        point.energy_j == pytest.approx(solution.energy_j, rel=1e-9)
        and point.time_s <= solution.time_s * (1 + 1e-9)
        for point in points
    )


def _own_budget(slowdown_ratio: float) -> float:
    return slowdown_ratio * (1 + 1e-11) - 1.0


def _assert_falling(points: tuple[FrontierPoint, ...]) -> None:
    times = [point.time_s for point in points]
    energies = [point.energy_j for point in points]
    assert all(b > a for a, b in pairwise(times))
    assert all(b < a for a, b in pairwise(energies))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), scopes, st.integers(10, 60), st.integers(5, 66))
def test_a_large_frontier_falls_and_is_reachable(
    seed: int, scope: Scope, class_count: int, point_count: int
) -> None:
    table = random_table(seed, class_count, point_count)
    points = frontier(table, scope=scope)
    _assert_falling(points)
    fastest = table.time_s.min(axis=1)
    assert points[-1].energy_j == pytest.approx(table.energy_j.min(axis=1).sum(), rel=1e-9)
    if scope is Scope.GLOBAL:
        assert points[0].time_s == pytest.approx(fastest.sum(), rel=1e-9)
    for point in points[:: max(1, len(points) // 5)]:
        request = PlanRequest(max_slowdown_ratio=_own_budget(point.slowdown_ratio))
        solution = solve(table, request)
        assert solution.energy_j <= point.energy_j * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_every_corner_of_the_hull_is_on_the_frontier(seed: int) -> None:
    table = random_table(seed, 30, 40)
    points = frontier(table, max_point_count=None)
    relaxation = relaxation_of(options_of(table.time_s, table.energy_j))
    times = np.array([point.time_s for point in points])
    energies = np.array([point.energy_j for point in points])
    for time_s, energy_j in zip(relaxation.time_s, relaxation.energy_j, strict=True):
        nearest = int(np.abs(times - time_s).argmin())
        assert times[nearest] == pytest.approx(time_s, rel=1e-9)
        assert energies[nearest] == pytest.approx(energy_j, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 200))
def test_a_thinned_frontier_keeps_its_ends_and_falls(seed: int, count: int) -> None:
    table = random_table(seed, 20, 30)
    whole = frontier(table, max_point_count=None)
    points = frontier(table, max_point_count=count)
    _assert_falling(points)
    assert len(points) <= count
    assert set(points) <= set(whole)
    assert points[-1] == whole[-1]
    assert points[0] == whole[0]


@settings(max_examples=60, deadline=None)
@given(sweeps())
def test_one_class_gives_exactly_its_undominated_points(sweep: Sweep) -> None:
    workload = Workload(name="w", launches=(Launch(kernel="k0"),))
    table = plan_table(sweep, workload, Granularity.KERNEL)
    cells_of = sorted(
        {
            (float(t), float(e))
            for t, e in zip(table.time_s[0], table.energy_j[0], strict=True)
            if np.isfinite(t)
        }
    )
    expected = [
        (t, e)
        for t, e in cells_of
        if not any(u <= t and f <= e and (u, f) != (t, e) for u, f in cells_of)
    ]
    assume(len(expected) == len({t for t, _ in expected}))
    found = [(point.time_s, point.energy_j) for point in frontier(table)]
    assert found == expected
