"""The governor of a running job: advice, a short probe, a paired check, and its choice held.

It begins at the advised clock. Blocks of a few steps at three clocks correct the advice; then
blocks at the governor's clock and at the chosen one, interleaved, tell what that really saves in
this job. The choice is held only where their interval says that it saves energy and keeps within
the budget; elsewhere the board's own governor has the clock for the rest of the job. From time to
time a fresh pair is run, for a job may change. What was chosen from is never what the claim is
made from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.errors import JoulewiseError
from joulewise.domain.finetuning import ClockChoice, ClockCost
from joulewise.domain.plan import Interval
from joulewise.finetune.live_schedule import (
    BLOCK_STEP_COUNT,
    SETTLE_STEP_COUNT,
    Purpose,
    Schedule,
    StepScheduler,
    Wish,
)
from joulewise.measure.statistics import log_ratio_interval

DEFAULT_PAIR_COUNT = 6
"""The fewest of which an interval is resampled (measure/statistics.py)."""
FEWEST_PAIR_COUNT = 3
"""Fewer pairs show nothing: Student's t interval of two is six times as wide (assumed)."""
LEARNING_RATIO = 0.1
"""Probing pays in a job of ten times as many steps (assumed)."""
VERIFYING_RATIO = 0.25
"""Checking takes no more of what is left of a job: half of it at the governor's clock (assumed)."""
CHECK_RATIO = 0.02
"""Most steps that fresh checks may take, of those since the last one."""
CHECK_EVERY_S = 600.0
WARM_UP_STEP_COUNT = 5
"""First steps of a job, which compile, allocate and fill caches (assumed)."""

Chooser = Callable[[Sequence[ClockCost], ClockCost | None], ClockChoice]
"""Picks a clock from blocks at several clocks, and one at the governor's where there is one."""


