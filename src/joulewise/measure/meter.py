"""Energy of a span: from the counter where one moves, from power readings where none does."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import MeasurementError, NotSupported
from joulewise.domain.measurement import GpuSample
from joulewise.domain.ports import Gpu, WatchedGpu
from joulewise.measure.settings import MeasureSettings

_TICK_TIMEOUT_PERIOD_COUNT = 20
_SHORTEST_TICK_TIMEOUT_S = 1.0
# One step that does not come may be a hiccup.
_STANDSTILLS_OF_A_STUCK_COUNTER_COUNT = 2
# No board draws so much more than its highest power limit for the length of a window.
_PLAUSIBLE_RATIO = 1.3
# Assumed: one kernel over and over draws one power, so that a reading that fails now and then is
# bridged; where more of a window went unread nobody knows what it took.
_MOST_UNREAD_RATIO = 0.05


class Meter(ABC):
    """How the energy of a span is found on one device."""

    @abstractmethod
    def edge(self) -> GpuSample:
        """Read everything at a moment at which a span may begin or end.

        Raises MeasurementError where the counter does not move.
        """

    @abstractmethod
    def energy_j(self, samples: Sequence[GpuSample]) -> float:
        """Energy between the first and the last sample, both of which are edges.

        Raises MeasurementError where it cannot be told, NotSupported where it never can.
        """

    @property
    @abstractmethod
    def sample_s(self) -> float:
        """How often a span has to be sampled at least."""

    @property
    @abstractmethod
    def caveats(self) -> tuple[Caveat, ...]:
        """What to doubt about its energies."""


@final
class CounterMeter(Meter):
    """Reads the energy counter right after it has moved; remembers where it did not."""

    def __init__(self, gpu: Gpu, settings: MeasureSettings) -> None:
        """Nothing is read yet."""
        self._gpu = gpu
        self._sample_s = settings.sample_s
        self._standstill_count = 0

    def edge(self) -> GpuSample:
        """Wait for the counter's next step. Raises MeasurementError where none comes."""
        try:
            sample = wait_for_tick(self._gpu)
        except MeasurementError:
            self._standstill_count += 1
            raise
        except NotSupported as error:
            self._standstill_count = _STANDSTILLS_OF_A_STUCK_COUNTER_COUNT
            raise MeasurementError(error.message) from error
        if sample.energy_j is None:
            self._standstill_count = _STANDSTILLS_OF_A_STUCK_COUNTER_COUNT
            raise MeasurementError("this device has no energy counter")
        return sample

    def energy_j(self, samples: Sequence[GpuSample]) -> float:
        """What was counted. Raises MeasurementError where it is not plausible."""
        counts_j = [sample.energy_j for sample in samples if sample.energy_j is not None]
        if any(after_j < before_j for before_j, after_j in itertools.pairwise(counts_j)):
            raise MeasurementError("the energy counter went back")
        if samples[-1].energy_j is not None and samples[-1].energy_j == samples[0].energy_j:
            self._standstill_count += 1
        energy_j = energy_between_j(samples[0], samples[-1])
        check_plausible(self._gpu, energy_j, samples)
        return energy_j

    @property
    def sample_s(self) -> float:
        """As the settings say."""
        return self._sample_s

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """None."""
        return ()

    @property
    def is_stuck(self) -> bool:
        """Whether it stood still so often that it will not move again."""
        return self._standstill_count >= _STANDSTILLS_OF_A_STUCK_COUNTER_COUNT


