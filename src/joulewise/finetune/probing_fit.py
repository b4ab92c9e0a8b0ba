"""A U-curve through a few blocks of training steps.

The time of a step is a/f + b: what the GPU's clock shortens, and what it does not (memory, host).
Its mean power is p0 + p1 f V(f)^2: what is drawn whatever the clock, and what switches. Energy is
the product. Each law has two unknowns and both are fitted to three blocks or more by least
squares of relative errors, with none below 0, so that noise cannot turn the curve upside down.

V(f) is not read anywhere on a Jetson. `SWITCHING_EXPONENT_RATIO` stands for f V(f)^2 as a power
of f: 1 where the voltage stands still, 3 where it is proportional to the clock. With 2.2 both
published curves of DeBERTa-v2-xlarge (QNLI and SST-2, 11 clocks of an AGX Orin, slmdvfs2026) are
followed within 1.1 %, with 2.0 within 1.7 %, with 3.0 within 2.1 %. The virtual AGX Orin is fitted
to the same two curves, so what probing is worth there is not independent of this choice;
`studies/finetune.py` repeats it with other exponents and with a parabola.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from joulewise.domain.finetuning import ClockCost

SWITCHING_EXPONENT_RATIO = 2.2
_REFERENCE_MHZ = 1000.0


class ProbedCurve(Protocol):
    """Time and energy of a step at any clock, as far as a few blocks tell."""

    def time_s(self, sm_clock_mhz: float) -> float:
        """Time of a step."""
        ...

    def energy_j(self, sm_clock_mhz: float) -> float:
        """Energy of a step."""
        ...

    @property
    def energy_error_ratio(self) -> float | None:
        """Standard error of a block's energy; `None` where no block tells one."""
        ...


Fitter = Callable[[Sequence[ClockCost]], ProbedCurve]
"""Fits a curve to blocks at three pinned clocks or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """Time and power of a step against the clock.

    `scaled_s` is the time at 1000 MHz that the clock shortens, `fixed_s` that it does not;
    `fixed_w` is drawn whatever the clock, `scaled_w` switches at 1000 MHz and grows with this
    power of the clock. `energy_error_ratio` is the standard error of a block's energy; `None`
    where no block tells one.
    """

    scaled_s: float
    fixed_s: float
    fixed_w: float
    scaled_w: float
    exponent_ratio: float = SWITCHING_EXPONENT_RATIO
    energy_error_ratio: float | None = None

    def time_s(self, sm_clock_mhz: float) -> float:
        """Time of a step."""
        return self.scaled_s * _slowness(sm_clock_mhz) + self.fixed_s

    def power_w(self, sm_clock_mhz: float) -> float:
        """Mean power of a step."""
        return self.fixed_w + self.scaled_w * _switching(sm_clock_mhz, self.exponent_ratio)

    def energy_j(self, sm_clock_mhz: float) -> float:
        """Energy of a step."""
        return self.time_s(sm_clock_mhz) * self.power_w(sm_clock_mhz)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParabolaFit:
    """The same law of time, and ln energy as a parabola of ln f: nothing is said of power.

    `terms` are those of powers 0, 1 and 2 of ln(f / 1000 MHz).
    """

    time: StepFit
    terms: tuple[float, float, float]

    @property
    def energy_error_ratio(self) -> float | None:
        """Standard error of a block's energy."""
        return self.time.energy_error_ratio

    def time_s(self, sm_clock_mhz: float) -> float:
        """Time of a step."""
        return self.time.time_s(sm_clock_mhz)

    def energy_j(self, sm_clock_mhz: float) -> float:
        """Energy of a step."""
        place = math.log(sm_clock_mhz / _REFERENCE_MHZ)
        return math.exp(sum(term * place**power for power, term in enumerate(self.terms)))


def optimum_interval_mhz(
    fit: ProbedCurve, sm_clocks_mhz: Sequence[int], std_error_count: float
) -> tuple[int, int] | None:
    """Lowest and highest clock that cannot be told from the best; `None` without errors.

    Two blocks that each have the error of a block differ by chance by the square root of two
    of it.
    """
    if fit.energy_error_ratio is None:
        return None
    least_j = min(fit.energy_j(clock) for clock in sm_clocks_mhz)
    margin_ratio = math.sqrt(2.0) * std_error_count * fit.energy_error_ratio
    near = [clock for clock in sm_clocks_mhz if fit.energy_j(clock) <= least_j * (1 + margin_ratio)]
    return min(near), max(near)


def fit_steps(
    costs: Sequence[ClockCost], *, exponent_ratio: float = SWITCHING_EXPONENT_RATIO
) -> StepFit:
    """Fit both laws.

    Args:
        costs: Blocks at two pinned clocks or more, with times and energies above 0.
        exponent_ratio: Power of the clock with which switching power grows.
    """

    def switching(sm_clock_mhz: float) -> float:
        return _switching(sm_clock_mhz, exponent_ratio)

    clocks = [float(one.sm_clock_mhz) for one in costs if one.sm_clock_mhz is not None]
    fixed_s, scaled_s = _line(clocks, [one.time_s for one in costs], _slowness)
    powers_w = [one.energy_j / one.time_s for one in costs]
    fixed_w, scaled_w = _line(clocks, powers_w, switching)
    return StepFit(
        scaled_s=scaled_s,
        fixed_s=fixed_s,
        fixed_w=fixed_w,
        scaled_w=scaled_w,
        exponent_ratio=exponent_ratio,
        energy_error_ratio=_error_ratio(costs),
    )


def fit_parabola(costs: Sequence[ClockCost]) -> ParabolaFit:
    """Fit the law of time, and a parabola to the logarithms of energies and clocks.

    Args:
        costs: Blocks at three pinned clocks or more, with times and energies above 0.
    """
    places = [math.log((one.sm_clock_mhz or 0) / _REFERENCE_MHZ) for one in costs]
    basis = np.stack([np.power(places, power) for power in range(3)], axis=1)
    terms = np.linalg.lstsq(basis, np.log([one.energy_j for one in costs]))[0].tolist()
    return ParabolaFit(time=fit_steps(costs), terms=(terms[0], terms[1], terms[2]))


def _slowness(sm_clock_mhz: float) -> float:
    return _REFERENCE_MHZ / sm_clock_mhz


def _switching(sm_clock_mhz: float, exponent_ratio: float) -> float:
    return float((sm_clock_mhz / _REFERENCE_MHZ) ** exponent_ratio)


def _line(
    clocks: Sequence[float], values: Sequence[float], law: Callable[[float], float]
) -> tuple[float, float]:
    """Least squares of relative errors for value = c0 + c1 law(clock), neither below 0."""
    weights = [1.0 / value for value in values]
    ones = weights
    slopes = [weight * law(clock) for weight, clock in zip(weights, clocks, strict=True)]
    n00, n01 = _dot(ones, ones), _dot(ones, slopes)
    n11 = _dot(slopes, slopes)
    m0, m1 = sum(ones), sum(slopes)
    spread = n00 * n11 - n01 * n01
    c0, c1 = (n11 * m0 - n01 * m1) / spread, (n00 * m1 - n01 * m0) / spread
    if c0 < 0:
        return 0.0, m1 / n11
    if c1 < 0:
        return m0 / n00, 0.0
    return c0, c1


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def _error_ratio(costs: Sequence[ClockCost]) -> float | None:
    """Root mean square of the blocks' relative errors, of those that tell one."""
    known = [one.energy_error_j / one.energy_j for one in costs if one.energy_error_j is not None]
    return math.sqrt(_dot(known, known) / len(known)) if known else None
