"""The least cost of changing the point between two neighbours, at a price of time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.changes import BOTH, MEMORY, SM, ChangeCosts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """The points of a table as cells of a grid: SM settings down, memory settings across.

    `columns` (G,) names the table's column of every cell, row by row; -1 where there is none.
    The costs of a change, (3, G) by domain and target, are those of `ChangeCosts`; where all
    domains cost the same to every target, one row of G cells in any order serves.
    """

    sm_count: int
    mem_count: int
    columns: IntTable
    stall_s: FloatTable
    energy_j: FloatTable
    is_by_target: bool

    def sm_of(self, cells: IntTable) -> IntTable:
        """Row of the grid, elementwise."""
        return cells // self.mem_count

    def mem_of(self, cells: IntTable) -> IntTable:
        """Column of the grid, elementwise."""
        return cells % self.mem_count

    def cells(self, table: FloatTable) -> FloatTable:
        """(N, G) cells of an (N, P) table; +inf where there is no such point."""
        if self.is_by_target:
            return table
        found = table[:, np.maximum(self.columns, 0)]
        found[:, self.columns < 0] = np.inf
        return found


def grid_of(changes: ChangeCosts) -> Grid:
    """Lay the points out so that least costs over a domain are least values along an axis."""
    if _is_by_target(changes.stall_s) and _is_by_target(changes.energy_j):
        return Grid(
            sm_count=1,
            mem_count=changes.sm_groups.size,
            columns=np.arange(changes.sm_groups.size),
            stall_s=changes.stall_s,
            energy_j=changes.energy_j,
            is_by_target=True,
        )
    sm_count = int(changes.sm_groups.max()) + 1
    mem_count = int(changes.mem_groups.max()) + 1
    columns = np.full(sm_count * mem_count, -1, dtype=np.int64)
    columns[changes.sm_groups * mem_count + changes.mem_groups] = np.arange(changes.sm_groups.size)
    is_absent = columns < 0
    costs = []
    for table in (changes.stall_s, changes.energy_j):
        cells = table[:, np.maximum(columns, 0)]
        cells[:, is_absent] = np.inf
        costs.append(cells)
    return Grid(
        sm_count=sm_count,
        mem_count=mem_count,
        columns=columns,
        stall_s=costs[0],
        energy_j=costs[1],
        is_by_target=False,
    )


class Steps:
    """Costs of changes at one price of time or at several, which then lead every array's shape.

    Values before or after a boundary have the shape (..., G): one per cell of the grid. A
    'change' to the point that is in force already is let through at the cost of a change: it is
    never better than staying, so no least value that includes staying is touched by it.
    """

    def __init__(self, grid: Grid, prices_w: tuple[float, ...]) -> None:
        """Price every change: energy + price x stall; the stall alone at a price of +inf."""
        self._grid = grid
        self.costs = np.stack([priced(grid.stall_s, grid.energy_j, one) for one in prices_w])
        shape = (len(prices_w), grid.sm_count, grid.mem_count)
        if grid.is_by_target:
            # Rows are equal where they are known; those that no two points need are +inf.
            self._to: FloatTable = self.costs.min(axis=1)
        else:
            self._sm = self.costs[:, SM].reshape(shape)
            self._memory = self.costs[:, MEMORY].reshape(shape)
            self._both = self.costs[:, BOTH].reshape(shape)
        single = np.maximum(
            np.where(np.isfinite(self.costs[:, SM]), self.costs[:, SM], 0.0),
            np.where(np.isfinite(self.costs[:, MEMORY]), self.costs[:, MEMORY], 0.0),
        )
        self._is_both_cheaper = not grid.is_by_target and bool((self.costs[:, BOTH] < single).any())

    def into(self, before: FloatTable) -> FloatTable:
        """Least value at each cell after a change: least of value before + cost.

        `before` is (price, ..., G), or (..., G) at a single price.
        """
        if self._grid.is_by_target:
            least = before.min(axis=-1, keepdims=True)
            return np.asarray(least + _spread(self._to, least.ndim))
        cells, sm, memory, both = self._laid_out(before)
        by_memory = cells.min(axis=-2, keepdims=True)
        by_sm = cells.min(axis=-1, keepdims=True)
        if self._is_both_cheaper:
            other = _least_elsewhere(cells)
        else:
            other = by_memory.min(axis=-1, keepdims=True)
        found = np.minimum(by_memory + sm, by_sm + memory)
        np.minimum(found, other + both, out=found)
        return np.asarray(found.reshape(before.shape))

    def out_of(self, after: FloatTable) -> FloatTable:
        """Least value at each cell before a change: least of cost + value after."""
        if self._grid.is_by_target:
            return np.asarray((after + _spread(self._to, after.ndim)).min(axis=-1, keepdims=True))
        cells, sm, memory, both = self._laid_out(after)
        found = np.minimum(
            (cells + sm).min(axis=-2, keepdims=True),
            (cells + memory).min(axis=-1, keepdims=True),
        )
        costly = cells + both
        if self._is_both_cheaper:
            np.minimum(found, _least_elsewhere(costly), out=found)
        else:
            np.minimum(found, costly.min(axis=(-2, -1), keepdims=True), out=found)
        return np.asarray(found.reshape(after.shape))

    def to(self, target: int) -> FloatTable:
        """(G,) what changing from each cell to `target` costs at the first price; 0 from itself."""
        if self._grid.is_by_target:
            found = np.full(self._to.shape[-1], self._to[0, target])
        else:
            costs = self.costs[0, :, target]
            table = np.full((self._grid.sm_count, self._grid.mem_count), costs[BOTH])
            table[:, target % self._grid.mem_count] = costs[SM]
            table[target // self._grid.mem_count, :] = costs[MEMORY]
            found = table.ravel()
        found[target] = 0.0
        return found

    def between(self, sources: IntTable) -> FloatTable:
        """(price, n, G) what changing from n cells to every cell costs; 0 to itself."""
        if self._grid.is_by_target:
            found = np.repeat(self._to[:, None, :], sources.size, axis=1)
        else:
            every = np.arange(self._grid.columns.size)
            is_same_sm = self._grid.sm_of(sources)[:, None] == self._grid.sm_of(every)
            is_same_memory = self._grid.mem_of(sources)[:, None] == self._grid.mem_of(every)
            rows = np.where(is_same_memory, SM, np.where(is_same_sm, MEMORY, BOTH))
            found = self.costs[:, rows, every]
        found[:, np.arange(sources.size), sources] = 0.0
        return found

    def repeat(self, target: int) -> float:
        """What a 'change' to the point in force costs here, at the first price."""
        costs = self.costs[0, :, target]
        return float(costs[:BOTH].min() if self._is_both_cheaper else costs.min())

    def _laid_out(
        self, values: FloatTable
    ) -> tuple[FloatTable, FloatTable, FloatTable, FloatTable]:
        grid = self._grid
        cells = values.reshape(*values.shape[:-1], grid.sm_count, grid.mem_count)
        return (
            cells,
            _spread(self._sm, cells.ndim, 2),
            _spread(self._memory, cells.ndim, 2),
            _spread(self._both, cells.ndim, 2),
        )


def _spread(costs: FloatTable, dimension_count: int, own_count: int = 1) -> FloatTable:
    """Costs (price, cell...) shaped to be added to (price, ..., cell...) or (..., cell...)."""
    if costs.shape[0] == 1:
        return np.asarray(costs[0])
    between = (1,) * (dimension_count - 1 - own_count)
    return costs.reshape(costs.shape[0], *between, *costs.shape[1:])


def priced(time_s: FloatTable, energy_j: FloatTable, price_w: float) -> FloatTable:
    """Energy + price x time; the time alone at a price of +inf. Absent cells stay +inf."""
    if math.isinf(price_w):
        return time_s
    if price_w == 0.0:
        # 0 x inf is no number; an absent cell has no energy either.
        return energy_j
    found: FloatTable = time_s * price_w
    found += energy_j
    return found


def _is_by_target(costs: FloatTable) -> bool:
    """Whether all domains cost the same to every target."""
    is_known = np.isfinite(costs)
    least = np.where(is_known, costs, np.inf).min(axis=0)
    most = np.where(is_known, costs, -np.inf).max(axis=0)
    return bool((most <= least).all())


def _least_elsewhere(cells: FloatTable) -> FloatTable:
    """Least value over all cells that share neither the row nor the column."""
    return least_of_others(least_of_others(cells, axis=-2), axis=-1)


def least_of_others(cells: FloatTable, *, axis: int) -> FloatTable:
    """Least value along an axis without the cell itself; +inf where it is alone."""
    if cells.shape[axis] == 1:
        return np.full(cells.shape, np.inf)
    two = np.partition(cells, 1, axis=axis)
    first, second = np.take(two, [0], axis=axis), np.take(two, [1], axis=axis)
    # Where the least occurs twice the second equals the first, so ties need no care.
    return np.where(cells == first, second, first)
