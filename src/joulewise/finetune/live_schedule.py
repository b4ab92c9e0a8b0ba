"""Blocks of training steps at one clock each, in a running job: a pure state machine.

What is to be measured is a generator of wishes, each of which is answered with what its block took.
Nothing here sets a clock or waits: whoever drives it passes on step marks and power readings, and
sets the clock that is asked for.

After a change of the clock the first steps are dropped: it takes some milliseconds to be in force
(Orin Nano: up to 6 ms for the GPU, 10 ms for the memory), sensors show it an update later, and
the step that was under way ran at both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from joulewise.domain.errors import MeasurementError
from joulewise.domain.finetuning import ClockCost, StepMark
from joulewise.finetune.accounting import PowerLog, StepTimes, cost_of_steps, least_block_s
from joulewise.finetune.learning_cost import (
    BLOCK_STEP_COUNT,
    SETTLE_STEP_COUNT,
    SensorTiming,
)
from joulewise.finetune.step_marks import StepSpan, step_spans

_SILENT_GAPS_COUNT = 10
# Times between marks as they arrive, of which the median is the usual one.
_USUAL_GAPS_COUNT = 9
_LEAST_SILENCE_S = 1.0


class Purpose(StrEnum):
    """What a block of steps is for."""

    WARM_UP = "warm-up"
    PROBE = "probe"
    VERIFY = "verify"
    CHECK = "check"
    RUN = "run"


LEARNING = frozenset({Purpose.PROBE, Purpose.VERIFY, Purpose.CHECK})
"""Steps at another clock than the one that is chosen and shown to save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A block of steps at one clock; `None`: the governor's.

    It lasts until both `step_count` steps and `least_s` seconds have been measured; `None` for
    the latter stands for what the power sensor needs. The block before it may be at the same
    clock: then nothing has to settle. Once more than `most_step_count` steps have been taken for
    it, dropped ones included, it is given up: the schedule is thrown a BlockTooLong. While marks
    stay away from a block of learning the clock is `rest_mhz`.
    """

    sm_clock_mhz: int | None
    purpose: Purpose
    step_count: int = BLOCK_STEP_COUNT
    least_s: float | None = None
    most_step_count: int | None = None
    rest_mhz: int | None = None


class BlockTooLong(MeasurementError):
    """A block has taken more steps than its job has room for."""


Schedule = Generator[Wish, ClockCost, None]
"""Wishes one after the other, each answered with what its block took."""


@dataclass(slots=True, kw_only=True)
class StepsTaken:
    """Training steps so far: all of them, and those for each purpose."""

    all_steps: StepTimes
    step_counts: dict[Purpose, int]
    energy_j: float = 0.0
    """Of all steps but those that are unmeasured."""
    unmeasured_count: int = 0
    """Steps over which power readings do not reach."""


class StepScheduler:
    """Carries a schedule out on steps as they are marked.

    `asked_mhz` is the clock that shall be in force, `None` for the governor's; `applied` has to
    be called whenever that was set anew. Once the schedule has ended the governor has the clock.
    """

    def __init__(self, schedule: Schedule) -> None:
        """Ask for the first block."""
        self._schedule = schedule
        self._wish: Wish | None = None
        self._times = StepTimes()
        self._settled_s: float | None = None
        self._unsettled_count = 0
        self._last_mark: StepMark | None = None
        self._wished_count = 0
        self._is_silent = False
        self._has_new = False
        self._arrived_s: float | None = None
        self._gaps_s: deque[float] = deque(maxlen=_USUAL_GAPS_COUNT)
        self.sensor = SensorTiming()
        """Of the readings so far."""
        self.taken = StepsTaken(all_steps=StepTimes(), step_counts={})
        self._take_next(lambda: next(schedule))

    @property
    def asked_mhz(self) -> int | None:
        """The clock that is wanted now; `None` is the governor's."""
        if self._wish is None:
            return None
        return self._wish.rest_mhz if self._is_silent else self._wish.sm_clock_mhz

    @property
    def purpose(self) -> Purpose | None:
        """What steps are for right now; `None` once the schedule has ended."""
        return None if self._wish is None else self._wish.purpose

    @property
    def is_over(self) -> bool:
        """Whether the schedule has ended."""
        return self._wish is None

    @property
    def has_steps(self) -> bool:
        """Whether a training step has been marked at all."""
        return self.taken.all_steps.step_count > 0

    def applied(self, time_s: float, shown_within_s: float) -> None:
        """The clock that is asked for was set, and power readings show that within so long."""
        # In a block that waits for marks, that is the clock of the wait: nothing settles.
        if self._wish is None or self.asked_mhz == self._wish.sm_clock_mhz:
            self._settle_from(time_s, shown_within_s)

    def wait(self, now_s: float) -> None:
        """Time has passed: a block of learning to which no mark comes any more is dropped.

        Until marks come again its clock is not held: an evaluation or a checkpoint would run at a
        clock that nobody chose. The block is then repeated. Ten times the usual time between
        marks, and no less than a second, tells that they stay away (assumed).
        """
        wish = self._wish
        if self._has_new:
            if self._arrived_s is not None:
                self._gaps_s.append(now_s - self._arrived_s)
            self._arrived_s, self._has_new = now_s, False
            return
        if wish is None or self._is_silent or wish.purpose not in LEARNING:
            return
        if self._arrived_s is None or not self._gaps_s:
            return
        longest_s = max(_LEAST_SILENCE_S, _SILENT_GAPS_COUNT * median(self._gaps_s))
        if now_s - self._arrived_s <= longest_s:
            return
        self._is_silent = True
        self._times = StepTimes()
        if wish.rest_mhz == wish.sm_clock_mhz:
            self._settle_from(now_s, self.sensor.shown_within_s, step_count=0)
        else:
            # Until its clock is set again.
            self._settled_s = None

    def end(self) -> None:
        """Ask for nothing more."""
        self._schedule.close()
        self._wish = None

    def cost_so_far(self, log: PowerLog) -> ClockCost:
        """What the block at hand took up to now, for one that the end of training ends.

        Raises MeasurementError where none of its steps was measured.
        """
        return cost_of_steps(self.asked_mhz, self._times, log)

    def see(self, marks: Sequence[StepMark], log: PowerLog) -> None:
        """Take new marks into account; readings have to reach beyond the last of them."""
        self.sensor = SensorTiming(period_s=log.period_s(), shown_within_s=log.shown_within_s())
        known = () if self._last_mark is None else (self._last_mark,)
        chain = (*known, *marks)
        if marks:
            self._is_silent, self._has_new = False, True
        before = known[0] if known else None
        for mark in marks:
            if before is not None:
                self._see_pair(before, mark, log)
            before = mark
        self._last_mark = chain[-1] if chain else None

    def _see_pair(self, before: StepMark, mark: StepMark, log: PowerLog) -> None:
        spans = step_spans((before, mark))
        if not spans:
            # Something else than training went on: what it drew is shown for a while, unless it
            # was over before the sensor moved.
            if mark.time_s - before.time_s >= log.period_s():
                self._settle_from(mark.time_s, log.shown_within_s(), step_count=0)
            return
        for span in spans:
            self._count(span, log)
            wish = self._wish
            self._add(span, log)
            if wish is self._wish:
                self._give_up_where_too_long()

    def _count(self, span: StepSpan, log: PowerLog) -> None:
        """Into the whole, whatever the step was for."""
        purpose = self.purpose or Purpose.RUN
        counts = self.taken.step_counts
        counts[purpose] = counts.get(purpose, 0) + span.step_count
        self.taken.all_steps.add(span)
        self._wished_count += span.step_count
        try:
            self.taken.energy_j += log.energy_j(span.start_s, span.end_s)
        except MeasurementError:
            self.taken.unmeasured_count += span.step_count

    def _add(self, span: StepSpan, log: PowerLog) -> None:
        """Into the block at hand, once the clock has settled; and on to the next one."""
        wish = self._wish
        if wish is None or not self._is_settled(span):
            return
        self._times.add(span)
        if self._times.step_count < wish.step_count:
            return
        least_s = least_block_s(log.period_s()) if wish.least_s is None else wish.least_s
        if self._times.duration_s < least_s:
            return
        try:
            cost = cost_of_steps(wish.sm_clock_mhz, self._times, log)
        except MeasurementError:
            # Readings were missing for a while: measure it again.
            self._times = StepTimes()
            return
        self._go_on(wish, lambda: self._schedule.send(cost))

    def _give_up_where_too_long(self) -> None:
        wish = self._wish
        if wish is None or wish.most_step_count is None:
            return
        if self._wished_count >= wish.most_step_count:
            error = BlockTooLong(
                f"a block of steps was not over after {self._wished_count} of them",
                hint="Run more steps.",
            )
            self._go_on(wish, lambda: self._schedule.throw(error))

    def _go_on(self, wish: Wish, following: Callable[[], Wish]) -> None:
        self._take_next(following)
        if self.asked_mhz != wish.sm_clock_mhz:
            # Until the new clock is said to be set.
            self._settled_s = None

    def _is_settled(self, span: StepSpan) -> bool:
        if self._settled_s is None or span.start_s < self._settled_s:
            return False
        if self._unsettled_count > 0:
            self._unsettled_count -= span.step_count
            return False
        return True

    def _settle_from(
        self, time_s: float, shown_within_s: float, step_count: int = SETTLE_STEP_COUNT
    ) -> None:
        # A break in a block that waits for its clock ends nothing.
        if step_count == 0 and self._settled_s is None:
            return
        settled_s = time_s + shown_within_s
        self._settled_s = max(settled_s, self._settled_s or settled_s)
        self._unsettled_count = max(step_count, self._unsettled_count)

    def _take_next(self, following: Callable[[], Wish]) -> None:
        self._wish = None
        with suppress(StopIteration):
            self._wish = following()
        self._times = StepTimes()
        self._is_silent = False
        self._wished_count = 0
