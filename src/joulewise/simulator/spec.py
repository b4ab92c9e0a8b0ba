"""What a virtual GPU is made of: listed clocks and the parameters of its physics."""

from __future__ import annotations

import math
from dataclasses import dataclass

from joulewise.domain.errors import NotSupported
from joulewise.domain.points import ClockGrid, OperatingPoint
from joulewise.domain.workload import Dtype, KernelKind

# Files keep seven digits of each number.
_RAIL_TOLERANCE_RATIO = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """What the board does at one listed memory clock.

    `standby_w` is drawn whether or not traffic flows; `energy_ratio` scales the energy of a
    byte against that at the top memory clock; `sm_clock_ceiling_mhz` is the SM clock that this
    state holds the core at or below (`None`: no ceiling).
    """

    mem_clock_mhz: int
    bandwidth_bytes_per_s: float
    standby_w: float
    energy_ratio: float = 1.0
    sm_clock_ceiling_mhz: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRate:
    """The whole chip busy in one number format: arithmetic per SM clock cycle, and its power.

    `core_w_per_ghz` is the switching power at activity 1 and at the voltage floor; tensor cores
    and vector units differ in it.
    """

    dtype: Dtype
    flop_count_per_cycle: float
    core_w_per_ghz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RailSpec:
    """What one supply rail of a module carries of its power.

    `base_w` is its part of what is drawn whatever runs. The shares are of the power of the GPU
    (clock tree and cores), of memory (standby and traffic) and of the host. Over the rails that
    are counted the bases sum to `GpuSpec.base_w` and every share to 1.
    """

    rail: str
    is_counted: bool
    base_w: float
    core_ratio: float
    memory_ratio: float
    host_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGovernorSpec:
    """A driver that picks the SM clock by load: the lowest that is busy for no more than this."""

    name: str
    busy_target_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One kind of GPU: its lists, and the physics of `joulewise.simulator.physics`.

    `memory_states` holds one entry per listed memory clock, ascending. Voltage is relative to
    its floor (1 = the floor). Set-points are the board powers that the regulator holds when
    the power limit stands at `default_power_limit_w`; they lie below it. A module with `rails`
    tells of each of them, and its power is the sum of those that are counted.
    """

    name: str
    source: str
    is_calibrated: bool
    grid: ClockGrid
    memory_states: tuple[MemoryState, ...]
    peak_rates: tuple[PeakRate, ...]

    sm_clock_max_mhz: float
    """The highest SM clock that the chip takes up by itself, whatever was set."""
    launch_s: float
    """Time of a launch that neither clock shortens."""
    gemm_overlap_exponent_ratio: float
    other_overlap_exponent_ratio: float

    voltage_knee_mhz: float
    voltage_slope_ratio_per_ghz: float
    voltage_curve_ratio_per_ghz2: float
    auto_voltage_knee_mhz: float
    auto_voltage_slope_ratio_per_ghz: float

    base_w: float
    clock_tree_w_per_ghz: float
    memory_j_per_byte: float
    """Energy of a byte of traffic of activity 1 at the top memory clock."""

    auto_set_point_w: float
    locked_set_point_w: float
    default_power_limit_w: float
    least_power_limit_w: float

    has_energy_counter: bool = True
    has_power_limit: bool = True
    """Whether the power limit may be set."""
    host_w: float = 0.0
    """Power of the host while it dispatches, on a module that feeds both."""
    rails: tuple[RailSpec, ...] = ()
    load_governor: LoadGovernorSpec | None = None
    """`None`: an SM clock that is left to the driver is the highest that the power allows."""

    def __post_init__(self) -> None:
        """Check that lists and states belong together."""
        states = tuple(state.mem_clock_mhz for state in self.memory_states)
        if states != self.grid.mem_clocks_mhz:
            raise ValueError(f"memory states {states} are not the listed memory clocks")
        for clocks in (self.grid.sm_clocks_mhz, states):
            if not clocks or list(clocks) != sorted(set(clocks)):
                raise ValueError(f"clocks must ascend without repeats, got {clocks}")
        if self.rails:
            self._check_rails()

    def _check_rails(self) -> None:
        """Refuse rails that do not count the whole module, and count it once."""
        counted = [one for one in self.rails if one.is_counted]
        sums = (
            ("base", math.fsum(one.base_w for one in counted), self.base_w),
            ("share of the GPU", math.fsum(one.core_ratio for one in counted), 1.0),
            ("share of memory", math.fsum(one.memory_ratio for one in counted), 1.0),
            ("share of the host", math.fsum(one.host_ratio for one in counted), 1.0),
        )
        for what, found, wanted in sums:
            if not math.isclose(found, wanted, rel_tol=_RAIL_TOLERANCE_RATIO):
                raise ValueError(f"the {what} of the counted rails is {found:g}, not {wanted:g}")

    def overlap_exponent_ratio(self, kind: KernelKind) -> float:
        """How sharply the slower of computing and memory traffic sets the time."""
        if kind is KernelKind.GEMM:
            return self.gemm_overlap_exponent_ratio
        return self.other_overlap_exponent_ratio

    def peak_rate(self, dtype: Dtype) -> PeakRate:
        """Peak of one number format. Raises NotSupported for one it lacks."""
        for rate in self.peak_rates:
            if rate.dtype is dtype:
                return rate
        known = ", ".join(rate.dtype for rate in self.peak_rates)
        raise NotSupported(
            f"{self.name} has no {dtype} arithmetic", hint=f"It computes in {known}."
        )

    def check_point(self, point: OperatingPoint) -> None:
        """Raise NotSupported for a clock that is not listed or a limit out of range."""
        sm, mem = point.sm_clock_mhz, point.mem_clock_mhz
        if sm is not None and sm not in self.grid.sm_clocks_mhz:
            raise NotSupported(
                f"{self.name} does not list the SM clock {sm} MHz",
                field="sm_clock_mhz",
                hint=_nearest(sm, self.grid.sm_clocks_mhz),
            )
        if mem is not None and mem not in self.grid.mem_clocks_mhz:
            raise NotSupported(
                f"{self.name} does not list the memory clock {mem} MHz",
                field="mem_clock_mhz",
                hint=_nearest(mem, self.grid.mem_clocks_mhz),
            )
        limit_w = point.power_limit_w
        if limit_w is None:
            return
        if not self.least_power_limit_w <= limit_w <= self.default_power_limit_w:
            raise NotSupported(
                f"{self.name} takes power limits of {self.least_power_limit_w:g} to "
                f"{self.default_power_limit_w:g} W, not {limit_w:g} W",
                field="power_limit_w",
            )


def _nearest(wanted: int, listed: tuple[int, ...]) -> str:
    nearest = sorted(sorted(listed, key=lambda clock: abs(clock - wanted))[:2])
    return f"Nearest listed: {', '.join(str(clock) for clock in nearest)} MHz."
