"""One sweep along the nodes: the least cost of every region that may begin at each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.chain.spaced_arrivals import Arrivals
from joulewise.plan.chain.spaced_rules import SpacingRules


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Openings:
    """Regions that run up to the cut, one per lane: their points and ages there, (B,) each."""

    columns: IntTable
    ages_s: FloatTable


class Run:
    """Least costs along the nodes for lanes with given openings.

    Without openings one lane begins at any point, old enough for any change. With several
    layers, regions are counted: layer i has seen i changes. A lane of the arrays is an opening
    and a layer, the layer running faster. `least` has the
    shape (N + 2, P, Z): entry (s, p) is the minimum over starts up to number s of the cost
    before the start less the sum of p's costs before it, so that a region's cost up to node k is
    that plus the sum before k. Starts are numbered as in `SpacingRules`. `begun` (N, Z) is the
    same for the start at each node alone, at the opening's own point.
    """

    def __init__(
        self, sums: FloatTable, arrivals: Arrivals, openings: Openings | None, layer_count: int
    ) -> None:
        """Run along all nodes; `sums` (N + 1, P) are the priced costs before each node."""
        self.sums = sums
        self.arrivals = arrivals
        self.rules: SpacingRules = arrivals.rules
        self.layer_count = layer_count
        self.step_count = int(layer_count > 1)
        self.openings = openings
        opening_count = 1 if openings is None else openings.columns.size
        self.lane_count = opening_count * layer_count
        frame = self.rules.frame
        self.least = np.empty((frame.node_count + 2, frame.point_count, self.lane_count))
        self.begun = np.full((frame.node_count, self.lane_count), np.inf)
        self._held: tuple[IntTable, IntTable] | None = None
        if openings is not None:
            first_changes = self.rules.first_changes(openings.columns, openings.ages_s)
            self._held = first_changes, openings.columns
        self._costs_to: dict[int, FloatTable] = {}
        self._open()
        self._run()

    def _open(self) -> None:
        """Only the openings are there before node 0, and nothing ever in the last row."""
        self.least[-1] = np.inf
        self.least[0] = np.inf
        if self.openings is None:
            self.least[0, :, 0] = 0.0
        else:
            lanes = np.arange(0, self.lane_count, self.layer_count)
            self.least[0, self.openings.columns, lanes] = 0.0

    def _run(self) -> None:
        frame, rules = self.rules.frame, self.rules
        flat = self.least.reshape(-1, self.lane_count)
        shape = (rules.levels_s.size, frame.point_count, self.lane_count)
        held_count = 0 if self._held is None else int(self._held[0].max())
        own = None
        if self.openings is not None:
            columns = np.repeat(self.openings.columns, self.layer_count)
            own = columns, np.arange(self.lane_count)
        for node in range(frame.node_count):
            sums = self.sums[node][:, None]
            ended = flat.take(rules.places[node], axis=0).reshape(shape)
            ended += sums
            if node < held_count:
                self._hold(ended, node)
            arrived = self.arrivals.least(ended)
            if self.step_count:
                arrived = self._moved_up(arrived)
            arrived -= sums
            if (hole := frame.holes[node]) is not None:
                arrived += hole
            if own is not None:
                self.begun[node] = arrived[own]
            before = self.least[node]
            if node > 0 and (hole := frame.holes[node - 1]) is not None:
                before = before + hole
            np.minimum(before, arrived, out=self.least[node + 1])

    def _hold(self, ended: FloatTable, node: int) -> None:
        """Forbid the openings to end before they are old enough."""
        if self._held is None:
            return
        first_changes, columns = self._held
        levels, openings = np.nonzero(node < first_changes)
        layered = ended.reshape(*ended.shape[:2], -1, self.layer_count)
        layered[levels, columns[openings], openings] = np.inf

    def _moved_up(self, arrived: FloatTable) -> FloatTable:
        """Every change is one more."""
        layered = arrived.reshape(arrived.shape[0], -1, self.layer_count)
        moved = np.full(layered.shape, np.inf)
        moved[:, :, 1:] = layered[:, :, :-1]
        return moved.reshape(arrived.shape)

    def traced(self, column: int, node: int, lane: int) -> IntTable:
        """(N,) the plan whose last region has this point and begins at this node.

        `lane` is one of the arrays' lanes.
        """
        choice = np.empty(self.rules.frame.node_count, dtype=np.int64)
        choice[node:] = column
        while True:
            column, start = self._before(node, column, lane)
            lane -= self.step_count
            start = self.first(column, start, lane)
            choice[max(start - 1, 0) : node] = column
            if start == 0:
                return choice
            node = start - 1

    def _before(self, node: int, column: int, lane: int) -> tuple[int, int]:
        """The point that a change at this node to this point comes from, and its last start."""
        points = np.arange(self.rules.frame.point_count)
        levels = self.rules.level_of[:, column]
        starts = self.rules.places[node].reshape(-1, points.size)[levels] // points.size
        if column not in self._costs_to:
            self._costs_to[column] = self.arrivals.costs_to(column)
        lane -= self.step_count
        costs = self.least[starts, points, lane] + self.sums[node]
        costs += self._costs_to[column]
        if self._held is not None:
            first_changes, columns = self._held
            opening = lane // self.layer_count
            costs[node < first_changes[levels, opening], int(columns[opening])] = np.inf
        domain, point = divmod(int(costs.argmin()), points.size)
        return point, int(starts[domain, point])

    def first(self, column: int, start: int, lane: int) -> int:
        """The first start that has the least cost of all starts up to this one."""
        is_present = self.rules.frame.is_present[:, column]
        least = self.least[:, column, lane]
        while start > 0 and least[start - 1] == least[start]:
            # Start s is node s - 1; what begins earlier runs through node s - 2 as well.
            if start > 1 and not is_present[start - 2]:
                break
            start -= 1
        return start
