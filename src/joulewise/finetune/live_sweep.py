"""The U-curve of one running job: blocks of steps at every clock in turn, the governor among them.

One run tells it in minutes, where a run per clock takes as many runs as there are clocks, each
with a shift of its own. Clocks come in a new random order each round, and a round is compared
within itself: what changes on the way (temperature, longer texts) shifts all clocks alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from joulewise.domain.errors import MeasurementError
from joulewise.domain.finetuning import ClockCost
from joulewise.finetune.learning_cost import BLOCK_STEP_COUNT, WARM_UP_STEP_COUNT
from joulewise.finetune.live_schedule import Purpose, Schedule, Wish
from joulewise.measure.order import shuffled

Rounds = list[list[ClockCost]]
"""What blocks took, round by round."""


def sweep_schedule(
    sm_clocks_mhz: Sequence[int],
    rounds: Rounds,
    *,
    round_count: int,
    block_step_count: int = BLOCK_STEP_COUNT,
    seed: int = 0,
) -> Schedule:
    """Every clock and the governor's in each round; `rounds` is filled on the way."""
    yield Wish(
        sm_clock_mhz=None, purpose=Purpose.WARM_UP, step_count=WARM_UP_STEP_COUNT, least_s=0.0
    )
    settings = (None, *sm_clocks_mhz)
    for number in range(round_count):
        rounds.append([])
        for clock_mhz in shuffled(settings, seed=seed, label=f"blocks/{number}"):
            cost = yield Wish(
                sm_clock_mhz=clock_mhz, purpose=Purpose.PROBE, step_count=block_step_count
            )
            rounds[-1].append(cost)


def whole_run_schedule(sm_clock_mhz: int | None) -> Schedule:
    """One clock from the first step to the last; the first steps are dropped."""
    yield Wish(
        sm_clock_mhz=sm_clock_mhz,
        purpose=Purpose.WARM_UP,
        step_count=WARM_UP_STEP_COUNT,
        least_s=0.0,
    )
    yield Wish(sm_clock_mhz=sm_clock_mhz, purpose=Purpose.RUN, step_count=1 << 30)


def costs_of_rounds(rounds: Rounds, setting_count: int) -> tuple[ClockCost, tuple[ClockCost, ...]]:
    """What a step takes under the governor, and at each clock, ascending.

    Only whole rounds count, of `setting_count` blocks: one per clock and the governor's. A block
    is scaled by how its round lies to all rounds, so that what shifts a whole round cancels;
    errors are what is left of the scatter, or what single blocks say of themselves.

    Raises:
        MeasurementError: not even one round is whole.
    """
    whole = [one for one in rounds if len(one) == setting_count]
    if not whole:
        raise MeasurementError(
            "training ended before every clock had its block of steps",
            hint="Train longer, name fewer clocks (--sm-clocks), or run once per clock: "
            "--whole-runs.",
        )
    times, energies = (
        _shifts([[c.time_s for c in one] for one in whole]),
        _shifts([[c.energy_j for c in one] for one in whole]),
    )
    blocks: dict[int | None, list[tuple[ClockCost, float, float]]] = {}
    for one, time_shift, energy_shift in zip(whole, times, energies, strict=True):
        for cost in one:
            scaled = (cost, cost.time_s / time_shift, cost.energy_j / energy_shift)
            blocks.setdefault(cost.sm_clock_mhz, []).append(scaled)
    baseline = _mean_cost(blocks.pop(None))
    clocks = sorted(clock for clock in blocks if clock is not None)
    return baseline, tuple(_mean_cost(blocks[clock]) for clock in clocks)


def _shifts(rounds: Sequence[Sequence[float]]) -> list[float]:
    """How each round lies to the mean of all, over the same settings."""
    logs = [math.fsum(map(math.log, one)) / len(one) for one in rounds]
    mean = math.fsum(logs) / len(logs)
    return [math.exp(one - mean) for one in logs]


def _mean_cost(blocks: Sequence[tuple[ClockCost, float, float]]) -> ClockCost:
    """Of one setting, over its rounds."""
    first = blocks[0][0]
    times_s = [time_s for _, time_s, _ in blocks]
    energies_j = [energy_j for _, _, energy_j in blocks]
    busy = [cost.busy_ratio for cost, _, _ in blocks if cost.busy_ratio is not None]
    mem_clocks = [cost.mem_clock_mhz for cost, _, _ in blocks if cost.mem_clock_mhz is not None]
    return ClockCost(
        sm_clock_mhz=first.sm_clock_mhz,
        time_s=_mean(times_s),
        energy_j=_mean(energies_j),
        step_count=sum(cost.step_count or 0 for cost, _, _ in blocks),
        time_error_s=_error(times_s, [cost.time_error_s for cost, _, _ in blocks]),
        energy_error_j=_error(energies_j, [cost.energy_error_j for cost, _, _ in blocks]),
        busy_ratio=_mean(busy) if busy else None,
        mem_clock_mhz=max(mem_clocks, key=mem_clocks.count) if mem_clocks else None,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _error(values: Sequence[float], own: Sequence[float | None]) -> float | None:
    """Standard error of a mean: of the scatter of blocks, and what blocks say of themselves."""
    told = [error for error in own if error is not None]
    within = math.sqrt(math.fsum(error**2 for error in told)) / len(values) if told else 0.0
    if len(values) == 1:
        return within if told else None
    mean = _mean(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return max(within, math.sqrt(variance / len(values)))
