"""What noise makes of curves and of probed blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.finetune.probing import PROBE_STEP_COUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationNoise:
    """Standard deviations as shares of the value; every factor is log-normal of median 1.

    Runs: each point of a curve is a run of its own, with `run_ratio` in time and, beside it, in
    energy. Blocks of one run share its shift; each has `block_time_ratio` and
    `block_energy_ratio` of its own.
    """

    run_ratio: float
    block_time_ratio: float
    block_energy_ratio: float


NO_NOISE = EvaluationNoise(run_ratio=0.0, block_time_ratio=0.0, block_energy_ratio=0.0)
"""Everything as it is."""

USUAL_NOISE = EvaluationNoise(run_ratio=0.02, block_time_ratio=0.0005, block_energy_ratio=0.01)
"""2 % from run to run (assumed: arXiv 2607.05933 ran each point once and says so), and within a
run what one window of a virtual board has (`simulator.noise.DEFAULT_NOISE`)."""

HARD_NOISE = EvaluationNoise(run_ratio=0.02, block_time_ratio=0.02, block_energy_ratio=0.02)
"""Every block of ten steps as far off as if it were a run of its own (assumed)."""


def noisy_curves(
    curves: Sequence[ClockCurve], noise: EvaluationNoise, rng: np.random.Generator
) -> tuple[ClockCurve, ...]:
    """The curves as somebody measures them who runs every clock once."""
    return tuple(
        replace(
            curve,
            baseline=_blurred(curve.baseline, noise, rng),
            costs=tuple(_blurred(cost, noise, rng) for cost in curve.costs),
        )
        for curve in curves
    )


def probed_costs(
    curve: ClockCurve,
    settings_mhz: Sequence[int | None],
    noise: EvaluationNoise,
    rng: np.random.Generator,
) -> tuple[ClockCost, ...]:
    """Blocks of one run at these clocks of the curve; `None` is the governor's."""
    shift = _factor(noise.run_ratio, rng), _factor(noise.run_ratio, rng)
    found = []
    for cost in (*curve.costs, curve.baseline):
        if cost.sm_clock_mhz not in settings_mhz:
            continue
        found.append(
            ClockCost(
                sm_clock_mhz=cost.sm_clock_mhz,
                time_s=cost.time_s * shift[0] * _factor(noise.block_time_ratio, rng),
                energy_j=cost.energy_j * shift[1] * _factor(noise.block_energy_ratio, rng),
                step_count=PROBE_STEP_COUNT,
            )
        )
    return tuple(found)


def _blurred(cost: ClockCost, noise: EvaluationNoise, rng: np.random.Generator) -> ClockCost:
    return replace(
        cost,
        time_s=cost.time_s * _factor(noise.run_ratio, rng),
        energy_j=cost.energy_j * _factor(noise.run_ratio, rng),
    )


def _factor(spread_ratio: float, rng: np.random.Generator) -> float:
    return float(np.exp(spread_ratio * rng.standard_normal()))
