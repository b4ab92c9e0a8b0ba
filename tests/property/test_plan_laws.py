"""Laws of the planner, against brute force and on random tables."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulewise.domain.errors import InfeasibleBudget
from joulewise.domain.plan import FrontierPoint, Granularity, Objective, PlanRequest, Scope, Status
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.plan.frontier import frontier
from joulewise.plan.knapsack import cheapest_within
from joulewise.plan.options import options_of, relaxation_of
from joulewise.plan.solve import Solution, solve
from joulewise.plan.statics import best_pass_level, best_static
from joulewise.plan.table import PlanTable, plan_table

EXPONENTS = {Objective.ENERGY: 0, Objective.MIN_ENERGY: 0, Objective.EDP: 1, Objective.ED2P: 2}
SOURCE = SweepSource(device="test", device_name="test", tool="test")

budgets = st.none() | st.floats(min_value=-0.4, max_value=0.8)
objectives = st.sampled_from(Objective)
scopes = st.sampled_from(Scope)
granularities = st.sampled_from(Granularity)
# Whole numbers make ties and exactly met budgets; fractions make neither.
whole = st.integers(min_value=1, max_value=9).map(float)
fractions = st.floats(min_value=0.1, max_value=10.0)


@st.composite
def cells(draw: st.DrawFn, kernel_count: int, point_count: int) -> NDArray[np.float64]:
    """A (K, P) table of positive numbers."""
    number = draw(st.sampled_from([whole, fractions]))
    rows = st.lists(number, min_size=point_count, max_size=point_count)
    return np.array(draw(st.lists(rows, min_size=kernel_count, max_size=kernel_count)))


@st.composite
def sweeps(draw: st.DrawFn, max_kernels: int = 4, max_points: int = 5) -> Sweep:
    """A small sweep, some of its cells absent, never one of the baseline's."""
    kernel_count = draw(st.integers(1, max_kernels))
    point_count = draw(st.integers(1, max_points))
    is_present = np.array(
        [
            [True] + [draw(st.integers(0, 9)) > 0 for _ in range(point_count - 1)]
            for _ in range(kernel_count)
        ]
    )
    return Sweep(
        kernels=tuple(f"k{i}" for i in range(kernel_count)),
        points=(AUTO, *(OperatingPoint(sm_clock_mhz=100 * p) for p in range(1, point_count))),
        baseline=AUTO,
        source=SOURCE,
        is_present=is_present,
        time_s=np.where(is_present, draw(cells(kernel_count, point_count)), np.inf),
        energy_j=np.where(is_present, draw(cells(kernel_count, point_count)), np.inf),
    )


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Sweep, Workload]:
    """A sweep and an iteration of its kernels, in any order, passes and number."""
    sweep = draw(sweeps())
    launch = st.builds(Launch, kernel=st.sampled_from(sweep.kernels), pass_=st.sampled_from(Pass))
    launches = tuple(draw(st.lists(launch, min_size=1, max_size=7)))
    return sweep, Workload(name="w", launches=launches)


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


def random_table(seed: int, class_count: int, point_count: int) -> PlanTable:
    """Rooflines over a voltage curve, with noise; the last point is the baseline."""
    rng = np.random.default_rng(seed)
    clock = np.linspace(0.1, 1.0, point_count)
    compute, traffic = rng.lognormal(0.0, 1.0, (2, class_count, 1))
    work = 10.0 ** rng.uniform(-4.0, -1.0, (class_count, 1))
    time_s = work * ((compute / clock) ** 4 + traffic**4) ** 0.25
    voltage = np.maximum(0.7, 0.5 + 0.5 * clock)
    power_w = 90.0 + 250.0 * voltage**2 * clock
    noise = 1.0 + 0.01 * rng.standard_normal((2, class_count, point_count))
    launches = tuple(
        Launch(kernel=f"k{i}", pass_=Pass.FORWARD if i % 2 else Pass.BACKWARD)
        for i in range(class_count)
    )
    return PlanTable(
        class_names=tuple(launch.kernel for launch in launches),
        points=tuple(OperatingPoint(sm_clock_mhz=p + 1) for p in range(point_count)),
        baseline_index=point_count - 1,
        time_s=time_s * noise[0],
        energy_j=power_w * time_s * noise[1],
        launch_classes=np.arange(class_count),
        launches=launches,
    )


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
@given(st.integers(0, 10**6), objectives, scopes, st.floats(1e-6, 1e6), st.floats(0.0, 0.3))
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
@given(st.integers(0, 10**6), scopes, st.lists(st.floats(-0.1, 0.6), min_size=2, max_size=6))
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
@given(
    jobs(), objectives, scopes, granularities, st.none() | st.floats(0.0, 0.5), st.floats(0, 0.1)
)
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
@given(jobs(), st.floats(-0.3, 0.5))
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
@given(jobs(), st.floats(-0.3, 0.5))
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


@settings(max_examples=150, deadline=None)
@given(jobs(), granularities, st.floats(-0.3, 0.8))
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
@given(jobs(), granularities, st.floats(0.0, 0.8))
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
