"""The sweep table of measured cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import CellMeasurement
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import FloatTable, Sweep, SweepSource
from joulewise.measure.doubts import tally
from joulewise.measure.statistics import median, std

CellKey = tuple[str, OperatingPoint]


def sweep_from_cells(
    cells: Iterable[CellMeasurement],
    kernels: Sequence[str],
    points: Sequence[OperatingPoint],
    source: SweepSource,
    *,
    caveats: Sequence[Caveat] = (),
) -> Sweep:
    """Medians over the windows of each cell, with the scatter of one window.

    Cells of the same kernel, point and run are taken together.

    Args:
        cells: What was measured; cells that are missing stay absent.
        kernels: Rows of the table.
        points: Columns; the (auto, auto) point, which is the baseline, must be among them.
        source: Where the cells come from.
        caveats: Doubts about all of it, such as those of the device.

    Returns:
        Tables of shape (kernels, points); standard deviations are `None`, with a caveat, where
        a cell has one window only, and energy above idle where idle power is not known.

    Raises:
        MeasurementError: no baseline among the points, a cell that is not in the table, one
            without windows, or one cell from two measuring runs.
    """
    kernels, points = tuple(kernels), tuple(points)
    if AUTO not in points:
        raise MeasurementError(
            "the sweep has no (auto, auto) column, so there is nothing to compare with",
            hint="Measure the baseline too.",
        )
    merged = _merged(cells, kernels, points)
    rows = {kernel: row for row, kernel in enumerate(kernels)}
    columns = {point: column for column, point in enumerate(points)}
    layout = _Layout(
        shape=(len(kernels), len(points)),
        cells=tuple(
            ((rows[kernel], columns[point]), cell) for (kernel, point), cell in merged.items()
        ),
    )
    doubts = {key: tally(cell.windows) for key, cell in merged.items()}
    has_scatter = all(len(cell.windows) > 1 for cell in merged.values())
    time_s = layout.table(_time_s, absent=math.inf)
    return Sweep(
        kernels=kernels,
        points=points,
        baseline=AUTO,
        source=source,
        is_present=np.isfinite(time_s),
        time_s=time_s,
        energy_j=layout.table(_energy_j, absent=math.inf),
        time_std_s=layout.table_if_known(_time_std_s),
        energy_std_j=layout.table_if_known(_energy_std_j),
        window_count=layout.table(_window_count, absent=0.0).astype(np.int64),
        energy_above_idle_j=layout.table_if_known(_energy_above_idle_j),
        sm_clock_held_mhz=layout.table_if_known(_sm_clock_held_mhz),
        temp_c=layout.table_if_known(_temp_c),
        cell_caveats={key: seen for key, seen in doubts.items() if seen},
        caveats=(*caveats, *(() if has_scatter else (_NO_UNCERTAINTY,))),
    )


_NO_UNCERTAINTY = Caveat(
    kind=CaveatKind.NO_UNCERTAINTY, seen="at least one cell was measured in one window only"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where each cell stands in tables of this shape."""

    shape: tuple[int, int]
    cells: tuple[tuple[tuple[int, int], CellMeasurement], ...]

    def table(self, number: Callable[[CellMeasurement], float], *, absent: float) -> FloatTable:
        table = np.full(self.shape, absent)
        for place, cell in self.cells:
            table[place] = number(cell)
        return table

    def table_if_known(
        self, number: Callable[[CellMeasurement], float | None]
    ) -> FloatTable | None:
        """A table with 0 for absent cells; `None` where a cell does not know its number."""
        table = np.zeros(self.shape)
        for place, cell in self.cells:
            value = number(cell)
            if value is None:
                return None
            table[place] = value
        return table


def _merged(
    cells: Iterable[CellMeasurement], kernels: Sequence[str], points: Sequence[OperatingPoint]
) -> dict[CellKey, CellMeasurement]:
    known_kernels, known_points = frozenset(kernels), frozenset(points)
    merged: dict[CellKey, CellMeasurement] = {}
    for cell in cells:
        name = f"{cell.kernel} at {cell.point.label}"
        if cell.kernel not in known_kernels or cell.point not in known_points:
            raise MeasurementError(f"the cell {name} is not in the table")
        if not cell.windows:
            raise MeasurementError(f"the cell {name} has no windows")
        earlier = merged.get((cell.kernel, cell.point))
        merged[cell.kernel, cell.point] = cell if earlier is None else _together(earlier, cell)
    return merged


def _together(earlier: CellMeasurement, later: CellMeasurement) -> CellMeasurement:
    if earlier.run != later.run:
        raise MeasurementError(
            f"the cell {later.kernel} at {later.point.label} comes from two measuring runs, "
            f"{earlier.run!r} and {later.run!r}, whose times may not be compared",
            hint="Take the cells of one run.",
        )
    idle_power_w = later.idle_power_w if earlier.idle_power_w is None else earlier.idle_power_w
    return replace(earlier, idle_power_w=idle_power_w, windows=(*earlier.windows, *later.windows))


def _time_s(cell: CellMeasurement) -> float:
    return median([window.time_s for window in cell.windows])


def _energy_j(cell: CellMeasurement) -> float:
    return median([window.energy_j for window in cell.windows])


def _time_std_s(cell: CellMeasurement) -> float | None:
    return std([window.time_s for window in cell.windows])


def _energy_std_j(cell: CellMeasurement) -> float | None:
    return std([window.energy_j for window in cell.windows])


def _window_count(cell: CellMeasurement) -> float:
    return len(cell.windows)


def _energy_above_idle_j(cell: CellMeasurement) -> float | None:
    if cell.idle_power_w is None:
        return None
    return _energy_j(cell) - cell.idle_power_w * _time_s(cell)


def _sm_clock_held_mhz(cell: CellMeasurement) -> float | None:
    return _median_if_known([window.sm_clock_held_mhz for window in cell.windows])


def _temp_c(cell: CellMeasurement) -> float | None:
    return _median_if_known([window.temp_c for window in cell.windows])


def _median_if_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
