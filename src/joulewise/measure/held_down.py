"""What the device says held its clock down during a window, and for how much of it."""

from __future__ import annotations

from collections.abc import Sequence

from joulewise.domain.caveats import Caveat
from joulewise.domain.clock_judgement import (
    CAUSES,
    NEGLIGIBLE_RATIO,
    Cause,
    grown_ratio,
    held_down_ratio,
)
from joulewise.domain.measurement import EventReason, GpuSample

# Also reasons for a lower clock, which no caveat goes with: NVIDIA sets the first by default on
# some boards, and the others while a clock changes or a display asks.
_HARMLESS = frozenset(
    {
        EventReason.APPLICATION_CLOCKS,
        EventReason.DISPLAY_CLOCK,
        EventReason.HW_SLOWDOWN,
        EventReason.UNKNOWN,
    }
)
_EXPLAINING = _HARMLESS.union(*(cause.reasons for cause in CAUSES))


def held_down(samples: Sequence[GpuSample], *causes: Cause) -> tuple[Caveat, ...]:
    """A caveat for each of the causes that held the clock down for more than a moment.

    Args:
        samples: Of one window in order of time, its first and last moment among them.
        causes: Which to look for.

    Returns:
        What the device's counters of seconds say (NVML fields 74, 76 and 269 to 271); where it
        counts none, in how many samples it named the event reason; nothing where it tells
        neither.
    """
    caveats = []
    for cause in causes:
        share = held_down_ratio(samples, cause)
        if share > NEGLIGIBLE_RATIO:
            seen = f"{cause.words} for {share:.0%} of the window"
            caveats.append(Caveat(kind=cause.kind, seen=seen, advice=cause.advice))
    return tuple(caveats)


def can_explain(samples: Sequence[GpuSample]) -> bool:
    """Whether the device tells at all what holds its clock down."""
    return any(
        sample.event_reasons is not None or sample.power_capped_s is not None for sample in samples
    )


def unexplained(samples: Sequence[GpuSample]) -> tuple[GpuSample, ...]:
    """Samples of a window about whose clock the device says nothing: nothing held it down.

    A sample is explained where a counter of seconds grew since the sample before, or where the
    device named an event reason at either.
    """
    if len(samples) < 2:  # noqa: PLR2004 - one sample ends no stretch
        return tuple(sample for sample in samples if not _names_reason(sample))
    free = []
    for index, sample in enumerate(samples):
        before = samples[max(0, index - 1)]
        after = samples[max(1, index)]
        if not _is_explained(before, after):
            free.append(sample)
    return tuple(free)


def held_by_nothing_but(cause: Cause, samples: Sequence[GpuSample]) -> bool:
    """Whether the device tells of no other reason for a lower clock within a window."""
    others = [other for other in CAUSES if other is not cause]
    named = frozenset[EventReason]().union(*(one.event_reasons or () for one in samples))
    return not (named & _EXPLAINING - cause.reasons) and not held_down(samples, *others)


def names(sample: GpuSample, cause: Cause) -> bool:
    """Whether the device named this cause at that moment."""
    return bool((sample.event_reasons or frozenset()) & cause.reasons)


def _is_explained(before: GpuSample, after: GpuSample) -> bool:
    if _names_reason(before) or _names_reason(after):
        return True
    return any((grown_ratio(before, after, cause) or 0.0) > NEGLIGIBLE_RATIO for cause in CAUSES)


def _names_reason(sample: GpuSample) -> bool:
    return bool((sample.event_reasons or frozenset()) & _EXPLAINING)
