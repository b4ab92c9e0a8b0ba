"""What the device says held its clock down during a window, and for how much of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.measurement import EventReason, GpuSample

# A window capped or slowed for less than this share of its length is as good as any.
NEGLIGIBLE_RATIO = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause: its counter of seconds, its event reasons, and the doubt that it casts."""

    counter: str | None
    """Field of `GpuSample`; `None` where devices count no time for this cause."""
    reasons: frozenset[EventReason]
    kind: CaveatKind
    words: str
    advice: str | None = None


POWER_LIMIT = Cause(
    counter="power_capped_s",
    reasons=frozenset({EventReason.POWER_CAP}),
    kind=CaveatKind.POWER_CAPPED,
    words="the power limit held the clock down",
)
POWER_BRAKE = Cause(
    counter="power_braked_s",
    reasons=frozenset({EventReason.POWER_BRAKE}),
    kind=CaveatKind.POWER_CAPPED,
    words="the power brake of the machine held the clock down",
    advice="Look at the power supply: the machine asked the GPU to draw less.",
)
HEAT = Cause(
    counter="thermally_throttled_s",
    reasons=frozenset({EventReason.SW_THERMAL, EventReason.HW_THERMAL}),
    kind=CaveatKind.THERMALLY_THROTTLED,
    words="heat held the clock down",
)
SYNC_BOOST = Cause(
    counter="sync_boosted_s",
    reasons=frozenset({EventReason.SYNC_BOOST}),
    kind=CaveatKind.CLOCK_NOT_HELD,
    words="sync boost held the clock down to that of another GPU",
    advice="Take the GPU out of its sync boost group.",
)
CAUSES = (POWER_LIMIT, POWER_BRAKE, HEAT, SYNC_BOOST)

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
        share = _share(samples, cause)
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
    return any((_grown_ratio(before, after, cause) or 0.0) > NEGLIGIBLE_RATIO for cause in CAUSES)


def _names_reason(sample: GpuSample) -> bool:
    return bool((sample.event_reasons or frozenset()) & _EXPLAINING)


def _share(samples: Sequence[GpuSample], cause: Cause) -> float:
    """Share of the window that this cause held the clock down; 0 where it cannot be told."""
    grown_ratio = _grown_ratio(samples[0], samples[-1], cause)
    if grown_ratio is not None:
        return grown_ratio
    told = [sample.event_reasons for sample in samples if sample.event_reasons is not None]
    return sum(bool(reasons & cause.reasons) for reasons in told) / len(told) if told else 0.0


def _grown_ratio(before: GpuSample, after: GpuSample, cause: Cause) -> float | None:
    """What a counter of seconds grew by, against the time that passed."""
    if cause.counter is None:
        return None
    start_s, end_s = getattr(before, cause.counter), getattr(after, cause.counter)
    passed_s = after.time_s - before.time_s
    if start_s is None or end_s is None or passed_s <= 0:
        return None
    return float(end_s - start_s) / passed_s
