"""The least product time^n x energy: EDP (n = 1) and ED2P (n = 2) of a whole iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import IntTable
from joulewise.plan.knapsack import cheapest_within
from joulewise.plan.options import Options, relaxation_of
from joulewise.plan.rest import ROUNDING_RATIO

_ROUND_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProductAnswer:
    """The best choice found, (C,) columns of the table; products in J·s^n, proven and reached."""

    columns: IntTable
    product: float
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """The edge of the hull that the budget cuts: from a corner down at a rate."""

    corner_s: float
    corner_j: float
    rate_w: float
    exponent: int

    def product_at_time(self, time_s: float) -> float:
        """Product on the edge; above the edge it is larger."""
        return self._product(time_s, self.corner_j - self.rate_w * (time_s - self.corner_s))

    def product_at_energy(self, energy_j: float) -> float:
        return self._product(self.corner_s + (self.corner_j - energy_j) / self.rate_w, energy_j)

    def _product(self, time_s: float, energy_j: float) -> float:
        return float(time_s**self.exponent * energy_j)


def least_product(options: Options, exponent: int, budget_s: float) -> ProductAnswer | None:
    """Choose one option per class: least (total time)^exponent x total energy.

    The logarithm of the product is concave in time and energy, so over all plans the product is
    least at a corner of their convex hull, and those corners are the relaxation's whole plans.
    A budget cuts the hull: then plans between the last corner within the budget and the budget
    may be better. They are searched from the slow end, the cheapest within ever smaller budgets,
    until the edge of the hull proves that none of the rest is.

    Returns `None` where even the fastest options take longer than `budget_s` (+inf: no budget).
    """
    relaxation = relaxation_of(options)
    if relaxation.time_s[0] > budget_s:
        return None
    corner = int(np.searchsorted(relaxation.time_s, budget_s, side="right")) - 1
    products = relaxation.time_s[: corner + 1] ** exponent * relaxation.energy_j[: corner + 1]
    best = int(np.argmin(products))
    answer = ProductAnswer(
        columns=options.columns[relaxation.choice_after(best)],
        product=float(products[best]),
        bound=float(products[best]),
    )
    if corner == relaxation.rate_w.size:
        return answer
    edge = _Edge(
        corner_s=float(relaxation.time_s[corner]),
        corner_j=float(relaxation.energy_j[corner]),
        rate_w=float(relaxation.rate_w[corner]),
        exponent=exponent,
    )
    return _along_edge(options, edge, budget_s, answer)


def _along_edge(
    options: Options, edge: _Edge, budget_s: float, answer: ProductAnswer
) -> ProductAnswer:
    """Look between the last corner and the budget; `answer` is the best corner."""
    columns, product, passed, ahead = answer.columns, answer.product, answer.product, 0.0
    for _ in range(_ROUND_LIMIT):
        ahead = edge.product_at_time(budget_s)
        if budget_s <= edge.corner_s or ahead >= product:
            ahead = product
            break
        cheapest = cheapest_within(options, budget_s)
        if cheapest is None:
            ahead = product
            break
        # No plan ahead needs less energy than this bound; where it meets the edge is the least.
        ahead = edge.product_at_energy(cheapest.bound_j)
        if ahead >= product * (1.0 - ROUNDING_RATIO):
            break
        time_s = _time_s(options, cheapest.columns)
        passed = min(passed, time_s**edge.exponent * cheapest.bound_j)
        if time_s**edge.exponent * cheapest.energy_j < product:
            columns, product = cheapest.columns, time_s**edge.exponent * cheapest.energy_j
        if cheapest.bound_j <= 0.0:
            break
        # Slower than this, even the least energy of the rest makes no smaller product.
        hopeless_s = (product / cheapest.bound_j) ** (1.0 / edge.exponent)
        budget_s = min(time_s * (1.0 - 3.0 * ROUNDING_RATIO), hopeless_s)
    return ProductAnswer(columns=columns, product=product, bound=min(product, passed, ahead))


def _time_s(options: Options, columns: IntTable) -> float:
    """Total time when every class takes the option at its column."""
    is_chosen = options.columns == columns[options.classes]
    return float(options.time_s[is_chosen].sum())