@final
class PowerIntegral(Meter):
    """Adds power readings up by the trapezoid rule, for devices without a counter that moves."""

    def __init__(self, gpu: Gpu, settings: MeasureSettings) -> None:
        """Nothing is read yet."""
        self._gpu = gpu
        self._sample_s = min(settings.sample_s, settings.power_sample_s)
        self._has_read = False
        self._unread_s = 0.0

    def edge(self) -> GpuSample:
        """Read: any moment will do.

        Raises NotSupported where no power can be read, MeasurementError where it could before.
        """
        sample = self._gpu.sample()
        if sample.power_w is None:
            if self._has_read:
                raise MeasurementError("power could not be read at the edge of the window")
            raise NotSupported(
                "this device has no energy counter that moves, and tells no power",
                hint="Energy cannot be measured there; no energy is invented.",
            )
        self._has_read = True
        return sample

    def energy_j(self, samples: Sequence[GpuSample]) -> float:
        """The integral of power.

        Raises MeasurementError where nothing was drawn, or too much of it went unread.
        """
        self._unread_s = _unread_s(samples)
        whole_s = samples[-1].time_s - samples[0].time_s
        if self._unread_s > _MOST_UNREAD_RATIO * whole_s:
            raise MeasurementError(
                f"no power could be read for {self._unread_s:.2f} s of {whole_s:.2f} s"
            )
        known = [(one.time_s, one.power_w) for one in samples if one.power_w is not None]
        energy_j = sum(
            0.5 * (before_w + after_w) * (after_s - before_s)
            for (before_s, before_w), (after_s, after_w) in itertools.pairwise(known)
        )
        if energy_j <= 0:
            raise MeasurementError("the power readings say that nothing was drawn")
        return energy_j

    @property
    def sample_s(self) -> float:
        """Twice in the update period of most power sensors, so that none of it is missed."""
        return self._sample_s

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """EnergyFromPower."""
        seen = f"power was read every {self._sample_s:g} s and added up"
        if self._unread_s > 0:
            seen = f"{seen}; for {self._unread_s:.2f} s none could be read"
        return (Caveat(kind=CaveatKind.ENERGY_FROM_POWER, seen=seen),)


def _unread_s(samples: Sequence[GpuSample]) -> float:
    """Time between samples of which one told no power."""
    return sum(
        after.time_s - before.time_s
        for before, after in itertools.pairwise(samples)
        if before.power_w is None or after.power_w is None
    )


def meter_of(gpu: Gpu, settings: MeasureSettings) -> Meter:
    """The counter, where the device says that it has one."""
    if gpu.energy_counter_period_s is None:
        return PowerIntegral(gpu, settings)
    return CounterMeter(gpu, settings)


def after_failure(meter: Meter, gpu: Gpu, settings: MeasureSettings) -> Meter:
    """What to measure the next attempt with, once one gave no energy."""
    if isinstance(meter, CounterMeter) and meter.is_stuck:
        return PowerIntegral(gpu, settings)
    return meter


def wait_for_tick(gpu: Gpu) -> GpuSample:
    """Wait for the energy counter's next step and read everything right then.

    Raises:
        MeasurementError: it stands still.
    """
    return gpu.wait_for_energy_tick(
        max(
            _SHORTEST_TICK_TIMEOUT_S,
            _TICK_TIMEOUT_PERIOD_COUNT * (gpu.energy_counter_period_s or 0.0),
        )
    )


def energy_between_j(start: GpuSample, end: GpuSample) -> float:
    """Energy counted between two samples.

    Raises:
        MeasurementError: the counter went back or stood still.
        NotSupported: the device has no energy counter.
    """
    if start.energy_j is None or end.energy_j is None:
        raise NotSupported(
            "this device has no energy counter",
            hint="Energy cannot be measured there; no energy is invented.",
        )
    energy_j = end.energy_j - start.energy_j
    if energy_j < 0:
        raise MeasurementError("the energy counter went back")
    if energy_j == 0:
        raise MeasurementError("the energy counter stood still")
    return energy_j


def check_plausible(gpu: WatchedGpu, energy_j: float, samples: Sequence[GpuSample]) -> None:
    """Raise MeasurementError for more power between two samples than the board can draw.

    Somebody else may have raised its limit since it was found, so the highest that was in force
    counts. A counter of a whole module counts what the GPU's power limit says nothing about.
    """
    limits = gpu.clock_grid().power_limits
    kinds = {caveat.kind for caveat in gpu.identity.caveats}
    duration_s = samples[-1].time_s - samples[0].time_s
    if limits is None or duration_s <= 0 or CaveatKind.ENERGY_OF_MODULE in kinds:
        return
    limit_w = max(limits.found_w, *(sample.power_limit_w or 0.0 for sample in samples))
    power_w = energy_j / duration_s
    if power_w > _PLAUSIBLE_RATIO * limit_w:
        raise MeasurementError(
            f"the energy counter ran at {power_w:.0f} W, and the board's power limit is "
            f"{limit_w:.0f} W"
        )
