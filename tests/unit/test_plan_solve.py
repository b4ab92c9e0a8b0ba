"""What solving says: statuses, budgets, guard bands, infeasible wishes."""

from __future__ import annotations

import numpy as np
import pytest

from joulewise.domain.errors import InfeasibleBudget, PlanError
from joulewise.domain.plan import Objective, PlanRequest, Scope, Status
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.workload import Launch
from joulewise.plan.knapsack import cheapest_within
from joulewise.plan.options import options_of
from joulewise.plan.solve import solve
from joulewise.plan.statics import best_pass_level, best_static
from joulewise.plan.table import PlanTable


def table(times: list[list[float]], energies: list[list[float]]) -> PlanTable:
    """One class per row; the first column is the baseline."""
    names = tuple("abcdefgh"[: len(times)])
    points = tuple(OperatingPoint(sm_clock_mhz=100 * p) for p in range(1, len(times[0])))
    return PlanTable(
        class_names=names,
        points=(AUTO, *points),
        baseline_index=0,
        time_s=np.array(times),
        energy_j=np.array(energies),
        launch_classes=np.arange(len(names)),
        launches=tuple(Launch(kernel=name) for name in names),
    )


# The paper's toy example (section 6): A offers {-2 % time, -20 % energy | -3 %, -15 %}, B offers
# {+1 % time, -35 % energy | 0, 0}; B is as long as A. Local plans cannot use B's first offer.
TOY = table(
    [[100.0, 98.0, 97.0], [100.0, 101.0, 100.0]], [[100.0, 80.0, 85.0], [100.0, 65.0, 100.0]]
)


def test_a_global_plan_spends_on_one_kernel_what_another_gains() -> None:
    solution = solve(TOY, PlanRequest())
    assert solution.choice.tolist() == [1, 1]
    assert solution.status is Status.OPTIMAL
    assert solution.slowdown_ratio == pytest.approx(0.995)
    assert solution.saving_ratio == pytest.approx(0.275)
    assert solution.bound_gap_ratio == 0.0


def test_a_local_plan_binds_every_kernel_alone() -> None:
    solution = solve(TOY, PlanRequest(scope=Scope.LOCAL))
    assert solution.choice.tolist() == [1, 0]
    assert solution.saving_ratio == pytest.approx(0.10)


def test_a_budget_met_exactly_is_kept() -> None:
    exact = table([[0.1] * 2, [0.2, 0.3]], [[1.0, 1.0], [2.0, 1.0]])
    solution = solve(exact, PlanRequest(max_slowdown_ratio=0.4 / 0.3 - 1.0))
    assert solution.choice.tolist()[1] == 1


def test_the_baseline_is_the_answer_where_nothing_saves() -> None:
    solution = solve(table([[1.0, 0.9]], [[5.0, 5.0]]), PlanRequest())
    assert solution.status is Status.NO_GAIN
    assert solution.choice.tolist() == [0]
    assert (solution.slowdown_ratio, solution.saving_ratio) == (1.0, 0.0)


def test_the_baseline_keeps_its_budget_whatever_is_held_back() -> None:
    solution = solve(TOY, PlanRequest(), guard_band_ratio=0.5)
    assert solution.status is Status.NO_GAIN
    assert solution.guard_band_ratio == 0.5


def test_the_guard_band_narrows_the_budget() -> None:
    solution = solve(TOY, PlanRequest(), guard_band_ratio=0.007)
    assert solution.choice.tolist() == [2, 1]
    assert solution.slowdown_ratio == pytest.approx(0.99)


def test_an_infeasible_budget_says_the_least_slowdown() -> None:
    with pytest.raises(InfeasibleBudget) as error:
        solve(TOY, PlanRequest(max_slowdown_ratio=-0.05))
    assert error.value.least_slowdown_ratio == pytest.approx(0.985)
    assert str(error.value) == "no plan is faster than 98.50 % of the baseline's time"
    assert error.value.hint == "Allow at least --max-slowdown -1.50%."


def test_the_hinted_budget_is_feasible() -> None:
    with pytest.raises(InfeasibleBudget) as error:
        solve(TOY, PlanRequest(max_slowdown_ratio=-0.05), guard_band_ratio=0.001)
    assert error.value.hint == "Allow at least --max-slowdown -1.40% (with 0.10% kept back)."
    assert solve(TOY, PlanRequest(max_slowdown_ratio=-0.014), guard_band_ratio=0.001).status