class Outcome(StrEnum):
    """What became of the choice."""

    NO_STEPS = "no-steps"
    """No step was ever marked: the advice was held."""
    ADVICE = "advice"
    """The advice was held, and nothing was checked."""
    UNFINISHED = "unfinished"
    """The job ended before the check did."""
    SAVES = "saves"
    NOT_SHOWN = "not-shown"
    """The check did not show that it saves: back to the governor."""
    TOO_SLOW = "too-slow"
    """The check showed more time than the budget allows: back to the governor."""
    GOVERNOR = "governor"
    """The governor's clock was the best choice."""
    GIVEN_UP = "given-up"
    """Somebody else set the clock, or it could not be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """How a job is steered.

    `probe_clocks_mhz` are tried out; none: the advice is taken as it is. `step_count` is the
    length of the job where it is known. `max_slowdown_ratio` is the budget (0.006: 0.6 % more
    time), `None` for none.
    """

    probe_clocks_mhz: tuple[int, ...] = ()
    pair_count: int = DEFAULT_PAIR_COUNT
    max_slowdown_ratio: float | None = None
    step_count: int | None = None
    block_step_count: int = BLOCK_STEP_COUNT
    check_every_s: float = CHECK_EVERY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedSaving:
    """What pairs of blocks say: ratios chosen over governor, of time and energy per step."""

    pair_count: int
    energy_ratio: float
    energy_interval: Interval
    time_ratio: float
    time_interval: Interval

    @property
    def is_shown(self) -> bool:
        """Whether it saves, with 95 % confidence."""
        return self.energy_interval.high_ratio < 1.0

    def is_within(self, max_slowdown_ratio: float | None) -> bool:
        """Whether the median keeps within a budget of time."""
        return max_slowdown_ratio is None or self.time_ratio <= 1.0 + max_slowdown_ratio


class LiveGovernor:
    """Steers one job; its `scheduler` says which clock is to be in force."""

    def __init__(self, advice: ClockChoice, settings: LiveSettings, choose: Chooser) -> None:
        """Begin at the advised clock; nothing is set here."""
        self.settings = settings
        self.choice = advice
        self.outcome = Outcome.NO_STEPS
        self.probed: tuple[ClockCost, ...] = ()
        self.saving: PairedSaving | None = None
        self.step_count = settings.step_count
        """Steps of the whole job, where known; may be told later."""
        self.advice = advice
        self._choose = choose
        self._pairs: list[tuple[ClockCost, ClockCost]] = []
        self._is_choice_first = False
        self.scheduler = StepScheduler(self._life())

    def finish(self, *, is_given_up: bool) -> None:
        """The job has ended; `is_given_up`: the clock was left to somebody else on the way."""
        if is_given_up:
            self.outcome = Outcome.GIVEN_UP
        elif self.outcome is Outcome.NO_STEPS and self.scheduler.has_steps:
            self.outcome = Outcome.ADVICE
        self.scheduler.end()

    def _life(self) -> Schedule:
        advised = self.advice.sm_clock_mhz
        yield Wish(
            sm_clock_mhz=advised,
            purpose=Purpose.WARM_UP,
            step_count=WARM_UP_STEP_COUNT,
            least_s=0.0,
        )
        self.outcome = Outcome.ADVICE
        if self.settings.probe_clocks_mhz and self._pays(self._probing_count):
            self.outcome = Outcome.UNFINISHED
            yield from self._probe()
        if self.choice.sm_clock_mhz is None:
            self.outcome = Outcome.GOVERNOR
            return
        yield from self._verify_and_hold(self.choice.sm_clock_mhz)

    def _probe(self) -> Schedule:
        """Blocks at each clock; and one of the governor's, where time is to be kept to a budget."""
        count = self.settings.block_step_count
        costs = []
        for clock_mhz in self.settings.probe_clocks_mhz:
            wish = Wish(sm_clock_mhz=clock_mhz, purpose=Purpose.PROBE, step_count=count)
            costs.append((yield wish))
        baseline = None
        if self.settings.max_slowdown_ratio is not None:
            wish = Wish(sm_clock_mhz=None, purpose=Purpose.PROBE, step_count=count)
            baseline = yield wish
        self.probed = (*costs, *(() if baseline is None else (baseline,)))
        try:
            self.choice = self._choose(costs, baseline)
        except JoulewiseError:
            # Three blocks that say nothing leave the advice as it was.
            self.choice = self.advice

    def _verify_and_hold(self, chosen_mhz: int) -> Schedule:
        pair_count = self._affordable_pair_count()
        if pair_count < FEWEST_PAIR_COUNT:
            self.outcome = Outcome.ADVICE
            yield from self._hold(chosen_mhz)
        self.outcome = Outcome.UNFINISHED
        saving = yield from self._verify(chosen_mhz, pair_count)
        if not (saving.is_shown and saving.is_within(self.settings.max_slowdown_ratio)):
            saving = yield from self._verify(chosen_mhz, pair_count)
        while self._judge(saving):
            yield Wish(
                sm_clock_mhz=chosen_mhz,
                purpose=Purpose.RUN,
                step_count=math.ceil(self._steps_per_pair / CHECK_RATIO),
                least_s=self.settings.check_every_s,
            )
            saving = yield from self._verify(chosen_mhz, 1, Purpose.CHECK)

    def _hold(self, clock_mhz: int) -> Schedule:
        while True:
            yield Wish(sm_clock_mhz=clock_mhz, purpose=Purpose.RUN, step_count=1 << 30)

    def _verify(
        self, chosen_mhz: int, pair_count: int, purpose: Purpose = Purpose.VERIFY
    ) -> Generator[Wish, ClockCost, PairedSaving]:
        """So many more pairs, the first of which takes turns: neighbours share their clock."""
        for _ in range(pair_count):
            order = (None, chosen_mhz)[:: -1 if self._is_choice_first else 1]
            self._is_choice_first = not self._is_choice_first
            costs = {}
            for clock_mhz in order:
                costs[clock_mhz] = yield Wish(
                    sm_clock_mhz=clock_mhz,
                    purpose=purpose,
                    step_count=self.settings.block_step_count,
                )
            self._pairs.append((costs[None], costs[chosen_mhz]))
        # A job may change on the way: old pairs tell of what it was.
        self.saving = paired_saving(self._pairs[-2 * self.settings.pair_count :])
        return self.saving

    def _judge(self, saving: PairedSaving) -> bool:
        """Whether the choice is held on."""
        if not saving.is_shown:
            self.outcome = Outcome.NOT_SHOWN
        elif not saving.is_within(self.settings.max_slowdown_ratio):
            self.outcome = Outcome.TOO_SLOW
        else:
            self.outcome = Outcome.SAVES
        return self.outcome is Outcome.SAVES

    @property
    def pairs(self) -> tuple[tuple[ClockCost, ClockCost], ...]:
        """All pairs that were run: the governor's block, and that of the choice."""
        return tuple(self._pairs)

    @property
    def _steps_per_pair(self) -> float:
        """Steps that pairs took in the mean, those that were dropped included."""
        counts = self.scheduler.taken.step_counts
        taken_count = counts.get(Purpose.VERIFY, 0) + counts.get(Purpose.CHECK, 0)
        return taken_count / len(self._pairs)

    @property
    def _probing_count(self) -> int:
        """Steps that probing takes."""
        has_baseline = self.settings.max_slowdown_ratio is not None
        block_count = len(self.settings.probe_clocks_mhz) + has_baseline
        return block_count * (self._block_count + SETTLE_STEP_COUNT + 1)

    @property
    def _block_count(self) -> int:
        """Steps of a block; of short steps more, for the power sensor to see them."""
        longest = max((cost.step_count or 0 for cost in self.probed), default=0)
        return max(self.settings.block_step_count, longest)

    def _pays(self, step_count: int) -> bool:
        """Whether so many steps of learning are a small share of what is left of the job."""
        return self._left_count is None or step_count <= LEARNING_RATIO * self._left_count

    @property
    def _left_count(self) -> int | None:
        if self.step_count is None:
            return None
        return max(0, self.step_count - self.scheduler.taken.all_steps.step_count)

    def _affordable_pair_count(self) -> int:
        """Pairs that are run: as many as asked for, or as a short job has room for."""
        pair_count, left_count = self.settings.pair_count, self._left_count
        if left_count is None:
            return pair_count
        per_pair = 2 * self._block_count + SETTLE_STEP_COUNT + 1
        return min(pair_count, int(VERIFYING_RATIO * left_count / per_pair))


def paired_saving(pairs: Sequence[tuple[ClockCost, ClockCost]]) -> PairedSaving:
    """Ratios of pairs (governor, choice). Raises MeasurementError for fewer than two."""
    energy_ratio, energy_interval = log_ratio_interval(
        [chosen.energy_j for _, chosen in pairs], [baseline.energy_j for baseline, _ in pairs]
    )
    time_ratio, time_interval = log_ratio_interval(
        [chosen.time_s for _, chosen in pairs], [baseline.time_s for baseline, _ in pairs]
    )
    return PairedSaving(
        pair_count=len(pairs),
        energy_ratio=energy_ratio,
        energy_interval=energy_interval,
        time_ratio=time_ratio,
        time_interval=time_interval,
    )
