"""Plan tables in which changes count: what `solve`, `frontier` and the static peers make of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from tests.chains import every_plan
from tests.plan_tables import SOURCE

from joulewise.domain.errors import InfeasibleBudget, PlanError
from joulewise.domain.plan import Granularity, Objective, PlanRequest, Scope, Status
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.solve import LeastTime, is_small
from joulewise.plan.changes import change_costs
from joulewise.plan.frontier import frontier
from joulewise.plan.infeasible import too_slow
from joulewise.plan.solve import solve
from joulewise.plan.statics import best_pass_level, best_static
from joulewise.plan.table import PlanTable, plan_table

POINTS = (
    AUTO,
    OperatingPoint(sm_clock_mhz=900),
    OperatingPoint(mem_clock_mhz=5001),
    OperatingPoint(sm_clock_mhz=900, mem_clock_mhz=5001),
)
# A kernel that waits for memory, one that computes, and one of which both are true.
TIMES = np.array([[1.0, 1.01, 1.9, 1.95], [1.0, 1.7, 1.0, 1.72], [1.0, 1.2, 1.3, 1.4]])
ENERGIES = np.array([[10.0, 7.0, 12.0, 9.0], [10.0, 11.0, 8.0, 8.5], [10.0, 9.0, 9.5, 8.0]])
KERNELS = ("memory", "compute", "mixed")
SWEEP = Sweep(
    kernels=KERNELS,
    points=POINTS,
    baseline=AUTO,
    source=SOURCE,
    is_present=np.ones(TIMES.shape, dtype=np.bool_),
    time_s=TIMES,
    energy_j=ENERGIES,
)
ORDER = ("memory", "memory", "compute", "mixed", "compute", "memory")
WORKLOAD = Workload(
    name="six launches",
    launches=tuple(
        Launch(kernel=kernel, pass_=Pass.FORWARD if i < 3 else Pass.BACKWARD)
        for i, kernel in enumerate(ORDER)
    ),
)


def stalling(stall_s: float) -> TransitionModel:
    return uniform_transition("drawn", "a test", stall_s=stall_s, energy_j=2.0 * stall_s)


def table_of(model: TransitionModel, granularity: Granularity = Granularity.KERNEL) -> PlanTable:
    return plan_table(SWEEP, WORKLOAD, granularity, model)


def every_total(table: PlanTable) -> list[tuple[float, float]]:
    """Time and energy of every plan of the table, changes included."""
    assert table.changes is not None
    plans = every_plan(Chain(time_s=table.time_s, energy_j=table.energy_j, changes=table.changes))
    return list(zip(plans.time_s.tolist(), plans.energy_j.tolist(), strict=True))


def least_energy_j(table: PlanTable, max_slowdown_ratio: float) -> float:
    limit_s = (1.0 + max_slowdown_ratio) * table.baseline_time_s * (1.0 + 1e-12)
    return min(energy_j for time_s, energy_j in every_total(table) if time_s <= limit_s)


@pytest.mark.parametrize("stall_s", [0.0, 0.01, 0.1, 0.4, 3.0])
@pytest.mark.parametrize("max_slowdown_ratio", [0.0, 0.05, 0.3])
def test_changes_are_within_the_budget_and_in_the_energy(
    stall_s: float, max_slowdown_ratio: float
) -> None:
    table = table_of(stalling(stall_s))
    solution = solve(table, PlanRequest(max_slowdown_ratio=max_slowdown_ratio))
    assert solution.energy_j == pytest.approx(least_energy_j(table, max_slowdown_ratio), rel=1e-9)
    assert solution.slowdown_ratio <= 1.0 + max_slowdown_ratio + 1e-9
    assert (solution.time_s, solution.energy_j) == table.totals(solution.choice)
    assert solution.status in {Status.OPTIMAL, Status.NO_GAIN}


@pytest.mark.parametrize("objective", [Objective.EDP, Objective.ED2P])
@pytest.mark.parametrize("stall_s", [0.01, 0.1, 0.4])
def test_products_count_changes_too(objective: Objective, stall_s: float) -> None:
    table = table_of(stalling(stall_s))
    exponent = 1 if objective is Objective.EDP else 2
    expected = min(time_s**exponent * energy_j for time_s, energy_j in every_total(table))
    solution = solve(table, PlanRequest(objective=objective, max_slowdown_ratio=None))
    assert solution.objective_value == pytest.approx(expected, rel=1e-9)
    assert solution.bound_gap_ratio == pytest.approx(0.0, abs=1e-9)


def test_with_a_local_scope_every_launch_keeps_the_budget_and_so_does_the_total() -> None:
    table = table_of(stalling(0.005))
    solution = solve(table, PlanRequest(scope=Scope.LOCAL, max_slowdown_ratio=0.02))
    rows = np.arange(len(table.class_names))
    launch_ratios = table.time_s[rows, solution.choice] / table.time_s[:, 0]
    assert (launch_ratios <= 1.02 + 1e-9).all()
    assert solution.slowdown_ratio <= 1.02 + 1e-9
    expected = min(
        table.totals(np.array(choice))[1]
        for choice in product(range(4), repeat=6)
        if (table.time_s[rows, list(choice)] <= 1.02 * table.time_s[:, 0] + 1e-9).all()
        and table.totals(np.array(choice))[0] <= 1.02 * table.baseline_time_s + 1e-9
    )
    assert solution.energy_j == pytest.approx(expected, rel=1e-9)


def test_an_impossible_budget_says_the_least_slowdown_with_changes() -> None:
    table = table_of(stalling(0.1))
    slow = replace(table, baseline_index=3)
    least_ratio = min(time_s for time_s, _ in every_total(table)) / slow.baseline_time_s
    with pytest.raises(InfeasibleBudget) as caught:
        solve(slow, PlanRequest(max_slowdown_ratio=least_ratio - 1.01))
    assert caught.value.least_slowdown_ratio == pytest.approx(least_ratio, rel=1e-9)


def test_where_nothing_is_gained_the_baseline_stays() -> None:
    table = table_of(stalling(5.0))
    solution = solve(table, PlanRequest(max_slowdown_ratio=0.0))
    assert solution.status is Status.NO_GAIN
    assert solution.choice.tolist() == [0] * 6


@pytest.mark.parametrize("region_count", [1, 2, 3, 4])
def test_regions_are_no_more_than_asked_for(region_count: int) -> None:
    table = plan_table(SWEEP, WORKLOAD, Granularity.REGION)
    request = PlanRequest(
        granularity=Granularity.REGION, max_slowdown_ratio=0.3, max_region_count=region_count
    )
    solution = solve(table, request)
    change_count, _, _ = table.change_totals(solution.choice)
    assert max(change_count, 1) <= region_count
    limit_s = 1.3 * table.baseline_time_s
    expected = min(
        table.totals(np.array(choice))[1]
        for choice in product(range(4), repeat=6)
        if max(table.change_totals(np.array(choice))[0], 1) <= region_count
        and table.totals(np.array(choice))[0] <= limit_s
    )
    assert solution.energy_j == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("max_slowdown_ratio", [0.0, 0.003, 0.05, 0.1, 0.3])
@pytest.mark.parametrize("is_each_once", [True, False])
def test_free_changes_are_never_worse_than_the_plan_per_kernel(
    max_slowdown_ratio: float, *, is_each_once: bool
) -> None:
    workload = None if is_each_once else WORKLOAD
    request = PlanRequest(max_slowdown_ratio=max_slowdown_ratio)
    kernels = solve(plan_table(SWEEP, workload, Granularity.KERNEL), request)
    launches = solve(plan_table(SWEEP, workload, Granularity.KERNEL, stalling(0.0)), request)
    if is_each_once:
        assert launches.energy_j == pytest.approx(kernels.energy_j, rel=1e-12)
    assert launches.energy_j <= kernels.energy_j * (1.0 + 1e-12)


def test_launches_of_a_kernel_may_differ_where_changes_are_free() -> None:
    # Enough for one launch at +1 %, not for all three of its kernel.
    request = PlanRequest(max_slowdown_ratio=0.003)
    kernels = solve(plan_table(SWEEP, WORKLOAD, Granularity.KERNEL), request)
    launches = solve(table_of(stalling(0.0)), request)
    assert launches.energy_j < kernels.energy_j * (1.0 - 1e-3)


def test_no_region_at_all_is_refused() -> None:
    with pytest.raises(PlanError, match="at least one region, got a bound of 0"):
        solve(table_of(stalling(0.1)), PlanRequest(max_region_count=0))


def test_a_bound_on_regions_is_refused_where_kernels_share_points() -> None:
    table = plan_table(SWEEP, WORKLOAD, Granularity.KERNEL)
    with pytest.raises(PlanError, match="not at kernel granularity"):
        solve(table, PlanRequest(max_region_count=3))


@pytest.mark.parametrize("granularity", [Granularity.PASS, Granularity.ITERATION])
def test_coarser_plans_are_proven_best(granularity: Granularity) -> None:
    table = table_of(stalling(0.05), granularity)
    solution = solve(table, PlanRequest(granularity=granularity, max_slowdown_ratio=0.2))
    assert solution.energy_j == pytest.approx(least_energy_j(table, 0.2), rel=1e-9)
    assert solution.bound_gap_ratio == pytest.approx(0.0, abs=1e-9)


def test_static_peers_stand_under_the_same_changes() -> None:
    table = table_of(stalling(0.05))
    single, passes = best_static(table, 0.2), best_pass_level(table, 0.2)
    assert single is not None
    assert passes is not None
    assert single.launch_classes == (0,) * 6
    assert passes.launch_classes == (0, 0, 0, 1, 1, 1)
    coarse = table_of(stalling(0.05), Granularity.PASS)
    assert passes.energy_j == pytest.approx(least_energy_j(coarse, 0.2), rel=1e-9)
    columns = [POINTS.index(passes.points[i]) for i in passes.launch_classes]
    assert (passes.time_s, passes.energy_j) == pytest.approx(table.totals(np.array(columns)))


@pytest.mark.parametrize("scope", list(Scope))
def test_a_frontier_with_changes_holds_plans_none_of_which_beats_another(scope: Scope) -> None:
    table = table_of(stalling(0.05))
    points = frontier(table, scope=scope)
    assert all(
        one.time_s < other.time_s and one.energy_j > other.energy_j
        for one, other in pairwise(points)
    )
    totals = every_total(table)
    for point in points:
        assert any(
            (point.time_s, point.energy_j) == pytest.approx(total, rel=1e-9) for total in totals
        )


def test_a_frontier_with_changes_reaches_both_ends_and_every_supported_plan() -> None:
    table = table_of(stalling(0.05))
    points = frontier(table)
    totals = every_total(table)
    assert points[0].time_s == pytest.approx(min(time_s for time_s, _ in totals))
    assert points[-1].energy_j == pytest.approx(min(energy_j for _, energy_j in totals))
    for price_w in np.geomspace(0.5, 50.0, 25).tolist():
        expected = min(energy_j + price_w * time_s for time_s, energy_j in totals)
        found = min(point.energy_j + price_w * point.time_s for point in points)
        assert found == pytest.approx(expected, rel=1e-9)


def test_a_frontier_of_few_regions_has_no_plan_of_more() -> None:
    table = table_of(stalling(0.0))
    points = frontier(table, max_region_count=2)
    allowed = [
        table.totals(np.array(choice))
        for choice in product(range(4), repeat=6)
        if table.change_totals(np.array(choice))[0] <= 2
    ]
    for point in points:
        assert any(
            (point.time_s, point.energy_j) == pytest.approx(total, rel=1e-9) for total in allowed
        )


APART = "with changes as far apart as the transition model asks"
# One launch is fast at one point only, the next at the other.
CROSSED = PlanTable(
    class_names=("a", "b") * 2,
    points=POINTS[:3],
    baseline_index=0,
    time_s=np.array([[1.0, 0.8, 1.2], [1.0, 1.3, 0.8]] * 2),
    energy_j=np.array([[100.0, 90.0, 80.0], [100.0, 80.0, 70.0]] * 2),
    launch_classes=np.arange(4),
    launches=tuple(Launch(kernel=kernel) for kernel in ("a", "b") * 2),
)


@pytest.mark.parametrize(
    ("model", "region_count", "words"),
    [
        (stalling(0.01), 1, "no plan of one region keeps every launch's budget"),
        (stalling(0.01), 2, "no plan of at most 2 regions keeps every launch's budget"),
        (
            uniform_transition("late", "a test", lag_s=100.0),
            None,
            f"no plan {APART} keeps every launch's budget",
        ),
        (
            uniform_transition("late", "a test", lag_s=100.0),
            2,
            f"no plan of at most 2 regions {APART} keeps every launch's budget",
        ),
    ],
)
def test_where_launches_exclude_one_another_no_percentage_is_made_up(
    model: TransitionModel, region_count: int | None, words: str
) -> None:
    table = replace(CROSSED, changes=change_costs(CROSSED.points, model))
    for objective in (Objective.ENERGY, Objective.EDP):
        request = PlanRequest(
            objective=objective,
            scope=Scope.LOCAL,
            max_slowdown_ratio=-0.1,
            max_region_count=region_count,
        )
        with pytest.raises(InfeasibleBudget) as caught:
            solve(table, request)
        assert caught.value.message == words
        assert caught.value.least_slowdown_ratio is None


def test_a_least_time_that_is_not_proven_is_told_with_its_bound() -> None:
    changes = change_costs(CROSSED.points, stalling(0.01))
    chain = Chain(time_s=CROSSED.time_s, energy_j=CROSSED.energy_j, changes=changes)
    request = PlanRequest(max_slowdown_ratio=-0.2)

    error = too_slow(chain, LeastTime(found_s=3.6, bound_s=3.4), 4.0, request, 0.0)
    sure = too_slow(chain, LeastTime(found_s=3.6, bound_s=3.6), 4.0, request, 0.0)
    none = too_slow(chain, LeastTime(found_s=np.inf, bound_s=3.4), 4.0, request, 0.0)

    assert error.message == (
        "no plan was found that is faster than 90.00 % of the baseline's time; "
        "none is faster than 85.00 %"
    )
    assert error.least_slowdown_ratio == pytest.approx(0.85)
    assert error.hint == sure.hint
    assert sure.message == "no plan is faster than 90.00 % of the baseline's time"
    assert none.least_slowdown_ratio == pytest.approx(0.85)


@pytest.mark.parametrize(
    ("node_count", "point_count", "is_expected"), [(8, 128, True), (6, 762, False), (9, 4, False)]
)
def test_chains_are_small_by_nodes_and_points(
    node_count: int, point_count: int, *, is_expected: bool
) -> None:
    points = tuple(OperatingPoint(sm_clock_mhz=100 + i) for i in range(point_count))
    cells = np.ones((node_count, point_count))
    changes = change_costs(points, stalling(0.01))
    assert is_small(Chain(time_s=cells, energy_j=cells, changes=changes)) is is_expected
