"""Trades of time for energy around a chain: corners of the hull of all plans, and mixtures."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise

import numpy as np

from joulewise.domain.sweep import FloatTable
from joulewise.plan.chain.budgets import between
from joulewise.plan.chain.enumerated import all_plans, is_enumerable
from joulewise.plan.chain.mixing import Goal, Known, known_plans, mixtures, slope_w
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.search import PriceSearch, single_plans
from joulewise.plan.chain.solve import is_small, solver_of

_EVALUATION_LIMIT = 48
_SAME_RATIO = 1e-9
_QUICK_RATIO = 1e-4


def chain_totals(chain: Chain) -> tuple[FloatTable, FloatTable]:
    """Time (s) and energy (J) of plans from the fastest to the one of least energy.

    Of a chain with few plans all are looked at, so what none of them beats is exact. Otherwise
    prices of time are refined between neighbouring plans until there is no plan between them, or
    the count of prices is spent: those plans are corners of the convex hull of all plans. Single
    points join them, and so do mixtures of neighbouring corners where nothing but their cost
    restricts changes. On small chains a row of budgets is solved besides, where plans known lie
    far apart. Neither sorted nor free of dominated plans; empty where no plan is possible.
    """
    if is_enumerable(chain):
        every = [(plans.time_s, plans.energy_j) for plans in all_plans(chain)]
        return _joined(every)
    corners = _corners(chain)
    plans = [*corners, *single_plans(chain)]
    totals = [(np.array([p.time_s for p in plans]), np.array([p.energy_j for p in plans]))]
    if not chain.changes.is_spaced and chain.max_region_count is None:
        corners.sort(key=lambda plan: plan.time_s)
        for fast, slow in pairwise(corners):
            price_w = slope_w(fast, slow)
            if price_w is not None:
                goal = Goal(budget_s=slow.time_s, price_w=price_w)
                totals += [mixture.totals(goal) for mixture in mixtures(chain, fast, slow)]
    times, energies = _joined(totals)
    if is_small(chain) and times.size:
        more_s, more_j = between(chain, times, energies)
        times, energies = np.append(times, more_s), np.append(energies, more_j)
    return times, energies


def _joined(totals: list[tuple[FloatTable, FloatTable]]) -> tuple[FloatTable, FloatTable]:
    none = np.zeros(0)
    return (
        np.concatenate([none, *(times for times, _ in totals)]),
        np.concatenate([none, *(energies for _, energies in totals)]),
    )


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

    def best(price_w: float) -> list[Known]:
        plans = known_plans(chain, solver.least(price_w).choices)
        if math.isinf(price_w):
            return sorted(plans, key=lambda plan: (plan.time_s, plan.energy_j))[:1]
        return sorted(plans, key=lambda plan: plan.value_j(price_w))[:1]

    found = [*best(math.inf), *best(0.0)]
    pairs = deque(pairwise(found))
    while pairs and len(found) < _EVALUATION_LIMIT:
        fast, slow = pairs.popleft()
        price_w = slope_w(fast, slow)
        if price_w is None:
            continue
        limit_j = fast.value_j(price_w) * (1.0 - _SAME_RATIO)
        for plan in best(price_w):
            if plan.value_j(price_w) < limit_j:
                found.append(plan)
                pairs += [(fast, plan), (plan, slow)]
    return found
