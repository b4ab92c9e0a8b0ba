"""A driver that picks the SM clock by load, as nvhost_podgov does on embedded boards.

Of a step the GPU is busy for the part that is not host time. At a lower clock that part grows;
the governor takes the lowest level at which it stays at or below its target, and the highest
where none does. So a job that waits for its host runs slowly by itself, and one that does not
runs at the top. The rule is a steady state of the real governor, which follows the load by
polls; its target is calibrated (docs/calibration.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import KernelWork
from joulewise.simulator.physics import (
    SteadyParts,
    SteadyTable,
    kernel_load,
    steady_parts,
    steady_state_of_load,
)
from joulewise.simulator.spec import GpuSpec

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GovernedState:
    """The steady state with every auto SM clock where the governor holds it, and its parts."""

    table: SteadyTable
    parts: SteadyParts


def governed_level(sm_clocks_mhz: Sequence[int], busy: FloatArray, target: float) -> int:
    """The place of the level that the governor takes.

    Args:
        sm_clocks_mhz: levels, ascending, shape (L,).
        busy: share of time in which the GPU is busy at each of them, shape (L,).
        target: share that the governor keeps at or below.
    """
    fitting = np.flatnonzero(np.asarray(busy) <= target)
    return int(fitting[0]) if len(fitting) else len(sm_clocks_mhz) - 1


def governed_state(
    spec: GpuSpec, works: Sequence[KernelWork], points: Sequence[OperatingPoint]
) -> GovernedState:
    """`steady_state` of every work at every point, arrays of shape (K, P).

    Without a governor, and where the SM clock is set, it is the same to the last bit.
    Raises NotSupported as `steady_state` does.
    """
    load = kernel_load(spec, works)
    levels, columns = _levels(spec, points)
    table = steady_state_of_load(spec, load, levels)
    parts = steady_parts(spec, load, levels, table)
    target = 1.0 if spec.load_governor is None else spec.load_governor.busy_target_ratio
    chosen = np.array(
        [
            [
                begin + governed_level(range(begin, end), parts.busy_ratio[row, begin:end], target)
                for begin, end in columns
            ]
            for row in range(len(works))
        ],
        dtype=np.int64,
    ).reshape(len(works), len(points))
    return GovernedState(table=_taken(table, chosen), parts=_taken_parts(parts, chosen))


def _levels(
    spec: GpuSpec, points: Sequence[OperatingPoint]
) -> tuple[list[OperatingPoint], list[tuple[int, int]]]:
    """Points to compute, and which stretch of them each wanted point chooses from."""
    levels: list[OperatingPoint] = []
    columns: list[tuple[int, int]] = []
    for point in points:
        begin = len(levels)
        if spec.load_governor is None or point.sm_clock_mhz is not None:
            levels.append(point)
        else:
            levels.extend(replace(point, sm_clock_mhz=mhz) for mhz in spec.grid.sm_clocks_mhz)
        columns.append((begin, len(levels)))
    return levels, columns


def _taken(table: SteadyTable, chosen: NDArray[np.int64]) -> SteadyTable:
    return SteadyTable(
        time_s=np.take_along_axis(table.time_s, chosen, axis=1),
        power_w=np.take_along_axis(table.power_w, chosen, axis=1),
        sm_clock_held_mhz=np.take_along_axis(table.sm_clock_held_mhz, chosen, axis=1),
        is_power_capped=np.take_along_axis(table.is_power_capped, chosen, axis=1),
        is_clock_not_held=np.take_along_axis(table.is_clock_not_held, chosen, axis=1),
    )


def _taken_parts(parts: SteadyParts, chosen: NDArray[np.int64]) -> SteadyParts:
    return SteadyParts(
        busy_ratio=np.take_along_axis(parts.busy_ratio, chosen, axis=1),
        core_w=np.take_along_axis(parts.core_w, chosen, axis=1),
        memory_w=np.take_along_axis(parts.memory_w, chosen, axis=1),
        host_w=np.take_along_axis(parts.host_w, chosen, axis=1),
    )
