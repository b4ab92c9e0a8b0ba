"""What decides a cell, as far as a sweep tells: the clock that ran and the memory setting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.sweep import BoolTable, FloatTable, IntTable, Sweep


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conditions:
    """The conditions of K kernels at P points.

    `clock_ratio` (K, P) is the SM clock that ran, as a share of the highest in the sweep; a
    power limit acts through it alone.
    `memory` (P,) numbers the memory settings from 0, `memory_count` in all;
    `is_auto_memory` (P,) marks the points that leave the memory clock to the driver while
    others set it: there a board may also hold another voltage.
    """

    clock_ratio: FloatTable
    memory: IntTable
    memory_count: int
    is_auto_memory: BoolTable


def conditions_of(sweep: Sweep) -> Conditions:
    """Read the conditions off a sweep.

    The held clock stands where it was recorded, else the clock that was set; where that is
    auto, the highest clock in the sweep. A cell that was not measured is taken to hold the
    clock that the other kernels held at its point, corrected by how its kernel differed from
    them elsewhere.
    """
    clock_mhz = _clock_mhz(sweep)
    labels = [point.mem_clock_mhz or 0 for point in sweep.points]
    distinct, memory = np.unique(labels, return_inverse=True)
    is_auto = np.array(labels) == 0
    return Conditions(
        clock_ratio=clock_mhz / clock_mhz.max(),
        memory=memory.reshape(-1).astype(np.int64),
        memory_count=len(distinct),
        is_auto_memory=is_auto & (not is_auto.all()),
    )


def power_capped_cells(sweep: Sweep) -> BoolTable:
    """(K, P) whether the cell carries the caveat `PowerCapped`."""
    rows = {kernel: row for row, kernel in enumerate(sweep.kernels)}
    columns = {point: column for column, point in enumerate(sweep.points)}
    is_capped = np.zeros(sweep.is_present.shape, dtype=np.bool_)
    for (kernel, point), caveats in sweep.cell_caveats.items():
        if any(caveat.kind is CaveatKind.POWER_CAPPED for caveat in caveats):
            is_capped[rows[kernel], columns[point]] = True
    return is_capped


def _clock_mhz(sweep: Sweep) -> FloatTable:
    """(K, P) the clock that ran, as far as it is known."""
    wanted = [point.sm_clock_mhz for point in sweep.points]
    if sweep.sm_clock_held_mhz is None:
        held = np.zeros(sweep.is_present.shape)
    else:
        held = np.where(sweep.is_present, sweep.sm_clock_held_mhz, 0.0)
    highest = float(held.max()) or float(max((clock or 0 for clock in wanted), default=0)) or 1.0
    column = np.array([float(clock or highest) for clock in wanted])
    for p in range(len(wanted)):
        ran = held[held[:, p] > 0, p]
        if ran.size:
            column[p] = np.median(ran)
    column = np.minimum(column, highest)
    most = np.array([min(float(clock or highest), highest) for clock in wanted])
    return np.where(held > 0, held, np.minimum(_expected_mhz(held, column), most))


def _expected_mhz(held: FloatTable, column: FloatTable) -> FloatTable:
    """(K, P) clocks where none was recorded.

    Where a regulator gives every kernel another clock, a kernel that ran slower than the
    others elsewhere is expected to do so here too.
    """
    is_known = held > 0
    ratio = np.where(is_known, held / column, 1.0)
    is_regulated = np.ptp(ratio, axis=0) > _REGULATED_RATIO
    counted = is_known & is_regulated
    own = np.where(counted, ratio, 0.0).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)
    own = np.where(counted.any(axis=1), own, 1.0)
    return np.asarray(column * np.where(is_regulated, own[:, None], 1.0))


# A point whose kernels ran at clocks further apart than this was regulated.
_REGULATED_RATIO = 0.005
