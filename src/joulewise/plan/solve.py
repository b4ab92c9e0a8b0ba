"""Solve a plan table: objectives, scopes, budgets, and what to say when nothing can be gained."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from joulewise.domain.errors import PlanError
from joulewise.domain.plan import Objective, PlanRequest, Scope, Status
from joulewise.domain.sweep import BoolTable, FloatTable, IntTable
from joulewise.plan.chain.enumerated import cheapest_plan, is_enumerable
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.products import least_chain_product
from joulewise.plan.chain.solve import GAP_RATIO, least_time, solve_chain
from joulewise.plan.infeasible import infeasible
from joulewise.plan.knapsack import cheapest_within
from joulewise.plan.options import options_of
from joulewise.plan.product import least_product
from joulewise.plan.rest import PROVEN_RATIO, ROUNDING_RATIO, gap_ratio_of
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
    where the status is `optimal`. It is the baseline's where that is the solution (`no_gain`),
    and `None` where nothing was proven.
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Found:
    """The best choice found, its product time^n x energy (J at n = 0), and what none falls below.

    Product and bound are `None` where every class minimises a product of its own, exactly.
    """

    choice: IntTable
    product: float | None
    bound: float | None

    @property
    def gap_ratio(self) -> float:
        if self.product is None or self.bound is None:
            return 0.0
        return gap_ratio_of(self.product, self.bound)


def objective_value(objective: Objective, time_s: float, energy_j: float) -> float:
    """Value of an objective: J, J·s (EDP) or J·s² (ED2P)."""
    return float(time_s ** _EXPONENT[objective] * energy_j)


def solve(
    table: PlanTable,
    request: PlanRequest,
    *,
    guard_band_ratio: float = 0.0,
    class_guard_ratio: float | None = None,
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
        class_guard_ratio: Part of every class's own budget that is kept back with the scope
            *local*; `None`: as much as of the total's.
        gap_ratio: Where changes cost something: how close to its bound the answer shall be, as a
            share of its energy; `None` takes it as it comes, which is quicker.

    Raises:
        InfeasibleBudget: Nothing is fast enough, and the budget excludes the baseline.
        PlanError: A budget, guard band or bound on regions that is none.
    """
    _check(table, request, guard_band_ratio)
    limit_ratio = _limit_ratio(request, guard_band_ratio)
    own_ratio = limit_ratio
    if class_guard_ratio is not None:
        own_ratio = _limit_ratio(request, class_guard_ratio)
    chain = chain_of(table, request, own_ratio)
    budget_s = limit_ratio * table.baseline_time_s
    if chain is not None:
        found = _solve_chain(chain, _EXPONENT[request.objective], budget_s, gap_ratio)
    elif request.scope is Scope.LOCAL:
        found = _solve_local(table, request, own_ratio)
    else:
        found = _solve_global(table, request, limit_ratio)
    if _baseline_keeps_budget(request) and (
        found is None or not _is_gain(table, request, found.choice)
    ):
        gap_ratio = _baseline_gap_ratio(table, request, found, chain, budget_s)
        choice = _baseline_choice(table)
        return _solution(table, request, guard_band_ratio, choice, Status.NO_GAIN, gap_ratio)
    if found is None:
        raise infeasible(table, request, chain, own_ratio, guard_band_ratio)
    status = Status.OPTIMAL if found.gap_ratio <= PROVEN_RATIO else Status.FEASIBLE
    return _solution(table, request, guard_band_ratio, found.choice, status, found.gap_ratio)


def counts_changes(table: PlanTable, max_region_count: int | None) -> bool:
    """Whether a change of the point costs something, or only so many may be."""
    if table.changes is None:
        return False
    return max_region_count is not None or not table.changes.is_free


def chain_of(table: PlanTable, request: PlanRequest, limit_ratio: float) -> Chain | None:
    """The table as a chain; `None` where classes stand alone, for no change costs anything.

    With a local scope, cells beyond `limit_ratio` x their class's baseline are absent.
    """
    if table.changes is None or not counts_changes(table, request.max_region_count):
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
) -> _Found | None:
    """The best where changes count; `None` where no plan was found within the budget."""
    if not np.isfinite(chain.time_s).any(axis=1).all():
        return None
    if gap_ratio is not None and (exponent or chain.changes.is_spaced) and is_enumerable(chain):
        # Where neither prices nor labels close the gap, a few plans are looked at one by one.
        return _best_of_all(chain, exponent, budget_s)
    if exponent:
        product = least_chain_product(chain, exponent, budget_s)
        if product is None:
            return None
        return _Found(choice=product.columns, product=product.product, bound=product.bound)
    answer = solve_chain(chain, budget_s, gap_ratio=gap_ratio)
    if answer is None:
        return None
    return _Found(choice=answer.choice, product=answer.energy_j, bound=answer.bound_j)


def _best_of_all(chain: Chain, exponent: int, budget_s: float) -> _Found | None:
    choice = cheapest_plan(chain, budget_s, exponent)
    if choice is None:
        return None
    time_s, energy_j = chain.totals(choice)
    product = float(time_s**exponent * energy_j)
    return _Found(choice=choice, product=product, bound=product)


def _solve_global(table: PlanTable, request: PlanRequest, limit_ratio: float) -> _Found | None:
    """The best; `None` where the budget excludes every plan."""
    options = options_of(table.time_s, table.energy_j)
    exponent = _EXPONENT[request.objective]
    budget_s = limit_ratio * table.baseline_time_s
    if exponent:
        product = least_product(options, exponent, budget_s)
        if product is None:
            return None
        return _Found(choice=product.columns, product=product.product, bound=product.bound)
    if math.isinf(budget_s):
        cheapest_j = float(options.energy_j[options.cheapest].sum())
        choice = options.columns[options.cheapest]
        return _Found(choice=choice, product=cheapest_j, bound=cheapest_j)
    answer = cheapest_within(options, budget_s)
    if answer is None:
        return None
    return _Found(choice=answer.columns, product=answer.energy_j, bound=answer.bound_j)


def _solve_local(table: PlanTable, request: PlanRequest, limit_ratio: float) -> _Found | None:
    """The best point of every class alone; exact by nature."""
    is_allowed = _allowed(table, request, limit_ratio)
    if not is_allowed.any(axis=1).all():
        return None
    values = np.full(table.time_s.shape, np.inf)
    exponent = _EXPONENT[request.objective]
    values[is_allowed] = table.time_s[is_allowed] ** exponent * table.energy_j[is_allowed]
    choice = _fastest_of_least(values, table.time_s)
    least_j = None if exponent else table.totals(choice)[1]
    return _Found(choice=choice, product=least_j, bound=least_j)


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


def _baseline_gap_ratio(
    table: PlanTable,
    request: PlanRequest,
    found: _Found | None,
    chain: Chain | None,
    budget_s: float,
) -> float | None:
    """How far the baseline may lie above the best plan; `None` where nothing was proven."""
    if found is None:
        # The baseline is the only one where it is sure that there are no others.
        is_only = chain is None or _has_no_plan(chain, budget_s)
        return 0.0 if is_only else None
    if found.bound is None:
        return None
    baseline = objective_value(request.objective, table.baseline_time_s, table.baseline_energy_j)
    return gap_ratio_of(baseline, found.bound)


def _has_no_plan(chain: Chain, budget_s: float) -> bool:
    is_hole = not np.isfinite(chain.time_s).any(axis=1).all()
    return is_hole or least_time(chain).bound_s > budget_s


def _solution(
    table: PlanTable,
    request: PlanRequest,
    guard_band_ratio: float,
    choice: IntTable,
    status: Status,
    gap_ratio: float | None,
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
