"""How long a request blocks, and how long a new point takes to come into force.

Two ways: from the clocks as the driver reads them back (`ReadBack`), and from SM cycles that a
micro-kernel counts on the GPU itself (`Traced`), which is finer and sees standstills, too, but
knows nothing of the memory clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from joulewise.domain.errors import MeasurementError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import ClockTrace, ClockTracer, Gpu, KernelLoop, Lease
from joulewise.measure.clock_trace import (
    TracedChange,
    half_step_mhz,
    is_steady,
    pace_mhz,
    time_step_s,
    traced_change,
)
from joulewise.measure.statistics import median

Clocks = tuple[int | None, int | None]

LAG_TIMEOUT_S = 2.0
# Polling for a changed clock: first coarsely, then in small parts of what that showed, from
# half of it on.
_COARSE_POLL_S = 0.001
_FINEST_POLL_S = 2e-5
_POLLS_PER_LAG = 500
# Traces: as short as shows the change, and so many times longer where that was too short.
_FIRST_TRACE_S = 0.01
_TRACE_GROWTH_COUNT = 4.0
_TRACE_PER_CHANGE_COUNT = 2.0
# So many times that differ make a trace; on some GPUs the timer moves once in a millisecond.
_FEWEST_TIMES_COUNT = 200.0
_ENOUGH_TIMES_RATIO = 0.8
# A GPU that idled takes tens to hundreds of milliseconds to leave its lowest clocks.
_WARM_UP_S = 1.0
# A clock left to the driver wanders; so near it counts as the one looked for.
_ALIKE_RATIO = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTimes:
    """What changes from one point to another took, one value for each repeat.

    `lag_doubt_s` is how far off a lag may be. `stalls_s` is empty where stalls cannot be seen
    singly; those below `stall_least_s` would not be.
    """

    calls_s: tuple[float, ...]
    lags_s: tuple[float, ...]
    lag_doubt_s: float
    stalls_s: tuple[float, ...] = ()
    stall_least_s: float = 0.0

    @property
    def lag_s(self) -> float:
        """The middle lag."""
        return median(self.lags_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTimes:
    """Changes from one point to another, and back."""

    there: ChangeTimes
    back: ChangeTimes

    @property
    def lag_s(self) -> float:
        """The longer of the two."""
        return max(self.there.lag_s, self.back.lag_s)

    @property
    def calls_s(self) -> float:
        """How long the calls of both block."""
        return median(self.there.calls_s) + median(self.back.calls_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One change as read back; the lag may be off by `doubt_s`."""

    call_s: float
    lag_s: float
    doubt_s: float


class ReadBack:
    """Times from the clocks as the driver reads them back, while a kernel runs."""

    def __init__(self, gpu: Gpu, lease: Lease, loop: KernelLoop, repeat_count: int) -> None:
        """Nothing is asked for before the first measurement."""
        self._gpu = gpu
        self._lease = lease
        self._loop = loop
        self._repeat_count = repeat_count

    def times(self, before: OperatingPoint, after: OperatingPoint) -> PairTimes | None:
        """Both ways; `None` where the clocks read alike at both points.

        Raises:
            MeasurementError: clocks never read back.
            DeviceError: a point was refused, or the device was lost.
        """
        clocks = [self._settled_clocks(point) for point in (before, after)]
        if clocks[0] == clocks[1]:
            return None
        return PairTimes(
            there=self._one_way(before, after, clocks[1]),
            back=self._one_way(after, before, clocks[0]),
        )

    def _settled_clocks(self, point: OperatingPoint) -> Clocks:
        self._lease.apply(point)
        self._loop.run_for(LAG_TIMEOUT_S)
        return self._gpu.clocks_mhz()

    def _one_way(
        self, before: OperatingPoint, after: OperatingPoint, clocks: Clocks
    ) -> ChangeTimes:
        poll_s, passed_s = _COARSE_POLL_S, 0.0
        seen: list[_Seen] = []
        for _ in range(self._repeat_count + 1):
            self._lease.apply(before)
            self._loop.run_for(LAG_TIMEOUT_S)
            one = self._read(after, clocks, poll_s, passed_s)
            if not seen:
                poll_s, passed_s = _poll_s(one.lag_s), one.lag_s / 2
            seen.append(one)
        seen = seen[1:]
        return ChangeTimes(
            calls_s=tuple(one.call_s for one in seen),
            lags_s=tuple(one.lag_s for one in seen),
            lag_doubt_s=median([one.doubt_s for one in seen]),
        )

    def _read(self, after: OperatingPoint, clocks: Clocks, poll_s: float, passed_s: float) -> _Seen:
        """One call and one lag.

        Nobody looks between the end of the call and `passed_s`, nor then more often than needed.
        """
        asked_s = since_s = self._gpu.now_s()
        self._lease.apply(after)
        call_s = self._gpu.now_s() - asked_s
        if passed_s - call_s >= poll_s:
            self._loop.run_for(passed_s - call_s)
        look_s = self._gpu.now_s()
        while self._gpu.clocks_mhz() != clocks:
            if look_s - asked_s > LAG_TIMEOUT_S:
                raise MeasurementError(
                    f"the clocks of {after.label} did not read back within {LAG_TIMEOUT_S:g} s",
                    hint="Use points that the device holds under load.",
                )
            since_s = look_s
            self._loop.run_for(poll_s)
            look_s = self._gpu.now_s()
        # It happened between the begin of the last look but one and the end of the last.
        until_s = self._gpu.now_s()
        return _Seen(
            call_s=call_s,
            lag_s=(since_s + until_s) / 2 - asked_s,
            doubt_s=(until_s - since_s) / 2,
        )


