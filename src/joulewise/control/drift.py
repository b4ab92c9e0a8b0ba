"""What a GPU does beside what was asked of it, from readings now and then under any load.

Nothing is known here of what runs, so an idle GPU proves nothing by a low clock. NVML cannot be
asked for clock locks: a lock of ours is provably no longer in force only where the clock runs
above it; below it somebody else may have set a lower one, or the driver holds it down for a
reason that it does not tell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.measurement import EventReason, GpuSample
from joulewise.domain.points import ClockGrid, OperatingPoint

SETTLE_S = 1.0
"""So long after a request nothing is judged: a new point takes a while to be in force."""
_FEWEST_COUNT = 3
"""So many readings in a row have to agree before anything is said."""
_WINDOW_COUNT = 10
_NEGLIGIBLE_RATIO = 0.01
_LIMIT_WITHIN_W = 0.5
_READ_WITHIN_RATIO = 0.01
# Boards that list clocks beyond what they ever take up reach about nine tenths of the highest.
_CLEARLY_BELOW_RATIO = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What is not as asked.

    `caveats` hold as of the last reading, `new` are those of them that this watch had not told
    of before. `taken_over` names the knobs (as in OperatingPoint) that somebody else has set
    since, for sure: a lease leaves them alone.
    """

    caveats: tuple[Caveat, ...] = ()
    new: tuple[Caveat, ...] = ()
    taken_over: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Clock:
    """One clock domain: what was asked of it, and how the last readings lay to that."""

    knob: str
    name: str
    asked_mhz: int | None
    listed_mhz: tuple[int, ...]
    slack_mhz: float
    """So far a reading may lie off the clock asked and still be it."""
    above_count: int = 0
    below_count: int = 0
    held_count: int = 0
    seen_mhz: int | None = None
    reasons: frozenset[EventReason] = field(default_factory=frozenset)


