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
from joulewise.domain.clock_judgement import (
    CAUSES,
    NEGLIGIBLE_RATIO,
    grid_step_mhz,
    held_down_ratio,
    is_clearly_low,
    is_loaded,
    is_named_idle,
    is_other_limit,
    limit_to_be_w,
)
from joulewise.domain.measurement import EventReason, GpuSample
from joulewise.domain.points import ClockGrid, OperatingPoint

SETTLE_S = 1.0
"""So long after a request nothing is judged: a new point takes a while to be in force."""
_FEWEST_COUNT = 3
"""So many readings in a row have to agree before anything is said."""
_WINDOW_COUNT = 10
_READ_WITHIN_RATIO = 0.01
_FREES = {"sm_clock_mhz": "-rgc", "mem_clock_mhz": "-rmc"}
# A GPU at rest tells nothing of a lock, so what was seen before a longer rest is old evidence.
_LONGEST_REST_S = 5.0


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
class _Row:
    """Readings under load that agree: one after the other, or with a short rest in between."""

    agreeing_count: int = 0
    _seen_count: int = 0
    _last_s: float = 0.0

    def add(self, number: int, time_s: float) -> None:
        """One more, which was the so-many-th of all readings."""
        is_next = number == self._seen_count + 1 or time_s - self._last_s <= _LONGEST_REST_S
        self.agreeing_count = self.agreeing_count + 1 if is_next else 1
        self._seen_count, self._last_s = number, time_s

    def clear(self) -> None:
        """A reading under load that says otherwise."""
        self.agreeing_count = 0

    @property
    def is_enough(self) -> bool:
        """Whether so many agree that something may be said."""
        return self.agreeing_count >= _FEWEST_COUNT


@dataclass(slots=True)
class _Clock:
    """One clock domain: what was asked of it, and how the last readings lay to that."""

    knob: str
    name: str
    asked_mhz: int | None
    listed_mhz: tuple[int, ...]
    slack_mhz: float
    """So far a reading may lie off the clock asked and still be it."""
    above: _Row = field(default_factory=_Row)
    below: _Row = field(default_factory=_Row)
    held_count: int = 0
    seen_mhz: int | None = None
    reasons: frozenset[EventReason] = field(default_factory=frozenset)


