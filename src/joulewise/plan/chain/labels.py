"""Close the gap of the prices: lists of partial plans that may still end below a target.

From one point at the first node the cycle is walked node by node. Each partial plan is a label: its
point, its time and its energy so far. What is left of the cycle bounds from below what a label
ends with, by its number of changes and at several prices; a label that cannot end below the target
goes, and so does one that is slower and costlier than another at the same point. Labels that have
not changed their point yet are one walk of its own; without a change it ends as a single point,
and those are known.

Source: Desrochers and Soumis, A generalized permanent labelling algorithm for the shortest path
problem with time windows, INFOR 26 (1988).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.chain.counted import LEAST_COUNT, Nodes
from joulewise.plan.chain.passes import backward
from joulewise.plan.chain.stalled import StalledSolver, as_layers

_ROUNDING_RATIO = 1e-12
_ENDED_COUNT = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labels:
    """n partial plans after some node, by cell: where they are, what they took, what may come.

    `change_counts` are the changes so far where these are bounded, 1 elsewhere. `least_j` bounds
    from below the energy that a label ends with. `parents` are indices into the labels after the
    node before; -1: no change until here.
    """

    cells: IntTable
    change_counts: IntTable
    time_s: FloatTable
    energy_j: FloatTable
    least_j: FloatTable
    parents: IntTable

    def subset(self, kept: IntTable) -> Labels:
        """Some of them."""
        return Labels(
            cells=self.cells[kept],
            change_counts=self.change_counts[kept],
            time_s=self.time_s[kept],
            energy_j=self.energy_j[kept],
            least_j=self.least_j[kept],
            parents=self.parents[kept],
        )


@dataclass(slots=True, kw_only=True, eq=False)
class LabelBudget:
    """How many labels may still be looked at in all, and how many kept after any one node."""

    left_count: int
    width_count: int


class Walk:
    """The lists of labels from one point at the first node, around to it again.

    `dropped_j` bounds from below what labels beyond the budget of labels could have ended with.
    """

    def __init__(
        self, solver: StalledSolver, nodes: Nodes, start: int, *, budget_s: float, target_j: float
    ) -> None:
        """Bound what is left after every node; `target_j` is what plans must fall below."""
        self._solver, self._nodes, self._start = solver, nodes, start
        self._limit_s = budget_s * (1.0 + _ROUNDING_RATIO)
        self._target_j = target_j
        self._most_changes = None if nodes.layers.is_absorbing else nodes.layers.change_count
        final = np.full((nodes.values.shape[1], nodes.values.shape[3]), np.inf)
        final[:, start] = 0.0
        self._after = backward(
            nodes.values, nodes.steps, as_layers(final, nodes.layers), nodes.layers
        )
        self._least_after = self._after.min(axis=2)
        self._trail: list[tuple[IntTable, IntTable]] = []
        self.dropped_j = np.inf

    def run(self, budget: LabelBudget) -> list[IntTable]:
        """Plans that may be below the target, the best first: (N,) cells in the solver's order."""
        leaving = self._leaving()
        own_s = np.cumsum(self._solver.time_s[:, self._start])
        own_j = np.cumsum(self._solver.energy_j[:, self._start])
        labels = _labels(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
        for k in range(1, own_s.size):
            targets = leaving[k - 1]
            if not labels.cells.size and not targets.size:
                self._trail.append((labels.cells, labels.parents))
                continue
            walked = _labels(np.full(targets.size, self._start), own_s[k - 1], own_j[k - 1])
            own, changed = self._changing(k, labels)
            budget.left_count -= labels.cells.size + own.size + targets.size
            labels = self._arrived(
                k,
                (labels, self._changed(labels, own, changed), self._changed(walked, None, targets)),
            )
            labels = self._narrow(labels, budget)
            self._trail.append((labels.cells, labels.parents))
        return self._ended(labels)

    def _leaving(self) -> list[IntTable]:
        """Cells that a walk along the first point may change to before nodes 1, 2, ..."""
        nodes, start = self._nodes, self._start
        walked = np.cumsum(nodes.values[:-1, :, 0, start], axis=0)
        steps = nodes.steps.between(np.array([start]))[:, 0]
        arriving = walked[:, :, None] + steps + nodes.values[1:, :, 0]
        # The change into the cell is one; at least one more brings it back.
        ending = arriving[:, :, None] + self._after[1:, :, LEAST_COUNT - 1 :]
        bounds = self._bounds(np.moveaxis(ending, 1, 0)).min(axis=1)
        bounds[:, start] = np.inf
        return [np.flatnonzero(row) for row in bounds < self._target_j]

    def _changing(self, k: int, labels: Labels) -> tuple[IntTable, IntTable]:
        """Labels that may change before node k, and what to: (m,) indices and cells."""
        begins = np.flatnonzero(np.diff(labels.cells, prepend=-1))
        if not begins.size:
            return begins, begins
        sources = labels.cells[begins]
        least = np.minimum.reduceat(self._values(labels), begins, axis=1)
        onward = self._nodes.values[k, :, 0] + self._least_after[k]
        steps = self._nodes.steps.between(sources)
        is_open = self._bounds(least[:, :, None] + steps + onward[:, None]) < self._target_j
        is_open[np.arange(sources.size), sources] = False
        pairs, targets = np.nonzero(is_open)
        counts = np.diff(begins, append=labels.cells.size)[pairs]
        shifts = begins[pairs] - np.append(0, np.cumsum(counts))[:-1]
        return np.arange(counts.sum()) + np.repeat(shifts, counts), np.repeat(targets, counts)

    def _changed(self, labels: Labels, own: IntTable | None, targets: IntTable) -> Labels:
        """Labels `own` at their targets; `None`: the walk along the first point."""
        parents = np.full(targets.size, -1) if own is None else own
        before = labels if own is None else labels.subset(own)
        stalled_s, spent_j = self._solver.changes(before.cells, targets)
        counts = before.change_counts + (0 if self._most_changes is None or own is None else 1)
        return Labels(
            cells=targets,
            change_counts=counts,
            time_s=before.time_s + stalled_s,
            energy_j=before.energy_j + spent_j,
            least_j=before.least_j,
            parents=parents,
        )

    def _arrived(self, k: int, parts: tuple[Labels, Labels, Labels]) -> Labels:
        """The labels of these that may end below the target once node k is through."""
        cells = np.concatenate([part.cells for part in parts])
        stayed = np.arange(parts[0].cells.size)
        arrived = Labels(
            cells=cells,
            change_counts=np.concatenate([part.change_counts for part in parts]),
            time_s=np.concatenate([part.time_s for part in parts]) + self._solver.time_s[k, cells],
            energy_j=np.concatenate([part.energy_j for part in parts])
            + self._solver.energy_j[k, cells],
            least_j=np.zeros(cells.size),
            parents=np.concatenate([stayed, parts[1].parents, parts[2].parents]),
        )
        # What is left by any number of changes is soon told, and excludes most.
        roughly = self._bounds(self._values(arrived) + self._least_after[k][:, cells])
        arrived = replace(arrived, least_j=roughly)
        arrived = arrived.subset(np.flatnonzero(roughly < self._target_j))
        arrived = replace(arrived, least_j=self._least_j(k, arrived))
        arrived = arrived.subset(np.flatnonzero(arrived.least_j < self._target_j))
        return arrived.subset(self._undominated(arrived))

    def _least_j(self, k: int, labels: Labels) -> FloatTable:
        """What labels after node k end with at least."""
        ending = self._values(labels)[:, None] + self._after[k][:, :, labels.cells]
        bounds = self._bounds(ending)
        if self._most_changes is not None:
            left = self._most_changes - labels.change_counts
            bounds[np.arange(bounds.shape[0])[:, None] > left] = np.inf
        return np.asarray(bounds.min(axis=0))

    def _values(self, labels: Labels) -> FloatTable:
        """(price + 1, n) energy + price x time so far; the last row is the time."""
        prices = np.array(self._nodes.prices_w[:-1])
        values = labels.energy_j + prices[:, None] * labels.time_s
        return np.concatenate([values, labels.time_s[None]])

    def _bounds(self, values: FloatTable) -> FloatTable:
        """The best of the prices' bounds on the energy: (price + 1, ...) to (...)."""
        return np.asarray(self._nodes.duals(values, self._limit_s).max(axis=0))

    def _undominated(self, labels: Labels) -> IntTable:
        """Those that no faster one with the same cell and changes undercuts, by cell."""
        span = int(labels.change_counts.max(initial=0)) + 1
        states = labels.cells * span + labels.change_counts
        order = np.lexsort((labels.energy_j, labels.time_s, states))
        # Ranks of energies, all of one state above all of the next: exact, whatever the sizes.
        _, ranks = np.unique(labels.energy_j, return_inverse=True)
        falling = ranks[order] - ranks.size * states[order]
        least = np.minimum.accumulate(falling)
        is_better = np.append([True], falling[1:] < least[:-1])[: order.size]
        return np.asarray(order[is_better])

    def _narrow(self, labels: Labels, budget: LabelBudget) -> Labels:
        """Keep the most promising of too many."""
        limit = budget.width_count if budget.left_count > 0 else 0
        if labels.cells.size > limit:
            order = np.argsort(labels.least_j, kind="stable")
            self.dropped_j = min(self.dropped_j, float(labels.least_j[order[limit]]))
            labels = labels.subset(np.sort(order[:limit]))
        return labels

    def _ended(self, labels: Labels) -> list[IntTable]:
        """The plans behind the labels that are left, closed into cycles."""
        stalled_s, spent_j = self._solver.changes(
            labels.cells, np.full(labels.cells.size, self._start)
        )
        energies = np.where(
            labels.time_s + stalled_s <= self._limit_s, labels.energy_j + spent_j, np.inf
        )
        order = np.argsort(energies, kind="stable")[:_ENDED_COUNT]
        return [self._cells(int(i)) for i in order if energies[i] < self._target_j]

    def _cells(self, label: int) -> IntTable:
        found = np.full(self._solver.time_s.shape[0], self._start, dtype=np.int64)
        for k in range(len(self._trail) - 1, -1, -1):
            cells, parents = self._trail[k]
            found[k + 1] = cells[label]
            label = int(parents[label])
            if label < 0:
                break
        return found


def _labels(cells: IntTable, time_s: FloatTable | float, energy_j: FloatTable | float) -> Labels:
    """Labels that have changed once, or are about to."""
    shape = cells.shape
    return Labels(
        cells=cells,
        change_counts=np.ones(shape, dtype=np.int64),
        time_s=np.broadcast_to(time_s, shape),
        energy_j=np.broadcast_to(energy_j, shape),
        least_j=np.full(shape, -np.inf),
        parents=np.full(shape, -1),
    )
