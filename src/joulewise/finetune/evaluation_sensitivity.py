"""What probing is worth with other laws and other clocks than those that it uses."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.finetuning import ClockCurve
from joulewise.finetune.evaluation_epoch import true_cost
from joulewise.finetune.evaluation_noise import EvaluationNoise, probed_costs
from joulewise.finetune.probing import USUAL_SPREAD, ProbeSpread, choose_by_probing, probe_clocks
from joulewise.finetune.probing_fit import (
    SWITCHING_EXPONENT_RATIO,
    Fitter,
    fit_parabola,
    fit_steps,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeMethod:
    """A law that is fitted, and where the probed clocks lie."""

    name: str
    fitter: Fitter = fit_steps
    spread: ProbeSpread = USUAL_SPREAD


PROBE_METHODS = (
    ProbeMethod(name=f"as it is: exponent {SWITCHING_EXPONENT_RATIO:g}, clocks at 0.6 and 1.5"),
    ProbeMethod(name="exponent 1.5", fitter=functools.partial(fit_steps, exponent_ratio=1.5)),
    ProbeMethod(name="exponent 3", fitter=functools.partial(fit_steps, exponent_ratio=3.0)),
    ProbeMethod(name="log-quadratic", fitter=fit_parabola),
    ProbeMethod(
        name="clocks at 0.75 and 1.25", spread=ProbeSpread(low_ratio=0.75, high_ratio=1.25)
    ),
    ProbeMethod(name="clocks at 0.5 and 1.8", spread=ProbeSpread(low_ratio=0.5, high_ratio=1.8)),
)
"""What `studies/finetune.py` varies."""


def probe_regrets(
    curves: Sequence[ClockCurve],
    advised: Sequence[int | None],
    method: ProbeMethod,
    noise: EvaluationNoise,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Regret of what is probed for each job, by its true curve; shape (J,).

    Args:
        curves: True curves of J jobs.
        advised: What each was advised.
        method: How it is probed.
        noise: Of the blocks.
        rng: What draws it.
    """
    regrets = []
    for curve, advice in zip(curves, advised, strict=True):
        clocks = probe_clocks(advice, curve.sm_clocks_mhz, spread=method.spread)
        costs = probed_costs(curve, clocks, noise, rng)
        choice = choose_by_probing(costs, curve.sm_clocks_mhz, fitter=method.fitter)
        picked = true_cost(curve, choice.sm_clock_mhz)
        regrets.append(picked.energy_j / curve.best.energy_j - 1.0)
    return np.array(regrets)
