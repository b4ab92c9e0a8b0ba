"""What a traced change of the SM clock shows: the call, the lag and the stall.

A micro-kernel counts SM cycles while somebody asks for another clock. Where cycles are missing
the GPU stood still; with those times taken out, the pace of cycles is the clock in force. The
approach, pace before, pace after, moment of change, is that of Velicka et al., arXiv
2502.20075, with cycles in place of timed loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from joulewise.domain.errors import MeasurementError
from joulewise.domain.ports import ClockTrace

FloatArray = NDArray[np.float64]

_HZ_PER_MHZ = 1e6
# An interval with fewer cycles than this part of what the slower clock gives lost time.
_STANDSTILL_RATIO = 0.5
# The clocks before and after are those of the ends of a trace.
_END_RATIO = 0.25
_FEWEST_INTERVALS_COUNT = 8
_MEDIAN_OF_COUNT = 5
_OFF_IN_A_ROW_COUNT = 3
# The pace is taken over so long that the timer's steps move it by a quarter of what is allowed.
_DOUBT_COUNT = 4.0
# A trace that only just settled may not have settled at all.
_SETTLED_WITHIN_RATIO = 1.0 - _END_RATIO


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedChange:
    """One change of the SM clock as the GPU itself saw it.

    `call_s` is how long the call blocked. `lag_s` is the time from asking until the pace of
    cycles stays at its new value, standstills taken out; `None` where it does not settle
    within the trace. `lag_doubt_s` is over how long the pace had to be taken, for the timer is
    coarse. `stall_s` is the time without cycles, and `resolution_s` what of it could not be
    seen.
    """

    call_s: float
    lag_s: float | None
    lag_doubt_s: float
    stall_s: float
    resolution_s: float
    before_mhz: float
    after_mhz: float


def traced_change(trace: ClockTrace, *, within_mhz: float) -> TracedChange:
    """Read call, lag and stall from a trace.

    Args:
        trace: Times (s) and SM cycles, both ascending, with readings before and after the call.
        within_mhz: How near to its new value the pace has to stay: half a step of the clocks
            that the device lists (`half_step_mhz`).

    Raises:
        MeasurementError: too few readings before or after the call, or ones that go back.
    """
    times_s, cycles = _checked(trace)
    steps_s = np.diff(times_s)
    paces_mhz = np.diff(cycles) / steps_s / _HZ_PER_MHZ
    is_before = times_s[1:] <= trace.asked_s
    if min(is_before.sum(), (~is_before).sum()) < _FEWEST_INTERVALS_COUNT:
        raise MeasurementError(
            "the trace of the clock has too few readings around the call",
            hint="Trace for longer before and after it.",
        )
    before_mhz = _end_pace_mhz(times_s[1:][is_before], cycles[1:][is_before])
    after_mhz = _end_pace_mhz(times_s[1:][~is_before], cycles[1:][~is_before])
    missing_s = _missing_s(steps_s, paces_mhz, min(before_mhz, after_mhz))
    missing_s[is_before] = 0.0
    working_s = times_s.copy()
    working_s[1:] -= np.cumsum(missing_s)
    resolution_s = _resolution_s(steps_s[~is_before], missing_s[~is_before])
    stride = _stride(working_s, cycles, after_mhz, within_mhz)
    return TracedChange(
        call_s=trace.returned_s - trace.asked_s,
        lag_s=_lag_s(
            working_s, cycles, trace.asked_s, after_mhz, within_mhz=within_mhz, stride=stride
        ),
        lag_doubt_s=max(resolution_s, stride * float(np.median(steps_s))),
        stall_s=max(0.0, float(missing_s.sum())),
        resolution_s=resolution_s,
        before_mhz=before_mhz,
        after_mhz=after_mhz,
    )


def pace_mhz(trace: ClockTrace) -> float:
    """The SM clock at the end of a trace. Raises MeasurementError as `traced_change` does."""
    times_s, cycles = _checked(trace)
    return _end_pace_mhz(times_s, cycles)


def time_step_s(trace: ClockTrace) -> float:
    """How often the time of a trace moves: at every reading, or as the GPU's timer does.

    Infinite where it never moved.
    """
    steps_s = np.diff(trace.times_s)
    steps_s = steps_s[steps_s > 0]
    return float(np.median(steps_s)) if steps_s.size else np.inf


def is_steady(trace: ClockTrace, *, within_mhz: float) -> bool:
    """Whether the clock was the same through the second half of a trace.

    Raises MeasurementError as `traced_change` does.
    """
    times_s, cycles = _checked(trace)
    half = times_s.size // 2
    middle_mhz = _end_pace_mhz(times_s[: -half // 2], cycles[: -half // 2])
    return abs(middle_mhz - _end_pace_mhz(times_s, cycles)) <= within_mhz


def half_step_mhz(listed_mhz: Sequence[int], clock_mhz: float) -> float:
    """Half the distance between the two listed clocks around this one, or nearest to it.

    Raises MeasurementError where the device lists fewer than two clocks.
    """
    listed = sorted(set(listed_mhz))
    if len(listed) < 2:  # noqa: PLR2004 - a step lies between two
        raise MeasurementError("a device with a single SM clock changes to no other")
    above = int(np.clip(np.searchsorted(listed, clock_mhz), 1, len(listed) - 1))
    return (listed[above] - listed[above - 1]) / 2.0


def _checked(trace: ClockTrace) -> tuple[FloatArray, FloatArray]:
    """Readings at distinct times, without those whose time was taken late.

    A coarse timer gives the same time twice. Where a host reads cycles and time one after the
    other, it may be held up in between: such a time stands alone, and gives way to its
    neighbours'.
    """
    times_s, cycles = trace.times_s, trace.cycles
    if times_s.shape != cycles.shape or times_s.ndim != 1 or times_s.size <= 1:
        raise MeasurementError("a trace of the clock needs one number of cycles for each time")
    if np.any(np.diff(times_s) < 0) or np.any(np.diff(cycles) < 0):
        raise MeasurementError("the trace of the clock goes back")
    is_new = np.concatenate(([True], np.diff(times_s) > 0))
    if is_new.sum() <= _FEWEST_INTERVALS_COUNT:
        raise MeasurementError("the trace of the clock has too few readings")
    return _on_time(times_s[is_new], cycles[is_new])


def _on_time(times_s: FloatArray, cycles: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Times by a running median of how late they are against an even pace."""
    counted = cycles[-1] - cycles[0]
    if counted <= 0:
        return times_s, cycles
    even_s = (cycles - cycles[0]) * ((times_s[-1] - times_s[0]) / counted)
    late_s = times_s - even_s
    padded_s = np.pad(late_s, _MEDIAN_OF_COUNT // 2, mode="reflect", reflect_type="odd")
    middle_s = np.median(sliding_window_view(padded_s, _MEDIAN_OF_COUNT), axis=1)
    is_alone = np.abs(late_s - middle_s) > 2.0 * np.median(np.diff(times_s))
    mended_s = np.maximum.accumulate(even_s + np.where(is_alone, middle_s, late_s))
    is_new = np.concatenate(([True], np.diff(mended_s) > 0))
    return mended_s[is_new], cycles[is_new]


def _end_pace_mhz(times_s: FloatArray, cycles: FloatArray) -> float:
    """Clock over the last part of these readings, from the means of its outer thirds."""
    count = max(3, int(times_s.size * _END_RATIO))
    third = count // 3
    times_s, cycles = times_s[-count:], cycles[-count:]
    counted = cycles[-third:].mean() - cycles[:third].mean()
    return float(counted / (times_s[-third:].mean() - times_s[:third].mean())) / _HZ_PER_MHZ


def _missing_s(steps_s: FloatArray, paces_mhz: FloatArray, slower_mhz: float) -> FloatArray:
    """Time without cycles in each interval.

    The intervals beside a standstill may hold its ends, so their cycles are counted, too, at
    the pace of the nearest interval that holds none of it.
    """
    missing_s = np.zeros_like(steps_s)
    is_still = paces_mhz < _STANDSTILL_RATIO * slower_mhz
    if not is_still.any():
        return missing_s
    is_touched = is_still.copy()
    is_touched[:-1] |= is_still[1:]
    is_touched[1:] |= is_still[:-1]
    clean = np.flatnonzero(~is_touched)
    touched = np.flatnonzero(is_touched)
    if not clean.size:
        return missing_s
    after = np.searchsorted(clean, touched)
    left = clean[np.clip(after - 1, 0, clean.size - 1)]
    right = clean[np.clip(after, 0, clean.size - 1)]
    nearest = np.where(touched - left <= right - touched, left, right)
    worked_s = paces_mhz[touched] * steps_s[touched] / paces_mhz[nearest]
    # Below zero where a time read late made an interval too long and the next one too short.
    missing_s[touched] = steps_s[touched] - worked_s
    return missing_s


def _lag_s(
    working_s: FloatArray,
    cycles: FloatArray,
    asked_s: float,
    after_mhz: float,
    *,
    within_mhz: float,
    stride: int,
) -> float | None:
    """From asking until the pace, taken over so many readings, stays near its new value."""
    if after_mhz <= 0:
        return None
    spans_s = working_s[stride:] - working_s[:-stride]
    with np.errstate(divide="ignore", invalid="ignore"):
        paces_mhz = (cycles[stride:] - cycles[:-stride]) / spans_s / _HZ_PER_MHZ
    is_off = (spans_s > 0) & (np.abs(paces_mhz - after_mhz) > within_mhz)
    begins_s = working_s[:-stride]
    off = _in_a_row(is_off & (begins_s >= asked_s))
    if not off.size:
        return 0.0
    settled = int(off[-1]) + 1
    end_s = working_s[-1]
    if settled >= begins_s.size or begins_s[settled] - asked_s > _SETTLED_WITHIN_RATIO * (
        end_s - asked_s
    ):
        return None
    moment_s = _moment_s(working_s, cycles, settled, after_mhz)
    return max(0.0, moment_s - asked_s)


def _in_a_row(is_off: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Where it is off several times in a row: one reading that is off says nothing."""
    count = _OFF_IN_A_ROW_COUNT
    if is_off.size < count:
        return np.flatnonzero(is_off)
    begins = np.flatnonzero(sliding_window_view(is_off, count).all(axis=1))
    return begins + count - 1


def _moment_s(working_s: FloatArray, cycles: FloatArray, settled: int, after_mhz: float) -> float:
    """When within the last interval before the clock was in force it came.

    The interval's cycles are some at the pace of the interval before, the rest at the new one.
    """
    end_s = float(working_s[settled])
    if settled <= 1:
        return end_s
    spans_s = np.diff(working_s[settled - 2 : settled + 1])
    counted = np.diff(cycles[settled - 2 : settled + 1]) / _HZ_PER_MHZ
    if not spans_s.all():
        return end_s
    former_mhz = counted[0] / spans_s[0]
    if former_mhz == after_mhz:
        return end_s
    former_s = (counted[1] - after_mhz * spans_s[1]) / (former_mhz - after_mhz)
    return end_s - float(spans_s[1] - np.clip(former_s, 0.0, spans_s[1]))


def _resolution_s(steps_s: FloatArray, missing_s: FloatArray) -> float:
    """How long nobody looked while the GPU worked; two readings at least."""
    return max(2.0 * float(np.median(steps_s)), float((steps_s - missing_s).max()))


def _stride(working_s: FloatArray, cycles: FloatArray, after_mhz: float, within_mhz: float) -> int:
    """Over how many readings to take the pace, from how the settled part scatters."""
    if after_mhz <= 0:
        return 1
    count = max(_FEWEST_INTERVALS_COUNT, int(working_s.size * _END_RATIO / 2))
    times_s, counted = working_s[-count:], cycles[-count:]
    off_s = times_s - counted / (after_mhz * _HZ_PER_MHZ)
    jitter_s = float(np.std(off_s - np.linspace(off_s[0], off_s[-1], count)))
    span_s = _DOUBT_COUNT * np.sqrt(2.0) * jitter_s * after_mhz / within_mhz
    step_s = (times_s[-1] - times_s[0]) / (count - 1)
    return int(np.clip(np.ceil(span_s / step_s), 1, max(1, working_s.size // 8)))
