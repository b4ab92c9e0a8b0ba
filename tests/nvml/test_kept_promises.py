"""A plan made with changes that were measured on the very device keeps its promise there.

On the fake driver each knob is a call that blocks, and comes into force a lag after its own call:
a change of several knobs is in force in parts, and takes as long as its direction has it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.fake_nvml import open_fake
from tests.nvml.works import WORKS

from joulewise.control.lease import hold
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.measurement import ReplayWindow
from joulewise.domain.plan import Plan, PlanRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.transition import TransitionDomain, TransitionModel, changed_domain
from joulewise.domain.workload import Launch, Workload
from joulewise.measure.replay import replay_plan
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.transitions import measure_transitions
from joulewise.plan.make import plan_from_choice
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.oracle import open_oracle
from joulewise.workflow.promise import plan_with_margin

# Long: whole tunings and verifications.
pytestmark = pytest.mark.integration

SETTINGS = MeasureSettings(window_count=3)
PREDICTION_RATIO = 0.005
ROUNDING_S = 1e-5
PARTS = (("gemm", 5), ("copy", 12), ("gemm", 9), ("short", 600), ("copy", 30), ("gemm", 3))
WORKLOAD = Workload(
    name="parts",
    launches=tuple(Launch(kernel=kernel) for kernel, count in PARTS for _ in range(count)),
)
LOW_SM = OperatingPoint(sm_clock_mhz=840)
BOTH_LOW = OperatingPoint(sm_clock_mhz=840, mem_clock_mhz=5001)
POINTS = (AUTO, LOW_SM, OperatingPoint(mem_clock_mhz=5001), BOTH_LOW)
LIMITED = (AUTO, LOW_SM, *(replace(point, power_limit_w=200.0) for point in (AUTO, LOW_SM)))
# What is in force between the two lower ones was not measured.
CROSSED = (AUTO, LOW_SM, OperatingPoint(mem_clock_mhz=5001))


def measured(
    session: DeviceSession, folder: Path, points: tuple[OperatingPoint, ...]
) -> TransitionModel:
    with hold(session.gpu, state_dir=folder) as lease:
        model, _ = measure_transitions(session, lease, "copy", points, settings=SETTINGS)
    return model


def true_sweep(session: DeviceSession, points: tuple[OperatingPoint, ...]) -> Sweep:
    """What the physics says."""
    identity = session.gpu.identity
    oracle = open_oracle("virtual:rtx3080ti,noise=0", WORKS)
    time_s, energy_j = oracle.table(points)
    return Sweep(
        kernels=oracle.kernels,
        points=points,
        baseline=AUTO,
        source=SweepSource(device=identity.spec, device_name=identity.name, tool="a test"),
        is_present=np.ones(time_s.shape, dtype=np.bool_),
        time_s=time_s,
        energy_j=energy_j,
    )


def planned(sweep: Sweep, model: TransitionModel, budget: float) -> Plan:
    request = PlanRequest(max_slowdown_ratio=budget, transition=model)
    kept = plan_with_margin(sweep, WORKLOAD, request)
    return plan_from_choice(sweep, WORKLOAD, kept.table, kept.solution, sweep_sha256="0" * 64)


def replayed(session: DeviceSession, plan: Plan, folder: Path) -> ReplayWindow:
    with hold(session.gpu, state_dir=folder) as lease:
        return replay_plan(session, lease, plan, settings=SETTINGS)


@pytest.mark.parametrize("points", [POINTS, LIMITED, CROSSED])
def test_a_plan_keeps_its_promise_on_the_device_whose_changes_were_measured(
    driver: FakeDriver, tmp_path: Path, points: tuple[OperatingPoint, ...]
) -> None:
    session = open_fake(driver, WORKS)
    sweep, model = true_sweep(session, points), measured(session, tmp_path, points)
    for budget in (0.02, 0.3):
        plan = planned(sweep, model, budget)
        assert plan.requests

        window = replayed(session, plan, tmp_path)

        assert window.time_s <= (1 + budget) * plan.baseline_time_s
        # What changes may take on top is held back.
        most_s = plan.time_s + plan.guard_band_ratio * plan.baseline_time_s
        assert (1 - PREDICTION_RATIO) * plan.time_s <= window.time_s <= most_s + ROUNDING_S
        assert window.late_count == window.skipped_count == 0
        assert CaveatKind.CHANGES_LATE not in {caveat.kind for caveat in window.caveats}


def test_a_clock_that_does_not_show_at_once_is_asked_for_as_early_as_one_that_does(
    driver: FakeDriver, tmp_path: Path
) -> None:
    """Under a kernel that moves data; two calls of 4 ms, and 10 ms until the last is in force."""
    model = measured(open_fake(driver, WORKS), tmp_path, POINTS)

    both = [
        lead
        for lead in model.leads
        if changed_domain(lead.before, lead.after) is TransitionDomain.BOTH
    ]
    assert both
    for lead in both:
        assert lead.lead_s == pytest.approx(0.014, rel=0.02)
        assert lead.partial_s == pytest.approx(0.004, rel=0.05)


def test_a_model_of_the_longest_lags_alone_brings_changes_too_early_and_that_is_told(
    driver: FakeDriver, tmp_path: Path
) -> None:
    points = (AUTO, LOW_SM)
    session = open_fake(driver, WORKS)
    model = measured(session, tmp_path, points)
    longest = replace(
        model, leads=(), costs=tuple(replace(cost, lag_s=0.014) for cost in model.costs)
    )
    plan = planned(true_sweep(session, points), longest, 0.3)

    window = replayed(session, plan, tmp_path)

    assert len(plan.requests) == window.early_count > 0
    assert window.max_early_s == pytest.approx(0.004, rel=0.02)
    assert CaveatKind.CHANGES_EARLY in {caveat.kind for caveat in window.caveats}
