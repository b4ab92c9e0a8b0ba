"""The rivals that a plan is compared with are the best there are, changes counted."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulewise.domain.plan import PlanRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.transition import uniform_transition
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.plan.make import make_plan
from joulewise.report.compare import Role, comparison_rows
from joulewise.workflow.reporting import report_inputs

POINTS = (AUTO, *(OperatingPoint(sm_clock_mhz=clock) for clock in (1800, 1500, 1200)))
PASSES = (Pass.FORWARD, Pass.BACKWARD, Pass.FORWARD, Pass.OPTIMIZER)
WORKLOAD = Workload(
    name="four passes",
    launches=tuple(
        Launch(kernel=f"k{place}", pass_=pass_)
        for place, pass_ in enumerate(pass_ for pass_ in PASSES for _ in range(2))
    ),
)
SHAPE = (len(WORKLOAD.launches), len(POINTS))
cells = st.lists(
    st.integers(min_value=80, max_value=140).map(lambda n: n / 100.0),
    min_size=math.prod(SHAPE),
    max_size=math.prod(SHAPE),
).map(lambda numbers: np.array(numbers).reshape(SHAPE))


def _sweep(time_s: NDArray[np.float64], energy_j: NDArray[np.float64]) -> Sweep:
    return Sweep(
        kernels=tuple(launch.kernel for launch in WORKLOAD.launches),
        points=POINTS,
        baseline=AUTO,
        source=SweepSource(device="x", device_name="X", tool="test"),
        is_present=np.ones(SHAPE, dtype=np.bool_),
        time_s=time_s,
        energy_j=energy_j,
    )


def _least_energy(
    sweep: Sweep, limit_s: float, stall_s: float, stall_j: float, pass_count: int
) -> float:
    """Over all plans with one point per pass, or for them all; of energy alone."""
    times, energies = (
        np.add.reduceat(table, range(0, SHAPE[0], SHAPE[0] // pass_count), axis=0)
        for table in (sweep.time_s, sweep.energy_j)
    )
    best_j = math.inf
    for choice in product(range(len(POINTS)), repeat=pass_count):
        change_count = sum(choice[place - 1] != point for place, point in enumerate(choice))
        rows = range(pass_count)
        time_s = times[rows, choice].sum() + change_count * stall_s
        if time_s <= limit_s * (1 + 1e-9):
            best_j = min(best_j, float(energies[rows, choice].sum()) + change_count * stall_j)
    return best_j


@settings(max_examples=40, deadline=None)
@given(cells, cells, st.sampled_from([0.0, 0.02, 0.1]), st.sampled_from([1e-3, 0.02, 0.1]))
def test_static_and_pass_level_rivals_are_the_best_with_changes_counted(
    time_s: NDArray[np.float64],
    energy_j: NDArray[np.float64],
    max_slowdown_ratio: float,
    stall_s: float,
) -> None:
    sweep, stall_j = _sweep(time_s, energy_j), 2.0 * stall_s
    model = uniform_transition(name="m", source="test", stall_s=stall_s, energy_j=stall_j)
    request = PlanRequest(max_slowdown_ratio=max_slowdown_ratio, transition=model)
    plan = make_plan(sweep, WORKLOAD, request, sweep_sha256="ab" * 32)

    rows = {row.role: row for row in comparison_rows(report_inputs(plan, sweep, is_drawn=False))}

    limit_s = (1 + max_slowdown_ratio) * plan.baseline_time_s
    for role, pass_count in ((Role.BEST_STATIC, 1), (Role.BEST_PASS, len(PASSES))):
        expected_j = _least_energy(sweep, limit_s, stall_s, stall_j, pass_count)
        assert math.isclose(expected_j, rows[role].energy_j, rel_tol=1e-9)
