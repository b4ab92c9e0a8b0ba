"""What changes of the operating point took, from launches and energy that were counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import GpuSample, LoopTiming, Window
from joulewise.domain.points import OperatingPoint
from joulewise.domain.transition import TransitionDomain, changed_domain
from joulewise.measure.change_times import ChangeTimes, PairTimes
from joulewise.measure.meter import energy_between_j
from joulewise.measure.statistics import median, std

# The median of n normal values scatters this much more than their mean.
_MEDIAN_STD_RATIO = 1.2533
# Temperature is known to a degree or two, and leakage moves the power by about this much then.
_POWER_DOUBT_RATIO = 0.003
_CERTAIN_STD_COUNT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredChange:
    """What changing from one point to another costs.

    The request blocks for `call_s` and takes effect `lag_s` after it was made: medians, and
    the longest seen. Energy is the mean of both directions, as is the stall where it was not
    seen singly. `stall_std_s` and `energy_std_j` are standard errors; what lies below
    `stall_least_s` or `energy_least_j` could not have been seen.
    """

    domain: TransitionDomain
    before: OperatingPoint
    after: OperatingPoint
    call_s: float
    worst_call_s: float
    lag_s: float
    worst_lag_s: float
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
class Alternation:
    """A window of changes back and forth: when it was, what ran, how long the other point was."""

    start: GpuSample
    end: GpuSample
    timing: LoopTiming
    change_count: int
    other_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSample:
    """One repeat: stall and energy per change, and what would be lost in it.

    `launch_s` is the stall that one launch more or less in the window makes, `hold_s` the mean
    time between two changes.
    """

    stall_s: float
    launch_s: float
    energy_j: float
    hold_s: float
    mean_power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stall:
    """A median, its standard error, and what could have been seen at least."""

    stall_s: float
    std_s: float
    least_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Energy:
    """A median, its standard error, and what could have been seen at least."""

    energy_j: float
    std_j: float
    least_j: float


def accounted(seen: Alternation, before: Window, after: Window) -> ChangeSample:
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
    return ChangeSample(
        stall_s=stall_s,
        launch_s=1.0 / (seen.change_count * rate_sum),
        energy_j=(counted_j - expected_j) / seen.change_count,
        hold_s=duration_s / seen.change_count,
        mean_power_w=counted_j / duration_s,
    )


def summary(
    before: OperatingPoint,
    after: OperatingPoint,
    times: PairTimes,
    references: tuple[Sequence[Window], Sequence[Window]],
    samples: Sequence[ChangeSample],
) -> tuple[MeasuredChange, MeasuredChange]:
    """What all repeats say together of both directions, and what they could not have shown.

    Paces and powers scatter from window to window by the same share, however long the windows
    are; so the longer a point is held, the more of each change that is. The scatter is taken
    from the repeats or from the windows of constant points, whichever is larger: a few repeats
    may happen to agree.

    Raises:
        MeasurementError: the points are the same.
    """
    domain = changed_domain(before, after)
    if domain is None:
        raise MeasurementError("there is no change between a point and itself")
    stall = _counted_stall(times, references, samples)
    energy = _counted_energy(times, references, samples)

    def one_way(start: OperatingPoint, end: OperatingPoint, seen: ChangeTimes) -> MeasuredChange:
        own = _stall(stall, seen)
        return MeasuredChange(
            domain=domain,
            before=start,
            after=end,
            call_s=median(seen.calls_s),
            worst_call_s=max(seen.calls_s),
            lag_s=seen.lag_s,
            worst_lag_s=max(seen.lags_s),
            stall_s=own.stall_s,
            stall_std_s=own.std_s,
            stall_least_s=own.least_s,
            energy_j=energy.energy_j,
            energy_std_j=energy.std_j,
            energy_least_j=energy.least_j,
        )

    return one_way(before, after, times.there), one_way(after, before, times.back)


def _counted_stall(
    times: PairTimes,
    references: tuple[Sequence[Window], Sequence[Window]],
    samples: Sequence[ChangeSample],
) -> _Stall:
    """From launches that are missing, the mean of both directions."""
    launch_times_s = [[one.time_s for one in windows] for windows in references]
    stalls_s = [one.stall_s for one in samples]
    hold_s = median([one.hold_s for one in samples])
    std_s = max(_median_std(stalls_s), hold_s * _shared_std(*launch_times_s))
    rates = [1.0 / median(values) for values in launch_times_s]
    lag_stall_s = _lag_doubt_s(times) * abs(rates[0] - rates[1]) / (rates[0] + rates[1])
    return _Stall(
        stall_s=median(stalls_s),
        std_s=std_s,
        least_s=max(_CERTAIN_STD_COUNT * std_s, lag_stall_s, *(one.launch_s for one in samples)),
    )


def _counted_energy(
    times: PairTimes,
    references: tuple[Sequence[Window], Sequence[Window]],
    samples: Sequence[ChangeSample],
) -> _Energy:
    powers_w = [[one.energy_j / one.time_s for one in windows] for windows in references]
    energies_j = [one.energy_j for one in samples]
    held_j = median([one.hold_s for one in samples]) * median([one.mean_power_w for one in samples])
    std_j = max(_median_std(energies_j), held_j * _shared_std(*powers_w))
    lag_energy_j = _lag_doubt_s(times) * abs(median(powers_w[0]) - median(powers_w[1])) / 2
    return _Energy(
        energy_j=median(energies_j),
        std_j=std_j,
        # A stall that is off takes the energy of its time along.
        least_j=max(_CERTAIN_STD_COUNT * std_j, _POWER_DOUBT_RATIO * held_j) + lag_energy_j,
    )


def _stall(counted: _Stall, seen: ChangeTimes) -> _Stall:
    """As traced on the GPU, unless launches show more of it.

    That is so where nobody could look while the call blocked, and where the launches miss more
    than the trace beyond doubt: a GPU may count cycles and yet do no work.
    """
    if not seen.stalls_s:
        return counted
    std_s = _median_std(seen.stalls_s)
    traced = _Stall(
        stall_s=median(seen.stalls_s),
        std_s=std_s,
        least_s=max(_CERTAIN_STD_COUNT * std_s, seen.stall_least_s),
    )
    is_more = counted.stall_s - traced.stall_s > counted.least_s + traced.least_s
    return counted if is_more or counted.least_s < traced.least_s else traced


def _lag_doubt_s(times: PairTimes) -> float:
    return times.there.lag_doubt_s + times.back.lag_doubt_s


def _shared_std(befores: Sequence[float], afters: Sequence[float]) -> float:
    """Standard error, as a share, of the median of what changes show, from constant windows.

    Half of a repeat is spent at either point, and the repeat itself scatters as they do.
    """
    variances = [(std(values) or 0.0) ** 2 / median(values) ** 2 for values in (befores, afters)]
    per_sample = sum(variances) / 4 + sum(variances) / 2
    return _MEDIAN_STD_RATIO * math.sqrt(per_sample / len(befores))


def _median_std(values: Sequence[float]) -> float:
    spread = std(values)
    return 0.0 if spread is None else _MEDIAN_STD_RATIO * spread / math.sqrt(len(values))