class DriftWatch:
    """Judges readings of one GPU against the one point that was asked for last.

    After each request make a new one: what was seen before says nothing of the new point.
    """

    def __init__(
        self,
        point: OperatingPoint,
        grid: ClockGrid,
        *,
        asked_s: float,
        is_board: bool = False,
    ) -> None:
        """Watch for drift from `point`.

        Args:
            point: What was asked for; a knob at `None` is left to the driver.
            grid: What the device lists, as it was when the point was asked for.
            asked_s: When that was, on the clock that samples are stamped by.
            is_board: Whether its clocks are files, which the NVIDIA driver's tools do not set.
        """
        self._is_board = is_board
        self._point = point
        self._grid = grid
        self._from_s = asked_s + SETTLE_S
        sm, memory = grid.sm_clocks_mhz, grid.known_mem_clocks_mhz
        # Boards dither by a step of the grid; memory clocks are few and stand still.
        step_mhz = grid_step_mhz(point.sm_clock_mhz or 0, sm)
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
        self._reading_count = 0

    def feed(self, sample: GpuSample) -> Drift:
        """Judge the next reading; one that was taken too early after the request says nothing."""
        if sample.time_s < self._from_s:
            return Drift()
        self._recent.append(sample)
        self._reading_count += 1
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
        wanted_w, limit_w = limit_to_be_w(self._point, self._grid), sample.power_limit_w
        if wanted_w is None or limit_w is None or not is_other_limit(limit_w, wanted_w):
            self._limit_count = 0
            return []
        self._limit_count += 1
        if self._limit_count < _FEWEST_COUNT:
            return []
        asked_w = self._point.power_limit_w
        if asked_w is not None and limit_w > asked_w and is_other_limit(limit_w, asked_w):
            # In force is the lowest of all limits, so ours is set no longer.
            self._taken_over.add(knob)
        which = "asked for" if asked_w == wanted_w else "found"
        seen = f"a power limit of {limit_w:g} W is in force, not the {wanted_w:g} W {which}"
        limits = self._grid.power_limits
        found_w = wanted_w if limits is None else limits.found_w
        advice = (
            f"Stop the other controller: nvidia-smi -pl {found_w:g} sets the limit found, where "
            "it set it through the driver."
        )
        return [(knob, Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=seen, advice=advice))]

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
            is_asleep = self._memory.asked_mhz is None and is_clearly_low(
                sample.mem_clock_mhz, self._memory.listed_mhz
            )
            is_excused = bool(excused) or (is_asleep and not sample.other_process_count)
            self._count(clock, read_mhz, sample, is_excused=is_excused)
            caveat = self._beside_asked(clock, clock.asked_mhz)
        return [] if caveat is None else [(clock.knob, caveat)]

    def _beside_asked(self, clock: _Clock, asked_mhz: int) -> Caveat | None:
        """Above the lock: somebody else set another one. Below it: what can be told."""
        if clock.above.is_enough:
            self._taken_over.add(clock.knob)
            self._foreign[clock.knob] = Caveat(
                kind=CaveatKind.FOREIGN_CONTROL,
                seen=f"the {clock.name} runs at {clock.seen_mhz} MHz, above the {asked_mhz} MHz "
                "that were set: somebody else has set or reset it since",
                advice=self._advice(clock.knob),
            )
        if clock.knob in self._taken_over:
            return self._foreign[clock.knob]
        if not clock.below.is_enough:
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

    def _advice(self, knob: str) -> str:
        said = "Stop the other controller. This clock is left alone from here on"
        return f"{said}." if self._is_board else f"{said}; nvidia-smi {_FREES[knob]} frees it."

    def _below_auto(
        self, clock: _Clock, read_mhz: int, sample: GpuSample, excused: set[str]
    ) -> Caveat | None:
        """A clock left to the driver, far below its highest under load: probably a lock."""
        highest = max(clock.listed_mhz, default=0)
        if self._grid.is_governed or not is_clearly_low(read_mhz, clock.listed_mhz):
            clock.below.clear()
            return None
        # A low memory clock that was asked for holds the SM clock down on some boards.
        memory = self._memory
        is_memory_low = clock is self._sm and is_clearly_low(memory.asked_mhz, memory.listed_mhz)
        is_told = bool(excused) or is_memory_low or bool(sample.event_reasons)
        if is_told or not is_loaded(sample) or not sample.other_process_count:
            return None
        clock.below.add(self._reading_count, sample.time_s)
        if not clock.below.is_enough:
            return None
        return Caveat(
            kind=CaveatKind.FOREIGN_CONTROL,
            seen=f"the {clock.name} is left to the driver and runs at {read_mhz} MHz, far below "
            f"its highest ({highest} MHz), while nothing holds it down",
        )

    def _count(self, clock: _Clock, read_mhz: int, sample: GpuSample, *, is_excused: bool) -> None:
        """Sort one reading into above, held and below; a GPU at rest tells nothing."""
        if is_named_idle(sample):
            return
        asked_mhz, number = clock.asked_mhz or 0, self._reading_count
        if read_mhz > asked_mhz + clock.slack_mhz:
            clock.above.add(number, sample.time_s)
            clock.below.clear()
            return
        clock.above.clear()
        if not is_loaded(sample):
            return
        if read_mhz >= asked_mhz - clock.slack_mhz:
            clock.held_count += 1
            clock.below.clear()
        elif is_excused:
            clock.below.clear()
        else:
            clock.below.add(number, sample.time_s)
            clock.reasons = sample.event_reasons or frozenset()


def _held_down(samples: Sequence[GpuSample]) -> list[tuple[str, Caveat]]:
    """Each cause that held the clock down for more than a moment of the last readings."""
    if len(samples) < _FEWEST_COUNT:
        return []
    found = []
    duration_s = samples[-1].time_s - samples[0].time_s
    for cause in CAUSES:
        share = held_down_ratio(samples, cause)
        if share > NEGLIGIBLE_RATIO:
            seen = f"{cause.words} for {share:.0%} of {duration_s:.0f} s"
            found.append((cause.words, Caveat(kind=cause.kind, seen=seen, advice=cause.advice)))
    return found
