"""Least values along a chain of nodes, forward and backward, and the path behind them.

Values are (..., G), one per cell of the grid, or with *layers* (..., R + 1, G): layer r holds
what r changes lead to. A *last layer that absorbs* stands for R changes or more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.chain.steps import Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """How changes are counted: not at all (0), up to a number, or with an absorbing end."""

    change_count: int = 0
    is_absorbing: bool = True

    @property
    def is_counting(self) -> bool:
        """Whether values have a dimension of layers."""
        return self.change_count > 0


NO_LAYERS = Layers()


def forward(
    nodes: FloatTable, steps: Steps, first: FloatTable, layers: Layers = NO_LAYERS
) -> FloatTable:
    """(N + 1, ..., G) least values of paths; entry k is after node k, node k included.

    Args:
        nodes: (N, ..., G) values of the nodes, shaped to be added to `first`.
        steps: Costs of changes.
        first: Values after node 0, which need not be those of the node itself.
        layers: How changes are counted.

    The last entry is after the boundary that follows node N - 1, without the node there.
    """
    count = nodes.shape[0]
    values = np.empty((count + 1, *first.shape))
    values[0] = first
    for k in range(1, count):
        own = values[k]
        _advance(values[k - 1], steps.into(values[k - 1]), own, layers)
        own += nodes[k]
    _advance(values[count - 1], steps.into(values[count - 1]), values[count], layers)
    return values


def backward(
    nodes: FloatTable, steps: Steps, last: FloatTable, layers: Layers = NO_LAYERS
) -> FloatTable:
    """(N, ..., G) least values of what follows: entry k is after node k, node k not included.

    `last` are values after the boundary that follows node N - 1. With layers, layer r holds what
    r changes from here on lead to.
    """
    count = nodes.shape[0]
    values = np.empty((count, *last.shape))
    after = last
    for k in range(count - 1, -1, -1):
        _advance(after, steps.out_of(after), values[k], layers)
        after = values[k] + nodes[k]
    return values


def _advance(stay: FloatTable, change: FloatTable, out: FloatTable, layers: Layers) -> None:
    if not layers.is_counting:
        np.minimum(stay, change, out=out)
        return
    out[...] = stay
    later = out[..., 1:, :]
    np.minimum(later, change[..., :-1, :], out=later)
    if layers.is_absorbing:
        last = out[..., -1, :]
        np.minimum(last, change[..., -1, :], out=last)


def path(
    values: FloatTable, steps: Steps, end: int, layer: int = 0, layers: Layers = NO_LAYERS
) -> IntTable:
    """(N,) cells of the path behind `values[N, end]`, or `values[N, layer, end]`.

    Args:
        values: (N + 1, G) from `forward` at one price, or (N + 1, R + 1, G).
        steps: As given to `forward`.
        end: The cell after the last boundary.
        layer: The layer at the end, where changes are counted.
        layers: As given to `forward`.
    """
    if layers.is_counting:
        return _layered_path(values, steps, end, layer, layers)
    rows: dict[int, FloatTable] = {}
    found = np.empty(values.shape[0] - 1, dtype=np.int64)
    here = end
    for k in range(found.size - 1, -1, -1):
        before = values[k]
        if here not in rows:
            rows[here] = steps.to(here)
        arriving = before + rows[here]
        there = int(arriving.argmin())
        if arriving[there] < before[here]:
            here = there
        found[k] = here
    return found


def _layered_path(
    values: FloatTable, steps: Steps, end: int, layer: int, layers: Layers
) -> IntTable:
    """As `path`; a change to the point in force counts as one where that explains the value."""
    found = np.empty(values.shape[0] - 1, dtype=np.int64)
    here = end
    for k in range(found.size - 1, -1, -1):
        row = steps.to(here)
        row[here] = steps.repeat(here)
        best = (float(values[k, layer, here]), layer, here)
        is_absorbed = layers.is_absorbing and layer == layers.change_count
        sources = {layer - 1, layer} if is_absorbed else {layer - 1}
        for source in sources - {-1}:
            arriving = values[k, source] + row
            there = int(arriving.argmin())
            best = min(best, (float(arriving[there]), source, there), key=_first)
        _, layer, here = best
        found[k] = here
    return found


def _first(entry: tuple[float, int, int]) -> float:
    return entry[0]
