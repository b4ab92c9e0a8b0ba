"""Energy of a span from power readings, where no counter tells it, and what stays open of it.

A power reading is the mean of a window that ended up to one update ago. What a GPU draws at one
moment is so shown later: from that moment on for at most a window and an update. Summed up from
the beginning of the span until so long after its end, readings show all that the span took, and
beside that some of what was drawn before and after it.

Where no power was read for a while, the GPU drew at least nothing then, and at most its power
limit or the highest power that it was ever seen at: that much stays open. No board without a power
limit tells what it could draw, so that more than a little unread time leaves no energy to tell.
"""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import GpuSample

# How often most power sensors move (arXiv 2312.02741, and `joulewise probe sensors`).
_UPDATE_S = 0.1
# GPUs that tell an average beside it tell one of a window no longer than an update; the shortest
# that is known sees a quarter of the time.
_SHORT_WINDOW_S, _LEAST_WINDOW_S = 0.1, 0.025
# Elsewhere drivers tell the mean of a second for many boards, and do not say for which.
_LONG_WINDOW_S = 1.0
# Assumed: readings come every 50 ms, and what lies further apart was not read in between.
UNREAD_AFTER_S = 0.25
"""Two readings further apart than this leave open what was drawn in between."""
# Assumed: of a span without a bound on power, so much may go unread, and so long where it is short
# but never half of it. What was drawn then is bounded by what was seen.
_UNREAD_RATIO, _UNREAD_S, _MOST_UNREAD_RATIO = 0.1, 0.5, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What was drawn or shown beside a span: most probably `likely_j`, and how far it may lie."""

    likely_j: float
    least_j: float = 0.0
    most_j: float


def inside(whole_j: float, *outsides: Outside, within_j: float) -> tuple[float, float]:
    """What is left of a whole for the span, and how far it may lie off; no span gives energy back.

    `within_j` is how far the whole may lie off. Raises MeasurementError where nothing is left.
    """
    low_j = max(0.0, whole_j - within_j - sum(one.most_j for one in outsides))
    high_j = whole_j + within_j - sum(one.least_j for one in outsides)
    if high_j <= 0:
        raise MeasurementError("the readings say that nothing was drawn")
    likely_j = whole_j - sum(min(one.likely_j, one.most_j) for one in outsides)
    if not low_j < likely_j < high_j:
        likely_j = (low_j + high_j) / 2
    return likely_j, max(likely_j - low_j, high_j - likely_j)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    time_s: float
    power_w: float


@dataclass(slots=True)
class _Sum:
    """Readings added up by the trapezoid rule."""

    energy_j: float = 0.0
    between_j: float = 0.0
    """What steps between two readings leave open, for a step may come at any moment."""
    unread_j: float = 0.0
    """Part of `energy_j` that no reading tells."""
    unread_s: float = 0.0

    def add(self, first: _Reading, second: _Reading) -> None:
        """What is shown between two readings in a row."""
        duration_s = second.time_s - first.time_s
        self.energy_j += 0.5 * (first.power_w + second.power_w) * duration_s
        self.between_j += 0.5 * abs(second.power_w - first.power_w) * duration_s

    def add_unread(self, first: _Reading, second: _Reading) -> None:
        """What may have been drawn between two readings with nothing told in between."""
        duration_s = second.time_s - first.time_s
        likely_j = 0.5 * (first.power_w + second.power_w) * duration_s
        self.energy_j += likely_j
        self.unread_j += likely_j
        self.unread_s += duration_s

    def within_j(self, highest_w: float) -> float:
        """How far the sum may lie off, where no more than this was drawn."""
        unread_most_j = highest_w * self.unread_s
        return self.between_j + max(self.unread_j, unread_most_j - self.unread_j)


class PowerSum:
    """Power readings of one GPU, added up from the last one before the span on."""

    def __init__(
        self, first: GpuSample, power_w: float, *, unread_after_s: float = UNREAD_AFTER_S
    ) -> None:
        """Begin with a reading before the span.

        Two readings in a row further apart than `unread_after_s` leave open what lies between,
        and so do closer ones with a reading between that told no power.
        """
        self._unread_after_s = unread_after_s
        self._unread: list[tuple[float, float]] = []
        self._is_silent, self._is_shown, self._is_bounded = False, True, False
        self._is_window_known = first.average_power_w is not None
        self._window_s = _SHORT_WINDOW_S if self._is_window_known else _LONG_WINDOW_S
        self._first = self._last = _Reading(time_s=first.time_s, power_w=power_w)
        self._whole, self._tail = _Sum(), _Sum()
        self._end_s: float | None = None
        self._highest_w = power_w
        self._note(first)

    @property
    def shown_within_s(self) -> float:
        """So long after a moment its power is still shown."""
        return self._window_s + _UPDATE_S

    def end(self, end_s: float) -> None:
        """The span ended then; readings from here on show what is left of it."""
        self._end_s = end_s

    def see(self, sample: GpuSample) -> None:
        """Add what was shown since the reading before."""
        self._note(sample)
        if sample.power_w is None:
            self._is_silent = True
            return
        reading = _Reading(time_s=sample.time_s, power_w=sample.power_w)
        unread_after_s = UNREAD_AFTER_S if self._is_silent else self._unread_after_s
        is_unread = reading.time_s - self._last.time_s > unread_after_s
        self._add(reading, is_unread=is_unread)
        self._is_silent = False

    def _add(self, reading: _Reading, *, is_unread: bool) -> None:
        sums = [self._whole]
        if self._end_s is not None and reading.time_s > self._end_s:
            sums.append(self._tail)
        for one in sums:
            (one.add_unread if is_unread else one.add)(self._last, reading)
        if is_unread:
            self._unread.append((self._last.time_s, reading.time_s))
        self._last = reading

    def unread_s(self, start_s: float, end_s: float) -> float:
        """Time between these moments in which no power was read."""
        unread = (*self._unread, (self._last.time_s, end_s))
        within = (min(end_s, over_s) - max(start_s, begun_s) for begun_s, over_s in unread)
        return sum(max(0.0, one_s) for one_s in within)

    def roughly_j(self, start_s: float, end_s: float) -> float:
        """Energy of a long span, to be compared with what a counter tells."""
        before_j = self._first.power_w * max(0.0, start_s - self._first.time_s)
        return (
            self._whole.energy_j
            - before_j
            - self._last.power_w * max(0.0, self._last.time_s - end_s)
        )

    def between(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Energy of the span and what stays open of it, once readings reach beyond its end.

        Raises MeasurementError where too much of it went unread, or nothing is left.
        """
        self._refuse_unread(start_s, end_s)
        self._reach(end_s)
        outsides = (self._before(start_s), self._after(end_s))
        within_j = self._whole.within_j(self._highest_w)
        return inside(self._whole.energy_j, *outsides, within_j=within_j)

    def _refuse_unread(self, start_s: float, end_s: float) -> None:
        unread_s, span_s = self.unread_s(start_s, end_s), end_s - start_s
        most_s = max(_UNREAD_RATIO * span_s, min(_UNREAD_S, _MOST_UNREAD_RATIO * span_s))
        if self._is_bounded or unread_s <= max(most_s, _UPDATE_S):
            return
        raise MeasurementError(
            f"no power could be read for {unread_s:.1f} s of {span_s:.1f} s, and nothing says how "
            "much was drawn then",
            hint="See that the power sensor stays readable, and measure again; no energy is "
            "invented.",
        )

    def _reach(self, end_s: float) -> None:
        """Readings that ended too early leave open what they would have shown after that."""
        shown_s = end_s + self.shown_within_s
        missing_s = shown_s - self._last.time_s
        if missing_s > 0:
            self._is_shown = missing_s <= _UPDATE_S
            self._add(_Reading(time_s=shown_s, power_w=self._last.power_w), is_unread=True)

    def _before(self, start_s: float) -> Outside:
        """What was drawn before the span and shown from its first reading on."""
        gap_s = max(0.0, start_s - self._first.time_s)
        first_w = self._first.power_w
        return Outside(
            likely_j=first_w * (gap_s + self.shown_within_s / 2),
            least_j=-self._unseen_j,
            # The window of that reading is known as a whole, and of what came since nothing.
            most_j=first_w * self._window_s + self._highest_w * (gap_s + _UPDATE_S),
        )

    def _after(self, end_s: float) -> Outside:
        """What was drawn after the span and shown up to the last reading."""
        tail_s = max(0.0, self._last.time_s - end_s)
        last_w = self._last.power_w
        most_j = self._tail.energy_j + self._tail.within_j(self._highest_w)
        if self._is_window_known and self._is_shown:
            unknown_s = max(_UPDATE_S, tail_s - self._window_s)
            most_j = min(most_j, last_w * self._window_s + self._highest_w * unknown_s)
        return Outside(
            likely_j=last_w * (tail_s - self.shown_within_s / 2),
            least_j=-self._unseen_j,
            most_j=most_j,
        )

    @property
    def _unseen_j(self) -> float:
        """What may be drawn while the sensor does not look."""
        return self._highest_w * (_UPDATE_S - _LEAST_WINDOW_S)

    def _note(self, sample: GpuSample) -> None:
        told_w = (self._highest_w, sample.power_w or 0.0, sample.power_limit_w or 0.0)
        self._highest_w = max(told_w)
        self._is_bounded = self._is_bounded or sample.power_limit_w is not None
