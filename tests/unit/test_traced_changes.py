"""Changes of the clock as traced on a GPU that first has to wake up, by a timer that may be coarse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from joulewise.domain.errors import MeasurementError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import ClockTrace
from joulewise.measure.change_times import PairTimes, Traced
from joulewise.simulator.virtual import open_virtual

SLOW, FAST = OperatingPoint(sm_clock_mhz=840), OperatingPoint(sm_clock_mhz=1155)
IDLE_MHZ = 210.0
STEP_S = 2e-5
LAG_S = 0.008


class WakingGpu:
    """A lease and a tracer: asleep before every trace, it takes `wake_s` of load to wake up.

    The GPU's timer moves every `timer_s`.
    """

    def __init__(self, *, wake_s: float = 0.0, timer_s: float = STEP_S) -> None:
        self.longest_s = 0.0
        self._wake_s = wake_s
        self._timer_s = timer_s
        self._now_s = 0.0
        self._clock_mhz = IDLE_MHZ

    def apply(self, point: OperatingPoint) -> None:
        assert point.sm_clock_mhz is not None
        self._clock_mhz = float(point.sm_clock_mhz)

    def release(self) -> None:
        self.apply(SLOW)

    def trace(
        self, act: Callable[[], None], *, before_s: float, after_s: float, warm_up_s: float = 0.0
    ) -> ClockTrace:
        begun_s, former_mhz = self._now_s, self._clock_mhz
        asked_s = begun_s + warm_up_s + before_s
        act()
        end_s = self._now_s = asked_s + after_s
        self.longest_s = max(self.longest_s, before_s + after_s)
        times_s = np.arange(begun_s, end_s, STEP_S)
        clocks_mhz = np.where(times_s < asked_s + LAG_S, former_mhz, self._clock_mhz)
        clocks_mhz[times_s < begun_s + self._wake_s] = IDLE_MHZ
        cycles = np.concatenate(([0.0], np.cumsum(clocks_mhz[:-1]) * STEP_S * 1e6))
        is_warm = times_s >= begun_s + warm_up_s
        return ClockTrace(
            times_s=np.floor(times_s[is_warm] / self._timer_s) * self._timer_s,
            cycles=cycles[is_warm],
            asked_s=asked_s,
            returned_s=asked_s,
        )


def traced(waking: WakingGpu) -> PairTimes | None:
    gpu = open_virtual("virtual:rtx3080ti", ()).gpu
    return Traced(gpu, waking, waking, repeat_count=3).times(SLOW, FAST)


@pytest.mark.parametrize("wake_s", [0.0, 0.3, 0.95, 1.7])
def test_a_gpu_that_has_to_wake_up_is_not_taken_to_have_settled_asleep(wake_s: float) -> None:
    times = traced(WakingGpu(wake_s=wake_s))

    assert times is not None
    for one in (times.there, times.back):
        assert one.lags_s == pytest.approx(3 * [LAG_S], abs=3 * STEP_S)
        assert one.stalls_s == (0.0, 0.0, 0.0)


def test_a_gpu_that_never_wakes_up_shows_no_change() -> None:
    """It stays at its lowest clock, whatever was asked for."""
    assert traced(WakingGpu(wake_s=1e6)) is None


def test_a_gpu_that_wakes_up_only_now_and_then_is_refused() -> None:
    """It was awake when its clocks were looked up, but not when they were changed."""
    waking = WakingGpu(wake_s=0.0)

    class Dozing(WakingGpu):
        def trace(
            self, act: Callable[[], None], *, before_s: float, after_s: float, warm_up_s: float = 0
        ) -> ClockTrace:
            self._wake_s = 1e6 if before_s else 0.0
            return super().trace(act, before_s=before_s, after_s=after_s, warm_up_s=warm_up_s)

    assert traced(waking) is not None
    with pytest.raises(MeasurementError, match="did not settle at 840"):
        traced(Dozing())


@pytest.mark.parametrize("timer_s", [1e-6, 2e-4, 1e-3])
def test_the_coarser_the_timer_the_longer_the_traces(timer_s: float) -> None:
    """So that times which differ are never too few; a lag is then as fine as the timer."""
    waking = WakingGpu(timer_s=timer_s)

    times = traced(waking)

    assert times is not None
    for one in (times.there, times.back):
        assert one.lags_s == pytest.approx(3 * [LAG_S], abs=max(4 * STEP_S, 1.5 * timer_s))
        assert one.lag_doubt_s >= timer_s
        assert one.stalls_s == pytest.approx((0.0, 0.0, 0.0), abs=1e-4)
    assert (waking.longest_s > 0.1) == (timer_s > 1e-4 * 5)


def test_a_timer_that_stands_still_is_refused() -> None:
    with pytest.raises(MeasurementError, match="did not settle"):
        traced(WakingGpu(timer_s=1e6))