class Traced:
    """Times from SM cycles; the tracer's own micro-kernel runs meanwhile, and no other."""

    def __init__(self, gpu: Gpu, lease: Lease, tracer: ClockTracer, repeat_count: int) -> None:
        """Nothing is asked for before the first measurement."""
        self._lease = lease
        self._tracer = tracer
        self._repeat_count = repeat_count
        self._listed_mhz = gpu.clock_grid().sm_clocks_mhz
        self._shortest_s = self._after_s = _FIRST_TRACE_S

    def times(self, before: OperatingPoint, after: OperatingPoint) -> PairTimes | None:
        """Both ways; `None` where the SM clock is the same at both points.

        Raises:
            MeasurementError: a clock was not reached, or the micro-kernel cannot run.
            DeviceError: a point was refused, or the device was lost.
        """
        before_mhz, after_mhz = self._settled_mhz(before), self._settled_mhz(after)
        if abs(before_mhz - after_mhz) <= half_step_mhz(self._listed_mhz, after_mhz):
            return None
        return PairTimes(
            there=self._one_way(before, after, before_mhz, after_mhz),
            back=self._one_way(after, before, after_mhz, before_mhz),
        )

    def _settled_mhz(self, point: OperatingPoint) -> float:
        """The SM clock at a point, once the GPU has woken up and it has come into force."""
        self._lease.apply(point)
        length_s = self._shortest_s
        while True:
            trace = self._tracer.trace(
                _do_nothing, before_s=0.0, after_s=length_s, warm_up_s=LAG_TIMEOUT_S
            )
            if self._are_times_few(trace, length_s):
                length_s = self._shortest_s = self._longer_s(length_s, point)
                continue
            clock_mhz = pace_mhz(trace)
            if is_steady(trace, within_mhz=half_step_mhz(self._listed_mhz, clock_mhz)):
                return clock_mhz
            length_s = self._longer_s(length_s, point)

    @staticmethod
    def _are_times_few(trace: ClockTrace, length_s: float) -> bool:
        """Whether the GPU's timer moves too rarely for traces of this length."""
        wanted_s = _FEWEST_TIMES_COUNT * time_step_s(trace)
        return length_s < _ENOUGH_TIMES_RATIO * wanted_s

    def _one_way(
        self, start: OperatingPoint, target: OperatingPoint, start_mhz: float, target_mhz: float
    ) -> ChangeTimes:
        within_mhz = half_step_mhz(self._listed_mhz, target_mhz)
        alike_mhz = max(within_mhz, _ALIKE_RATIO * abs(start_mhz - target_mhz))
        before_s, warm_up_s = self._shortest_s, _WARM_UP_S
        self._after_s = max(self._after_s, self._shortest_s)
        seen: list[TracedChange] = []
        while len(seen) < self._repeat_count:
            self._lease.apply(start)
            ask = partial(self._lease.apply, target)
            trace = self._tracer.trace(
                ask, before_s=before_s, after_s=self._after_s, warm_up_s=warm_up_s
            )
            change = traced_change(trace, within_mhz=within_mhz)
            if abs(change.before_mhz - start_mhz) > alike_mhz:
                warm_up_s = self._longer_s(warm_up_s, start)
            elif change.lag_s is None or abs(change.after_mhz - target_mhz) > alike_mhz:
                self._after_s = self._longer_s(self._after_s, target)
            else:
                seen.append(change)
                self._after_s = max(self._shortest_s, _TRACE_PER_CHANGE_COUNT * _shown_s(change))
        return ChangeTimes(
            calls_s=tuple(one.call_s for one in seen),
            lags_s=tuple(one.lag_s for one in seen if one.lag_s is not None),
            lag_doubt_s=median([one.lag_doubt_s for one in seen]),
            stalls_s=tuple(one.stall_s for one in seen),
            stall_least_s=median([one.resolution_s for one in seen]),
        )

    @staticmethod
    def _longer_s(length_s: float, point: OperatingPoint) -> float:
        """Length of the next try."""
        if length_s > _TRACE_GROWTH_COUNT * LAG_TIMEOUT_S:
            raise MeasurementError(
                f"the SM clock did not settle at {point.label} within {length_s:.1f} s",
                hint="Use points that the device holds, and stop other programs that set clocks.",
            )
        return length_s * _TRACE_GROWTH_COUNT


def _shown_s(change: TracedChange) -> float:
    """From the request until the GPU worked at its new clock."""
    return (change.lag_s or 0.0) + change.stall_s


def _do_nothing() -> None:
    """Ask for nothing: the clock in force is what is looked for."""


def _poll_s(lag_s: float) -> float:
    """Time between two looks at clocks that change after about this long."""
    return max(_FINEST_POLL_S, lag_s / _POLLS_PER_LAG)
