"""Gaps and exchanges from the sweep to the plan: their time stands still, their energy does not."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.kernel_works import kernel_works
from tests.waiting import exchange, gap

from joulewise.domain.measurement import CellMeasurement, Window
from joulewise.domain.plan import Granularity, PlanRequest, Scope, Status
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.transition import uniform_transition
from joulewise.domain.workload import KernelWork, Launch, Pass, Workload
from joulewise.measure.table import sweep_from_cells
from joulewise.model.shrink import shrink
from joulewise.model.surrogate import fit_surrogate
from joulewise.plan.make import make_plan
from joulewise.simulator.oracle import Oracle
from joulewise.simulator.presets import preset

SPEC = preset("rtx3080ti")
POINTS = SPEC.grid.points(
    (None, *SPEC.grid.sm_clocks_mhz[20::9], SPEC.grid.sm_clocks_mhz[-17]), (None, 5001, 9501)
)
KERNELS = kernel_works(
    {f"k{number}": (2.0**number * 1e9, 8e9 / 2.0**number) for number in range(8)},
    core_activity_ratio=0.9,
)
GAPS = tuple(gap(4e-6 * 8.0**number, f"gap {number}") for number in range(5))
EXCHANGE = exchange(5e-3)
SOURCE = SweepSource(device="virtual:rtx3080ti", device_name="a test", tool="tests")


def noisy_sweep(
    works: Sequence[KernelWork], *, noise_ratio: float = 0.003, absent_ratio: float = 0.0
) -> Sweep:
    """The truth, blurred, in three windows a cell."""
    rng = np.random.default_rng(7)
    time_s, energy_j = Oracle(SPEC, works).table(POINTS)
    cells = []
    for row, work in enumerate(works):
        for column, point in enumerate(POINTS):
            if point != AUTO and rng.random() < absent_ratio:
                continue
            factors = np.exp(noise_ratio * rng.normal(size=(3, 2)))
            windows = tuple(
                Window(
                    launch_count=1,
                    elapsed_s=float(time_s[row, column] * by_time),
                    energy_j=float(energy_j[row, column] * by_time * by_power),
                    mean_sm_clock_mhz=float(point.sm_clock_mhz or SPEC.sm_clock_max_mhz),
                )
                for by_time, by_power in factors
            )
            cells.append(CellMeasurement(kernel=work.kernel, point=point, windows=windows))
    kernels = tuple(work.kernel for work in works)
    return sweep_from_cells(kernels, POINTS, AUTO, cells, source=SOURCE)
