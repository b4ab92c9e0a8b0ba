"""What one kind of change of the operating point costs, measured on a running kernel.

The lag is read from the clocks: from the request until they read back as they do at the new
point. The stall is what is missing: over many changes back and forth in one window, the
launches that the paces before and after would have finished, less those that did. Energy
likewise, from the powers before and after.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import GpuSample, LoopTiming, Window
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Gpu, KernelLoop, Lease
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import TransitionDomain, changed_domain
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.statistics import median, std
from joulewise.measure.steady import wait_until_steady
from joulewise.measure.window import energy_between_j, measure_window, wait_for_tick

RUN = "transitions"
# Polling for a changed clock: first coarsely, then in hundredths of what that showed.
_COARSE_POLL_S = 0.001
_FINEST_POLL_S = 2e-5
_POLLS_PER_LAG = 100
_LAG_TIMEOUT_S = 2.0
# A point is held this long while the size of the stall is still unknown.
_FIRST_HOLD_S = 0.5
_SHORTEST_HOLD_S = 0.005
# Within a hold, the request has to take effect and the GPU to work for a while again.
_HOLD_PER_CHANGE_COUNT = 2.0
# The median of n normal values scatters this much more than their mean.
_MEDIAN_STD_RATIO = 1.2533
# Temperature is known to a degree or two, and leakage moves the power by about this much then.
_POWER_DOUBT_RATIO = 0.003
_CERTAIN_STD_COUNT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredChange:
    """What changing between two points costs, both ways alike.

    `lag_s` is the longer of the two directions, the others are means of both. `stall_std_s` and
    `energy_std_j` are standard errors; what lies below `stall_least_s` or `energy_least_j`
    could not have been seen.
    """

    domain: TransitionDomain
    before: OperatingPoint
    after: OperatingPoint
    lag_s: float
    stall_s: float
    stall_std_s: float
    stall_least_s: float
    energy_j: float
    energy_std_j: float
    energy_least_j: float

    @property
    def is_stall_seen(self) -> bool:
        """Whether the stall stands out."""
        return self.stall_s > self.stall_least_s

    @property
    def is_energy_seen(self) -> bool:
        """Whether the energy stands out."""
        return self.energy_j > self.energy_least_j


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alternation:
    """A window of changes back and forth: when it was, what ran, how long the other point was."""

    start: GpuSample
    end: GpuSample
    timing: LoopTiming
    change_count: int
    other_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """One repeat: stall and energy per change, and the least of each that would show.

    The least stall is that of one launch more or less in the window.
    """

    stall_s: float
    stall_least_s: float
    energy_j: float
    energy_least_j: float


class ChangeMeter:
    """Measures changes between points on one device, running one kernel."""

    def __init__(
        self, session: DeviceSession, lease: Lease, kernel: str, settings: MeasureSettings
    ) -> None:
        """Nothing runs before the first measurement."""
        self._gpu: Gpu = session.gpu
        self._runner = session.runner
        self._lease = lease
        self._kernel = kernel
        self._settings = settings
        self._next_window = 0

    def measure(self, before: OperatingPoint, after: OperatingPoint) -> MeasuredChange | None:
        """Measure changes between two points, both ways.

        Returns:
            `None` where the clocks read alike at both points, so that no change can be seen.

        Raises:
            MeasurementError: the points are the same, clocks never read back, or no window
                gave a number.
            DeviceError: a point was refused, or the device was lost.
        """
        domain = changed_domain(before, after)
        if domain is None:
            raise MeasurementError("there is no change between a point and itself")
        with self._runner.loop(self._kernel, run=RUN) as loop:
            clocks = [self._settled_clocks(loop, point) for point in (before, after)]
            if clocks[0] == clocks[1]:
                return None
            there_s = self._lag_s(loop, before, after, clocks[1])
            back_s = self._lag_s(loop, after, before, clocks[0])
            pair = _Pair(before=before, after=after, there_s=there_s, back_s=back_s)
            samples = self._samples(loop, pair)
        return _summary(domain, pair, samples)

    def _settled_clocks(self, loop: KernelLoop, point: OperatingPoint) -> tuple[int | None, ...]:
        self._lease.apply(point)
        loop.run_for(_LAG_TIMEOUT_S)
        return _clocks(self._gpu.sample())

    def _lag_s(
        self,
        loop: KernelLoop,
        before: OperatingPoint,
        after: OperatingPoint,
        clocks: tuple[int | None, ...],
    ) -> float:
        """Median time from the request until the clocks read as they shall."""
        poll_s = _COARSE_POLL_S
        seen_s = []
        for number in range(self._settings.window_count + 1):
            self._lease.apply(before)
            loop.run_for(_LAG_TIMEOUT_S)
            lag_s = self._read_lag_s(loop, after, clocks, poll_s)
            if number:
                seen_s.append(lag_s)
            else:
                poll_s = max(_FINEST_POLL_S, lag_s / _POLLS_PER_LAG)
        return median(seen_s)

    def _read_lag_s(
        self,
        loop: KernelLoop,
        after: OperatingPoint,
        clocks: tuple[int | None, ...],
        poll_s: float,
    ) -> float:
        asked_s = before_s = self._gpu.sample().time_s
        self._lease.apply(after)
        sample = self._gpu.sample()
        while _clocks(sample) != clocks:
            if sample.time_s - asked_s > _LAG_TIMEOUT_S:
                raise MeasurementError(
                    f"the clocks of {after.label} did not read back within {_LAG_TIMEOUT_S:g} s",
                    hint="Use points that the device holds under load.",
                )
            before_s = sample.time_s
            loop.run_for(poll_s)
            sample = self._gpu.sample()
        # It happened at some moment between the last two looks.
        return (before_s + sample.time_s) / 2 - asked_s

    def _samples(self, loop: KernelLoop, pair: _Pair) -> list[_Sample]:
        count = self._settings.window_count
        befores = self._references(loop, pair.before, count)
        afters = self._references(loop, pair.after, count)
        # For a rough stall no temperature has to rest; only the energy is off then.
        rough_hold_s = _FIRST_HOLD_S + pair.lag_s
        rough = _account(self._alternate(loop, pair, rough_hold_s), befores[0], afters[0])
        change_s = pair.lag_s + max(0.0, rough.stall_s)
        hold_s = max(_SHORTEST_HOLD_S, _HOLD_PER_CHANGE_COUNT * change_s)
        self._settle_alternating(loop, pair, hold_s)
        return [
            _account(self._alternate(loop, pair, hold_s), before, after)
            for before, after in zip(befores, afters, strict=True)
        ]

    def _references(self, loop: KernelLoop, point: OperatingPoint, count: int) -> list[Window]:
        """Windows of a constant point, warm."""
        self._lease.apply(point)
        wait_until_steady(self._gpu, loop.run_for, self._settings, is_soak_optional=True)
        return [
            measure_window(self._gpu, loop, point, self._number(), self._settings)
            for _ in range(count)
        ]

    def _number(self) -> int:
        """A number that no window had yet."""
        self._next_window += 1
        return self._next_window

    def _settle_alternating(self, loop: KernelLoop, pair: _Pair, hold_s: float) -> None:
        turn = self._turner(loop, pair, hold_s)

        def let_pass(duration_s: float) -> None:
            for _ in range(math.ceil(duration_s / (2 * hold_s))):
                turn()

        wait_until_steady(self._gpu, let_pass, self._settings, is_soak_optional=True)

    def _alternate(self, loop: KernelLoop, pair: _Pair, hold_s: float) -> _Alternation:
        """One window of changes back and forth, begun and ended at `before`."""
        turn = self._turner(loop, pair, hold_s)
        turn()
        length_s = self._settings.window_duration_s(self._gpu.energy_counter_period_s)
        turn_count = max(2, math.ceil(length_s / (2 * hold_s)))
        start = wait_for_tick(self._gpu)
        loop.begin_window(self._number())
        try:
            other_s = math.fsum(turn() for _ in range(turn_count))
            end = wait_for_tick(self._gpu)
        finally:
            timing = loop.end_window()
        return _Alternation(
            start=start,
            end=end,
            timing=timing,
            change_count=2 * turn_count,
            other_s=other_s + turn_count * (pair.back_s - pair.there_s),
        )

    def _turner(self, loop: KernelLoop, pair: _Pair, hold_s: float) -> Callable[[], float]:
        """Goes there and back; returns the time between the two requests."""

        def turn() -> float:
            there_s = self._gpu.sample().time_s
            self._lease.apply(pair.after)
            loop.run_for(hold_s)
            back_s = self._gpu.sample().time_s
            self._lease.apply(pair.before)
            loop.run_for(hold_s)
            return back_s - there_s

        return turn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Two points, and how long the clocks take from one to the other and back."""

    before: OperatingPoint
    after: OperatingPoint
    there_s: float
    back_s: float

    @property
    def lag_s(self) -> float:
        return max(self.there_s, self.back_s)


