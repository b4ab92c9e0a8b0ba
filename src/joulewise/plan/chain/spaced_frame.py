"""A chain cut open before one of its nodes, with running sums over its nodes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.sweep import BoolTable, FloatTable, IntTable
from joulewise.plan.chain.problem import Chain

TIE_BREAK_RATIO = 1e-10
"""Where least time is sought, all energy together weighs this share of the time."""


class Frame:
    """N nodes x P points from the cut on: node 0 is the chain's node `cut`.

    What the region that runs up to the cut may do after it depends on how long it has run
    there, and that is only known once the cycle is closed. So the cut lies where a long node
    comes before it and another follows: there it matters least.
    """

    def __init__(self, chain: Chain) -> None:
        """Choose the cut, and add up time and energy along the nodes."""
        self.chain = chain
        self.node_count, self.point_count = chain.time_s.shape
        is_present = np.isfinite(chain.time_s) & np.isfinite(chain.energy_j)
        node_s = np.where(is_present, chain.time_s, 0.0)
        self.cut = _cut(np.where(is_present, chain.time_s, np.inf), chain.changes.spacing_s)
        self.is_present: BoolTable = np.roll(is_present, -self.cut, axis=0)
        self.time_sums_s = _sums(np.roll(node_s, -self.cut, axis=0))
        self.energy_sums_j = _sums(
            np.roll(np.where(is_present, chain.energy_j, 0.0), -self.cut, axis=0)
        )
        self.holes = _holes(self.is_present)
        self.first_present = _first_present(self.is_present)

    def priced_sums(self, price_w: float) -> FloatTable:
        """(N + 1, P) cost of the nodes before each node at one point, absent cells left out."""
        if math.isinf(price_w):
            return np.asarray(self.time_sums_s + self._energy_weight * self.energy_sums_j)
        return np.asarray(self.energy_sums_j + price_w * self.time_sums_s)

    def priced_changes(self, price_w: float) -> FloatTable:
        """(3, P) cost of a change by domain and target; +inf where no two points make it."""
        changes = self.chain.changes
        is_made = np.isfinite(changes.stall_s)
        stall_s = np.where(is_made, changes.stall_s, 0.0)
        energy_j = np.where(is_made, changes.energy_j, 0.0)
        if math.isinf(price_w):
            return np.where(is_made, stall_s + self._energy_weight * energy_j, np.inf)
        return np.where(is_made, energy_j + price_w * stall_s, np.inf)

    def priced(self, choice: IntTable, price_w: float) -> float:
        """Cost of a plan of the chain."""
        time_s, energy_j = self.chain.totals(choice)
        if math.isinf(price_w):
            return time_s + self._energy_weight * energy_j
        return energy_j + price_w * time_s

    def bound(self, cost: float, price_w: float) -> float:
        """What no plan falls below where none costs less than `cost`: J, or s at least time.

        Rounding in the running sums is allowed for.
        """
        if math.isinf(cost):
            return cost
        if math.isinf(price_w):
            return cost - TIE_BREAK_RATIO * self._least_s - 1e-13 * abs(cost)
        return cost - 1e-13 * abs(cost)

    def of_chain(self, turned: IntTable) -> IntTable:
        """A plan of the chain from one of the nodes from the cut on."""
        return np.roll(turned, self.cut)

    def singles(self) -> IntTable:
        """Points at which every node can run."""
        return np.flatnonzero(self.first_present[self.node_count] == 0)

    @property
    def _least_s(self) -> float:
        """No plan takes less time."""
        return float(self.chain.time_s.min(axis=1).sum())

    @property
    def _energy_weight(self) -> float:
        """Seconds that a joule weighs where least time is sought: it only breaks ties."""
        is_present = np.isfinite(self.chain.energy_j)
        most_j = float(np.where(is_present, self.chain.energy_j, 0.0).max(axis=1).sum())
        energy_j = self.chain.changes.energy_j
        made_j = energy_j[np.isfinite(energy_j)]
        if made_j.size:
            most_j += self.node_count * float(made_j.max())
        return TIE_BREAK_RATIO * self._least_s / most_j if most_j > 0.0 else 0.0


def _cut(time_s: FloatTable, spacing_s: FloatTable) -> int:
    """The node before which little is open: it and the node before outlast most spacings."""
    made_s = spacing_s[np.isfinite(spacing_s)]
    longest_s = float(made_s.max()) if made_s.size else 0.0
    shortest_s = np.minimum(time_s.min(axis=1), longest_s)
    return int(np.argmax(2.0 * np.roll(shortest_s, 1) + shortest_s))


def _sums(values: FloatTable) -> FloatTable:
    sums = np.zeros((values.shape[0] + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=sums[1:])
    return sums


def _holes(is_present: BoolTable) -> tuple[NDArray[np.float64] | None, ...]:
    """By node: +inf at the points where it cannot run, else 0; `None` where it can at all."""
    return tuple(None if row.all() else np.where(row, 0.0, np.inf)[:, None] for row in is_present)


def _first_present(is_present: BoolTable) -> IntTable:
    """(N + 1, P) first node from which a point can run all nodes before each node."""
    node_count, point_count = is_present.shape
    after_hole = np.where(is_present, 0, np.arange(1, node_count + 1)[:, None])
    first = np.zeros((node_count + 1, point_count), dtype=np.int64)
    np.maximum.accumulate(after_hole, axis=0, out=first[1:])
    return first
