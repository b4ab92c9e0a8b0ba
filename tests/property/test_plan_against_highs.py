"""The planner's optimum equals that of HiGHS, another solver, on full-size random tables."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from joulewise.plan.knapsack import cheapest_within
from joulewise.plan.options import options_of
from joulewise.plan.rest import PROVEN_RATIO

FloatTable = NDArray[np.float64]


def random_cells(seed: int) -> tuple[FloatTable, FloatTable, float]:
    """46 kernels x 66 points, as 11 core by 6 memory clocks, and a budget (s)."""
    rng = np.random.default_rng(seed)
    core, memory = np.meshgrid(np.linspace(0.1, 1.0, 11), [0.04, 0.09, 0.53, 0.74, 0.97, 1.0])
    compute = rng.lognormal(0.0, 1.0, (46, 1)) / core.ravel()
    traffic = rng.lognormal(0.0, 1.0, (46, 1)) / memory.ravel()
    time_s = 10.0 ** rng.uniform(-4.0, -1.0, (46, 1)) * (compute**4 + traffic**4) ** 0.25
    voltage = np.maximum(0.7, 0.5 + 0.5 * core.ravel())
    share = compute / (compute + traffic)
    power_w = 80.0 + 40.0 * memory.ravel() + voltage**2 * core.ravel() * (60.0 + 200.0 * share)
    noise_ratio = rng.choice([0.0, 0.002, 0.02])
    noise = 1.0 + noise_ratio * rng.standard_normal((2, 46, 66))
    time_s, energy_j = time_s * noise[0], power_w * time_s * noise[1]
    return time_s, energy_j, float(time_s[:, -1].sum() * rng.uniform(1.0, 1.3))


def highs_j(time_s: FloatTable, energy_j: FloatTable, budget_s: float) -> tuple[float, float]:
    """Least energy by HiGHS on all cells, and its dual bound.

    Scaled to thousands, so that its absolute tolerance of 1e-6 is a billionth.
    """
    class_count, point_count = time_s.shape
    count = class_count * point_count
    classes = np.repeat(np.arange(class_count), point_count)
    scale_j = energy_j[:, -1].sum() / 1e4
    scale_s = budget_s / 1e4
    result = milp(
        energy_j.ravel() / scale_j,
        constraints=[
            LinearConstraint(csr_array((np.ones(count), (classes, np.arange(count)))), 1.0, 1.0),
            LinearConstraint(csr_array(time_s.ravel()[None, :] / scale_s), -np.inf, 1e4),
        ],
        integrality=np.ones(count),
        bounds=Bounds(0.0, 1.0),
        options={"mip_rel_gap": 0.0},
    )
    return float(result.fun * scale_j), float(result.mip_dual_bound * scale_j)


@pytest.mark.parametrize("seed", range(52))
def test_the_optimum_equals_that_of_highs(seed: int) -> None:
    time_s, energy_j, budget_s = random_cells(seed)
    answer = cheapest_within(options_of(time_s, energy_j), budget_s)
    assert answer is not None
    rows = np.arange(46)
    assert time_s[rows, answer.columns].sum() <= budget_s * (1 + 1e-12)
    assert energy_j[rows, answer.columns].sum() == pytest.approx(answer.energy_j, rel=1e-12)
    assert answer.energy_j - answer.bound_j <= PROVEN_RATIO * answer.energy_j
    expected_j, _bound_j = highs_j(time_s, energy_j, budget_s)
    assert answer.energy_j == pytest.approx(expected_j, rel=1e-8)
