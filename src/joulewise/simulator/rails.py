"""The supply rails of a virtual module: what each carries, and how its monitor tells of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from joulewise.domain.measurement import GpuSample, RailPower
from joulewise.simulator.spec import GpuSpec


def rail_powers(
    spec: GpuSpec, *, core_w: float, memory_w: float, host_w: float
) -> tuple[RailPower, ...]:
    """What each rail carries; those that are counted sum to the module's power.

    `core_w`, `memory_w` and `host_w` are as in `physics.SteadyParts`.
    """
    return tuple(
        RailPower(
            rail=one.rail,
            power_w=one.base_w
            + one.core_ratio * core_w
            + one.memory_ratio * memory_w
            + one.host_ratio * host_w,
            is_counted=one.is_counted,
        )
        for one in spec.rails
    )


def module_power_w(rails: Sequence[RailPower]) -> float:
    """The sum of the rails that are counted: a feeding rail, or its parts, never both."""
    return math.fsum(one.power_w for one in rails if one.is_counted)


def scaled_rails(rails: Sequence[RailPower], ratio: float) -> tuple[RailPower, ...]:
    """Every rail so many times as strong."""
    return tuple(replace(one, power_w=one.power_w * ratio) for one in rails)


class RailMonitor:
    """An INA3221 as its driver shows it: a reading stands until the next one is made."""

    def __init__(self, period_s: float) -> None:
        """Make a reading once per period."""
        self._period_s = period_s
        self._made: int | None = None
        self._shown: tuple[RailPower, ...] = ()

    def shown(self, sample: GpuSample, rails: Sequence[RailPower]) -> GpuSample:
        """The sample with what the monitor shows at that time.

        `rails` are what the board draws by its physics; the power of the sample, what a sensor
        makes of it, is shared out among them.
        """
        period = math.floor(sample.time_s / self._period_s)
        if period != self._made:
            drawn_w = module_power_w(rails)
            self._made = period
            self._shown = scaled_rails(rails, (sample.power_w or drawn_w) / drawn_w)
        return replace(sample, rails=self._shown, power_w=module_power_w(self._shown))
