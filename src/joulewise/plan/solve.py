"""Solve a plan table: objectives, scopes, budgets, and what to say when nothing can be gained."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from joulewise.domain.errors import InfeasibleBudget, PlanError
from joulewise.domain.plan import Objective, PlanRequest, Scope, Status
from joulewise.domain.sweep import BoolTable, FloatTable, IntTable
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.products import least_chain_product
from joulewise.plan.chain.solve import GAP_RATIO, least_time_s, solve_chain
from joulewise.plan.knapsack import cheapest_within
from joulewise.plan.options import options_of
from joulewise.plan.product import least_product
from joulewise.plan.rest import PROVEN_RATIO, ROUNDING_RATIO
from joulewise.plan.table import PlanTable

BUDGET_TOLERANCE_RATIO = 1e-12
"""A plan's time may exceed its budget by this share of it, for sums are rounded."""

_EXPONENT = {
    Objective.ENERGY: 0,
    Objective.MIN_ENERGY: 0,
    Objective.EDP: 1,
    Objective.ED2P: 2,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """One operating point per class, (C,) columns of the table, and what is proven about it.

    Times and energies are per iteration. `bound_gap_ratio` bounds by how much of its value the
    objective may lie above the least possible within the (guarded) budget; it is at most 1e-9
    where the status is `optimal`.
    """

    request: PlanRequest
    guard_band_ratio: float
    status: Status
    choice: IntTable
    time_s: float
    energy_j: float
    baseline_time_s: float
    baseline_energy_j: float
    bound_gap_ratio: float | None

    @property
    def slowdown_ratio(self) -> float:
        """Time / baseline time."""
        return self.time_s / self.baseline_time_s

    @property
    def saving_ratio(self) -> float:
        """1 - energy / baseline energy."""
        return 1.0 - self.energy_j / self.baseline_energy_j

    @property
    def objective_value(self) -> float:
        """What was minimised: J, J·s (EDP) or J·s² (ED2P)."""
        return objective_value(self.request.objective, self.time_s, self.energy_j)


def objective_value(objective: Objective, time_s: float, energy_j: float) -> float:
    """Value of an objective: J, J·s (EDP) or J·s² (ED2P)."""
    return float(time_s ** _EXPONENT[objective] * energy_j)


def solve(
    table: PlanTable,
    request: PlanRequest,
    *,
    guard_band_ratio: float = 0.0,
    gap_ratio: float | None = GAP_RATIO,
) -> Solution:
    """Choose an operating point for every class of the table.

    With the scope *global* the total time keeps the budget (1 + max_slowdown - guard) x baseline
    and the objective is that of the totals. With *local* every class keeps the budget against its
    own baseline and minimises its own objective. `energy` and `min-energy` differ only in their
    customary budget, which the request already holds. `request.granularity` is the table's.

    Where changes of the point count, totals include them. With *local* every class keeps the
    budget, and so does the total with its changes; the objective is that of the totals then.

    The baseline itself always keeps a budget of at least its own time, guard or not: its slowdown
    is 1 by definition. It is returned with the status `no_gain` where nothing betters it.

    Args:
        table: From `plan_table`.
        request: Objective, scope, budget and bound on regions.
        guard_band_ratio: Part of the budget that is kept back.
        gap_ratio: Where changes cost something: how close to its bound the answer shall be, as a
            share of its energy; `None` takes it as it comes, which is quicker.

    Raises:
        InfeasibleBudget: Nothing is fast enough, and the budget excludes the baseline.
        PlanError: A budget, guard band or bound on regions that is none.
    """
    _check(table, request, guard_band_ratio)
    limit_ratio = _limit_ratio(request, guard_band_ratio)
    chain = chain_of(table, request, limit_ratio)
    if chain is not None:
        budget_s = limit_ratio * table.baseline_time_s
        found = _solve_chain(chain, _EXPONENT[request.objective], budget_s, gap_ratio)
    elif request.scope is Scope.LOCAL:
        found = _solve_local(table, request, limit_ratio)
    else:
        found = _solve_global(table, request, limit_ratio)
    if _baseline_keeps_budget(request) and (
        found is None or not _is_gain(table, request, found[0])
    ):
        return _solution(table, request, guard_band_ratio, _baseline_choice(table), Status.NO_GAIN)
    if found is None:
        raise _infeasible(table, request, limit_ratio, guard_band_ratio)
    choice, gap_ratio = found
    status = Status.OPTIMAL if gap_ratio <= PROVEN_RATIO else Status.FEASIBLE
    return _solution(table, request, guard_band_ratio, choice, status, gap_ratio)


def chain_of(table: PlanTable, request: PlanRequest, limit_ratio: float) -> Chain | None:
    """The table as a chain; `None` where classes stand alone, for no change costs anything.

    With a local scope, cells beyond `limit_ratio` x their class's baseline are absent.
    """
    if table.changes is None or (table.changes.is_free and request.max_region_count is None):
        return None
    is_allowed = np.isfinite(table.time_s)
    if request.scope is Scope.LOCAL:
        is_allowed = _allowed(table, request, limit_ratio)
    return Chain(
        time_s=np.where(is_allowed, table.time_s, np.inf),
        energy_j=np.where(is_allowed, table.energy_j, np.inf),
        changes=table.changes,
        max_region_count=request.max_region_count,
    )


def _solve_chain(
    chain: Chain, exponent: int, budget_s: float, gap_ratio: float | None
) -> tuple[IntTable, float] | None:
    """Choice and proven gap where changes count."""
    if not np.isfinite(chain.time_s).any(axis=1).all():
        return None
    if exponent:
        product = least_chain_product(chain, exponent, budget_s)
        if product is None:
            return None
        return product.columns, _gap_ratio(product.product, product.bound)
    answer = solve_chain(chain, budget_s, gap_ratio=gap_ratio)
    return None if answer is None else (answer.choice, _gap_ratio(answer.energy_j, answer.bound_j))


def _solve_global(
    table: PlanTable, request: PlanRequest, limit_ratio: float
) -> tuple[IntTable, float] | None:
    """Choice and proven gap; `None` where the budget excludes every plan."""
    options = options_of(table.time_s, table.energy_j)
    exponent = _EXPONENT[request.objective]
    budget_s = limit_ratio * table.baseline_time_s
    if exponent:
        product = least_product(options, exponent, budget_s)
        if product is None:
            return None
        return product.columns, _gap_ratio(product.product, product.bound)
    if math.isinf(budget_s):
        return options.columns[options.cheapest], 0.0
    answer = cheapest_within(options, budget_s)
    return None if answer is None else (answer.columns, _gap_ratio(answer.energy_j, answer.bound_j))


def _solve_local(
    table: PlanTable, request: PlanRequest, limit_ratio: float
) -> tuple[IntTable, float] | None:
    """The best point of every class alone; exact by nature."""
    is_allowed = _allowed(table, request, limit_ratio)
    if not is_allowed.any(axis=1).all():
        return None
    values = np.full(table.time_s.shape, np.inf)
    exponent = _EXPONENT[request.objective]
    values[is_allowed] = table.time_s[is_allowed] ** exponent * table.energy_j[is_allowed]
    return _fastest_of_least(values, table.time_s), 0.0


def _allowed(table: PlanTable, request: PlanRequest, limit_ratio: float) -> BoolTable:
    """Cells in which a class keeps its own budget."""
    baseline_s = table.time_s[:, table.baseline_index]
    is_allowed = np.isfinite(table.time_s) & (table.time_s <= limit_ratio * baseline_s[:, None])
    if _baseline_keeps_budget(request):
        is_allowed[:, table.baseline_index] = True
    return np.asarray(is_allowed)


def _fastest_of_least(values: FloatTable, time_s: FloatTable) -> IntTable:
    is_least = values == values.min(axis=1, keepdims=True)
    choice: IntTable = np.where(is_least, time_s, np.inf).argmin(axis=1)
    return choice


def _check(table: PlanTable, request: PlanRequest, guard_band_ratio: float) -> None:
    slowdown_ratio = request.max_slowdown_ratio
    if slowdown_ratio is not None and not math.isfinite(slowdown_ratio):
        raise PlanError(
            f"the budget must be a number, got {slowdown_ratio}",
            hint="0.006 and 0.6% both allow 0.6 % more time.",
        )
    if not 0.0 <= guard_band_ratio < math.inf:
        raise PlanError(f"the guard band must be a number from 0 up, got {guard_band_ratio}")
    region_count = request.max_region_count
    if region_count is not None and region_count < 1:
        raise PlanError(f"an iteration has at least one region, got a bound of {region_count}")
    if region_count is not None and table.changes is None:
        raise PlanError(
            f"regions can be bounded only where neighbouring launches share a point, not at "
            f"{request.granularity} granularity",
            hint="Plan at region granularity, or with a transition model.",
        )


def _limit_ratio(request: PlanRequest, guard_band_ratio: float) -> float:
    """Largest time / baseline time that counts as within the budget; +inf: no budget."""
    if request.max_slowdown_ratio is None:
        return math.inf
    limit_ratio = 1.0 + request.max_slowdown_ratio - guard_band_ratio
    # Half the tolerance, so that rounding in a sum never reaches the whole of it.
    return limit_ratio * (1.0 + 0.5 * BUDGET_TOLERANCE_RATIO)


def _baseline_keeps_budget(request: PlanRequest) -> bool:
    return request.max_slowdown_ratio is None or request.max_slowdown_ratio >= 0.0


def _baseline_choice(table: PlanTable) -> IntTable:
    return np.full(len(table.class_names), table.baseline_index, dtype=np.int64)


def _is_gain(table: PlanTable, request: PlanRequest, choice: IntTable) -> bool:
    value = objective_value(request.objective, *table.totals(choice))
    baseline = objective_value(request.objective, table.baseline_time_s, table.baseline_energy_j)
    return value < baseline * (1.0 - ROUNDING_RATIO)


def _gap_ratio(value: float, bound: float) -> float:
    return max(0.0, (value - bound) / value) if value > 0.0 else 0.0


def _solution(
    table: PlanTable,
    request: PlanRequest,
    guard_band_ratio: float,
    choice: IntTable,
    status: Status,
    gap_ratio: float = 0.0,
) -> Solution:
    time_s, energy_j = table.totals(choice)
    return Solution(
        request=request,
        guard_band_ratio=guard_band_ratio,
        status=status,
        choice=choice,
        time_s=time_s,
        energy_j=energy_j,
        baseline_time_s=table.baseline_time_s,
        baseline_energy_j=table.baseline_energy_j,
        bound_gap_ratio=gap_ratio,
    )


def _infeasible(
    table: PlanTable, request: PlanRequest, limit_ratio: float, guard_band_ratio: float
) -> InfeasibleBudget:
    """Say the least slowdown that can be planned."""
    fastest_s = table.time_s.min(axis=1)
    ratios = fastest_s / table.time_s[:, table.baseline_index]
    slowest = int(np.argmax(ratios))
    if request.scope is Scope.LOCAL and ratios[slowest] > limit_ratio:
        least_ratio = float(ratios[slowest])
        what = f"{table.class_names[slowest]!r} runs no faster than"
    else:
        least_ratio = _least_time_s(table, request, limit_ratio) / table.baseline_time_s
        what = "no plan is faster than"
    needed_ratio = math.ceil((least_ratio - 1.0 + guard_band_ratio) * 1e4) / 1e4
    guard = f" (with {guard_band_ratio:.2%} kept back)" if guard_band_ratio else ""
    return InfeasibleBudget(
        f"{what} {100.0 * least_ratio:.2f} % of the baseline's time",
        least_slowdown_ratio=least_ratio,
        hint=f"Allow at least --max-slowdown {100.0 * needed_ratio:.2f}%{guard}.",
    )


def _least_time_s(table: PlanTable, request: PlanRequest, limit_ratio: float) -> float:
    """Time of the fastest plan, changes included where they count."""
    chain = chain_of(table, request, limit_ratio)
    return float(table.time_s.min(axis=1).sum()) if chain is None else least_time_s(chain)
