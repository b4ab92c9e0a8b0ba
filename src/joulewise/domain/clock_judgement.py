"""What readings tell of a clock: what held it down and for how long, and what it should be.

Pure judgements, which the measuring of windows and the watching of leases share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.measurement import EventReason, GpuSample
from joulewise.domain.points import ClockGrid, OperatingPoint

NEGLIGIBLE_RATIO = 0.01
"""A window capped or slowed for less than this share of its length is as good as any."""
CLEARLY_BELOW_RATIO = 0.8
"""Boards that list clocks beyond what they ever take up reach about nine tenths of the highest."""
LIMIT_WITHIN_W = 0.5
"""Power limits that read closer than this are the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What holds a clock down: its counter of seconds, its event reasons, the doubt that it casts.

    `counter` is a field of `GpuSample`; `None` where devices count no time for this cause.
    """

    counter: str | None
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


def held_down_ratio(samples: Sequence[GpuSample], cause: Cause) -> float:
    """Share of the time that this cause held the clock down; 0 where it cannot be told.

    What the device's counter of seconds says; where it counts none, in how many of the readings
    it named the event reason.
    """
    grown = grown_ratio(samples[0], samples[-1], cause)
    if grown is not None:
        return min(1.0, max(0.0, grown))
    told = [sample.event_reasons for sample in samples if sample.event_reasons is not None]
    return sum(bool(reasons & cause.reasons) for reasons in told) / len(told) if told else 0.0


def grown_ratio(before: GpuSample, after: GpuSample, cause: Cause) -> float | None:
    """What a counter of seconds grew by, against the time that passed; `None`: no counter."""
    if cause.counter is None:
        return None
    start_s, end_s = getattr(before, cause.counter), getattr(after, cause.counter)
    passed_s = after.time_s - before.time_s
    if start_s is None or end_s is None or passed_s <= 0:
        return None
    return float(end_s - start_s) / passed_s


def is_named_idle(sample: GpuSample) -> bool:
    """Whether the driver calls the GPU idle; not where it does not tell.

    A board names no reasons, and tells for how much of the last moments the GPU was busy.
    """
    if sample.event_reasons is None:
        return sample.busy_ratio == 0.0
    return EventReason.GPU_IDLE in sample.event_reasons


def is_loaded(sample: GpuSample) -> bool:
    """Whether the GPU works for all that the driver says; not where it does not tell.

    A screen alone keeps a GPU from being called idle at times, at whatever clocks; what computes
    on it makes the driver clock it up.
    """
    is_told = sample.event_reasons is not None or sample.busy_ratio is not None
    return is_told and not is_named_idle(sample)


def limit_to_be_w(point: OperatingPoint, grid: ClockGrid) -> float | None:
    """The power limit that is in force where nobody else has touched it since."""
    limits = grid.power_limits
    if limits is None:
        return point.power_limit_w
    usual_w = limits.found_w if limits.enforced_w is None else limits.enforced_w
    return usual_w if point.power_limit_w is None else min(point.power_limit_w, usual_w)


def is_other_limit(limit_w: float, wanted_w: float) -> bool:
    """Whether a power limit reads as another one than it should be."""
    return abs(limit_w - wanted_w) > LIMIT_WITHIN_W


def grid_step_mhz(clock_mhz: int, listed_mhz: Sequence[int]) -> int:
    """Distance to the nearest other listed clock; 0 for a list of one."""
    return min((abs(clock_mhz - other) for other in listed_mhz if other != clock_mhz), default=0)


def is_clearly_low(clock_mhz: int | None, listed_mhz: Sequence[int]) -> bool:
    """Whether this is clearly below the highest listed; not where none is known or listed."""
    highest_mhz = max(listed_mhz, default=0)
    return clock_mhz is not None and clock_mhz < CLEARLY_BELOW_RATIO * highest_mhz
