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
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.finetuning import ClockChoice, ClockCost
from joulewise.domain.plan import Interval
from joulewise.finetune.accounting import ASSUMED_PERIOD_S, least_block_s
from joulewise.finetune.learning_cost import (
    CHECK_RATIO,
    DEFAULT_PAIR_COUNT,
    FEWEST_PAIR_COUNT,
    LEARNING_RATIO,
    VERIFYING_RATIO,
    WARM_UP_STEP_COUNT,
    LiveSettings,
    block_steps,
    learning_cost,
    look_blocks,
)
from joulewise.finetune.live_schedule import (
    BlockTooLong,
    Purpose,
    Schedule,
    StepScheduler,
    Wish,
)
from joulewise.measure.statistics import log_ratio_interval

__all__ = [
    "CHECK_RATIO",
    "DEFAULT_PAIR_COUNT",
    "FEWEST_PAIR_COUNT",
    "LiveGovernor",
    "LiveSettings",
    "Outcome",
    "PairedSaving",
    "paired_saving",
]

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
class PairedSaving:
    """What pairs of blocks say: ratios chosen over governor, of time and energy per step."""

    pair_count: int
    energy_ratio: float
    energy_interval: Interval
    time_ratio: float
    time_interval: Interval

    @property
    def is_shown(self) -> bool:
        """Whether the 95 % interval says that it saves.

        What saves nothing is shown so by one look in forty: the other half of what the interval
        misses lies on its far side. By at least one of two looks at the same pairs, and more of
        them, it is shown by no more than one in twenty (Bonferroni 1936), so that a claim after
        two looks keeps its 95 %.
        """
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
        self._known: list[ClockCost] = []
        self._until_count: int | None = None
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
        # So long that the power sensor may be seen to move, and the program has said how many
        # steps it takes.
        warm = yield Wish(
            sm_clock_mhz=self.advice.sm_clock_mhz,
            purpose=Purpose.WARM_UP,
            step_count=WARM_UP_STEP_COUNT,
            least_s=least_block_s(ASSUMED_PERIOD_S),
        )
        self._known.append(warm)
        self.outcome = Outcome.ADVICE
        yield from self._probe()
        if self.choice.sm_clock_mhz is None:
            self.outcome = Outcome.GOVERNOR
            return
        yield from self._verify_and_hold(self.choice.sm_clock_mhz)

    def _probe(self) -> Schedule:
        """Blocks at each clock; and one of the governor's, where time is to be kept to a budget."""
        rest = list(self.settings.probe_settings)
        self._may_take(LEARNING_RATIO)
        if not rest or not self._has_room(rest):
            return
        self.outcome = Outcome.UNFINISHED
        with suppress(BlockTooLong):
            while rest and self._has_room(rest):
                cost = yield self._wish(rest.pop(0), Purpose.PROBE)
                self.probed = (*self.probed, cost)
                self._known.append(cost)
        if len(self.probed) < len(self.settings.probe_settings):
            self.outcome = Outcome.ADVICE
            self._keep_advice("blocks of steps took more of the job than it has room for")
        else:
            self._choose_from(self.probed)

    def _choose_from(self, costs: Sequence[ClockCost]) -> None:
        baseline = next((one for one in costs if one.sm_clock_mhz is None), None)
        try:
            self.choice = self._choose(
                [one for one in costs if one.sm_clock_mhz is not None], baseline
            )
        except JoulewiseError as error:
            self._keep_advice(str(error))

    def _keep_advice(self, why: str) -> None:
        """Blocks that say nothing leave the advice as it was, and that is told."""
        doubt = Caveat(
            kind=CaveatKind.EXTRAPOLATED,
            seen=f"probing came to nothing, so the advice was kept as it was: {why}",
            advice="Run more steps, or give a config and a policy to advise by.",
        )
        self.choice = replace(self.advice, caveats=(doubt, *self.advice.caveats))

    def _verify_and_hold(self, chosen_mhz: int) -> Schedule:
        self._may_take(VERIFYING_RATIO)
        saving = yield from self._look_at(chosen_mhz)
        if saving is not None and not self._is_good(saving):
            saving = (yield from self._look_at(chosen_mhz)) or saving
        if saving is None:
            self.outcome = Outcome.ADVICE
            yield from self._hold(chosen_mhz)
            return
        self._until_count = None
        while self._judge(saving):
            yield Wish(
                sm_clock_mhz=chosen_mhz,
                purpose=Purpose.RUN,
                step_count=math.ceil(self._steps_per_pair / CHECK_RATIO),
                least_s=self.settings.check_every_s,
            )
            yield from self._pair(chosen_mhz, Purpose.CHECK)
            saving = self._sum_up()

    def _look_at(self, chosen_mhz: int) -> Generator[Wish, ClockCost, PairedSaving | None]:
        """So many more pairs as are asked for or have room; `None`: too few have."""
        sensor, most_count = self.scheduler.sensor, self._room_count
        blocks = look_blocks(chosen_mhz, self._step_time_s, self.settings, sensor, most_count)
        if blocks:
            self.outcome = Outcome.UNFINISHED
        # Should steps take longer than was thought, pairs that are whole are kept.
        with suppress(BlockTooLong):
            for _ in range(len(blocks) // 2):
                yield from self._pair(chosen_mhz, Purpose.VERIFY)
        return self._sum_up() if blocks and len(self._pairs) >= FEWEST_PAIR_COUNT else None

    def _pair(self, chosen_mhz: int, purpose: Purpose) -> Schedule:
        """One more pair; the first of it takes turns, so that neighbours share their clock."""
        order = (None, chosen_mhz)[:: -1 if self._is_choice_first else 1]
        costs = {}
        for clock_mhz in order:
            costs[clock_mhz] = yield self._wish(clock_mhz, purpose)
        self._is_choice_first = not self._is_choice_first
        self._known.extend(costs.values())
        self._pairs.append((costs[None], costs[chosen_mhz]))

    def _wish(self, clock_mhz: int | None, purpose: Purpose) -> Wish:
        """Of one block. Raises BlockTooLong where the job has no room for even a step of it."""
        if self._room_count == 0:
            raise BlockTooLong("the job has no room for one more block of steps")
        return Wish(
            sm_clock_mhz=clock_mhz,
            purpose=purpose,
            step_count=self.settings.block_step_count,
            most_step_count=self._room_count,
            # A clock that was shown to save is held meanwhile, too.
            rest_mhz=self.choice.sm_clock_mhz if purpose is Purpose.CHECK else None,
        )

    def _hold(self, clock_mhz: int) -> Schedule:
        while True:
            yield Wish(sm_clock_mhz=clock_mhz, purpose=Purpose.RUN, step_count=1 << 30)

    def _sum_up(self) -> PairedSaving:
        # A job may change on the way: old pairs tell of what it was.
        self.saving = paired_saving(self._pairs[-2 * self.settings.pair_count :])
        return self.saving

    def _is_good(self, saving: PairedSaving) -> bool:
        return saving.is_shown and saving.is_within(self.settings.max_slowdown_ratio)

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
    def needed_s(self) -> float | None:
        """About how long training has to last for a choice to be found and checked.

        `None` where no step tells how long one takes.
        """
        taken = self.scheduler.taken.all_steps
        if not taken.step_count:
            return None
        # The fewest pairs; steps alike at every clock; so long that its shares have room for both.
        settings = replace(self.settings, pair_count=FEWEST_PAIR_COUNT)
        cost = learning_cost(None, lambda _: taken.time_s, settings, chosen_mhz=1)
        probing_count = 0 if self.probed else cost.probing_count
        least_count = max(probing_count / LEARNING_RATIO, cost.verifying_count / VERIFYING_RATIO)
        return least_count * taken.time_s

    @property
    def _steps_per_pair(self) -> float:
        """Steps that pairs took in the mean, those that were dropped included."""
        counts = self.scheduler.taken.step_counts
        taken_count = counts.get(Purpose.VERIFY, 0) + counts.get(Purpose.CHECK, 0)
        return taken_count / len(self._pairs)

    def _may_take(self, ratio: float) -> None:
        """From now on learning may take so large a share of what is left of the job."""
        taken_count = self.scheduler.taken.all_steps.step_count
        if self.step_count is None:
            self._until_count = None
        else:
            left_count = max(0, self.step_count - taken_count)
            self._until_count = taken_count + int(ratio * left_count)

    @property
    def _room_count(self) -> int | None:
        """Steps that learning may still take; `None`: as many as it wants."""
        if self._until_count is None:
            return None
        return max(0, self._until_count - self.scheduler.taken.all_steps.step_count)

    def _has_room(self, settings: Sequence[int | None]) -> bool:
        """Whether blocks at all of these still have room, as far as is known by now."""
        sensor, room_count = self.scheduler.sensor, self._room_count
        blocks = (
            block_steps(clock, self._step_time_s(clock), self.settings, sensor)
            for clock in settings
        )
        return room_count is None or sum(one.step_count for one in blocks) <= room_count

    def _step_time_s(self, clock_mhz: int | None) -> float:
        """The least that a step may take at a clock, by what was seen of others.

        Time falls at most as the clock rises; a governor may take the highest.
        """
        top_mhz = self.settings.top_mhz or max((*self.settings.probe_clocks_mhz, 0))
        at_mhz = clock_mhz or top_mhz
        return max(
            one.time_s * min(1.0, (one.sm_clock_mhz or top_mhz or 1) / (at_mhz or 1))
            for one in self._known
        )


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
