"""Repeated rows of one cell become one: medians, with the scatter they show."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from joulewise.store.sweep_rows import Cell, SweepRows, refuse_duplicates


def merge_repeats(rows: SweepRows) -> SweepRows:
    """One row a cell.

    Repeated rows give the median of time and of energy, their number as `window_count` and,
    if every cell was repeated, the standard deviation of one row. (From a single row no scatter
    can be told, and 0 would be a lie.) Rows without repeats pass as they are.

    Raises:
        InputError: cells repeat in a table that has scatter columns of its own.
    """
    rows_of: dict[Cell, list[int]] = {}
    for index, cell in enumerate(rows.cells):
        rows_of.setdefault(cell, []).append(index)
    groups = list(rows_of.values())
    if len(groups) == len(rows.cells):
        return rows
    if rows.time_std_s or rows.energy_std_j or rows.window_count:
        refuse_duplicates(rows)
    has_scatter = all(len(group) > 1 for group in groups)
    return dataclasses.replace(
        rows,
        cells=list(rows_of),
        time_s=[statistics.median(_of(rows.time_s, group)) for group in groups],
        energy_j=[statistics.median(_of(rows.energy_j, group)) for group in groups],
        time_std_s=_scatter(rows.time_s, groups) if has_scatter else None,
        energy_std_j=_scatter(rows.energy_j, groups) if has_scatter else None,
        window_count=[len(group) for group in groups],
    )


def _of(values: Sequence[float], group: Sequence[int]) -> list[float]:
    return [values[index] for index in group]


def _scatter(values: Sequence[float], groups: Sequence[Sequence[int]]) -> list[float]:
    return [statistics.stdev(_of(values, group)) for group in groups]