class DriftWatch:
    """Judges readings of one GPU against the one point that was asked for last.

    After each request make a new one: what was seen before says nothing of the new point.
    """

    def __init__(self, point: OperatingPoint, grid: ClockGrid, *, asked_s: float) -> None:
        """Watch for drift from `point`.

        Args:
            point: What was asked for; a knob at `None` is left to the driver.
            grid: What the device lists, as it was when the point was asked for.
            asked_s: When that was, on the clock that samples are stamped by.
        """
        self._point = point
        self._grid = grid
        self._from_s = asked_s + SETTLE_S
        sm, memory = grid.sm_clocks_mhz, grid.known_mem_clocks_mhz
        # Boards dither by a step of the grid; memory clocks are few and stand still.
        step_mhz = _step_mhz(point.sm_clock_mhz or 0, sm)
        read_mhz = _READ_WITHIN_RATIO * (point.mem_clock_mhz or 0)
        self._sm = _Clock("sm_clock_mhz", "SM clock", point.sm_clock_mhz, sm, step_mhz)
        self._memory = _Clock(
            "mem_clock_mhz", "memory clock", point.mem_clock_mhz, memory, read_mhz
        )
        self._recent: deque[GpuSample] = deque(maxlen=_WINDOW_COUNT)
        self._foreign: dict[str, Caveat] = {}
        self._taken_over: set[str] = set()
        self._told: set[tuple[CaveatKind, str]] = set()
        self._limit_count = 0

    def feed(self, sample: GpuSample) -> Drift:
        """Judge the next reading; one that was taken too early after the request says nothing."""
        if sample.time_s < self._from_s:
            return Drift()
        self._recent.append(sample)
        held_down = _held_down(self._recent)
        excused = {topic for topic, _ in held_down}
        found = [
            *held_down,
            *self._judge_limit(sample),
            *self._judge_clock(self._memory, sample.mem_clock_mhz, sample, excused),
            *self._judge_clock(self._sm, sample.sm_clock_mhz, sample, excused),
        ]
        new = [(topic, one) for topic, one in found if (one.kind, topic) not in self._told]
        self._told.update((one.kind, topic) for topic, one in new)
        return Drift(
            caveats=tuple(one for _, one in found),
            new=tuple(one for _, one in new),
            taken_over=frozenset(self._taken_over),
        )

    def _judge_limit(self, sample: GpuSample) -> list[tuple[str, Caveat]]:
        """ForeignControl where another power limit is in force than the one asked for or found."""
        knob = "power_limit_w"
        wanted_w, limit_w = self._wanted_limit_w(), sample.power_limit_w
        if wanted_w is None or limit_w is None or abs(limit_w - wanted_w) <= _LIMIT_WITHIN_W:
            self._limit_count = 0
            return []
        self._limit_count += 1
        if self._limit_count < _FEWEST_COUNT:
            return []
        asked_w = self._point.power_limit_w
        if asked_w is not None and limit_w > asked_w + _LIMIT_WITHIN_W:
            # In force is the lowest of all limits, so ours is set no longer.
            self._taken_over.add(knob)
        which = "asked for" if asked_w == wanted_w else "found"
        seen = f"a power limit of {limit_w:g} W is in force, not the {wanted_w:g} W {which}"
        return [(knob, Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=seen))]

    def _wanted_limit_w(self) -> float | None:
        """The power limit that is in force where nobody else has touched it since."""
        limits, asked_w = self._grid.power_limits, self._point.power_limit_w
        if limits is None:
            return asked_w
        usual_w = limits.found_w if limits.enforced_w is None else limits.enforced_w
        return usual_w if asked_w is None else min(asked_w, usual_w)

    def _judge_clock(
        self, clock: _Clock, read_mhz: int | None, sample: GpuSample, excused: set[str]
    ) -> list[tuple[str, Caveat]]:
        """What is to be said of one clock, once enough readings in a row say it."""
        if read_mhz is None:
            return []
        clock.seen_mhz = read_mhz
        if clock.asked_mhz is None:
            caveat = self._below_auto(clock, read_mhz, sample, excused)
        else:
            is_asleep = self._memory.asked_mhz is None and _is_low(
                sample.mem_clock_mhz, self._memory
            )
            is_excused = bool(excused) or (is_asleep and not sample.other_process_count)
            _count(clock, read_mhz, sample, is_excused=is_excused)
            caveat = self._beside_asked(clock, clock.asked_mhz)
        return [] if caveat is None else [(clock.knob, caveat)]

    def _beside_asked(self, clock: _Clock, asked_mhz: int) -> Caveat | None:
        """Above the lock: somebody else set another one. Below it: what can be told."""
        if clock.above_count >= _FEWEST_COUNT:
            self._taken_over.add(clock.knob)
            self._foreign[clock.knob] = Caveat(
                kind=CaveatKind.FOREIGN_CONTROL,
                seen=f"the {clock.name} runs at {clock.seen_mhz} MHz, above the {asked_mhz} MHz "
                "that were set: somebody else has set or reset it since",
            )
        if clock.knob in self._taken_over:
            return self._foreign[clock.knob]
        if clock.below_count < _FEWEST_COUNT:
            return None
        words = f"the {clock.name} runs at {clock.seen_mhz} MHz, below the {asked_mhz} MHz asked"
        if clock.reasons:
            named = ", ".join(sorted(clock.reasons))
            return Caveat(kind=CaveatKind.CLOCK_NOT_HELD, seen=f"{words} ({named})")
        if clock.held_count >= _FEWEST_COUNT:
            seen = f"{words}, which it had held before, while nothing holds it down"
            return Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=seen)
        seen = f"{words}, and the device names no reason"
        return Caveat(kind=CaveatKind.CLOCK_NOT_HELD, seen=seen)

    def _below_auto(
        self, clock: _Clock, read_mhz: int, sample: GpuSample, excused: set[str]
    ) -> Caveat | None:
        """A clock left to the driver, far below its highest under load: probably a lock."""
        highest = max(clock.listed_mhz, default=0)
        if not _is_low(read_mhz, clock):
            clock.below_count = 0
            return None
        # A low memory clock that was asked for holds the SM clock down on some boards.
        is_memory_low = clock is self._sm and _is_low(self._memory.asked_mhz, self._memory)
        is_told = bool(excused) or is_memory_low or bool(sample.event_reasons)
        if is_told or not _is_busy(sample) or not sample.other_process_count:
            return None
        clock.below_count += 1
        if clock.below_count < _FEWEST_COUNT:
            return None
        return Caveat(
            kind=CaveatKind.FOREIGN_CONTROL,
            seen=f"the {clock.name} is left to the driver and runs at {read_mhz} MHz, far below "
            f"its highest ({highest} MHz), while nothing holds it down",
        )


