"""The guard band is two standard errors of the slowdown of the plan it leads to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from joulewise.domain.errors import InfeasibleBudget
from joulewise.domain.plan import Granularity, Objective, PlanRequest, Scope, Status
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import FloatTable, Sweep, SweepSource
from joulewise.domain.transition import uniform_transition
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.plan.changes import change_costs
from joulewise.plan.solve import solve
from joulewise.plan.table import PlanTable, plan_table
from joulewise.workflow.guard import (
    TimeErrors,
    launch_counts,
    launched_cells,
    slowdown_error_ratio,
    solve_guarded,
    time_errors,
)

SLOW = OperatingPoint(sm_clock_mhz=1000)
FAST = OperatingPoint(sm_clock_mhz=2000)
BRIEF = uniform_transition("brief", "a test", stall_s=1e-6)
TIME_S = np.array([[1.0, 1.02, 0.98], [3.0, 3.03, 2.97]])
ENERGY_J = np.array([[100.0, 60.0, 90.0], [300.0, 200.0, 280.0]])
WORKLOAD = Workload(
    name="two kernels",
    launches=(
        Launch(kernel="a"),
        Launch(kernel="a"),
        Launch(kernel="b"),
        Launch(kernel="a", pass_=Pass.BACKWARD),
    ),
)


def _table(granularity: Granularity = Granularity.KERNEL) -> PlanTable:
    sweep = Sweep(
        kernels=("a", "b"),
        points=(AUTO, SLOW, FAST),
        baseline=AUTO,
        source=SweepSource(device="d", device_name="d", tool="tests"),
        is_present=np.ones((2, 3), dtype=np.bool_),
        time_s=TIME_S.copy(),
        energy_j=ENERGY_J.copy(),
    )
    return plan_table(sweep, WORKLOAD, granularity)


def _errors(cell_ratio: float, point_ratio: float = 0.0) -> TimeErrors:
    present = np.ones(TIME_S.shape, dtype=np.bool_)
    return time_errors(TIME_S, np.full(TIME_S.shape, cell_ratio), np.full(3, point_ratio), present)


def _counts(table: PlanTable) -> FloatTable:
    return launch_counts(table, ("a", "b"))


def test_launches_are_counted_by_class_and_kernel() -> None:
    assert _counts(_table()).tolist() == [[3.0, 0.0], [0.0, 1.0]]
    assert _counts(_table(Granularity.PASS)).tolist() == [[2.0, 1.0], [1.0, 0.0]]
    assert _counts(_table(Granularity.ITERATION)).tolist() == [[3.0, 1.0]]


def test_a_kernel_of_two_passes_may_run_two_cells() -> None:
    table = _table(Granularity.PASS)
    cells = launched_cells(table, np.array([1, 2]), _counts(table))
    assert cells.tolist() == [[0.0, 2.0, 1.0], [0.0, 1.0, 0.0]]


def test_the_baseline_is_in_no_doubt_against_itself() -> None:
    table = _table()
    baseline = np.zeros(2, dtype=np.int64)
    assert slowdown_error_ratio(table, baseline, _counts(table), _errors(0.01, 0.01)) == 0.0


def test_the_error_of_a_slowdown_adds_up_by_hand() -> None:
    table = _table()
    choice = np.array([1, 0])
    seen = slowdown_error_ratio(table, choice, _counts(table), _errors(0.01))
    slowdown = (3 * 1.02 + 3.0) / 6.0
    # Kernel a: three launches at SLOW against as many at the baseline; b: the difference only.
    parts = [0.01 * 3 * 1.02, 0.01 * 3 * slowdown, 0.01 * 3 * (1 - slowdown)]
    assert seen == pytest.approx(np.sqrt(np.sum(np.square(parts))) / 6.0)


def test_a_common_error_of_a_point_does_not_average_out() -> None:
    table = _table()
    choice = np.array([1, 1])
    seen = slowdown_error_ratio(table, choice, _counts(table), _errors(0.0, 0.01))
    slowdown = (3 * 1.02 + 3.03) / 6.0
    assert seen == pytest.approx(0.01 * slowdown * np.sqrt(2.0))


def test_a_simulation_confirms_the_error() -> None:
    table = _table()
    choice = np.array([1, 2])
    rng = np.random.default_rng(0)
    times = TIME_S * (1 + 0.01 * rng.normal(size=(100_000, 2, 3)))
    base = 3 * times[:, 0, 0] + times[:, 1, 0]
    slowdown = (3 * times[:, 0, 1] + times[:, 1, 2]) / base
    seen = slowdown_error_ratio(table, choice, _counts(table), _errors(0.01))
    assert seen == pytest.approx(slowdown.std(), rel=0.02)


def test_without_a_budget_nothing_is_held_back() -> None:
    table = _table()
    request = PlanRequest(max_slowdown_ratio=None)
    solution = solve_guarded(table, request, _counts(table), _errors(0.01))
    assert solution.guard_band_ratio == 0.0
    assert solution.choice.tolist() == [1, 1]


def test_a_strict_budget_falls_back_to_the_baseline_where_nothing_is_sure() -> None:
    table = _table()
    request = PlanRequest(max_slowdown_ratio=0.0)
    sure = solve_guarded(table, request, _counts(table), _errors(0.001))
    unsure = solve_guarded(table, request, _counts(table), _errors(0.2))
    assert sure.choice.tolist() == [2, 1]
    assert sure.guard_band_ratio > 0.0
    assert unsure.choice.tolist() == [0, 0]
    assert unsure.status is Status.NO_GAIN


def test_a_second_opinion_that_sees_the_plan_slower_widens_the_guard_band() -> None:
    table = _table()
    request = PlanRequest(max_slowdown_ratio=0.03)
    counts, errors = _counts(table), _errors(0.001)
    alone = solve_guarded(table, request, counts, errors)
    assert alone.choice.tolist() == [1, 1]
    slower = replace(table, time_s=table.time_s * np.array([1.0, 1.01, 1.0]))
    doubted = solve_guarded(table, request, counts, errors, doubted=slower)
    assert doubted.guard_band_ratio > alone.guard_band_ratio
    faster = replace(table, time_s=table.time_s * np.array([1.0, 0.99, 1.0]))
    praised = solve_guarded(table, request, counts, errors, doubted=faster)
    assert praised.guard_band_ratio == alone.guard_band_ratio


def test_local_scope_holds_back_for_every_class_alone() -> None:
    table = _table()
    request = PlanRequest(max_slowdown_ratio=0.025, scope=Scope.LOCAL)
    counts = _counts(table)
    assert solve_guarded(table, request, counts, _errors(0.0)).choice.tolist() == [1, 1]
    # 2 SE = 2 * sqrt(2) * 0.3 % = 0.85 %: a's 2 % no longer fits, b's 1 % does.
    guarded = solve_guarded(table, request, counts, _errors(0.003))
    assert guarded.choice.tolist() == [2, 1]
    assert guarded.guard_band_ratio > 0.0
    doubted = replace(table, time_s=table.time_s * np.array([1.0, 1.02, 1.0]))
    wary = solve_guarded(table, request, counts, _errors(0.003), doubted=doubted)
    assert wary.choice.tolist() == [2, 2]


def _verified(cell_ratio: float, verified_ratio: float) -> TimeErrors:
    return replace(_errors(cell_ratio), verified_s=TIME_S * verified_ratio)


def test_what_verification_cannot_resolve_is_held_back_too() -> None:
    table, request = _table(), PlanRequest(max_slowdown_ratio=0.05)
    plain = solve_guarded(table, request, _counts(table), _errors(1e-4))
    careful = solve_guarded(table, request, _counts(table), _verified(1e-4, 5e-4))
    fresh = slowdown_error_ratio(table, careful.choice, _counts(table), _errors(5e-4))

    assert careful.guard_band_ratio > plain.guard_band_ratio
    assert careful.guard_band_ratio == pytest.approx(
        np.hypot(plain.guard_band_ratio, 3 * fresh), rel=0.02
    )


def test_nothing_more_is_held_back_where_it_would_eat_the_budget() -> None:
    table, request = _table(), PlanRequest(max_slowdown_ratio=0.05)
    plain = solve_guarded(table, request, _counts(table), _errors(1e-4))
    hopeless = solve_guarded(table, request, _counts(table), _verified(1e-4, 5e-2))

    assert hopeless.guard_band_ratio == plain.guard_band_ratio


def _stalling_table() -> tuple[PlanTable, FloatTable, TimeErrors]:
    """Two kernels in turn, each cheaper at a point of its own at no time; stalls fill the budget.

    Every launch alone stays well within 2 %, and so would half of the changes there could be.
    """
    time_s = np.array([[1.0, 1.0, 1.5], [1.0, 1.5, 1.0]])
    sweep = Sweep(
        kernels=("a", "b"),
        points=(AUTO, SLOW, FAST),
        baseline=AUTO,
        source=SweepSource(device="d", device_name="d", tool="tests"),
        is_present=np.ones((2, 3), dtype=np.bool_),
        time_s=time_s,
        energy_j=np.array([[100.0, 60.0, 120.0], [100.0, 120.0, 60.0]]),
    )
    workload = Workload(name="in turn", launches=tuple(Launch(kernel=k) for k in "ab" * 5))
    model = uniform_transition("stall", "a test", stall_s=0.02 - 1e-9, energy_j=0.1)
    table = plan_table(sweep, workload, Granularity.KERNEL, model)
    errors = time_errors(time_s, np.full((2, 3), 0.003), np.zeros(3), sweep.is_present)
    return table, launch_counts(table, ("a", "b")), errors


@pytest.mark.parametrize("objective", [Objective.ENERGY, Objective.EDP])
@pytest.mark.parametrize("scope", list(Scope))
def test_stalls_leave_the_guard_band_of_the_total_alone(scope: Scope, objective: Objective) -> None:
    table, counts, errors = _stalling_table()
    request = PlanRequest(scope=scope, objective=objective, max_slowdown_ratio=0.02)
    unguarded = solve(table, request)
    assert unguarded.slowdown_ratio == pytest.approx(1.02)
    solution = solve_guarded(table, request, counts, errors)
    error = slowdown_error_ratio(table, solution.choice, counts, errors)
    assert table.change_totals(solution.choice)[0] > 0
    assert solution.guard_band_ratio >= 2.0 * error > 0.0
    assert solution.slowdown_ratio <= 1.02 - solution.guard_band_ratio + 1e-9


def test_a_launch_keeps_its_own_guard_band_of_a_local_budget_once() -> None:
    table, counts, errors = _stalling_table()
    request = PlanRequest(scope=Scope.LOCAL, max_slowdown_ratio=0.02)
    # 2 SE of a launch against its baseline: 2 * sqrt(2) * 0.3 % = 0.85 %.
    for slower, chosen in ((1.011, True), (1.012, False)):
        time_s = table.time_s * np.where(np.arange(3) == 0, 1.0, slower)
        one = replace(table, time_s=time_s, changes=change_costs(table.points, BRIEF))
        solution = solve_guarded(one, request, counts, errors)
        assert bool((solution.choice != 0).any()) is chosen


def test_a_strict_local_budget_that_nothing_keeps_is_refused_with_changes_too() -> None:
    table, counts, errors = _stalling_table()
    request = PlanRequest(scope=Scope.LOCAL, max_slowdown_ratio=-0.1)
    with pytest.raises(InfeasibleBudget, match="runs no faster than"):
        solve_guarded(table, request, counts, errors)


def test_quick_answers_settle_the_guard_band_and_one_closing_proves_the_plan() -> None:
    rng = np.random.default_rng(3)
    kernels = tuple(f"k{i}" for i in range(12))
    points = tuple(OperatingPoint(sm_clock_mhz=900 + 100 * i) for i in range(5))
    slower = np.concatenate([np.ones((12, 1)), rng.uniform(0.97, 1.3, (12, 5))], axis=1)
    saving = np.concatenate([np.ones((12, 1)), rng.uniform(0.6, 1.1, (12, 5))], axis=1)
    sweep = Sweep(
        kernels=kernels,
        points=(AUTO, *points),
        baseline=AUTO,
        source=SweepSource(device="d", device_name="d", tool="tests"),
        is_present=np.ones((12, 6), dtype=np.bool_),
        time_s=slower,
        energy_j=100.0 * saving,
    )
    model = uniform_transition("stall", "a test", stall_s=0.02, energy_j=4.0)
    table = plan_table(sweep, None, Granularity.KERNEL, model)
    errors = time_errors(slower, np.full((12, 6), 0.004), np.zeros(6), sweep.is_present)
    counts = launch_counts(table, kernels)
    request = PlanRequest(max_slowdown_ratio=0.05)

    solution = solve_guarded(table, request, counts, errors)

    again = solve(table, request, guard_band_ratio=solution.guard_band_ratio)
    assert solution.energy_j == again.energy_j
    assert solution.bound_gap_ratio is not None
    assert solution.bound_gap_ratio <= 1e-3
    needed = 2.0 * slowdown_error_ratio(table, solution.choice, counts, errors)
    assert needed <= solution.guard_band_ratio + 1e-9
