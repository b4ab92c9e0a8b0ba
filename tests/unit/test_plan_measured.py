"""The planner on measured data: twelve applications on an A100 at 61 clocks."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from joulewise.domain.plan import Granularity, PlanRequest, Scope
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.plan.frontier import frontier
from joulewise.plan.solve import solve
from joulewise.plan.table import plan_table

pytestmark = pytest.mark.data


def a100_sweep(measured_data: Path) -> Sweep:
    path = measured_data / "a100-spec" / "a100_spec_accel_clock_sweep.csv"
    with path.open() as file:
        rows = list(csv.DictReader(file))
    kernels = tuple(dict.fromkeys(row["application"] for row in rows))
    clocks = sorted({int(float(row["sm_app_clock"])) for row in rows})
    shape = (len(kernels), len(clocks))
    time_s, energy_j = np.full(shape, np.inf), np.full(shape, np.inf)
    for row in rows:
        cell = kernels.index(row["application"]), clocks.index(int(float(row["sm_app_clock"])))
        time_s[cell] = float(row["run_time"])
        energy_j[cell] = float(row["power_usage"]) * time_s[cell]
    points = tuple(OperatingPoint(sm_clock_mhz=mhz) for mhz in clocks)
    return Sweep(
        kernels=kernels,
        points=points,
        baseline=points[-1],
        source=SweepSource(device="csv", device_name="A100", tool="test"),
        is_present=np.isfinite(time_s),
        time_s=time_s,
        energy_j=energy_j,
    )


def test_each_application_runs_at_its_own_best_clock_within_5_percent(measured_data: Path) -> None:
    sweep = a100_sweep(measured_data)
    table = plan_table(sweep, None, Granularity.KERNEL)
    assert table.time_s.shape == (12, 61)
    solution = solve(table, PlanRequest(scope=Scope.LOCAL, max_slowdown_ratio=0.05))
    for row in range(12):
        allowed = [
            (float(table.energy_j[row, column]), column)
            for column in range(61)
            if table.time_s[row, column] <= 1.05 * table.time_s[row, -1]
        ]
        assert int(solution.choice[row]) == min(allowed)[1]


def test_the_frontier_ends_at_the_fastest_and_at_the_thriftiest_plan(measured_data: Path) -> None:
    table = plan_table(a100_sweep(measured_data), None, Granularity.KERNEL)
    points = frontier(table)
    assert points[0].time_s == pytest.approx(table.time_s.min(axis=1).sum())
    assert points[-1].energy_j == pytest.approx(table.energy_j.min(axis=1).sum())
