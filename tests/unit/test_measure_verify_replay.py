"""Verification of plans with a transition model: both sides run whole iterations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.replays import DEVICE, launches_at, plan_of

from joulewise.control.lease import hold
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.plan import Interval, Plan, Verification
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.verify import verify_plan
from joulewise.simulator.virtual import open_virtual
from joulewise.workload.gpt3_xl import gpt3_xl

WORKLOAD = gpt3_xl()
LOW_MEMORY = OperatingPoint(sm_clock_mhz=1890, mem_clock_mhz=5001)
SLOWER = OperatingPoint(sm_clock_mhz=1500, mem_clock_mhz=9501)
STALL = uniform_transition("stall", "a test", stall_s=0.002, energy_j=0.12)


def _plan(
    *points: OperatingPoint,
    model: TransitionModel | None = STALL,
    budget: float | None = 0.2,
) -> Plan:
    launches = launches_at(WORKLOAD.launches[:60], points, 15)
    return plan_of(WORKLOAD, launches, model, budget=budget)


def _verify(
    plan: Plan, device: str, state_dir: Path, *, model: TransitionModel | None = STALL
) -> Verification:
    session = open_virtual(device, WORKLOAD.works, model)
    with hold(session.gpu, state_dir=state_dir) as lease:
        return verify_plan(
            session, lease, plan, pair_count=3, settings=MeasureSettings(), plan_sha256="abc"
        )


def _kinds(verification: Verification) -> set[CaveatKind]:
    return {caveat.kind for caveat in verification.caveats}


def test_without_noise_every_pair_is_what_the_plan_predicts(tmp_path: Path) -> None:
    plan = _plan(LOW_MEMORY, SLOWER)
    verification = _verify(plan, DEVICE, tmp_path)
    for pair in verification.pairs:
        assert pair.plan_time_s == pytest.approx(plan.time_s, rel=1e-6)
        assert pair.baseline_time_s == pytest.approx(plan.baseline_time_s, rel=1e-6)
        assert pair.plan_energy_j == pytest.approx(plan.energy_j, rel=5e-3)
        assert pair.baseline_energy_j == pytest.approx(plan.baseline_energy_j, rel=5e-3)
    assert verification.slowdown_ratio == pytest.approx(plan.slowdown_ratio, rel=1e-6)
    assert verification.saving_ratio == pytest.approx(plan.saving_ratio, abs=5e-3)


def test_what_changes_cost_on_the_device_is_in_the_slowdown(tmp_path: Path) -> None:
    """The plan takes changes for free, and the board takes 2 ms for each."""
    free = uniform_transition("free", "a test")
    plan = _plan(LOW_MEMORY, SLOWER, model=free)
    verification = _verify(plan, f"{DEVICE},stall=2ms", tmp_path)
    added_s = 0.002 * len(plan.requests)
    expected = (plan.time_s + added_s) / plan.baseline_time_s
    assert verification.slowdown_ratio == pytest.approx(expected, rel=1e-6)
    assert CaveatKind.TRANSITIONS_ASSUMED not in _kinds(verification)


def test_a_board_that_plays_the_very_model_of_the_plan_says_so(tmp_path: Path) -> None:
    plan = _plan(LOW_MEMORY, SLOWER)
    verification = _verify(plan, DEVICE, tmp_path)
    assert CaveatKind.TRANSITIONS_ASSUMED in _kinds(verification)
    assert CaveatKind.TRANSITIONS_NOT_COUNTED not in _kinds(verification)
    said = [one for one in verification.caveats if one.kind is CaveatKind.TRANSITIONS_ASSUMED]
    assert "'stall'" in said[0].seen


def test_a_plan_of_one_point_makes_no_changes_to_doubt(tmp_path: Path) -> None:
    verification = _verify(_plan(SLOWER), DEVICE, tmp_path)
    assert CaveatKind.TRANSITIONS_ASSUMED not in _kinds(verification)


def test_a_plan_of_one_point_needs_no_device_that_runs_whole_iterations(tmp_path: Path) -> None:
    """Its kernels can be measured one by one, as without a model."""
    plan = _plan(SLOWER)
    session = replace(open_virtual(DEVICE, WORKLOAD.works, STALL), iterations=None)
    with hold(session.gpu, state_dir=tmp_path) as lease:
        verification = verify_plan(
            session, lease, plan, pair_count=3, settings=MeasureSettings(), plan_sha256="abc"
        )
        with pytest.raises(NotSupported, match="whole iterations"):
            verify_plan(
                *(session, lease, _plan(SLOWER, AUTO)),
                pair_count=3,
                settings=MeasureSettings(),
                plan_sha256="abc",
            )
    assert verification.slowdown_ratio == pytest.approx(plan.slowdown_ratio, rel=1e-6)
    assert CaveatKind.TRANSITIONS_NOT_COUNTED not in _kinds(verification)


def test_a_plan_that_changes_without_asking_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="do not lead"):
        _verify(replace(_plan(SLOWER, AUTO), requests=()), DEVICE, tmp_path)


def test_a_plan_that_changes_nothing_verifies_as_exactly_nothing(tmp_path: Path) -> None:
    verification = _verify(_plan(AUTO), "virtual:rtx3080ti,noise=stress", tmp_path)
    assert (verification.slowdown_ratio, verification.saving_ratio) == (1.0, 0.0)
    assert verification.slowdown_interval == Interval(low_ratio=1.0, high_ratio=1.0)


def test_the_shift_between_runs_does_not_reach_the_ratio(tmp_path: Path) -> None:
    free = uniform_transition("free", "a test")
    plan = _plan(SLOWER, LOW_MEMORY, model=free)
    verification = _verify(plan, f"{DEVICE},shift=5%", tmp_path, model=free)
    baselines = [pair.baseline_time_s for pair in verification.pairs]
    ratios = [pair.plan_time_s / pair.baseline_time_s for pair in verification.pairs]
    assert max(baselines) / min(baselines) > 1.01
    assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=1e-6)


def test_a_plan_that_stalls_too_often_is_not_within_its_budget(tmp_path: Path) -> None:
    plan = _plan(LOW_MEMORY, SLOWER, AUTO, model=uniform_transition("f", "t"), budget=0.0)
    verification = _verify(plan, f"{DEVICE},stall=50ms", tmp_path)
    assert verification.is_within_budget is False
    assert CaveatKind.PROMISE_NOT_SHOWN in _kinds(verification)


def test_a_verification_repeats_itself(tmp_path: Path) -> None:
    plan = _plan(LOW_MEMORY, AUTO)
    device = "virtual:rtx3080ti,seed=9"
    assert _verify(plan, device, tmp_path) == _verify(plan, device, tmp_path)


def test_an_empty_plan_is_refused(tmp_path: Path) -> None:
    plan = plan_of(WORKLOAD, launches_at(WORKLOAD.launches[:2], (AUTO,), 1), STALL)
    with pytest.raises(InputError, match="no launches"):
        _verify(replace(plan, launches=()), DEVICE, tmp_path)
