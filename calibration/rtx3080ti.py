"""Fit of the RTX 3080 Ti: independent searches from different starts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibration import parameters as par
from calibration.objective import Objective, State

FloatArray = NDArray[np.float64]


def random_start(objective: Objective, rng: np.random.Generator) -> State:
    """Globals drawn from the priors, kernels from a guess of what bounds them."""
    device = par.CENTRES + 0.6 * par.SPREADS * rng.normal(size=par.GLOBAL_COUNT)
    facts, is_gemm, is_tiny = objective.kernels, objective.is_gemm, objective.is_tiny
    time_s = facts.time_s
    cycles = np.where(is_gemm, 1.76 * time_s, 0.64 * time_s)
    at_lowest = np.clip(facts.greatest_time_ratio - 6, 1.5, 40)
    traffic_s = np.where(is_gemm, 0.0256 * time_s * at_lowest, 0.98 * time_s)
    cycles = np.where(is_tiny, 1.5e-6, cycles)
    traffic_s = np.where(is_tiny, 0.28e-6, traffic_s)
    core = np.where(is_gemm, 60.0, 110.0)
    traffic_w = np.where(is_gemm, 57.0, 86.0)
    kernels = np.zeros((len(par.PER_KERNEL), len(time_s)))
    kernels[:4] = np.log([cycles, traffic_s, core, traffic_w])
    kernels[:4] += 0.15 * rng.normal(size=kernels[:4].shape)
    return State(
        of_device=np.clip(device, par.LEAST, par.GREATEST), of_kernels=kernels
    )
