"""One epoch of a job as the live governor steers it, on its true curve.

How much of the job is spent on what is `learning_cost`, as in the job itself: steps that warm up,
blocks that are probed, pairs that are checked with those that settle between them, and fresh
checks of what is held. Blocks are not drawn one by one: what pairs show is what they show of the
true curve by the noise of their blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.finetune.learning_cost import (
    CHECK_RATIO,
    VERIFYING_RATIO,
    WARM_UP_STEP_COUNT,
    BlockSteps,
    LiveSettings,
    SensorTiming,
    learning_cost,
    look_blocks,
)

# Student's t at 97.5 % for pairs too few to be resampled (3 to 5), else the normal's.
_STD_ERROR_COUNTS = {3: 4.30, 4: 3.18, 5: 2.78}
_MANY_STD_ERROR_COUNT = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """Clocks picked for a job: before it runs, and by probing; `None` is the governor's."""

    advised_mhz: int | None
    probed_mhz: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEpoch:
    """What became of one epoch: the clock that is held to its end, and what all of it took.

    `energy_ratio` is that of all steps over the same steps under the governor.
    """

    job: str
    held_mhz: int | None
    is_probed: bool
    energy_ratio: float


def job_epoch(
    curve: ClockCurve,
    settings: LiveSettings,
    picked: Picked,
    *,
    step_count: int | None,
    block_energy_ratio: float,
) -> JobEpoch:
    """Live through one epoch.

    Args:
        curve: The job's true curve, at every clock that is picked or probed.
        settings: How the job is steered.
        picked: The advice, and what its probed blocks speak for.
        step_count: Steps of the epoch; `None`: so many that learning does not matter.
        block_energy_ratio: Standard deviation of a block's energy.
    """

    def time_s(sm_clock_mhz: int | None) -> float:
        return true_cost(curve, sm_clock_mhz).time_s

    is_probed = learning_cost(step_count, time_s, settings, chosen_mhz=None).is_probing
    chosen_mhz = picked.probed_mhz if is_probed else picked.advised_mhz
    cost = learning_cost(step_count, time_s, settings, chosen_mhz=chosen_mhz)
    looks = [cost.pair_blocks]
    is_good = _is_good(curve, settings, chosen_mhz, cost.pair_count, block_energy_ratio)
    if not is_good and chosen_mhz is not None and cost.pair_blocks:
        room_count = None
        if step_count is not None:
            left_count = step_count - WARM_UP_STEP_COUNT - cost.probing_count
            room_count = int(VERIFYING_RATIO * left_count) - cost.verifying_count
        second = look_blocks(chosen_mhz, time_s, settings, SensorTiming(), room_count)
        pair_count = cost.pair_count + len(second) // 2
        is_good = _is_good(curve, settings, chosen_mhz, pair_count, block_energy_ratio)
        looks.append(second)
    # Too few pairs have room to say anything: the choice is held unchecked.
    held_mhz = chosen_mhz if is_good or not cost.pair_blocks else None
    learned = (*cost.probe_blocks, *(block for look in looks for block in look))
    return JobEpoch(
        job=curve.job,
        held_mhz=held_mhz,
        is_probed=is_probed,
        energy_ratio=_energy_ratio(
            curve, picked.advised_mhz, learned, held_mhz, step_count, is_checked=is_good
        ),
    )


def _is_good(
    curve: ClockCurve,
    settings: LiveSettings,
    chosen_mhz: int | None,
    pair_count: int,
    block_energy_ratio: float,
) -> bool:
    """Whether so many pairs show that a clock saves, and it keeps the budget."""
    if chosen_mhz is None or pair_count == 0:
        return False
    chosen, baseline = true_cost(curve, chosen_mhz), curve.baseline
    error_ratio = math.sqrt(2.0 / pair_count) * block_energy_ratio
    margin_ratio = _STD_ERROR_COUNTS.get(pair_count, _MANY_STD_ERROR_COUNT) * error_ratio
    is_shown = math.log(baseline.energy_j / chosen.energy_j) > margin_ratio
    budget = settings.max_slowdown_ratio
    return is_shown and (budget is None or chosen.time_s <= baseline.time_s * (1.0 + budget))


def _energy_ratio(
    curve: ClockCurve,
    advised_mhz: int | None,
    learned: Iterable[BlockSteps],
    held_mhz: int | None,
    step_count: int | None,
    *,
    is_checked: bool,
) -> float:
    """Energy of an epoch over that under the governor; checks take half of their steps there."""
    base_j, held_j = curve.baseline.energy_j, true_cost(curve, held_mhz).energy_j
    if is_checked:
        held_j += CHECK_RATIO / 2.0 * (base_j - held_j)
    if step_count is None:
        return held_j / base_j
    warm_count = min(step_count, WARM_UP_STEP_COUNT)
    energy_j, taken_count = warm_count * true_cost(curve, advised_mhz).energy_j, warm_count
    for block in learned:
        energy_j += block.step_count * true_cost(curve, block.sm_clock_mhz).energy_j
        taken_count += block.step_count
    energy_j += (step_count - taken_count) * held_j
    return energy_j / (step_count * base_j)


def true_cost(curve: ClockCurve, sm_clock_mhz: int | None) -> ClockCost:
    """What a curve has at a clock, or the governor's. Raises ValueError where it has nothing."""
    found = curve.at(sm_clock_mhz)
    if found is None:
        raise ValueError(f"{curve.job!r} was not measured at {sm_clock_mhz} MHz")
    return found
