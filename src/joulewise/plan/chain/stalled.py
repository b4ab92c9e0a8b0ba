"""Least energy + price x time around a chain whose changes stall and take energy.

The cycle is cut through its longest node, half of whose cost is paid on either side. Where the
path comes back to the point it began at, it is the best cycle, proven. Where it does not, the
points that the longest node may have in a better cycle are few: each is tried.
"""

from __future__ import annotations

import math

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.chain.passes import NO_LAYERS, Layers, backward, forward, path
from joulewise.plan.chain.problem import Chain, Priced
from joulewise.plan.chain.steps import Steps, grid_of, priced

_BATCH_CELL_COUNT = 4_000_000
_TRIED_CELL_COUNT = 60_000_000


class StalledSolver:
    """Solves a chain without spacing at a price; exact unless the chain is huge.

    `time_s` and `energy_j` are the (N, G) cells of the grid with the longest node first.
    """

    def __init__(self, chain: Chain) -> None:
        """Lay the chain's points out on a grid and cut the cycle open."""
        self._chain = chain
        self.grid = grid_of(chain.changes)
        self.first_node = int(np.argmax(chain.time_s.min(axis=1)))
        self.time_s = np.roll(self.grid.cells(chain.time_s), -self.first_node, axis=0)
        self.energy_j = np.roll(self.grid.cells(chain.energy_j), -self.first_node, axis=0)
        self._layers = _layers_of(chain)

    def least(self, price_w: float) -> Priced:
        """`price_w`: energy that a second of iteration time is worth, J/s; +inf: least time.

        At +inf the bound is a time, in s.
        """
        if self._chain.max_region_count == 1:
            return self._best_single(price_w)
        nodes = priced(self.time_s, self.energy_j, price_w)
        steps = Steps(self.grid, (price_w,))
        half = 0.5 * nodes[0]
        values = forward(nodes, steps, as_layers(half, self._layers), self._layers)
        ends = values[-1] + half
        choice, end = _path_to_least(values, ends, steps, self._layers)
        if choice[0] == end:
            return Priced(choices=(self.choice(choice),), bound=float(ends.min()))
        return self._closed(price_w, nodes, steps, choice, ends)

    def choice(self, cells: IntTable) -> IntTable:
        """The chain's columns for (N,) cells in the solver's order of nodes."""
        return np.roll(self.grid.columns[cells], self.first_node)

    def changes(self, before: IntTable, after: IntTable) -> tuple[FloatTable, FloatTable]:
        """Time (s) and energy (J) of changes between cells, elementwise."""
        columns = self.grid.columns
        return self._chain.changes.of(columns[before], columns[after])

    def _best_single(self, price_w: float) -> Priced:
        totals = priced(self._chain.time_s.sum(axis=0), self._chain.energy_j.sum(axis=0), price_w)
        best = int(np.argmin(totals))
        choice = np.full(self._chain.time_s.shape[0], best, dtype=np.int64)
        return Priced(choices=(choice,), bound=float(totals[best]))

    def _closed(
        self, price_w: float, nodes: FloatTable, steps: Steps, opened: IntTable, ends: FloatTable
    ) -> Priced:
        """Try the first node at every point that the open path does not exclude."""
        half = 0.5 * nodes[0]
        followed = backward(nodes, steps, self._final(half), self._layers)[0]
        if self._layers.is_counting:
            followed, ends = followed.min(axis=0), ends.min(axis=0)
        least = np.maximum(followed + half, ends)
        single = self._best_single(price_w)
        tries = _Tries(nodes, steps, self._layers)
        found = [single.choices[0], self.choice(opened)]
        values = [single.bound, self._value(found[1], price_w)]
        order = np.argsort(least, kind="stable")
        tried_count, bound = 0, min(values)
        while tried_count < order.size and least[order[tried_count]] < bound:
            if tried_count * nodes.size > _TRIED_CELL_COUNT:
                bound = float(least[order[tried_count]])
                break
            batch = order[tried_count : tried_count + tries.batch_count]
            batch = batch[least[batch] < bound]
            cells, value = tries.best(batch)
            found.append(self.choice(cells))
            values.append(value)
            bound = min(bound, value)
            tried_count += batch.size
        by_value = [i for i in np.argsort(values, kind="stable") if math.isfinite(values[i])]
        return Priced(choices=tuple(found[i] for i in by_value), bound=bound)

    def _final(self, half: FloatTable) -> FloatTable:
        """Values after the last boundary: no changes are left to come."""
        return as_layers(half, self._layers)

    def _value(self, choice: IntTable, price_w: float) -> float:
        """Priced totals; +inf for a plan with too many regions."""
        if not self._chain.is_possible(choice):
            return math.inf
        time_s, energy_j = self._chain.totals(choice)
        return time_s if math.isinf(price_w) else energy_j + price_w * time_s


class _Tries:
    """Best cycles through given points at the first node."""

    def __init__(self, nodes: FloatTable, steps: Steps, layers: Layers) -> None:
        self._nodes, self._steps, self._layers = nodes, steps, layers
        cell_count = nodes.size * (layers.change_count + 1)
        self.batch_count = max(1, _BATCH_CELL_COUNT // cell_count)

    def best(self, starts: IntTable) -> tuple[IntTable, float]:
        """Cells of the best cycle that starts at one of these, and its value."""
        first = np.full((starts.size, self._nodes.shape[1]), np.inf)
        rows = np.arange(starts.size)
        first[rows, starts] = self._nodes[0, starts]
        values = forward(self._nodes, self._steps, as_layers(first, self._layers), self._layers)
        closed = values[-1][rows, ..., starts].reshape(starts.size, -1)
        best, layer = divmod(int(np.argmin(closed)), closed.shape[1])
        cells = path(values[:, best], self._steps, int(starts[best]), layer, self._layers)
        return cells, float(closed[best, layer])


def _layers_of(chain: Chain) -> Layers:
    limit, node_count = chain.max_region_count, chain.time_s.shape[0]
    if limit is None or limit >= node_count:
        return NO_LAYERS
    return Layers(change_count=limit, is_absorbing=False)


def as_layers(values: FloatTable, layers: Layers) -> FloatTable:
    """(..., G) values where nothing has changed yet, with layers where they are counted."""
    if not layers.is_counting:
        return values
    found = np.full((*values.shape[:-1], layers.change_count + 1, values.shape[-1]), np.inf)
    found[..., 0, :] = values
    return found


def _path_to_least(
    values: FloatTable, ends: FloatTable, steps: Steps, layers: Layers
) -> tuple[IntTable, int]:
    """The path to the least of the ends, and the cell it ends at."""
    layer, end = divmod(int(np.argmin(ends)), ends.shape[-1])
    return path(values, steps, end, layer, layers), end
