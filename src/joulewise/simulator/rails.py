"""The supply rails of a virtual module: what each carries, and how its monitor tells of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from joulewise.domain.errors import NotSupported
from joulewise.domain.measurement import GpuSample, RailPower
from joulewise.domain.points import ClockGrid, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import Gpu, GpuIdentity
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


class ModuleState(Protocol):
    """What a module does at a moment, as `operations.Operation` has it."""

    @property
    def rails(self) -> tuple[RailPower, ...]: ...

    @property
    def busy_ratio(self) -> float | None: ...


class VirtualModule:
    """A `Gpu` on a module: rails and how busy it is, and no energy counter."""

    def __init__(self, inner: Gpu, state: Callable[[], ModuleState], rail_period_s: float) -> None:
        """Show this GPU; `state` is what its board does now."""
        self._inner = inner
        self._state = state
        self._monitor = RailMonitor(rail_period_s)

    @property
    def identity(self) -> GpuIdentity:
        """Which virtual GPU this is."""
        return self._inner.identity

    @property
    def energy_counter_period_s(self) -> None:
        """There is no energy counter."""
        return

    def clock_grid(self) -> ClockGrid:
        """Clocks that are listed."""
        return self._inner.clock_grid()

    def knob_state(self) -> KnobState:
        """Nothing can be read back. Raises DeviceLost."""
        return self._inner.knob_state()

    def sample(self) -> GpuSample:
        """Read every sensor that a module has. Raises DeviceLost."""
        sample, state = self._inner.sample(), self._state()
        told = replace(sample, energy_j=None, busy_ratio=state.busy_ratio, over_current_count=0)
        return self._monitor.shown(told, state.rails)

    def now_s(self) -> float:
        """Virtual time."""
        return self._inner.now_s()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        """The SM and the memory clock. Raises DeviceLost."""
        return self._inner.clocks_mhz()

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        """Raise NotSupported: no counter ticks. Raises DeviceLost once the device has gone."""
        self._inner.knob_state()
        raise NotSupported(
            f"{self.identity.name} has no energy counter, so none moves within {timeout_s:g} s",
            hint="Add up its power over time instead.",
        )

    def wait(self, duration_s: float) -> None:
        """Let virtual time pass. Raises DeviceLost."""
        self._inner.wait(duration_s)

    def request(self, point: OperatingPoint) -> None:
        """Ask for a point. Raises NotPermitted, NotSupported, DeviceLost."""
        self._inner.request(point)

    def reset(self, touched: Touched | None = None) -> None:
        """Give touched knobs back. Raises NotPermitted, DeviceLost."""
        self._inner.reset(touched)
