"""Time and board power of kernels at operating points, at thermal steady state, without noise.

The model (clocks in GHz inside this module):

* time: `t = launch + ((a/f)^p + (b/B)^p + w^p)^(1/p)`, a smooth maximum of computing at SM clock
  f, traffic b at bandwidth B of the memory clock and a wait w that no clock shortens; a/f stands
  for caches and interconnect too. What only waits is no kernel, and nobody launches it: `t = w`;
* voltage above its floor: `V = 1 + v1 x + v2 x^2`, x = softplus(f - knee); while the memory
  clock is left to the driver, a second ramp adds to it;
* power: `P = base + standby + c V^2 f + (C a V^2 + e b + h w)/t`, the host's h w on modules only;
* clock: a set clock is a maximum; a regulator lowers it until P keeps the set-point, which is
  another one in the auto than in the locked memory state.

Fitted to arXiv 2601.08539 (table 1, figures 3 and 4); see docs/calibration.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import KernelWork
from joulewise.simulator.spec import GpuSpec, MemoryState

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

KNEE_WIDTH_GHZ = 0.03
_MHZ_PER_GHZ = 1000.0
# Clocks are listed 15 MHz apart: nearer than half a step is the clock that was set.
_HELD_WITHIN_MHZ = 7.5
_REGULATOR_STEP_COUNT = 60
_REGULATOR_TOLERANCE_GHZ = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SteadyTable:
    """Steady state of K kernels at P points; every array has the shape (K, P).

    `power_w` is board power; energy per launch is `power_w * time_s`.
    """

    time_s: FloatArray
    power_w: FloatArray
    sm_clock_held_mhz: FloatArray
    is_power_capped: BoolArray
    is_clock_not_held: BoolArray

    @property
    def energy_j(self) -> FloatArray:
        """Board energy per launch."""
        return self.power_w * self.time_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SteadyParts:
    """What a steady state consists of; every array has the shape (K, P).

    `busy_ratio` is the share of time that the GPU would need without the wait. Powers are of
    the GPU (clock tree and cores), of memory (standby and traffic) and of the host; with
    `GpuSpec.base_w` they sum to the board power.
    """

    busy_ratio: FloatArray
    core_w: FloatArray
    memory_w: FloatArray
    host_w: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelLoad:
    """Kernel works as one device feels them; arrays of shape (K,).

    `compute_cycle_count` is in units of 1e9 cycles (seconds x GHz); `memory_bytes` is the
    traffic at full bandwidth that would take as long; the energies are those of one launch at
    the voltage floor and at the top memory clock. `wait_s` is time that the work overlaps with
    and no clock shortens: on a link between GPUs, or until the host has more to do.
    """

    compute_cycle_count: FloatArray
    memory_bytes: FloatArray
    core_j: FloatArray
    memory_j: FloatArray
    set_point_ratio: FloatArray
    overlap_exponent_ratio: FloatArray
    wait_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cells:
    """Everything that decides cells, flat: arrays of one length, clocks in GHz."""

    target: FloatArray
    cycles: FloatArray
    traffic_s: FloatArray
    wait_s: FloatArray
    launch_s: FloatArray
    exponent: FloatArray
    core_j: FloatArray
    memory_j: FloatArray
    host_j: FloatArray
    auto: FloatArray
    fixed_w: FloatArray
    set_point_w: FloatArray

    def where(self, chosen: BoolArray) -> _Cells:
        return _Cells(
            target=self.target[chosen],
            cycles=self.cycles[chosen],
            traffic_s=self.traffic_s[chosen],
            wait_s=self.wait_s[chosen],
            launch_s=self.launch_s[chosen],
            exponent=self.exponent[chosen],
            core_j=self.core_j[chosen],
            memory_j=self.memory_j[chosen],
            host_j=self.host_j[chosen],
            auto=self.auto[chosen],
            fixed_w=self.fixed_w[chosen],
            set_point_w=self.set_point_w[chosen],
        )


def steady_state(
    spec: GpuSpec,
    works: Sequence[KernelWork],
    points: Sequence[OperatingPoint],
    *,
    leakage_w: float = 0.0,
) -> SteadyTable:
    """Time, power and held clock of every work at every point.

    `leakage_w` is the power by which the board deviates from its thermal steady state.
    Raises NotSupported for a clock that the device does not list, a power limit out of its
    range or arithmetic that it lacks.
    """
    return steady_state_of_load(spec, kernel_load(spec, works), points, leakage_w=leakage_w)


def kernel_load(spec: GpuSpec, works: Sequence[KernelWork]) -> KernelLoad:
    """Translate device-free works into what they ask of this device."""
    peaks = [spec.peak_rate(work.dtype) for work in works]
    cycles = _column(
        work.flop_count / (peak.flop_count_per_cycle * work.compute_efficiency_ratio * 1e9)
        for work, peak in zip(works, peaks, strict=True)
    )
    core_w_per_ghz = _column(
        peak.core_w_per_ghz * work.core_activity_ratio
        for work, peak in zip(works, peaks, strict=True)
    )
    traffic = _column(work.traffic_bytes for work in works)
    return KernelLoad(
        compute_cycle_count=cycles,
        memory_bytes=traffic / _column(work.memory_efficiency_ratio for work in works),
        core_j=core_w_per_ghz * cycles,
        memory_j=spec.memory_j_per_byte
        * _column(work.memory_activity_ratio for work in works)
        * traffic,
        set_point_ratio=1.0 + _column(work.clock_offset_ratio for work in works),
        overlap_exponent_ratio=_column(spec.overlap_exponent_ratio(work.kind) for work in works),
        wait_s=_column(work.wait_s for work in works),
    )


def steady_state_of_load(
    spec: GpuSpec,
    load: KernelLoad,
    points: Sequence[OperatingPoint],
    *,
    leakage_w: float = 0.0,
) -> SteadyTable:
    """`steady_state` of works already translated; what the calibration fits."""
    # Many set clocks end in the same condition (above the chip's own maximum, say).
    distinct, which = np.unique(point_conditions(spec, points), axis=0, return_inverse=True)
    shape = (len(load.core_j), len(distinct))
    cells = _cells(spec, load, distinct, leakage_w)
    clock, capped = _regulate(spec, cells)
    time_s, power_w, _ = _evaluate(spec, cells, clock)
    columns = which.reshape(-1)
    held = (clock.reshape(shape) * _MHZ_PER_GHZ)[:, columns]
    not_held = np.array([_is_above_ceiling(spec, point) for point in points], dtype=np.bool_)
    return SteadyTable(
        time_s=(time_s + cells.launch_s).reshape(shape)[:, columns],
        power_w=power_w.reshape(shape)[:, columns],
        sm_clock_held_mhz=held,
        is_power_capped=capped.reshape(shape)[:, columns],
        is_clock_not_held=np.broadcast_to(not_held, held.shape).copy(),
    )


def steady_parts(
    spec: GpuSpec, load: KernelLoad, points: Sequence[OperatingPoint], table: SteadyTable
) -> SteadyParts:
    """What the time and the power of this steady state consist of.

    Raises NotSupported as `steady_state` does.
    """
    conditions = point_conditions(spec, points)
    cells = _cells(spec, load, conditions, 0.0)
    clock = table.sm_clock_held_mhz.ravel() / _MHZ_PER_GHZ
    work_s, _ = _overlapped(cells.cycles / clock, cells.traffic_s, cells.exponent)
    voltage, _ = _voltage(spec, clock, cells.auto)
    time_s, shape = table.time_s.ravel(), table.time_s.shape
    square = voltage**2
    core_w = spec.clock_tree_w_per_ghz * square * clock + cells.core_j * square / time_s
    memory_w = cells.fixed_w - spec.base_w + cells.memory_j / time_s
    return SteadyParts(
        busy_ratio=((work_s + cells.launch_s) / time_s).reshape(shape),
        core_w=core_w.reshape(shape),
        memory_w=memory_w.reshape(shape),
        host_w=(cells.host_j / time_s).reshape(shape),
    )


def point_conditions(spec: GpuSpec, points: Sequence[OperatingPoint]) -> FloatArray:
    """What each point means on this device, shape (P, 6).

    Columns: highest clock (GHz), bandwidth (bytes/s), energy of a byte against that at the top
    memory clock, power whatever runs (W), 1 in the auto memory state, set-point (W).
    Raises NotSupported as `steady_state` does.
    """
    rows = [_condition(spec, point) for point in points]
    return np.array(rows, dtype=np.float64).reshape(len(rows), _CONDITION_COUNT)


def idle_power_w(spec: GpuSpec, point: OperatingPoint) -> float:
    """Board power with nothing running: an auto clock rests at its lowest listed value."""
    spec.check_point(point)
    mem_clock_mhz = point.mem_clock_mhz or spec.grid.mem_clocks_mhz[0]
    state = next(s for s in spec.memory_states if s.mem_clock_mhz == mem_clock_mhz)
    wanted = float(point.sm_clock_mhz or spec.grid.sm_clocks_mhz[0])
    clock = np.array([min(wanted, _ceiling_mhz(spec, state)) / _MHZ_PER_GHZ])
    voltage, _ = _voltage(spec, clock, np.zeros(1))
    tree_w = spec.clock_tree_w_per_ghz * voltage**2 * clock
    return float(spec.base_w + state.standby_w + tree_w[0])


def _column(values: Iterable[float]) -> FloatArray:
    return np.array(list(values), dtype=np.float64)


_CONDITION_COUNT = 6


def _condition(spec: GpuSpec, point: OperatingPoint) -> tuple[float, ...]:
    spec.check_point(point)
    is_auto = point.mem_clock_mhz is None
    state = _memory_state(spec, point)
    wanted = _ceiling_mhz(spec, state)
    if point.sm_clock_mhz is not None:
        wanted = min(wanted, float(point.sm_clock_mhz))
    set_point_w = spec.auto_set_point_w if is_auto else spec.locked_set_point_w
    if point.power_limit_w is not None:
        set_point_w = min(set_point_w, point.power_limit_w)
    return (
        wanted / _MHZ_PER_GHZ,
        state.bandwidth_bytes_per_s,
        state.energy_ratio,
        spec.base_w + state.standby_w,
        float(is_auto),
        set_point_w,
    )


def _memory_state(spec: GpuSpec, point: OperatingPoint) -> MemoryState:
    """Under load the driver runs the memory at its top clock."""
    wanted = point.mem_clock_mhz or spec.grid.mem_clocks_mhz[-1]
    return next(state for state in spec.memory_states if state.mem_clock_mhz == wanted)


def _ceiling_mhz(spec: GpuSpec, state: MemoryState) -> float:
    if state.sm_clock_ceiling_mhz is None:
        return spec.sm_clock_max_mhz
    return min(spec.sm_clock_max_mhz, float(state.sm_clock_ceiling_mhz))


def _is_above_ceiling(spec: GpuSpec, point: OperatingPoint) -> bool:
    """Whether a clock was set that the chip or the memory state never lets it reach."""
    if point.sm_clock_mhz is None:
        return False
    ceiling_mhz = _ceiling_mhz(spec, _memory_state(spec, point))
    return point.sm_clock_mhz > ceiling_mhz + _HELD_WITHIN_MHZ


def _cells(spec: GpuSpec, load: KernelLoad, conditions: FloatArray, leakage_w: float) -> _Cells:
    shape = (len(load.core_j), len(conditions))
    target, bandwidth, energy, fixed_w, auto, set_point_w = conditions.T
    is_launched = (load.compute_cycle_count > 0) | (load.memory_bytes > 0)

    def by_kernel(column: FloatArray) -> FloatArray:
        return np.repeat(column, shape[1])

    def by_point(column: FloatArray) -> FloatArray:
        return np.tile(column, shape[0])

    return _Cells(
        target=by_point(target),
        cycles=by_kernel(load.compute_cycle_count),
        traffic_s=(load.memory_bytes[:, None] / bandwidth).ravel(),
        wait_s=by_kernel(load.wait_s),
        launch_s=by_kernel(np.where(is_launched, spec.launch_s, 0.0)),
        exponent=by_kernel(load.overlap_exponent_ratio),
        core_j=by_kernel(load.core_j),
        memory_j=(load.memory_j[:, None] * energy).ravel(),
        host_j=by_kernel(spec.host_w * load.wait_s),
        auto=by_point(auto),
        fixed_w=by_point(fixed_w + leakage_w),
        set_point_w=(load.set_point_ratio[:, None] * set_point_w).ravel(),
    )


def _regulate(spec: GpuSpec, cells: _Cells) -> tuple[FloatArray, BoolArray]:
    """Held clock (GHz) and whether the regulator lowered it.

    Power rises with the clock, so a safeguarded Newton iteration from above finds the clock
    that meets the set-point; below the lowest listed clock the regulator cannot go.
    """
    clock = cells.target.copy()
    _, power_w, _ = _evaluate(spec, cells, clock)
    capped = power_w > cells.set_point_w
    if not capped.any():
        return clock, capped
    busy = cells.where(capped)
    lowest = np.minimum(spec.grid.sm_clocks_mhz[0] / _MHZ_PER_GHZ, busy.target)
    low, high = lowest.copy(), busy.target.copy()
    at = high.copy()
    for _ in range(_REGULATOR_STEP_COUNT):
        _, power_w, slope = _evaluate(spec, busy, at)
        excess = power_w - busy.set_point_w
        high = np.where(excess > 0, at, high)
        low = np.where(excess > 0, low, at)
        following = at - excess / slope
        inside = (following > low) & (following < high)
        following = np.where(inside, following, 0.5 * (low + high))
        moved = float(np.abs(following - at).max())
        at = following
        if moved < _REGULATOR_TOLERANCE_GHZ:
            break
    clock[capped] = at
    return clock, capped


def _evaluate(
    spec: GpuSpec, cells: _Cells, clock: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Time without launch (s), power (W) and slope of power (W per GHz) at these clocks."""
    compute_s = cells.cycles / clock
    work_s, computing = _overlapped(compute_s, cells.traffic_s, cells.exponent)
    time_s, working = _overlapped(work_s, cells.wait_s, cells.exponent)
    time_slope = -time_s * computing * working / clock
    whole_s = time_s + cells.launch_s
    voltage, voltage_slope = _voltage(spec, clock, cells.auto)
    square, square_slope = voltage**2, 2.0 * voltage * voltage_slope
    tree = spec.clock_tree_w_per_ghz
    work_w = (cells.core_j * square + cells.memory_j + cells.host_j) / whole_s
    power_w = cells.fixed_w + tree * square * clock + work_w
    slope = (
        tree * (square_slope * clock + square)
        + (cells.core_j * square_slope - work_w * time_slope) / whole_s
    )
    return time_s, power_w, slope


