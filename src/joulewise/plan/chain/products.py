"""The least product time^n x energy around a chain: EDP (n = 1) and ED2P (n = 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from joulewise.plan.chain.mixing import Known, known_plans, slope_w
from joulewise.plan.chain.problem import Chain, PricedSolver
from joulewise.plan.chain.search import single_plans
from joulewise.plan.chain.solve import solver_of
from joulewise.plan.product import ProductAnswer
from joulewise.plan.rest import ROUNDING_RATIO

_EVALUATION_LIMIT = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Line:
    """No plan lies below energy + price x time = value; `plan` lies on it or near."""

    price_w: float
    value_j: float
    plan: Known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Corner:
    """Where the lines leave room for the least product; what lies on either side of it."""

    product: float
    fast: Known
    slow: Known


def least_chain_product(chain: Chain, exponent: int, budget_s: float) -> ProductAnswer | None:
    """Choose a point for every node: least (total time)^exponent x total energy.

    Every price of time gives a line that no plan lies below. The logarithm of the product is
    concave along a line, so the least product that the lines allow lies where two of them meet, or
    at the least time, or at the budget. There the next price is tried, until a plan is as good.

    Returns `None` where no plan is as fast as `budget_s` (+inf: no budget).
    """
    search = _ProductSearch(chain, solver_of(chain), exponent, budget_s)
    return search.run()


class _ProductSearch:
    def __init__(self, chain: Chain, solver: PricedSolver, exponent: int, budget_s: float) -> None:
        self._chain, self._solver = chain, solver
        self._exponent, self._budget_s = exponent, budget_s
        self._plans = single_plans(chain)
        self._lines: list[_Line] = []

    def run(self) -> ProductAnswer | None:
        """Price after price, until the bound meets a plan or no price tells more."""
        fastest = self._solver.least(math.inf)
        self._plans += known_plans(self._chain, fastest.choices)
        if self._best() is None:
            return None
        least_s = fastest.bound
        self._evaluate(0.0)
        fast = min(self._plans, key=lambda plan: (plan.time_s, plan.energy_j))
        tried = {0.0}
        corner = self._corner(least_s, fast)
        for _ in range(_EVALUATION_LIMIT):
            price_w = slope_w(corner.fast, corner.slow)
            if self._is_proven(corner.product) or price_w is None or price_w in tried:
                break
            tried.add(price_w)
            self._evaluate(price_w)
            corner = self._corner(least_s, fast)
        return self._answer(corner.product)

    def _evaluate(self, price_w: float) -> None:
        priced = self._solver.least(price_w)
        plans = known_plans(self._chain, priced.choices)
        self._plans += plans
        best = min(plans, key=lambda plan: plan.energy_j + price_w * plan.time_s)
        self._lines.append(_Line(price_w=price_w, value_j=priced.bound, plan=best))
        self._lines.sort(key=lambda line: -line.price_w)

    def _corner(self, least_s: float, fast: Known) -> _Corner:
        """The least product that the lines leave possible within the budget."""
        lines = _envelope(self._lines)
        plans = [fast, *(line.plan for line in lines)]
        times = [least_s, *(_meeting_s(*pair) for pair in pairwise(lines))]
        corners = [
            self._corner_at(min(max(time_s, least_s), self._budget_s), *sides)
            for time_s, sides in zip(times, pairwise(plans), strict=True)
        ]
        # Where the budget cuts the lines; beyond the last of them the product only rises.
        for sides in pairwise(plans):
            if sides[0].time_s <= self._budget_s < sides[1].time_s:
                corners.append(self._corner_at(self._budget_s, *sides))
                break
        return min(corners, key=lambda corner: corner.product)

    def _corner_at(self, time_s: float, fast: Known, slow: Known) -> _Corner:
        return _Corner(product=self._allowed(time_s), fast=fast, slow=slow)

    def _allowed(self, time_s: float) -> float:
        """The least product at this time that the lines leave possible."""
        least_j = max(line.value_j - line.price_w * time_s for line in self._lines)
        return float(time_s**self._exponent * max(least_j, 0.0))

    def _product(self, plan: Known) -> float:
        return float(plan.time_s**self._exponent * plan.energy_j)

    def _best(self) -> Known | None:
        fits = [plan for plan in self._plans if plan.time_s <= self._budget_s]
        return min(fits, key=self._product) if fits else None

    def _is_proven(self, bound: float) -> bool:
        best = self._best()
        return best is not None and bound >= self._product(best) * (1.0 - ROUNDING_RATIO)

    def _answer(self, bound: float) -> ProductAnswer | None:
        best = self._best()
        if best is None:
            return None
        product = self._product(best)
        return ProductAnswer(columns=best.choice, product=product, bound=min(bound, product))


def _envelope(lines: list[_Line]) -> list[_Line]:
    """Those of the lines, steepest first, that lie above the others somewhere."""
    kept: list[_Line] = []
    for line in lines:
        while len(kept) > 1 and _meeting_s(kept[-2], line) <= _meeting_s(kept[-2], kept[-1]):
            kept.pop()
        kept.append(line)
    return kept


def _meeting_s(steep: _Line, flat: _Line) -> float:
    return (steep.value_j - flat.value_j) / (steep.price_w - flat.price_w)
