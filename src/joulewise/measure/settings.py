"""How long, how often and how patiently to measure."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """What a measurement costs and what it is worth.

    A window lasts `window_s` or `counter_period_count` periods of the energy counter,
    whichever is longer, so that the counter's steps stay below 2 % of what is counted; below
    `coarse_counter_period_count` periods a window says so by a caveat.

    A cell is warm when the temperature sensor has not moved for `steady_s`, and `soak_s`
    after that; past `warm_up_max_s` it is measured anyway, with a caveat. Time passes in
    steps of `step_s`, after each of which the sensor is read; the same holds without load
    before idle power is read. A broken window is repeated up to `repeat_count` times.
    `seed` draws the order of points and kernels.

    Within a window the device is read every `sample_s`, and every `power_sample_s` where its
    energy has to be added up from power readings.
    """

    window_s: float = 5.0
    window_count: int = 3
    counter_period_count: int = 50
    coarse_counter_period_count: int = 20
    step_s: float = 5.0
    steady_s: float = 10.0
    soak_s: float = 20.0
    warm_up_max_s: float = 300.0
    repeat_count: int = 5
    seed: int = 0
    sample_s: float = 0.5
    power_sample_s: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what cannot be measured with."""
        for name in ("window_s", "step_s", "warm_up_max_s", "sample_s", "power_sample_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be a positive time", field=name)
        for name in ("steady_s", "soak_s", "repeat_count", "seed"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name} must not be negative", field=name)
        for name in ("window_count", "counter_period_count"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1", field=name)

    def window_duration_s(self, energy_counter_period_s: float | None) -> float:
        """Length of a window on a device whose energy counter moves this often, if it has one."""
        return max(self.window_s, self.counter_period_count * (energy_counter_period_s or 0.0))
