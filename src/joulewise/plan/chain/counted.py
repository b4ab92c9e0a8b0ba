"""Lower bounds by the number of changes: few costly changes are what one price judges worst.

A plan that never changes its point and one that does so twice differ by the cost of two changes.
Where that is much, the line between two single points passes far below every plan with changes,
and so does the bound of a price. Counted apart, plans of so many changes get a price of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import FloatTable
from joulewise.plan.chain.passes import Layers, backward, forward
from joulewise.plan.chain.stalled import StalledSolver, as_layers
from joulewise.plan.chain.steps import Steps, priced

LEAST_COUNT = 2
"""A cycle that changes its point does so twice at least."""

_SPAN_RATIO = 4.0
_PRICE_COUNT = 9
_ROUND_COUNT = 3
_PRICES_KEPT = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nodes:
    """The chain's nodes and changes at several prices, the last of which is +inf: time."""

    prices_w: tuple[float, ...]
    values: FloatTable
    steps: Steps
    layers: Layers

    def duals(self, values: FloatTable, budget_s: float) -> FloatTable:
        """Lower bounds (price, ...) in J from values (price, ...), the price of +inf left out.

        A value of time beyond the budget is +inf at every price. Where time is not bounded, a
        price of it proves nothing.
        """
        prices = np.array(self.prices_w[:-1]).reshape(-1, *(1,) * (values.ndim - 1))
        if math.isinf(budget_s):
            return np.where(prices > 0.0, -np.inf, values[:-1])
        return np.where(values[-1] > budget_s, np.inf, values[:-1] - prices * budget_s)


def nodes_at(solver: StalledSolver, prices_w: tuple[float, ...], layers: Layers) -> Nodes:
    """Price all nodes; `values` has the shape (N, prices + 1, 1, G)."""
    every = (*prices_w, math.inf)
    values = np.stack([priced(solver.time_s, solver.energy_j, one) for one in every], axis=1)
    return Nodes(
        prices_w=every,
        values=values[:, :, None, :],
        steps=Steps(solver.grid, every),
        layers=layers,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountedBounds:
    """Per number of changes r the best bound found, (R + 1,) J, and the price that proves it.

    +inf: no plan with so many changes keeps the budget. Entries below 2 are +inf: single points
    are known one by one. A last layer that absorbs stands for R changes or more.
    """

    bounds_j: FloatTable
    prices_w: FloatTable

    def prices_below(self, target_j: float) -> tuple[float, ...]:
        """A few prices that prove the bounds of those counts that may fall below a target."""
        is_open = self.bounds_j < target_j
        return tuple(dict.fromkeys(self.prices_w[is_open].tolist()))[:_PRICES_KEPT]


def counted_bounds(
    solver: StalledSolver, *, budget_s: float, price_w: float, layers: Layers
) -> CountedBounds:
    """Search a price for every number of changes.

    Args:
        solver: The chain.
        budget_s: Time that a plan may take.
        price_w: The price that is best for all plans together: where the search begins.
        layers: How far to count.
    """
    prices = price_w * _SPAN_RATIO ** np.linspace(-1.0, 1.0, _PRICE_COUNT)
    tried, duals = np.zeros(0), np.zeros((0, layers.change_count + 1))
    for _ in range(_ROUND_COUNT):
        nodes = nodes_at(solver, tuple(prices.tolist()), layers)
        ends = _ends(nodes)
        tried = np.append(tried, prices)
        duals = np.concatenate([duals, nodes.duals(ends.min(axis=-1), budget_s)])
        order = np.argsort(tried)
        tried, duals = tried[order], duals[order]
        prices = _between(tried, duals)
        if not prices.size:
            break
    duals[:, :LEAST_COUNT] = np.inf
    best = duals.argmax(axis=0)
    return CountedBounds(bounds_j=duals.max(axis=0), prices_w=tried[best])


def start_bounds(nodes: Nodes, budget_s: float) -> FloatTable:
    """(G,) lower bound on the energy of plans with changes, by the first node's point."""
    half = 0.5 * nodes.values[0]
    ends = _ends(nodes)
    last = as_layers(half[:, 0], nodes.layers)
    followed = backward(nodes.values, nodes.steps, last, nodes.layers)[0] + half
    duals = nodes.duals(np.maximum(ends, followed), budget_s)
    return np.asarray(duals.max(axis=0)[LEAST_COUNT:].min(axis=0))


def _ends(nodes: Nodes) -> FloatTable:
    """(price, R + 1, G) least values of the opened cycle, by the point it ends at."""
    half = 0.5 * nodes.values[0]
    first = as_layers(half[:, 0], nodes.layers)
    return np.asarray(forward(nodes.values, nodes.steps, first, nodes.layers)[-1] + half)


def _between(tried: FloatTable, duals: FloatTable) -> FloatTable:
    """Prices on either side of every count's best; the bound is concave in the price."""
    best = duals[:, LEAST_COUNT:].argmax(axis=0)
    best = np.unique(best[np.isfinite(duals[:, LEAST_COUNT:].max(axis=0))])
    lower, upper = np.maximum(best - 1, 0), np.minimum(best + 1, tried.size - 1)
    found = np.concatenate([(tried[lower] + tried[best]) / 2, (tried[best] + tried[upper]) / 2])
    return np.setdiff1d(found, tried)