def _count(clock: _Clock, read_mhz: int, sample: GpuSample, *, is_excused: bool) -> None:
    """Sort one reading into above, held and below; an idle GPU tells only of what is above."""
    asked_mhz = clock.asked_mhz or 0
    if read_mhz > asked_mhz + clock.slack_mhz:
        clock.above_count, clock.below_count = clock.above_count + 1, 0
        return
    if not _is_busy(sample):
        return
    clock.above_count = 0
    if read_mhz >= asked_mhz - clock.slack_mhz:
        clock.held_count, clock.below_count = clock.held_count + 1, 0
    elif is_excused:
        clock.below_count = 0
    else:
        clock.below_count += 1
        clock.reasons = sample.event_reasons or frozenset()


def _is_busy(sample: GpuSample) -> bool:
    """Whether the GPU works for all that the driver says; not where it does not tell.

    A screen alone keeps a GPU from being called idle at times, at whatever clocks; what computes
    on it makes the driver clock it up. So where a free clock is low, somebody has to compute.
    """
    reasons = sample.event_reasons
    return reasons is not None and EventReason.GPU_IDLE not in reasons


def _is_low(read_mhz: int | None, clock: _Clock) -> bool:
    highest = max(clock.listed_mhz, default=0)
    return read_mhz is not None and read_mhz < _CLEARLY_BELOW_RATIO * highest


def _step_mhz(clock_mhz: int, listed_mhz: Sequence[int]) -> int:
    """Distance to the nearest other listed clock; 0 for a list of one."""
    return min((abs(clock_mhz - other) for other in listed_mhz if other != clock_mhz), default=0)


# What holds a clock down: the counter of seconds, the reasons, the doubt and its words.
_CAUSES = (
    (
        "power_capped_s",
        frozenset({EventReason.POWER_CAP}),
        CaveatKind.POWER_CAPPED,
        "the power limit",
    ),
    (
        "power_braked_s",
        frozenset({EventReason.POWER_BRAKE}),
        CaveatKind.POWER_CAPPED,
        "the power brake of the machine",
    ),
    (
        "thermally_throttled_s",
        frozenset({EventReason.SW_THERMAL, EventReason.HW_THERMAL}),
        CaveatKind.THERMALLY_THROTTLED,
        "heat",
    ),
)


def _held_down(samples: Sequence[GpuSample]) -> list[tuple[str, Caveat]]:
    """Each cause that held the clock down for more than a moment of the last readings."""
    if len(samples) < _FEWEST_COUNT:
        return []
    found = []
    for counter, reasons, kind, words in _CAUSES:
        share = _share(samples, counter, reasons)
        if share > _NEGLIGIBLE_RATIO:
            duration_s = samples[-1].time_s - samples[0].time_s
            seen = f"{words} held the clock down for {share:.0%} of {duration_s:.0f} s"
            found.append((counter, Caveat(kind=kind, seen=seen)))
    return found


def _share(samples: Sequence[GpuSample], counter: str, reasons: frozenset[EventReason]) -> float:
    """By the device's own counter where it has one, else by the readings that name a reason."""
    first, last = samples[0], samples[-1]
    before_s, after_s = getattr(first, counter), getattr(last, counter)
    duration_s = last.time_s - first.time_s
    if before_s is not None and after_s is not None and duration_s > 0:
        return float(min(1.0, max(0.0, (after_s - before_s) / duration_s)))
    told = [one.event_reasons for one in samples if one.event_reasons is not None]
    return sum(bool(named & reasons) for named in told) / len(told) if told else 0.0
