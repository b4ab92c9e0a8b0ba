"""The least energy within a time budget around a chain, with a proven bound."""

from __future__ import annotations

import math

import numpy as np

from joulewise.plan.chain.close import Closer
from joulewise.plan.chain.improving import improved
from joulewise.plan.chain.mixing import Goal, Known
from joulewise.plan.chain.problem import Chain, ChainAnswer, PricedSolver
from joulewise.plan.chain.search import PriceSearch
from joulewise.plan.chain.spaced import SpacedSolver
from joulewise.plan.chain.stalled import StalledSolver
from joulewise.plan.knapsack import cheapest_within
from joulewise.plan.options import options_of

GAP_RATIO = 1e-3
"""Share of the energy by which an answer may lie above its bound, unless asked otherwise."""

_SMALL_NODE_COUNT = 8
_SEARCH_RATIO = 1e-6
_ENOUGH_RATIO = 1e-4


def solve_chain(
    chain: Chain, budget_s: float, *, gap_ratio: float | None = GAP_RATIO
) -> ChainAnswer | None:
    """Choose a point for every node: least energy, total time at most `budget_s`.

    The answer is never worse than the best single point. Chains of up to eight nodes without
    spacing are solved to proof; on longer ones the gap is closed to `gap_ratio` where the number
    of partial plans allows. What is proven says `bound_j` in any case.

    Args:
        chain: Nodes, changes, and how many regions there may be.
        budget_s: Time that an iteration may take, +inf for any; the caller adds its tolerance.
        gap_ratio: How close to its bound the answer shall be, as a share of its energy; `None`
            takes the answer as prices and mixtures leave it, which is quicker.

    Returns `None` where no plan is that fast.
    """
    if chain.changes.is_free and chain.max_region_count is None:
        return _unbound(chain, budget_s)
    solver = solver_of(chain)
    search = PriceSearch(chain, solver, budget_s)
    if not search.run(tolerance_ratio=_SEARCH_RATIO):
        return None
    best = search.best()
    if best is None:
        return None
    if chain.max_region_count == 1:
        # Single points are known one by one.
        return _answer(best, best.energy_j)
    bound_j = min(search.bound_j, best.energy_j)
    goal = Goal(budget_s=budget_s, price_w=search.price_w)
    if _gap_ratio(best, bound_j) > _SEARCH_RATIO:
        enough_j = search.bound_j + _ENOUGH_RATIO * best.energy_j
        best = improved(chain, search.plans, best, goal, enough_j=enough_j)
    if gap_ratio is not None and chain.time_s.shape[0] <= _SMALL_NODE_COUNT:
        gap_ratio = 0.0
    is_open = gap_ratio is not None and _gap_ratio(best, bound_j) > gap_ratio
    if gap_ratio is not None and is_open and isinstance(solver, StalledSolver):
        closer = Closer(chain, solver, best, goal)
        closer.run(gap_ratio)
        best, bound_j = closer.best, max(bound_j, closer.bound_j)
    return _answer(best, bound_j)


def least_time_s(chain: Chain) -> float:
    """Time of the fastest plan around the chain, changes included."""
    return chain.totals(solver_of(chain).least(math.inf).choices[0])[0]


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


def _gap_ratio(best: Known, bound_j: float) -> float:
    return (best.energy_j - bound_j) / best.energy_j if best.energy_j > 0.0 else 0.0
