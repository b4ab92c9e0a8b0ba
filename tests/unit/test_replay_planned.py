"""The planner's own plans, carried out on a board of the model that they were made with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.replays import DEVICE

from joulewise.control.lease import hold
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.plan import Granularity, Plan, PlanRequest
from joulewise.domain.points import AUTO
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.domain.transition_presets import TRANSITION_PRESETS
from joulewise.measure.replay import replay_plan
from joulewise.measure.settings import MeasureSettings
from joulewise.plan.make import plan_from_choice
from joulewise.plan.solve import solve
from joulewise.plan.table import plan_table
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual
from joulewise.workload.gpt3_xl import gpt3_xl

WORKLOAD = gpt3_xl()


def _true_sweep() -> Sweep:
    """What the physics says, at auto and a few clocks."""
    oracle = open_oracle(DEVICE, WORKLOAD.works)
    points = oracle.spec.grid.points((None, 1680, 1890), (None, 5001, 9501))
    time_s, energy_j = oracle.table(points)
    return Sweep(
        kernels=oracle.kernels,
        points=points,
        baseline=AUTO,
        source=SweepSource(device=DEVICE, device_name=oracle.spec.name, tool="a test"),
        is_present=np.ones(time_s.shape, dtype=np.bool_),
        time_s=time_s,
        energy_j=energy_j,
    )


def _planned(model: TransitionModel) -> Plan:
    request = PlanRequest(max_slowdown_ratio=0.006, transition=model)
    sweep = _true_sweep()
    table = plan_table(sweep, WORKLOAD, Granularity.KERNEL, model)
    solution = solve(table, request)
    return plan_from_choice(sweep, WORKLOAD, table, solution, sweep_sha256="0", caveats=())


@pytest.mark.parametrize(
    "model",
    [
        TRANSITION_PRESETS["ascend"],
        TRANSITION_PRESETS["hopper"],
        uniform_transition("lag", "a test", lag_s=0.005),
        uniform_transition("all", "a test", lag_s=0.005, stall_s=2e-4, energy_j=0.02, dwell_s=0.01),
    ],
    ids=lambda model: str(model.name),
)
def test_a_plan_carried_out_takes_the_time_and_energy_it_promises(
    model: TransitionModel, tmp_path: Path
) -> None:
    plan = _planned(model)
    assert plan.requests
    session = open_virtual(DEVICE, WORKLOAD.works, model)
    with hold(session.gpu, state_dir=tmp_path) as lease:
        window = replay_plan(session, lease, plan, settings=MeasureSettings())
    assert window.time_s == pytest.approx(plan.time_s, rel=1e-6)
    assert window.energy_j == pytest.approx(plan.energy_j, rel=1e-3)
    assert window.request_count == len(plan.requests)
    assert CaveatKind.CHANGES_LATE not in {caveat.kind for caveat in window.caveats}
