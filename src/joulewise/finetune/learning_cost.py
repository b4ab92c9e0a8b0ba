"""What learning about a running job takes of its steps, told before the job has taken them.

The live governor probes and checks by this, and an evaluation counts the same. A block of steps is
as long as both its steps and the power sensor ask for, and after each change of the clock steps are
dropped until readings show the new one: with steps of 20 ms and a sensor that moves five times a
second a block of ten steps takes more than a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from joulewise.finetune.accounting import (
    ASSUMED_PERIOD_S,
    SHOWN_PERIODS_COUNT,
    least_block_s,
)
from joulewise.finetune.probing import PROBE_STEP_COUNT

BLOCK_STEP_COUNT = PROBE_STEP_COUNT
"""Steps of a block, where the power sensor needs no more."""
SETTLE_STEP_COUNT = 1
"""Steps that are dropped after a change of the clock, beside the one under way (assumed): a
program may be a step ahead of its GPU."""
WARM_UP_STEP_COUNT = 5
"""First steps of a job, which compile, allocate and fill caches (assumed)."""
DEFAULT_PAIR_COUNT = 6
"""The fewest of which an interval is resampled (measure/statistics.py)."""
FEWEST_PAIR_COUNT = 3
"""Fewer pairs show nothing: Student's t interval of two is six times as wide (assumed)."""
LEARNING_RATIO = 0.1
"""Probing takes no more of what is left of a job once it is warm (assumed)."""
VERIFYING_RATIO = 0.25
"""Checking takes no more of what is then left, a second look included: half of it at the
governor's clock (assumed)."""
CHECK_RATIO = 0.02
"""Most steps that fresh checks may take, of those since the last one (assumed)."""
CHECK_EVERY_S = 600.0
LOOK_S = 0.1
"""How often marks and power are read: twice as often as most module sensors move."""

StepTimeOf = Callable[[int | None], float]
"""Seconds of a training step at a clock; `None`: under the governor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """How a job is steered.

    `probe_clocks_mhz` are tried out; none: the advice is taken as it is. `step_count` is the
    length of the job where it is known. `max_slowdown_ratio` is the budget (0.006: 0.6 % more
    time), `None` for none. `top_mhz` is the highest clock that the device lists.
    """

    probe_clocks_mhz: tuple[int, ...] = ()
    pair_count: int = DEFAULT_PAIR_COUNT
    max_slowdown_ratio: float | None = None
    step_count: int | None = None
    block_step_count: int = BLOCK_STEP_COUNT
    check_every_s: float = CHECK_EVERY_S
    top_mhz: int | None = None

    @property
    def probe_settings(self) -> tuple[int | None, ...]:
        """Blocks that probing takes: the governor's last, where time is kept to a budget."""
        has_baseline = self.probe_clocks_mhz and self.max_slowdown_ratio is not None
        return (*self.probe_clocks_mhz, *((None,) if has_baseline else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorTiming:
    """How often a power sensor moves, and how long it shows what was before a change."""

    period_s: float = ASSUMED_PERIOD_S
    shown_within_s: float = SHOWN_PERIODS_COUNT * ASSUMED_PERIOD_S


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSteps:
    """Steps at one setting, those that are dropped until its clock has settled included."""

    sm_clock_mhz: int | None
    step_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCost:
    """What is learned in a job, and the steps that take part in it.

    `probe_blocks` are empty where probing is not asked for or does not pay. `pair_blocks` are
    those of the first look at what the choice saves; a second one takes as many again, and is
    taken only where the first shows nothing and a quarter of the job has room for both. Fresh
    checks take `CHECK_RATIO` of the rest, half of them at the governor's clock.
    """

    probe_blocks: tuple[BlockSteps, ...]
    pair_count: int
    pair_blocks: tuple[BlockSteps, ...]

    @property
    def is_probing(self) -> bool:
        """Whether any clock is tried out."""
        return bool(self.probe_blocks)

    @property
    def probing_count(self) -> int:
        """Steps of probing."""
        return _sum(self.probe_blocks)

    @property
    def verifying_count(self) -> int:
        """Steps of the first look."""
        return _sum(self.pair_blocks)


def learning_cost(
    step_count: int | None,
    step_time_s: StepTimeOf,
    settings: LiveSettings,
    *,
    chosen_mhz: int | None,
    sensor: SensorTiming = SensorTiming(),
) -> LearningCost:
    """Whether a job is probed, how often it is checked, and the steps that both take.

    Args:
        step_count: Steps of the whole job; `None`: not known, so everything is done.
        step_time_s: Seconds of a step at each of the clocks probed, at the chosen one and under
            the governor (`None`).
        settings: How the job is steered; its own `step_count` is not looked at.
        chosen_mhz: The clock that is checked against the governor; `None` needs no check.
        sensor: Of the board's power.
    """
    left = None if step_count is None else max(0, step_count - WARM_UP_STEP_COUNT)
    probe_blocks = tuple(
        block_steps(clock, step_time_s(clock), settings, sensor)
        for clock in settings.probe_settings
    )
    probing_count = _sum(probe_blocks)
    most_count = None if left is None else int(LEARNING_RATIO * left)
    if most_count is not None and probing_count > most_count:
        probe_blocks, probing_count = (), 0
    pair_blocks: tuple[BlockSteps, ...] = ()
    if chosen_mhz is not None:
        pair_blocks = look_blocks(
            chosen_mhz,
            step_time_s,
            settings,
            sensor,
            None if left is None else int(VERIFYING_RATIO * (left - probing_count)),
        )
    return LearningCost(
        probe_blocks=probe_blocks, pair_count=len(pair_blocks) // 2, pair_blocks=pair_blocks
    )


def look_blocks(
    chosen_mhz: int,
    step_time_s: StepTimeOf,
    settings: LiveSettings,
    sensor: SensorTiming,
    most_count: int | None,
) -> tuple[BlockSteps, ...]:
    """Blocks of as many pairs as are asked for, or fit into so many steps; none: too few fit.

    Neighbouring pairs share the clock of their neighbouring blocks, where nothing has to settle.
    """
    blocks: list[BlockSteps] = []
    last_mhz: int | None = chosen_mhz
    for number in range(settings.pair_count):
        pair = []
        for clock in (None, chosen_mhz)[:: -1 if number % 2 else 1]:
            is_settled = clock == last_mhz
            time_s = step_time_s(clock)
            pair.append(block_steps(clock, time_s, settings, sensor, is_settled=is_settled))
            last_mhz = clock
        if most_count is not None and _sum((*blocks, *pair)) > most_count:
            break
        blocks.extend(pair)
    return tuple(blocks) if len(blocks) >= 2 * FEWEST_PAIR_COUNT else ()


def block_steps(
    sm_clock_mhz: int | None,
    step_time_s: float,
    settings: LiveSettings,
    sensor: SensorTiming,
    *,
    is_settled: bool = False,
) -> BlockSteps:
    """Steps of one block: dropped ones until its clock is seen, then measured ones."""
    needed_count = math.ceil(least_block_s(sensor.period_s) / step_time_s)
    step_count = max(settings.block_step_count, needed_count)
    if not is_settled:
        # Steps that end before the next look have run at the old clock, too.
        unseen_s = LOOK_S + sensor.shown_within_s
        step_count += SETTLE_STEP_COUNT + 1 + math.ceil(unseen_s / step_time_s)
    return BlockSteps(sm_clock_mhz=sm_clock_mhz, step_count=step_count)


def _sum(blocks: Iterable[BlockSteps]) -> int:
    return sum(one.step_count for one in blocks)
