"""Temperature: one heat capacity behind one thermal resistance.

At constant load the board drifts to T_eq = ambient + R P, where P is the board power that
the preset is calibrated to. On the way, leakage differs from the calibrated one by
g (T - T_eq), with g in W per °C, so with the heat capacity tau / R

    dT/dt = -(1 - R g) (T - T_eq) / tau,

an exponential with the time constant tau / (1 - R g). Time per launch keeps its settled value
meanwhile, also where the power limit holds the clock: a cold board under its limit draws less
here, where a real one would clock a little higher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SNAP_C = 1.0
"""Nearer than this the board counts as settled, so that a settled cell keeps no trace of
what ran before it. It is the resolution of the temperature sensors: whoever waits until a
reading rests for 10 s has arrived."""
SETTLED_AFTER_S = 1.0
"""A load has to last this long before the board counts as settled: a load that changes many
times a second must not stick at the equilibrium of one of its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalSpec:
    """How a board with its cooler warms.

    Above `slowdown_temp_c` the regulator lowers the power so that it gets no warmer.
    """

    ambient_c: float = 25.0
    resistance_c_per_w: float
    time_constant_s: float = 12.0
    leakage_w_per_c: float
    slowdown_temp_c: float

    def equilibrium_c(self, power_w: float) -> float:
        """Temperature at which a board that draws so much stays."""
        return self.ambient_c + self.resistance_c_per_w * power_w

    def slowdown_power_w(self) -> float:
        """Power that holds the board at its slowdown temperature; infinite where none heats it."""
        if not self.resistance_c_per_w:
            return math.inf
        return max(0.0, (self.slowdown_temp_c - self.ambient_c) / self.resistance_c_per_w)

    def drift_time_constant_s(self) -> float:
        """Time constant of the drift, leakage included."""
        return self.time_constant_s / (1.0 - self.resistance_c_per_w * self.leakage_w_per_c)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The way of one temperature to its equilibrium; `from_c` holds at the drift's start."""

    from_c: float
    equilibrium_c: float
    time_constant_s: float

    @property
    def settles_after_s(self) -> float:
        """Time until the board counts as settled; 0 where it already does."""
        return self.reaches_after_s(
            self.equilibrium_c + math.copysign(SNAP_C, self.from_c - self.equilibrium_c)
        )

    def reaches_after_s(self, temp_c: float) -> float:
        """Time until this temperature is reached; infinite where it lies beyond the end."""
        start_c, end_c = self.from_c - self.equilibrium_c, temp_c - self.equilibrium_c
        if start_c * end_c <= 0:
            return 0.0 if start_c == 0 else math.inf
        return max(0.0, self.time_constant_s * math.log(start_c / end_c))

    def temp_c(self, after_s: float) -> float:
        """Temperature so long after the drift began."""
        away_c = self.from_c - self.equilibrium_c
        return self.equilibrium_c + away_c * math.exp(-after_s / self.time_constant_s)

    def excess_integral(self, start_s: float, stop_s: float) -> float:
        """Integral of T - T_eq between two times after the drift began, in °C times s."""
        away_c, tau_s = self.from_c - self.equilibrium_c, self.time_constant_s
        return away_c * tau_s * (math.exp(-start_s / tau_s) - math.exp(-stop_s / tau_s))
