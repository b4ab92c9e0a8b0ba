"""What was seen: samples, windows, cells."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.caveats import Caveat
from joulewise.domain.points import OperatingPoint


class EventReason(StrEnum):
    """Why a GPU does not run at its highest clock; names as in NVML's clocks event reasons.

    None of them says "limited by a clock lock".
    """

    GPU_IDLE = "GpuIdle"
    APPLICATION_CLOCKS = "ApplicationsClocksSetting"
    POWER_CAP = "SwPowerCap"
    HW_SLOWDOWN = "HwSlowdown"
    SYNC_BOOST = "SyncBoost"
    SW_THERMAL = "SwThermalSlowdown"
    HW_THERMAL = "HwThermalSlowdown"
    POWER_BRAKE = "HwPowerBrakeSlowdown"
    DISPLAY_CLOCK = "DisplayClockSetting"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuActivity:
    """Mean activity since an earlier reading, as shares of the peak (NVML GPM, Hopper and later).

    `sm_cycle_ratio` is as the device counts, in cycles; `sm_time_ratio` the same in time, with
    cycles weighed by the clock they ran at (U_t = U_c f/f_a, f the mean clock over all time,
    f_a the clock while busy). The two agree where the clock stood still.
    """

    duration_s: float
    sm_cycle_ratio: float | None
    sm_time_ratio: float | None
    occupancy_ratio: float | None
    tensor_ratio: float | None
    dram_ratio: float | None
    is_clock_varying: bool = False
    """Whether the SM clock varied by more than 5 % meanwhile, so that cycles mislead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RailPower:
    """Power on one supply rail of a module, named as the board labels it.

    `is_counted` says whether it is part of the module's power: a rail that feeds another one,
    or is fed by one that is counted, is not, so that nothing is counted twice.
    """

    rail: str
    power_w: float
    is_counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One reading of one GPU, taken at once.

    `time_s` is the device's monotonic clock; `energy_j` the energy counter since some start;
    throttling counters give seconds spent capped since some start. `power_w` is the nearest to
    instant power that the device has, `average_power_w` its slower mean. What the device cannot
    tell is `None`; `event_reasons` is empty where nothing holds the clock down.
    """

    time_s: float
    energy_j: float | None
    power_w: float | None
    sm_clock_mhz: int | None
    mem_clock_mhz: int | None
    temp_c: float | None
    power_capped_s: float | None
    thermally_throttled_s: float | None
    other_process_count: int | None
    average_power_w: float | None = None
    power_braked_s: float | None = None
    sync_boosted_s: float | None = None
    power_limit_w: float | None = None
    """The power limit in force, whoever set it."""
    event_reasons: frozenset[EventReason] | None = None
    activity: GpuActivity | None = None
    busy_ratio: float | None = None
    """Share of a recent time in which the GPU ran anything, as the driver says."""
    rails: tuple[RailPower, ...] = ()
    """Where a module tells of its rails: `power_w` is the sum of those that are counted."""
    over_current_count: int | None = None
    """Times that a supply drew more than it may, since some start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTiming:
    """Launches finished within a window and the time they took (CUDA events on hardware).

    `mean_sm_clock_mhz` is SM cycles over time, where the runner counts them on the GPU itself:
    nothing that moved the clock within the window escapes it.
    """

    launch_count: int
    elapsed_s: float
    mean_sm_clock_mhz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTiming:
    """Whole iterations that ended within a window, the time they took and what was asked.

    `request_count` requests for another point were made meanwhile. Of them `late_count` came
    into force when the launch that they were for had begun, up to `max_late_s` after that, and
    `early_count` before it would begin, up to `max_early_s`; `skipped_count` more were never
    made, for the next one was due by then.
    """

    iteration_count: int
    elapsed_s: float
    request_count: int
    late_count: int = 0
    skipped_count: int = 0
    max_late_s: float = 0.0
    early_count: int = 0
    max_early_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One measured window of one kernel at one operating point: time and energy per launch."""

    window: int
    time_s: float
    energy_j: float
    duration_s: float
    launch_count: int
    sm_clock_held_mhz: float | None
    temp_c: float | None
    caveats: tuple[Caveat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWindow:
    """One measured window of whole iterations, changes of the operating point included.

    `time_s` and `energy_j` are per iteration, as are the counts of requests (see
    `IterationTiming`), which need not be whole numbers where not every iteration went alike.
    """

    window: int
    time_s: float
    energy_j: float
    duration_s: float
    iteration_count: int
    request_count: float
    late_count: float
    skipped_count: float
    temp_c: float | None
    max_late_s: float = 0.0
    early_count: float = 0.0
    max_early_s: float = 0.0
    caveats: tuple[Caveat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMeasurement:
    """The windows of one cell, all from one measuring run.

    Windows of one run may be compared with each other; those of different runs share no
    common shift and may not.
    """

    kernel: str
    point: OperatingPoint
    run: str
    idle_power_w: float | None
    windows: tuple[Window, ...]
