"""A sweep as one row a measured cell, and the table made of the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import BoolTable, FloatTable, IntTable, Sweep, SweepSource

Cell = tuple[str, OperatingPoint]

# Tables are dense: few rows of many kernels, each at points of its own, would fill the memory.
MOST_CELLS_COUNT = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRows:
    """Measured cells in the order of the file; entry i of each list is data row i + 1.

    Optional columns are `None` where the source had none.
    """

    file: str
    cells: Sequence[Cell]
    time_s: Sequence[float]
    energy_j: Sequence[float]
    time_std_s: Sequence[float] | None = None
    energy_std_j: Sequence[float] | None = None
    window_count: Sequence[int] | None = None


def operating_points(
    sm_clock_mhz: Sequence[float | None],
    mem_clock_mhz: Sequence[float | None],
    power_limit_w: Sequence[float | None],
) -> list[OperatingPoint]:
    """One point a row; clocks are whole numbers already."""
    known: dict[tuple[float | None, ...], OperatingPoint] = {}
    points = []
    for key in zip(sm_clock_mhz, mem_clock_mhz, power_limit_w, strict=True):
        if key not in known:
            sm, mem, limit = key
            known[key] = OperatingPoint(
                sm_clock_mhz=None if sm is None else int(sm),
                mem_clock_mhz=None if mem is None else int(mem),
                power_limit_w=limit,
            )
        points.append(known[key])
    return points


def refuse_duplicates(rows: SweepRows) -> None:
    """Every cell stands in one row.

    Raises:
        InputError: one stands in two; says which.
    """
    first_rows: dict[Cell, int] = {}
    for row, cell in enumerate(rows.cells, start=1):
        first = first_rows.setdefault(cell, row)
        if first != row:
            kernel, point = cell
            raise InputError(
                f"the cell of kernel {kernel!r} at {point.label} stands in row {first} already",
                file=rows.file,
                row=row,
                field="kernel",
                hint="Keep one row a cell; `joulewise import csv` takes medians of repeats.",
            )


def sweep_from_rows(rows: SweepRows, source: SweepSource) -> Sweep:
    """Make the table; kernels and points keep the order in which they first appear.

    The baseline is the (auto, auto) point where any kernel has it, else the point with the
    highest power limit, SM clock and memory clock, in that order, with a caveat.

    Raises:
        InputError: a kernel lacks the baseline, which is named; or the table is too large.
    """
    kernels = tuple(dict.fromkeys(kernel for kernel, _ in rows.cells))
    points = tuple(dict.fromkeys(point for _, point in rows.cells))
    require_table_size(kernels, points, rows.file)
    baseline = assumed_baseline(points)
    _require_baseline(rows, kernels, baseline)
    caveats = () if baseline == AUTO else (_baseline_assumed(baseline),)
    place = Placement(kernels, points, rows.cells)
    return Sweep(
        kernels=kernels,
        points=points,
        baseline=baseline,
        source=source,
        is_present=place.present(),
        time_s=place.floats(rows.time_s, absent=math.inf),
        energy_j=place.floats(rows.energy_j, absent=math.inf),
        time_std_s=place.optional(rows.time_std_s),
        energy_std_j=place.optional(rows.energy_std_j),
        window_count=place.counts(rows.window_count),
        caveats=caveats,
    )


def require_table_size(kernels: Sequence[str], points: Sequence[OperatingPoint], file: str) -> None:
    """Refuse a table that would not fit into memory.

    Raises:
        InputError: kernels times points are more than `MOST_CELLS_COUNT`.
    """
    if len(kernels) * len(points) > MOST_CELLS_COUNT:
        raise InputError(
            f"a table of {len(kernels)} kernels and {len(points)} operating points is too large",
            file=file,
            hint=f"At most {MOST_CELLS_COUNT} cells fit, measured or not; split the sweep.",
        )


class Placement:
    """Where each row goes in tables of shape (K, P)."""

    def __init__(
        self,
        kernels: Sequence[str],
        points: Sequence[OperatingPoint],
        cells: Sequence[Cell],
    ) -> None:
        """Look every cell up once. Raises KeyError for a cell outside the table."""
        row_of = {kernel: index for index, kernel in enumerate(kernels)}
        column_of = {point: index for index, point in enumerate(points)}
        self._shape = (len(kernels), len(points))
        self._where = (
            np.asarray([row_of[kernel] for kernel, _ in cells], dtype=np.intp),
            np.asarray([column_of[point] for _, point in cells], dtype=np.intp),
        )

    def present(self) -> BoolTable:
        """True where a row is."""
        table = np.zeros(self._shape, dtype=np.bool_)
        table[self._where] = True
        return table

    def floats(self, values: Sequence[float], *, absent: float) -> FloatTable:
        """The values at their cells, `absent` elsewhere."""
        table = np.full(self._shape, absent, dtype=np.float64)
        table[self._where] = values
        return table

    def optional(self, values: Sequence[float] | None) -> FloatTable | None:
        """The values at their cells, 0 elsewhere."""
        return None if values is None else self.floats(values, absent=0.0)

    def counts(self, values: Sequence[int] | None) -> IntTable | None:
        """The counts at their cells, 0 elsewhere."""
        if values is None:
            return None
        table = np.zeros(self._shape, dtype=np.int64)
        table[self._where] = values
        return table


def assumed_baseline(points: Sequence[OperatingPoint]) -> OperatingPoint:
    """The point that a table without a stated baseline is read with."""
    return AUTO if AUTO in points else max(points, key=_height)


def _height(point: OperatingPoint) -> tuple[float, float, float]:
    """A knob left to the driver may go as high as it likes."""
    return (
        math.inf if point.power_limit_w is None else point.power_limit_w,
        math.inf if point.sm_clock_mhz is None else point.sm_clock_mhz,
        math.inf if point.mem_clock_mhz is None else point.mem_clock_mhz,
    )


def _require_baseline(rows: SweepRows, kernels: Sequence[str], baseline: OperatingPoint) -> None:
    covered = {kernel for kernel, point in rows.cells if point == baseline}
    for kernel in kernels:
        if kernel not in covered:
            what = "auto, auto" if baseline == AUTO else f"highest clocks, {baseline.label}"
            raise InputError(
                f"kernel {kernel!r} has no row at the baseline ({what}) of the table",
                file=rows.file,
                field="kernel",
                hint="Measure the baseline for every kernel; empty clocks mean auto.",
            )


def _baseline_assumed(baseline: OperatingPoint) -> Caveat:
    return Caveat(
        kind=CaveatKind.BASELINE_ASSUMED,
        seen=f"No (auto, auto) row; {baseline.label}, the highest setting, is the baseline.",
    )
