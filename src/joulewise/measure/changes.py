"""What one kind of change of the operating point costs, measured on a running kernel.

How long the request blocks and how long it takes to come into force is seen one change at a
time (`change_times`). The stall is what is missing: over many changes back and forth in one
window, the launches that the paces before and after would have finished, less those that did.
Energy likewise, from the powers before and after (`change_accounts`). Where the device traces
its SM clock, the stall is seen there, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import Window
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import KernelLoop, Lease
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import TransitionDomain, changed_domain
from joulewise.measure.change_accounts import (
    Alternation,
    ChangeSample,
    MeasuredChange,
    accounted,
    summary,
)
from joulewise.measure.change_times import LAG_TIMEOUT_S, PairTimes, ReadBack, Traced
from joulewise.measure.meter import wait_for_tick
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.steady import wait_until_steady
from joulewise.measure.window import measure_window

RUN = "transitions"
# A point is held this long while the size of the stall is still unknown, and so many times
# longer where that was too short to tell: a stall must end well within a hold.
_FIRST_HOLD_S = 0.5
_HOLD_GROWTH_COUNT = 4.0
LONGEST_STALL_S = 10.0
_GLANCE_S = 0.05
# Stalls of many changes in a row add up.
_LONGEST_STANDSTILL_S = 30 * LONGEST_STALL_S
_SHORTEST_HOLD_S = 0.005
# Within a hold, the request has to take effect and the GPU to work for a while again.
_HOLD_PER_CHANGE_COUNT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Two points, and the times of changes between them."""

    before: OperatingPoint
    after: OperatingPoint
    times: PairTimes


class ChangeMeter:
    """Measures changes between points on one device, running one kernel."""

    def __init__(
        self, session: DeviceSession, lease: Lease, kernel: str, settings: MeasureSettings
    ) -> None:
        """Nothing runs before the first measurement."""
        self._gpu = session.gpu
        self._runner = session.runner
        self._tracer = session.tracer
        self._lease = lease
        self._kernel = kernel
        self._settings = settings
        self._next_window = 0

    def measure(
        self, before: OperatingPoint, after: OperatingPoint
    ) -> tuple[MeasuredChange, MeasuredChange] | None:
        """Measure changes between two points: there, and back.

        Returns:
            `None` where the clocks are alike at both points, so that no change can be seen.

        Raises:
            MeasurementError: the points are the same, clocks never came into force, or no
                window gave a number.
            DeviceError: a point was refused, or the device was lost.
        """
        domain = changed_domain(before, after)
        if domain is None:
            raise MeasurementError("there is no change between a point and itself")
        count = self._settings.window_count
        times: PairTimes | None = None
        # SM cycles say nothing of the memory clock, nor of a power limit that they do not reach.
        if self._tracer is not None and domain is TransitionDomain.SM:
            times = Traced(self._gpu, self._lease, self._tracer, count).times(before, after)
        with self._runner.loop(self._kernel, run=RUN) as loop:
            if times is None:
                times = ReadBack(self._gpu, self._lease, loop, count).times(before, after)
            if times is None:
                return None
            pair = _Pair(before=before, after=after, times=times)
            befores = self._references(loop, before, count)
            afters = self._references(loop, after, count)
            samples = self._samples(loop, pair, befores, afters)
        return summary(before, after, times, (befores, afters), samples)

    def _samples(
        self, loop: KernelLoop, pair: _Pair, befores: list[Window], afters: list[Window]
    ) -> list[ChangeSample]:
        change_s = pair.times.lag_s + self._rough_stall_s(loop, pair, befores[0], afters[0])
        hold_s = max(_SHORTEST_HOLD_S, _HOLD_PER_CHANGE_COUNT * change_s)
        self._settle_alternating(loop, pair, hold_s)
        return [
            accounted(self._alternate(loop, pair, hold_s), before, after)
            for before, after in zip(befores, afters, strict=True)
        ]

    def _rough_stall_s(self, loop: KernelLoop, pair: _Pair, before: Window, after: Window) -> float:
        """Of the right size; no temperature has to rest for that, for only energy is off then.

        What fills a hold may be any longer, so holds grow until the stall leaves most of them.
        """
        hold_s = _FIRST_HOLD_S
        while True:
            rough = accounted(self._alternate(loop, pair, pair.times.lag_s + hold_s), before, after)
            if rough.stall_s <= hold_s / _HOLD_GROWTH_COUNT:
                return max(0.0, rough.stall_s)
            if hold_s > _HOLD_GROWTH_COUNT * LONGEST_STALL_S:
                raise _too_long(pair.after)
            hold_s *= _HOLD_GROWTH_COUNT

    def _references(self, loop: KernelLoop, point: OperatingPoint, count: int) -> list[Window]:
        """Windows of a constant point, warm."""
        self._lease.apply(point)
        loop.run_for(LAG_TIMEOUT_S)
        loop.begin_window(self._number())
        loop.run_for(_GLANCE_S)
        if loop.end_window().elapsed_s > _LONGEST_STANDSTILL_S:
            raise _too_long(point)
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
        turn_s = 2 * hold_s + pair.times.calls_s

        def let_pass(duration_s: float) -> None:
            for _ in range(math.ceil(duration_s / turn_s)):
                turn()

        wait_until_steady(self._gpu, let_pass, self._settings, is_soak_optional=True)

    def _alternate(self, loop: KernelLoop, pair: _Pair, hold_s: float) -> Alternation:
        """One window of changes back and forth, begun and ended at `before`."""
        turn = self._turner(loop, pair, hold_s)
        turn()
        length_s = self._settings.window_duration_s(self._gpu.energy_counter_period_s)
        turn_count = max(2, math.ceil(length_s / (2 * hold_s + pair.times.calls_s)))
        start = wait_for_tick(self._gpu)
        loop.begin_window(self._number())
        try:
            other_s = math.fsum(turn() for _ in range(turn_count))
            end = wait_for_tick(self._gpu)
        finally:
            timing = loop.end_window()
        return Alternation(
            start=start,
            end=end,
            timing=timing,
            change_count=2 * turn_count,
            other_s=other_s + turn_count * (pair.times.back.lag_s - pair.times.there.lag_s),
        )

    def _turner(self, loop: KernelLoop, pair: _Pair, hold_s: float) -> Callable[[], float]:
        """Goes there and back; returns the time between the two requests."""

        def turn() -> float:
            there_s = self._gpu.now_s()
            self._lease.apply(pair.after)
            loop.run_for(hold_s)
            back_s = self._gpu.now_s()
            self._lease.apply(pair.before)
            loop.run_for(hold_s)
            return back_s - there_s

        return turn


def _too_long(point: OperatingPoint) -> MeasurementError:
    return MeasurementError(
        f"after a change to {point.label} the GPU does nothing for longer than "
        f"{LONGEST_STALL_S:g} s, which cannot be measured",
        hint="Look at the device: no driver takes this long to change clocks.",
    )
