"""Holding back two standard errors of a plan's slowdown, so that fresh runs keep its budget.

What its changes of clocks may take beyond what is counted is held back, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from joulewise.domain.errors import InfeasibleBudget
from joulewise.domain.plan import PlanRequest, Scope, Status
from joulewise.domain.sweep import BoolTable, FloatTable, IntTable
from joulewise.plan.chain.solve import GAP_RATIO
from joulewise.plan.change_margin import change_margin_s, has_partial_limits, surcharged
from joulewise.plan.solve import BUDGET_TOLERANCE_RATIO, Solution, counts_changes, solve
from joulewise.plan.table import PlanTable

GUARD_ERROR_COUNT = 2.0
VERIFICATION_ERROR_COUNT = 3.0
VERIFICATION_SHARE_RATIO = 0.2
"""A larger share of the budget is not held back for what verification cannot resolve."""
_TOLERANCE_RATIO = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimeErrors:
    """Standard errors of K kernels' times at P points.

    `cell_s` (K, P) is each cell's own, per launch; `point_ratio` (P,) is how far all times of
    a point may lie off together, as a share; `time_s` (K, P) the times that do. All 0 where
    a cell is absent. `verified_s` (K, P) are the errors that verification will leave each cell
    with; `None` where nothing will be verified.
    """

    time_s: FloatTable
    cell_s: FloatTable
    point_ratio: FloatTable
    verified_s: FloatTable | None = None


def time_errors(
    time_s: FloatTable,
    cell_ratio: FloatTable,
    point_ratio: FloatTable,
    is_present: BoolTable,
    *,
    is_unshaken: BoolTable | None = None,
) -> TimeErrors:
    """Errors as shares of the times, (K, P) and (P,); `is_unshaken` (K,) kernels have none."""
    known_s = np.where(is_present, time_s, 0.0)
    if is_unshaken is not None:
        known_s = np.where(is_unshaken[:, None], 0.0, known_s)
    return TimeErrors(time_s=known_s, cell_s=known_s * cell_ratio, point_ratio=point_ratio)


def launch_counts(table: PlanTable, kernels: tuple[str, ...]) -> FloatTable:
    """(C, K) launches of every kernel in every class of the table."""
    rows = {kernel: row for row, kernel in enumerate(kernels)}
    counts = np.zeros((len(table.class_names), len(kernels)))
    launched = np.array([rows[launch.kernel] for launch in table.launches], dtype=np.int64)
    np.add.at(counts, (table.launch_classes, launched), 1.0)
    return counts


def launched_cells(table: PlanTable, choice: IntTable, counts: FloatTable) -> FloatTable:
    """(K, P) launches of every cell in one iteration of this choice."""
    launches = np.zeros((counts.shape[1], len(table.points)))
    np.add.at(launches.T, choice, counts)
    return launches


def slowdown_error_ratio(
    table: PlanTable, choice: IntTable, counts: FloatTable, errors: TimeErrors
) -> float:
    """Standard error of time / baseline time of this choice.

    A cell that plan and baseline share counts with the difference only, so that the baseline
    is in no doubt against itself.
    """
    time_s, _ = table.totals(choice)
    weights = launched_cells(table, choice, counts)
    weights[:, table.baseline_index] -= time_s / table.baseline_time_s * counts.sum(axis=0)
    own_s2 = ((weights * errors.cell_s) ** 2).sum()
    common_s2 = (((weights * errors.time_s).sum(axis=0) * errors.point_ratio) ** 2).sum()
    return float(np.sqrt(own_s2 + common_s2)) / table.baseline_time_s


def solve_guarded(
    table: PlanTable,
    request: PlanRequest,
    counts: FloatTable,
    errors: TimeErrors,
    *,
    doubted: PlanTable | None = None,
) -> Solution:
    """Solve with a guard band of two standard errors of the plan that it leads to.

    Where the plan will be verified, a little more of the budget is held back, so that fresh runs
    of limited precision can show that it was kept: three standard errors of the verification,
    unless that is more than a fifth of the budget. Then verification could not show it anyway
    at a fair price, and nothing more is held back.

    Where changes count, what they may take on top of that is held back besides
    (`change_margin_s`): what measuring them could not show, and what is lost while a change of
    several knobs is in force in parts. For the latter such changes are charged in the mean while
    searching (`surcharged`), and what is proven is proven of the search; the guard band holds
    that charge.

    With the scope *local* every class holds back its own two standard errors; the guard band
    of the solution is then that of the sum. Where changes count, they and the classes together
    must keep the budget too, and that guard band is held back of it.

    A plan whose guard band leaves no room may be bettered by one that needs none: where only
    classes in no doubt leave the baseline, as gaps are, whose time is their host's, that one is
    looked for besides, and proven among such plans alone.

    Args:
        table: What to plan on.
        request: Objective, scope and budget; without a budget nothing is held back.
        counts: (C, K) from `launch_counts`.
        errors: Standard errors of the times.
        doubted: Another estimate of the same table. Where it sees the plan slower, the guard
            band grows by the difference.

    Raises:
        InfeasibleBudget: No plan keeps the budget with its guard band, nor does the baseline.
    """
    if request.max_slowdown_ratio is None:
        return solve(table, request)
    planned, class_guard_ratio = surcharged(table, request.transition), None
    if request.scope is Scope.LOCAL:
        planned = _safe_options(planned, request.max_slowdown_ratio, counts, errors, doubted)
        if not counts_changes(table, request.max_region_count):
            solution = solve(planned, request)
            guard = _guard(table, solution, counts, errors, doubted)
            return replace(solution, guard_band_ratio=guard)
        # Each class has held back its own.
        class_guard_ratio = 0.0

    def guard_of(solution: Solution) -> float:
        return _guard(table, solution, counts, errors, doubted)

    solution = _settled_at_limits(table, planned, request, guard_of, class_guard_ratio)
    sure = _only_sure(planned, counts, errors)
    if sure is None or solution.guard_band_ratio <= 0.0:
        return solution
    try:
        safe = _settled_at_limits(table, sure, request, guard_of, class_guard_ratio)
    except InfeasibleBudget:
        return solution
    return safe if safe.objective_value < solution.objective_value else solution


def _settled_at_limits(
    table: PlanTable,
    planned: PlanTable,
    request: PlanRequest,
    guard_of: Callable[[Solution], float],
    class_guard_ratio: float | None,
) -> Solution:
    """As `_settled`; with one power limit alone where changes of it leave no gain."""
    solution = _settled(table, planned, request, guard_of, class_guard_ratio)
    if solution.status is not Status.NO_GAIN or not has_partial_limits(request.transition):
        return solution
    # Changes of limit and clock at once may have taken the budget, and cannot be charged alone.
    at_one_limit = _at_one_limit(planned)
    return _settled(table, at_one_limit, request, guard_of, class_guard_ratio)


def _settled(
    table: PlanTable,
    planned: PlanTable,
    request: PlanRequest,
    guard_of: Callable[[Solution], float],
    class_guard_ratio: float | None,
) -> Solution:
    """The plan among the options `planned` that was made with the guard band it needs.

    `guard_of` says what that is.
    """
    # Ends: the guard band rises, and takes only values that belong to one of finitely many plans.
    guard, gap_ratio = 0.0, None
    while True:
        solution = solve(
            planned,
            request,
            guard_band_ratio=guard,
            class_guard_ratio=class_guard_ratio,
            gap_ratio=gap_ratio,
        )
        solution = _without_surcharge(table, solution)
        needed = guard_of(solution)
        charged = solution.guard_band_ratio - guard
        if needed > guard + charged + _TOLERANCE_RATIO:
            guard, gap_ratio = needed - charged, None
        elif gap_ratio is not None or _is_closed(table, solution):
            return solution
        else:
            # What quick answers settle on is closed in the end.
            gap_ratio = GAP_RATIO


def _at_one_limit(table: PlanTable) -> PlanTable:
    """Without the points that have another power limit than the baseline."""
    limit_w = table.points[table.baseline_index].power_limit_w
    return _only(table, np.array([point.power_limit_w == limit_w for point in table.points]))


def _only_sure(table: PlanTable, counts: FloatTable, errors: TimeErrors) -> PlanTable | None:
    """The table with the baseline alone for classes whose time is in doubt; `None`: all or none."""
    doubt_s = counts @ (errors.cell_s + errors.time_s * errors.point_ratio)
    is_sure = np.asarray(~(doubt_s > 0.0).any(axis=1))
    if is_sure.all() or not is_sure.any():
        return None
    is_kept = np.repeat(is_sure[:, None], len(table.points), axis=1)
    is_kept[:, table.baseline_index] = True
    return _only(table, is_kept)


def _only(table: PlanTable, is_kept: BoolTable) -> PlanTable:
    """The table without the other cells."""
    return replace(
        table,
        time_s=np.where(is_kept, table.time_s, np.inf),
        energy_j=np.where(is_kept, table.energy_j, np.inf),
    )


def _without_surcharge(table: PlanTable, solution: Solution) -> Solution:
    """The solution as the table has it; what was charged besides is part of its guard band."""
    time_s, _ = table.totals(solution.choice)
    charged = (solution.time_s - time_s) / table.baseline_time_s
    return replace(
        solution, time_s=time_s, guard_band_ratio=solution.guard_band_ratio + max(0.0, charged)
    )


def _is_closed(table: PlanTable, solution: Solution) -> bool:
    """Whether taking more time over it leads to no other solution."""
    is_closing = counts_changes(table, solution.request.max_region_count)
    return solution.status is Status.OPTIMAL or not is_closing


def _guard(
    table: PlanTable,
    solution: Solution,
    counts: FloatTable,
    errors: TimeErrors,
    doubted: PlanTable | None,
) -> float:
    guard = GUARD_ERROR_COUNT * slowdown_error_ratio(table, solution.choice, counts, errors)
    guard += _margin_to_verify(table, solution, counts, errors, guard)
    model = solution.request.transition
    guard += change_margin_s(table, solution.choice, model) / table.baseline_time_s
    if doubted is None:
        return guard
    seen_ratio = doubted.totals(solution.choice)[0] / doubted.baseline_time_s
    return guard + max(0.0, seen_ratio - solution.slowdown_ratio)


def _margin_to_verify(
    table: PlanTable, solution: Solution, counts: FloatTable, errors: TimeErrors, guard: float
) -> float:
    budget = solution.request.max_slowdown_ratio
    if errors.verified_s is None or budget is None:
        return 0.0
    fresh = replace(errors, cell_s=errors.verified_s)
    error = slowdown_error_ratio(table, solution.choice, counts, fresh)
    wanted = float(np.hypot(guard, VERIFICATION_ERROR_COUNT * error)) - guard
    return wanted if wanted <= VERIFICATION_SHARE_RATIO * budget else 0.0


def _safe_options(
    table: PlanTable,
    max_slowdown_ratio: float,
    counts: FloatTable,
    errors: TimeErrors,
    doubted: PlanTable | None,
) -> PlanTable:
    """Drop the options that may break their own class's bound."""
    ratio = _own_slowdowns(table)
    if doubted is not None:
        ratio = np.maximum(ratio, _own_slowdowns(doubted))
    baseline = table.baseline_index
    class_s = counts @ errors.time_s
    error_s = np.hypot(np.sqrt(counts**2 @ errors.cell_s**2), class_s * errors.point_ratio)
    error_s = np.hypot(error_s, error_s[:, [baseline]])
    guard = GUARD_ERROR_COUNT * error_s / table.time_s[:, [baseline]]
    limit_ratio = (1.0 + max_slowdown_ratio) * (1.0 + 0.5 * BUDGET_TOLERANCE_RATIO)
    is_safe = ratio + guard <= limit_ratio
    is_safe[:, baseline] = True
    return _only(table, is_safe)


def _own_slowdowns(table: PlanTable) -> FloatTable:
    return np.asarray(table.time_s / table.time_s[:, [table.baseline_index]])
