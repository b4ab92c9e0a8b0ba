"""One sweep along the nodes: the least cost of every region that may begin at each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.chain.spaced_arrivals import Arrivals
from joulewise.plan.chain.spaced_rules import SpacingRules


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Openings:
    """Regions that run across the cut, one per lane: their points and ages there, (B,) each.

    With `columns` of `None` one lane begins at any point, old enough for any change.
    """

    columns: IntTable | None
    ages_s: FloatTable

    @property
    def lane_count(self) -> int:
        """Lanes that run side by side."""
        return self.ages_s.size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layers:
    """Regions counted along the way: `count` layers, by changes so far; 1: not counted."""

    count: int = 1

    @property
    def step_count(self) -> int:
        """Layers that a change moves up."""
        return int(self.count > 1)


class Run:
    """Least costs along the nodes for lanes with given openings.

    A lane of the arrays is an opening and a layer, the layer running faster. `least` has the
    shape (N + 1, P, Z): entry (s, p) is the minimum over starts up to node s of the cost before
    the start less the sum of p's costs before it, so that a region's cost up to node k is that
    plus the sum before k. Row 0 holds the region across the cut, row N nothing. `begun` (N, Z)
    is the same for each start alone, at the opening's own point, from node 1 to N; N stands
    for a region that begins at the cut itself.
    """

    def __init__(
        self, sums: FloatTable, arrivals: Arrivals, openings: Openings, layers: Layers
    ) -> None:
        """Run along all nodes; `sums` (N + 1, P) are the priced costs before each node."""
        self.sums = sums
        self.arrivals = arrivals
        self.rules: SpacingRules = arrivals.rules
        self.openings = openings
        self.layers = layers
        frame = self.rules.frame
        self.least = np.empty((frame.node_count + 1, frame.point_count, self._lane_count))
        self.begun = np.full((frame.node_count, self._lane_count), np.inf)
        self.closed = np.full((frame.point_count, self._lane_count), np.inf)
        self.first_change: IntTable | None = None
        if openings.columns is not None:
            self.first_change = self.rules.first_changes(openings.columns, openings.ages_s)
        self._open()
        self._run()

    @property
    def _lane_count(self) -> int:
        return self.openings.lane_count * self.layers.count

    def _open(self) -> None:
        """Only the openings are there before node 1, and nothing ever in the last row."""
        self.least[-1] = np.inf
        self.least[0] = np.inf
        lanes = np.arange(self.openings.lane_count) * self.layers.count
        if self.openings.columns is None:
            self.least[0, :, 0] = 0.0
        else:
            self.least[0, self.openings.columns, lanes] = 0.0

    def _run(self) -> None:
        node_count, point_count = self.rules.frame.node_count, self.rules.frame.point_count
        flat = self.least.reshape(-1, self._lane_count)
        shape = (self.rules.levels_s.size, point_count, self._lane_count)
        held_count = int(self.first_change.max()) if self.first_change is not None else 0
        own = None
        if self.openings.columns is not None:
            own = np.repeat(self.openings.columns, self.layers.count), np.arange(self._lane_count)
        for node in range(1, node_count + 1):
            ended = flat.take(self.rules.places[node], axis=0).reshape(shape)
            ended += self.sums[node][:, None]
            if node < held_count:
                self._hold(ended, node)
            arrived = self.arrivals.least(ended)
            if self.layers.step_count:
                arrived = self._moved_up(arrived)
            if node < node_count:
                arrived -= self.sums[node][:, None]
            self._begin(arrived, node, own)

    def _begin(
        self, arrived: FloatTable, node: int, own: tuple[IntTable, IntTable] | None
    ) -> None:
        """Write down the regions that begin at a node; node N is the cut again."""
        frame = self.rules.frame
        if node == frame.node_count:
            self.closed[:] = arrived
            if own is not None:
                self.begun[node - 1] = arrived[own] - self.sums[node][own[0]]
            return
        if (hole := frame.holes[node]) is not None:
            arrived += hole
        if own is not None:
            self.begun[node - 1] = arrived[own]
        if (hole := frame.holes[node - 1]) is not None:
            np.minimum(self.least[node - 1] + hole, arrived, out=self.least[node])
        else:
            np.minimum(self.least[node - 1], arrived, out=self.least[node])

    def _hold(self, ended: FloatTable, node: int) -> None:
        """Forbid the regions across the cut to end before they are old enough."""
        assert self.first_change is not None
        assert self.openings.columns is not None
        levels, lanes = np.nonzero(node < self.first_change)
        shape = (*ended.shape[:2], self.openings.lane_count, self.layers.count)
        ended.reshape(shape)[levels, self.openings.columns[lanes], lanes] = np.inf

    def _moved_up(self, arrived: FloatTable) -> FloatTable:
        layered = arrived.reshape(arrived.shape[0], -1, self.layers.count)
        moved = np.full(layered.shape, np.inf)
        moved[:, :, 1:] = layered[:, :, :-1]
        return moved.reshape(arrived.shape)

    def traced(self, column: int, start: int, lane: int) -> IntTable:
        """(N,) the plan whose last region has this point and start (N: none before the cut).

        `lane` is one of the arrays' lanes.
        """
        node_count = self.rules.frame.node_count
        choice = np.empty(node_count, dtype=np.int64)
        choice[start:] = column
        node = start
        while node > 0:
            column, row = self._before(node, column, lane)
            lane -= self.layers.step_count
            first = self.first(column, row, lane)
            choice[first:node] = column
            node = first
        return choice

    def _before(self, node: int, column: int, lane: int) -> tuple[int, int]:
        """The point that a change at this node to this point comes from, and its last start."""
        rules, arrivals = self.rules, self.arrivals
        levels = rules.level_of[:, column]
        points = np.arange(rules.frame.point_count)
        rows = rules.places[node].reshape(-1, points.size)[levels] // points.size
        lane -= self.layers.step_count
        costs = self.least[rows, points, lane] + self.sums[node]
        costs += arrivals.costs[:, column][:, None]
        costs[~arrivals.allowed(column)] = np.inf
        if self.first_change is not None and self.openings.columns is not None:
            opening = lane // self.layers.count
            is_held = node < self.first_change[levels, opening]
            costs[is_held, int(self.openings.columns[opening])] = np.inf
        domain, point = divmod(int(costs.argmin()), points.size)
        return point, int(rows[domain, point])

    def first(self, column: int, row: int, lane: int) -> int:
        """The first start that has the least cost of all starts up to `row`."""
        is_present = self.rules.frame.is_present[:, column]
        least = self.least[:, column, lane]
        while row > 0 and is_present[row - 1] and least[row - 1] == least[row]:
            row -= 1
        return row
