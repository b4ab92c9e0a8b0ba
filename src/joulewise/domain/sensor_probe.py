"""What the energy and power sensors of one GPU turned out to be like."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.caveats import Caveat


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePeriod:
    """How often a reading moves.

    `spread_s` is the standard deviation of a single period, estimated robustly; that of polling
    is part of it. `change_count` changes were seen.
    """

    period_s: float
    spread_s: float
    change_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorProbe:
    """Sensors of one GPU, as measured on it at the operating point that was in force.

    What could not be told is `None`: everything under load where no kernel was run, a window
    that is too short for its update period, a counter that does not exist. `instant_window_s`
    and `average_window_s` are the spans over which `GpuSample.power_w` and `average_power_w`
    are means. `power_excess_ratio` is energy integrated from power over energy counted, less
    one, over `steady_s` of steady load at `steady_power_w` (counted, or else read).
    `idle_power_w` is the mean over `idle_s` without load, read as often as under load.
    """

    device: str
    device_name: str
    kernel: str | None
    """What was run for a load."""
    counter: UpdatePeriod | None
    power: UpdatePeriod | None
    average_power: UpdatePeriod | None
    instant_window_s: float | None
    average_window_s: float | None
    power_excess_ratio: float | None
    steady_s: float | None
    steady_power_w: float | None
    idle_power_w: float | None
    idle_s: float
    caveats: tuple[Caveat, ...] = ()
