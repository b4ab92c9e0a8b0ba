"""Close what the prices leave open, as far as the number of partial plans allows."""

from __future__ import annotations

import math

import numpy as np

from joulewise.plan.chain.counted import (
    LEAST_COUNT,
    CountedBounds,
    counted_bounds,
    nodes_at,
    start_bounds,
)
from joulewise.plan.chain.labels import LabelBudget, Walk
from joulewise.plan.chain.mixing import Goal, Known, known
from joulewise.plan.chain.passes import Layers
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.stalled import StalledSolver
from joulewise.plan.rest import PROVEN_RATIO

LABEL_COUNT = 10_000_000
"""Partial plans looked at in all; what is beyond is left open, and the bound says so."""

_WIDTH_COUNT = 10_000
_CELL_COUNT = 40_000_000
_COUNTED_CHANGES = 4
_MOST_REGIONS = 16
# So that a gap just closed is not above the one asked for by rounding.
_INSIDE_RATIO = 1e-12
_LEAST_GAP_RATIO = 0.5 * PROVEN_RATIO
_PRICE_FACTORS = (1.0, 0.7, 1.4)


class Closer:
    """Looks for plans below a share of the best one's energy until there are none.

    `best` and `bound_j` are what is known at any time.
    """

    def __init__(self, chain: Chain, solver: StalledSolver, best: Known, goal: Goal) -> None:
        """Begin with the best plan known and the best price."""
        self._chain, self._solver, self._goal = chain, solver, goal
        self.best = best
        self.bound_j = -np.inf

    def run(self, gap_ratio: float, *, label_count: int = LABEL_COUNT) -> None:
        """Prove that no plan is better by more than `gap_ratio`, or find it and go on.

        Sums differ by rounding, so a gap below `PROVEN_RATIO` is not asked for. Without a budget
        there is nothing to do: a price of 0 has told all.
        """
        layers = self._layers()
        if layers is None or math.isinf(self._goal.budget_s):
            return
        counted = counted_bounds(
            self._solver,
            budget_s=self._goal.budget_s,
            price_w=self._goal.price_w,
            layers=layers,
        )
        self.bound_j = min(self.best.energy_j, float(counted.bounds_j.min()))
        if self.bound_j < self._target_j(gap_ratio):
            self._walk(counted, layers, gap_ratio, label_count)

    def _walk(
        self, counted: CountedBounds, layers: Layers, gap_ratio: float, label_count: int
    ) -> None:
        budget = LabelBudget(left_count=label_count, width_count=_WIDTH_COUNT)
        base = counted.prices_below(self._target_j(gap_ratio))
        prices = dict.fromkeys(factor * price for factor in _PRICE_FACTORS for price in base)
        nodes = nodes_at(self._solver, tuple(prices)[:6], layers)
        starts = start_bounds(nodes, self._goal.budget_s)
        dropped_j = np.inf
        for start in np.argsort(starts, kind="stable").tolist():
            target_j = self._target_j(gap_ratio)
            if starts[start] >= target_j:
                break
            walk = Walk(self._solver, nodes, start, budget_s=self._goal.budget_s, target_j=target_j)
            for cells in walk.run(budget):
                self._meet(known(self._chain, self._solver.choice(cells)))
            dropped_j = min(dropped_j, walk.dropped_j)
        proven_j = min(self._target_j(gap_ratio), dropped_j)
        self.bound_j = min(self.best.energy_j, max(self.bound_j, proven_j))

    def _meet(self, plan: Known) -> None:
        is_within = plan.time_s <= self._goal.budget_s and self._chain.is_possible(plan.choice)
        if is_within and plan.energy_j < self.best.energy_j:
            self.best = plan

    def _target_j(self, gap_ratio: float) -> float:
        return self.best.energy_j * (1.0 - max(gap_ratio - _INSIDE_RATIO, _LEAST_GAP_RATIO))

    def _layers(self) -> Layers | None:
        """How far changes are counted; `None` where the chain is too large to close."""
        limit, node_count = self._chain.max_region_count, self._solver.time_s.shape[0]
        layers = Layers(change_count=_COUNTED_CHANGES)
        if limit is not None and limit < node_count:
            layers = Layers(change_count=limit, is_absorbing=False)
        cell_count = self._solver.time_s.size * (layers.change_count + 1) * len(_PRICE_FACTORS)
        if not LEAST_COUNT <= layers.change_count <= _MOST_REGIONS or cell_count > _CELL_COUNT:
            return None
        return layers