def _account(seen: _Alternation, before: Window, after: Window) -> _Sample:
    """What is missing in launches and over in energy, per change.

    Half of the changes end at either point. With a and b the times per launch there, T the
    time between the ticks, B the part of it in which the other point was in force and n
    changes of stall s each: launches = (T - B - n s / 2) / a + (B - n s / 2) / b.
    """
    duration_s = seen.end.time_s - seen.start.time_s
    own_s = duration_s - seen.other_s
    launches = duration_s * seen.timing.launch_count / seen.timing.elapsed_s
    rate_sum = 0.5 / before.time_s + 0.5 / after.time_s
    missing = own_s / before.time_s + seen.other_s / after.time_s - launches
    stall_s = missing / (seen.change_count * rate_sum)
    waited_s = 0.5 * seen.change_count * stall_s
    expected_j = (own_s - waited_s) * before.energy_j / before.time_s
    expected_j += (seen.other_s - waited_s) * after.energy_j / after.time_s
    counted_j = energy_between_j(seen.start, seen.end)
    return _Sample(
        stall_s=stall_s,
        stall_least_s=1.0 / (seen.change_count * rate_sum),
        energy_j=(counted_j - expected_j) / seen.change_count,
        energy_least_j=_POWER_DOUBT_RATIO * counted_j / seen.change_count,
    )