def _overlapped(
    one_s: FloatArray, other_s: FloatArray, exponent: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Time of both together (s), and by which share of a change of the first it changes.

    The p-norm of two times; that of three is the norm of the third and the norm of the others.
    """
    longer, shorter = np.maximum(one_s, other_s), np.minimum(one_s, other_s)
    ratio = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
    minor = ratio**exponent
    both_s = longer * (1.0 + minor) ** (1.0 / exponent)
    return both_s, np.where(one_s >= other_s, 1.0, minor) / (1.0 + minor)


def _voltage(spec: GpuSpec, clock: FloatArray, auto: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Voltage over its floor, and its slope per GHz."""
    above, above_slope = _softplus(clock - spec.voltage_knee_mhz / _MHZ_PER_GHZ)
    extra, extra_slope = _softplus(clock - spec.auto_voltage_knee_mhz / _MHZ_PER_GHZ)
    linear, curve = spec.voltage_slope_ratio_per_ghz, spec.voltage_curve_ratio_per_ghz2
    ramp = spec.auto_voltage_slope_ratio_per_ghz * auto
    voltage = 1.0 + (linear + curve * above) * above + ramp * extra
    slope = (linear + 2.0 * curve * above) * above_slope + ramp * extra_slope
    return voltage, slope


def _softplus(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A hinge at zero, rounded over the width of the knee, and its slope."""
    root = np.sqrt(x * x + KNEE_WIDTH_GHZ**2)
    return 0.5 * (x + root), 0.5 * (1.0 + x / root)
