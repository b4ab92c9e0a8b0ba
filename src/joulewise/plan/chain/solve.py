"""The least energy within a time budget around a chain, with a proven bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from joulewise.plan.chain.close import Closer
from joulewise.plan.chain.improving import improved
from joulewise.plan.chain.mixing import Goal, Known, known_plans
from joulewise.plan.chain.problem import Chain, ChainAnswer, PricedSolver
from joulewise.plan.chain.search import PriceSearch
from joulewise.plan.chain.spaced import SpacedSolver
from joulewise.plan.chain.stalled import StalledSolver
from joulewise.plan.knapsack import cheapest_within
from joulewise.plan.options import options_of
from joulewise.plan.rest import PROVEN_RATIO, gap_ratio_of

GAP_RATIO = 1e-3
"""Share of the energy by which an answer may lie above its bound, unless asked otherwise."""

_SMALL_NODE_COUNT = 8
_SMALL_CELL_COUNT = 1_024
_SEARCH_RATIO = 1e-6
_ENOUGH_RATIO = 1e-4


def solve_chain(
    chain: Chain, budget_s: float, *, gap_ratio: float | None = GAP_RATIO
) -> ChainAnswer | None:
    """Choose a point for every node: least energy, total time at most `budget_s`.

    The answer is never worse than the best single point. Without spacing the gap is closed to
    `gap_ratio` where the number of partial plans allows, and on small chains (`is_small`) to
    proof, which that number allows as a rule. What is proven says `bound_j` in any case.

    Args:
        chain: Nodes, changes, and how many regions there may be.
        budget_s: Time that an iteration may take, +inf for any; the caller adds its tolerance.
        gap_ratio: How close to its bound the answer shall be, as a share of its energy, 1e-9 at
            least; `None` takes it as prices and mixtures leave it, which is quicker.

    Returns `None` where no plan is that fast.
    """
    if chain.changes.is_free and chain.max_region_count is None:
        return _unbound(chain, budget_s)
    solver = solver_of(chain)
    search = PriceSearch(chain, solver, budget_s)
    search.run(tolerance_ratio=_SEARCH_RATIO)
    best = search.best()
    if best is None:
        return None
    if chain.max_region_count == 1:
        # Single points are known one by one.
        return _answer(best, best.energy_j)
    bound_j = min(search.bound_j, best.energy_j)
    goal = Goal(budget_s=budget_s, price_w=search.price_w)
    if gap_ratio_of(best.energy_j, bound_j) > _SEARCH_RATIO:
        enough_j = search.bound_j + _ENOUGH_RATIO * best.energy_j
        best = improved(chain, search.plans, best, goal, enough_j=enough_j)
    if gap_ratio is None or not isinstance(solver, StalledSolver):
        return _answer(best, bound_j)
    wanted_ratio = PROVEN_RATIO if is_small(chain) else max(gap_ratio, PROVEN_RATIO)
    if gap_ratio_of(best.energy_j, bound_j) > wanted_ratio:
        closer = Closer(chain, solver, best, goal)
        closer.run(wanted_ratio)
        best, bound_j = closer.best, max(bound_j, closer.bound_j)
    return _answer(best, bound_j)


def is_small(chain: Chain) -> bool:
    """Whether nodes and points are so few that proof takes little time."""
    is_short = chain.time_s.shape[0] <= _SMALL_NODE_COUNT
    return is_short and chain.time_s.size <= _SMALL_CELL_COUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastTime:
    """Time of the fastest plan found, changes included, and what no plan falls below.

    +inf where there is none; the two differ where the search was cut short.
    """

    found_s: float
    bound_s: float


def least_time(chain: Chain) -> LeastTime:
    """How fast plans around the chain may be."""
    fastest = solver_of(chain).least(math.inf)
    plans = known_plans(chain, fastest.choices)
    found_s = min((plan.time_s for plan in plans), default=math.inf)
    return LeastTime(found_s=found_s, bound_s=min(found_s, fastest.bound))


def solver_of(chain: Chain) -> PricedSolver:
    """The solver at a price for this chain's changes."""
    return SpacedSolver(chain) if chain.changes.is_spaced else StalledSolver(chain)


def _unbound(chain: Chain, budget_s: float) -> ChainAnswer | None:
    """Changes cost nothing: every node stands alone."""
    options = options_of(chain.time_s, chain.energy_j)
    if math.isinf(budget_s):
        choice = options.columns[options.cheapest]
        time_s, energy_j = chain.totals(choice)
        return ChainAnswer(choice=choice, time_s=time_s, energy_j=energy_j, bound_j=energy_j)
    answer = cheapest_within(options, budget_s)
    if answer is None:
        return None
    time_s, energy_j = chain.totals(answer.columns)
    return ChainAnswer(
        choice=answer.columns,
        time_s=time_s,
        energy_j=energy_j,
        bound_j=min(energy_j, float(np.asarray(answer.bound_j))),
    )


def _answer(best: Known, bound_j: float) -> ChainAnswer:
    return ChainAnswer(
        choice=best.choice, time_s=best.time_s, energy_j=best.energy_j, bound_j=bound_j
    )