def _summary(domain: TransitionDomain, pair: _Pair, samples: list[_Sample]) -> MeasuredChange:
    stalls_s = [one.stall_s for one in samples]
    energies_j = [one.energy_j for one in samples]
    stall_std_s, energy_std_j = _median_std(stalls_s), _median_std(energies_j)
    return MeasuredChange(
        domain=domain,
        before=pair.before,
        after=pair.after,
        lag_s=pair.lag_s,
        stall_s=median(stalls_s),
        stall_std_s=stall_std_s,
        stall_least_s=_least(stall_std_s, [one.stall_least_s for one in samples]),
        energy_j=median(energies_j),
        energy_std_j=energy_std_j,
        energy_least_j=_least(energy_std_j, [one.energy_least_j for one in samples]),
    )


def _least(std_value: float, floors: list[float]) -> float:
    """What has to be exceeded to stand out: the scatter, and what one repeat could show."""
    return max(_CERTAIN_STD_COUNT * std_value, *floors)


def _median_std(values: list[float]) -> float:
    spread = std(values)
    return 0.0 if spread is None else _MEDIAN_STD_RATIO * spread / math.sqrt(len(values))


def _clocks(sample: GpuSample) -> tuple[int | None, ...]:
    return sample.sm_clock_mhz, sample.mem_clock_mhz