def test_an_infeasible_local_budget_names_the_kernel() -> None:
    with pytest.raises(InfeasibleBudget) as error:
        solve(TOY, PlanRequest(scope=Scope.LOCAL, max_slowdown_ratio=-0.01))
    assert error.value.least_slowdown_ratio == 1.0
    assert str(error.value) == "'b' runs no faster than 100.00 % of the baseline's time"


def test_no_budget_finds_the_least_energy_and_of_equals_the_fastest() -> None:
    free = table([[1.0, 3.0, 2.0, 9.0]], [[5.0, 2.0, 2.0, 4.0]])
    for objective in (Objective.ENERGY, Objective.MIN_ENERGY):
        solution = solve(free, PlanRequest(objective=objective, max_slowdown_ratio=None))
        assert solution.choice.tolist() == [2]


def test_products_are_those_of_totals() -> None:
    # Alone, class a would take 6 x 1 over 1 x 7; in the sum with b the faster point wins.
    both = table([[4.0, 1.0, 6.0], [10.0, 10.0, 10.0]], [[4.0, 7.0, 1.0], [1.0, 1.0, 1.0]])
    totals = {(c, 0): (both.time_s[0, c] + 10.0) * (both.energy_j[0, c] + 1.0) for c in range(3)}
    best = min(totals, key=lambda key: totals[key])
    solution = solve(both, PlanRequest(objective=Objective.EDP, max_slowdown_ratio=None))
    assert (int(solution.choice[0]), 0) == best
    assert solution.objective_value == pytest.approx(totals[best])


def test_a_product_keeps_a_budget_if_one_is_given() -> None:
    slow = table([[10.0, 12.0, 20.0]], [[10.0, 8.0, 2.0]])
    free = PlanRequest(objective=Objective.EDP, max_slowdown_ratio=None)
    bound = PlanRequest(objective=Objective.EDP, max_slowdown_ratio=0.3)
    assert solve(slow, free).choice.tolist() == [2]
    assert solve(slow, bound).choice.tolist() == [1]


def test_a_point_that_needs_no_energy_is_taken() -> None:
    free = table([[10.0, 12.0, 20.0], [1.0, 1.5, 9.0]], [[10.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    for objective in Objective:
        solution = solve(free, PlanRequest(objective=objective, max_slowdown_ratio=0.3))
        assert (solution.energy_j, solution.status) == (0.0, Status.OPTIMAL)


@pytest.mark.parametrize("budget", [float("nan"), float("inf")])
def test_a_budget_that_is_no_number_is_refused(budget: float) -> None:
    with pytest.raises(PlanError, match="budget must be a number"):
        solve(TOY, PlanRequest(max_slowdown_ratio=budget))


@pytest.mark.parametrize("guard", [-0.1, float("nan")])
def test_a_guard_band_that_is_no_number_is_refused(guard: float) -> None:
    with pytest.raises(PlanError, match="guard band"):
        solve(TOY, PlanRequest(), guard_band_ratio=guard)


def test_the_best_static_point_and_passes_are_those_within_the_slowdown() -> None:
    static = best_static(TOY, 0.0)
    assert static is not None
    assert (static.points, static.class_names) == ((TOY.points[1],), ("iteration",))
    assert static.saving_ratio == pytest.approx(0.275)
    assert best_static(TOY, -0.05) is None
    assert best_pass_level(TOY, 0.0) is not None


def subset_sum(class_count: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Every second costs one joule: the hardest tables, for bounds tell nothing apart."""
    rng = np.random.default_rng(1)
    times = rng.uniform(1.0, 1000.0, (class_count, 66))
    return (
        times,
        1100.0 - times,
        float(times.min(axis=1).sum() * 0.7 + times.max(axis=1).sum() * 0.3),
    )


def test_tables_at_one_rate_are_solved_to_proof_by_meeting_halfway() -> None:
    times, energies, budget_s = subset_sum(46)
    answer = cheapest_within(options_of(times, energies), budget_s)
    assert answer is not None
    assert times[np.arange(46), answer.columns].sum() <= budget_s
    assert 0.0 <= answer.energy_j - answer.bound_j <= 1e-9 * answer.energy_j


def test_too_little_room_leaves_an_honest_gap() -> None:
    times, energies, budget_s = subset_sum(8)
    options = options_of(times, energies)
    cramped = cheapest_within(options, budget_s, cell_limits=(10,))
    roomy = cheapest_within(options, budget_s)
    assert cramped is not None
    assert roomy is not None
    assert times[np.arange(8), cramped.columns].sum() <= budget_s
    assert cramped.bound_j <= roomy.energy_j
    assert cramped.energy_j >= roomy.bound_j
