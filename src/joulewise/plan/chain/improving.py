"""Plans within a budget from those that a search over prices has met."""

from __future__ import annotations

import numpy as np

from joulewise.plan.chain.mixing import Goal, Known, Mixture, mixtures
from joulewise.plan.chain.problem import Chain

_POOL_COUNT = 6
_MIXED_COUNT = 8
_ROUND_COUNT = 2


def improved(
    chain: Chain, plans: list[Known], best: Known, goal: Goal, *, enough_j: float
) -> Known:
    """The best mixture of two plans, and of what it becomes again; `best` if none betters it.

    Of the plans that are good at the price, those within the budget are mixed with those beyond.

    Args:
        chain: The problem.
        plans: What is known.
        best: The best of them within the budget.
        goal: The budget, and the price that proves most.
        enough_j: A plan of this energy is good enough.
    """
    by_value = sorted(plans, key=lambda plan: plan.value_j(goal.price_w))
    fast = [plan for plan in by_value if plan.time_s <= goal.budget_s][:_POOL_COUNT]
    slow = [plan for plan in by_value if plan.time_s > goal.budget_s][:_POOL_COUNT]
    pairs = [(one, another) for one in fast for another in slow]
    best = _best_of_pairs(chain, pairs, best, goal, enough_j)
    for _ in range(_ROUND_COUNT):
        if best.energy_j <= enough_j:
            break
        pairs = [(best, plan) for plan in (*fast, *slow)]
        found = _best_of_pairs(chain, pairs, best, goal, enough_j)
        if found is best:
            break
        best = found
    return best


def _best_of_pairs(
    chain: Chain, pairs: list[tuple[Known, Known]], best: Known, goal: Goal, enough_j: float
) -> Known:
    """Mix the most promising pairs, either way round."""
    candidates: list[Mixture] = []
    for one, another in pairs:
        candidates += mixtures(chain, one, another)
    bounds = np.array([candidate.bound_j(goal) for candidate in candidates])
    for i in np.argsort(bounds, kind="stable")[:_MIXED_COUNT].tolist():
        if best.energy_j <= max(bounds[i], enough_j):
            break
        best = candidates[i].best(goal, limit_j=best.energy_j) or best
    return best
