"""What changes of the operating point took, from launches and energy that were counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.measurement import GpuSample, LoopTiming, Window
from joulewise.domain.points import OperatingPoint
from joulewise.domain.transition import TransitionDomain
from joulewise.measure.statistics import median, std
from joulewise.measure.window import energy_between_j

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
class Pair:
    """Two points, how long the clocks take from one to the other and back, and how surely."""

    before: OperatingPoint
    after: OperatingPoint
    there_s: float
    back_s: float
    lag_doubt_s: float

    @property
    def lag_s(self) -> float:
        """The longer of the two."""
        return max(self.there_s, self.back_s)


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
    domain: TransitionDomain,
    pair: Pair,
    befores: Sequence[Window],
    afters: Sequence[Window],
    samples: Sequence[ChangeSample],
) -> MeasuredChange:
    """What all repeats say together, and what they could not have shown.

    Paces and powers scatter from window to window by the same share, however long the windows
    are; so the longer a point is held, the more of each change that is. The scatter is taken
    from the repeats or from the windows of constant points, whichever is larger: a few repeats
    may happen to agree.
    """
    hold_s = median([one.hold_s for one in samples])
    power_w = median([one.mean_power_w for one in samples])
    stalls_s = [one.stall_s for one in samples]
    energies_j = [one.energy_j for one in samples]
    stall_std_s = max(
        _median_std(stalls_s),
        hold_s * _shared_std([one.time_s for one in befores], [one.time_s for one in afters]),
    )
    powers_w = [[one.energy_j / one.time_s for one in windows] for windows in (befores, afters)]
    energy_std_j = max(_median_std(energies_j), hold_s * power_w * _shared_std(*powers_w))
    rates = [1.0 / median([one.time_s for one in windows]) for windows in (befores, afters)]
    lag_stall_s = pair.lag_doubt_s * abs(rates[0] - rates[1]) / (rates[0] + rates[1])
    lag_energy_j = pair.lag_doubt_s * abs(median(powers_w[0]) - median(powers_w[1])) / 2
    stall_least_s = max(
        _CERTAIN_STD_COUNT * stall_std_s, lag_stall_s, *(one.launch_s for one in samples)
    )
    energy_least_j = max(_CERTAIN_STD_COUNT * energy_std_j, _POWER_DOUBT_RATIO * power_w * hold_s)
    return MeasuredChange(
        domain=domain,
        before=pair.before,
        after=pair.after,
        lag_s=pair.lag_s,
        stall_s=median(stalls_s),
        stall_std_s=stall_std_s,
        stall_least_s=stall_least_s,
        energy_j=median(energies_j),
        energy_std_j=energy_std_j,
        # A stall that is off takes the energy of its time along.
        energy_least_j=energy_least_j + lag_energy_j,
    )


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
