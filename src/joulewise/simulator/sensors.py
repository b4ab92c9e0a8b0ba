"""What a board tells about itself: an energy counter that steps, and averaged power."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice

from joulewise.simulator.thermal import Drift
from joulewise.simulator.virtual_time import UNITS_PER_S, Units, seconds

# The counter counts 2**-20 J (about a microjoule): any count below 2**53 (8.6 GJ) is a float
# exactly, so the difference of two readings does not depend on how much was counted before.
_QUANTA_PER_J = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSpec:
    """The counter moves once per `energy_period_s`; power is a mean over `power_window_s`.

    A driver with readings of its own shows a new one every `power_period_s`: the slow mean, and
    one of the last `instant_window_s` alone, which may leave most of the time unseen.
    """

    energy_period_s: float
    power_window_s: float
    temp_resolution_c: float = 1.0
    power_period_s: float = 0.1
    instant_window_s: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A span of virtual time with one law of (read) power: constant, or drifting with heat."""

    start_units: Units
    stop_units: Units
    power_w: float
    drift: Drift | None
    drift_start_units: Units
    leakage_w_per_c: float

    def drift_energy_j(self, start_units: Units, stop_units: Units) -> float:
        """What the deviation from thermal equilibrium adds between two moments."""
        if self.drift is None:
            return 0.0
        return self.leakage_w_per_c * self.drift.excess_integral(
            seconds(start_units - self.drift_start_units),
            seconds(stop_units - self.drift_start_units),
        )

    def energy_j(self, start_units: Units, stop_units: Units) -> float:
        """Energy between two moments."""
        steady_j = self.power_w * seconds(stop_units - start_units)
        return steady_j + self.drift_energy_j(start_units, stop_units)


class EnergyCounter:
    """Counts energy in whole numbers and shows it as of the last tick.

    Power is rounded to a whole number of quanta per period. A window from tick to tick at
    constant power therefore counts the same number whenever it begins and however the time in
    between is cut up.
    """

    def __init__(self, period_units: Units) -> None:
        """Start at zero, at time zero, which is a tick."""
        self.period_units = period_units
        self._counted = 0  # in quanta / period_units
        self._shown_quanta = 0

    @property
    def energy_j(self) -> float:
        """Energy as of the last tick."""
        return self._shown_quanta / _QUANTA_PER_J

    def next_tick_units(self, now_units: Units) -> Units:
        """The first tick after now."""
        return now_units - now_units % self.period_units + self.period_units

    def add(self, stretch: Stretch) -> None:
        """Count a stretch that follows on the last one."""
        start, stop = stretch.start_units, stretch.stop_units
        last_tick = stop - stop % self.period_units
        if last_tick > start:
            self._counted += self._count(stretch, start, last_tick)
            self._shown_quanta = self._counted // self.period_units
            start = last_tick
        self._counted += self._count(stretch, start, stop)

    def add_at_once(self, energy_j: float) -> None:
        """Count energy that is spent in no time."""
        self._counted += round(energy_j * _QUANTA_PER_J * self.period_units)

    def start_anew(self) -> None:
        """Drop what was counted so far, as after a reload of the driver."""
        self._counted -= self._shown_quanta * self.period_units
        self._shown_quanta = 0

    def _count(self, stretch: Stretch, start_units: Units, stop_units: Units) -> int:
        quanta_per_period = round(stretch.power_w * seconds(self.period_units) * _QUANTA_PER_J)
        steady = quanta_per_period * (stop_units - start_units)
        drift_j = stretch.drift_energy_j(start_units, stop_units)
        return steady + round(drift_j * _QUANTA_PER_J * self.period_units)


class PowerMeter:
    """Power averaged over the last `window_s`."""

    def __init__(self, window_s: float) -> None:
        """Start without a past."""
        self._window_units = max(1, round(window_s * UNITS_PER_S))
        self._past: deque[Stretch] = deque()
        self._reckoned: deque[float] = deque()
        """Energies of the first stretches of the past, as far as they were asked for."""

    def add(self, stretch: Stretch) -> None:
        """Take in a stretch that follows on the last one."""
        self._past.append(stretch)
        horizon_units = stretch.stop_units - self._window_units
        while self._past[0].stop_units <= horizon_units:
            self._past.popleft()
            if self._reckoned:
                self._reckoned.popleft()

    def power_w(self) -> float | None:
        """The mean over the window, or over as much of it as has passed; None before any."""
        if not self._past:
            return None
        stop_units = self._past[-1].stop_units
        start_units = max(self._past[0].start_units, stop_units - self._window_units)
        # All but the first lie whole within the window, and are asked for again and again.
        self._reckoned.extend(
            part.energy_j(part.start_units, part.stop_units)
            for part in islice(self._past, len(self._reckoned), None)
        )
        first = self._past[0]
        energy_j = first.energy_j(max(first.start_units, start_units), first.stop_units)
        energy_j += sum(islice(self._reckoned, 1, None))
        return energy_j / seconds(stop_units - start_units)
