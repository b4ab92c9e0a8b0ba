"""Trades of time for energy around a chain: corners of the hull of all plans, and mixtures."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise

import numpy as np

from joulewise.domain.sweep import FloatTable
from joulewise.plan.chain.mixing import Goal, Known, known, mixtures
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.search import PriceSearch, single_plans
from joulewise.plan.chain.solve import solver_of

_EVALUATION_LIMIT = 48
_SAME_RATIO = 1e-9
_QUICK_RATIO = 1e-4


def chain_totals(chain: Chain) -> tuple[FloatTable, FloatTable]:
    """Time (s) and energy (J) of plans from the fastest to the one of least energy.

    Prices of time are refined between neighbouring plans until there is no plan between them, or
    the count of prices is spent: those plans are corners of the convex hull of all plans. Single
    points join them, and so do mixtures of neighbouring corners where nothing but their cost
    restricts changes. Neither sorted nor free of dominated plans.
    """
    corners = _corners(chain)
    plans = [*corners, *single_plans(chain)]
    totals = [(np.array([p.time_s for p in plans]), np.array([p.energy_j for p in plans]))]
    if not chain.changes.is_spaced and chain.max_region_count is None:
        corners.sort(key=lambda plan: plan.time_s)
        for fast, slow in pairwise(corners):
            price_w = _slope_w(fast, slow)
            if price_w is not None:
                goal = Goal(budget_s=slow.time_s, price_w=price_w)
                totals += [mixture.totals(goal) for mixture in mixtures(chain, fast, slow)]
    return np.concatenate([t for t, _ in totals]), np.concatenate([e for _, e in totals])


def quick_totals(chain: Chain, budget_s: float) -> tuple[float, float] | None:
    """Time (s) and energy (J) of a plan within a budget, as prices alone find it.

    Returns `None` where there is none.
    """
    search = PriceSearch(chain, solver_of(chain), budget_s)
    search.run(tolerance_ratio=_QUICK_RATIO)
    best = search.best()
    return None if best is None else (best.time_s, best.energy_j)


def _corners(chain: Chain) -> list[Known]:
    """Plans of least energy + price x time, from a price of +inf to one of 0."""
    solver = solver_of(chain)

    def best(price_w: float) -> Known:
        plans = [known(chain, choice) for choice in solver.least(price_w).choices]
        if math.isinf(price_w):
            return min(plans, key=lambda plan: (plan.time_s, plan.energy_j))
        return min(plans, key=lambda plan: plan.energy_j + price_w * plan.time_s)

    found = [best(math.inf), best(0.0)]
    pairs = deque([(found[0], found[1])])
    while pairs and len(found) < _EVALUATION_LIMIT:
        fast, slow = pairs.popleft()
        price_w = _slope_w(fast, slow)
        if price_w is None:
            continue
        plan = best(price_w)
        line_j = fast.energy_j + price_w * fast.time_s
        if plan.energy_j + price_w * plan.time_s < line_j * (1.0 - _SAME_RATIO):
            found.append(plan)
            pairs += [(fast, plan), (plan, slow)]
    return found


def _slope_w(fast: Known, slow: Known) -> float | None:
    if slow.time_s <= fast.time_s or slow.energy_j >= fast.energy_j:
        return None
    return (fast.energy_j - slow.energy_j) / (slow.time_s - fast.time_s)
