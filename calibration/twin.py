"""The shipped physics once more, compiled, so that a fit takes seconds; a test holds both equal.

What a point means on a device (`point_conditions`) and what a work asks of it (`kernel_load`)
is not repeated here: only the arithmetic of a cell is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import numba
import numpy as np
from numpy.typing import NDArray

from joulewise.simulator.physics import KNEE_WIDTH_GHZ, KernelLoad
from joulewise.simulator.spec import GpuSpec

FloatArray = NDArray[np.float64]
_Cell = Callable[[float, FloatArray, FloatArray], tuple[float, float, float]]

_WIDTH_SQUARE = KNEE_WIDTH_GHZ**2
_STEP_COUNT = 60
_TOLERANCE_GHZ = 1e-12


def steady_twin(
    spec: GpuSpec, load: KernelLoad, conditions: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Time (s) and energy (J) per launch, both (K, P), at `point_conditions(spec, points)`."""
    curve = np.array(
        [
            spec.voltage_knee_mhz / 1e3,
            spec.voltage_slope_ratio_per_ghz,
            spec.voltage_curve_ratio_per_ghz2,
            spec.auto_voltage_knee_mhz / 1e3,
            spec.auto_voltage_slope_ratio_per_ghz,
            spec.clock_tree_w_per_ghz,
            spec.launch_s,
        ]
    )
    loads = np.stack(
        [
            load.compute_cycle_count,
            load.memory_bytes,
            load.core_j,
            load.memory_j,
            load.set_point_ratio,
            load.overlap_exponent_ratio,
        ],
        axis=1,
    )
    return _table(conditions, loads, curve, spec.grid.sm_clocks_mhz[0] / 1e3)


def _cell_python(clock: float, cell: FloatArray, curve: FloatArray) -> tuple[float, float, float]:
    """Time, power and slope of power; `cell`: cycles, traffic s, core J, memory J, p, W, auto."""
    compute, traffic, exponent = cell[0] / clock, cell[1], cell[4]
    if compute > traffic:
        minor = (traffic / compute) ** exponent
        computing = 1.0 / (1.0 + minor)
        busy = compute * (1.0 + minor) ** (1.0 / exponent)
    else:
        minor = (compute / traffic) ** exponent
        computing = minor / (1.0 + minor)
        busy = traffic * (1.0 + minor) ** (1.0 / exponent)
    time_s = busy + curve[6]
    x = clock - curve[0]
    root = math.sqrt(x * x + _WIDTH_SQUARE)
    above, above_slope = 0.5 * (x + root), 0.5 * (1.0 + x / root)
    voltage = 1.0 + (curve[1] + curve[2] * above) * above
    voltage_slope = (curve[1] + 2.0 * curve[2] * above) * above_slope
    if cell[6] > 0.0:
        x = clock - curve[3]
        root = math.sqrt(x * x + _WIDTH_SQUARE)
        voltage += curve[4] * 0.5 * (x + root)
        voltage_slope += curve[4] * 0.5 * (1.0 + x / root)
    square, square_slope = voltage * voltage, 2.0 * voltage * voltage_slope
    work_w = (cell[2] * square + cell[3]) / time_s
    power_w = cell[5] + curve[5] * square * clock + work_w
    slope = (
        curve[5] * (square_slope * clock + square)
        + (cell[2] * square_slope + work_w * busy * computing / clock) / time_s
    )
    return time_s, power_w, slope


_cell = cast("_Cell", numba.njit(cache=True, fastmath=True)(_cell_python))


def _regulated_python(
    target: float, set_point_w: float, lowest: float, cell: FloatArray, curve: FloatArray
) -> float:
    """Highest clock up to the target that keeps the set-point."""
    clock = target
    low, high = min(lowest, target), target
    for _ in range(_STEP_COUNT):
        _, power_w, slope = _cell(clock, cell, curve)
        if power_w > set_point_w:
            high = clock
        elif clock == target:
            return target
        else:
            low = clock
        following = clock - (power_w - set_point_w) / slope
        if not low < following < high:
            following = 0.5 * (low + high)
        moved = abs(following - clock)
        clock = following
        if moved < _TOLERANCE_GHZ:
            break
    return clock


_regulated = cast(
    "Callable[[float, float, float, FloatArray, FloatArray], float]",
    numba.njit(cache=True, fastmath=True)(_regulated_python),
)


def _table_python(
    conditions: FloatArray, loads: FloatArray, curve: FloatArray, lowest: float
) -> tuple[FloatArray, FloatArray]:
    shape = (loads.shape[0], conditions.shape[0])
    times = np.empty(shape)
    energies = np.empty(shape)
    cell = np.empty(7)
    for k in range(shape[0]):
        for i in range(shape[1]):
            cell[0] = loads[k, 0]
            cell[1] = loads[k, 1] / conditions[i, 1]
            cell[2] = loads[k, 2]
            cell[3] = loads[k, 3] * conditions[i, 2]
            cell[4] = loads[k, 5]
            cell[5] = conditions[i, 3]
            cell[6] = conditions[i, 4]
            set_point_w = loads[k, 4] * conditions[i, 5]
            clock = _regulated(conditions[i, 0], set_point_w, lowest, cell, curve)
            time_s, power_w, _ = _cell(clock, cell, curve)
            times[k, i] = time_s
            energies[k, i] = time_s * power_w
    return times, energies


_table = cast(
    "Callable[[FloatArray, FloatArray, FloatArray, float], tuple[FloatArray, FloatArray]]",
    numba.njit(cache=True, fastmath=True)(_table_python),
)
