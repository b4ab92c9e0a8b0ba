from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from joulewise.control.lease import hold
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.plan import Interval, Plan, PlannedLaunch, PlanRequest, Status, Verification
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.measure.fresh import interleaved, measure_fresh
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.verify import verify_plan
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual
from joulewise.workload.gpt3_xl import gpt3_xl

WORKLOAD = gpt3_xl()
WORKS = WORKLOAD.works
LOW = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=9501)
MIDDLE = OperatingPoint(sm_clock_mhz=1500, mem_clock_mhz=9501)
SETTINGS = MeasureSettings()


def _plan(*points: OperatingPoint, budget: float | None = 0.0, launch_count: int = 30) -> Plan:
    """A plan that takes these points in turn."""
    launches = WORKLOAD.launches[:launch_count]
    return Plan(
        status=Status.FEASIBLE,
        request=PlanRequest(max_slowdown_ratio=budget),
        device="virtual:rtx3080ti",
        device_name="Test",
        workload="test",
        sweep_sha256="0",
        baseline=AUTO,
        time_s=1.0,
        energy_j=1.0,
        baseline_time_s=1.0,
        baseline_energy_j=1.0,
        slowdown_ratio=1.0,
        saving_ratio=0.0,
        bound_gap_ratio=None,
        guard_band_ratio=0.0,
        launches=tuple(
            PlannedLaunch(
                kernel=launch.kernel, pass_=launch.pass_, point=points[number % len(points)]
            )
            for number, launch in enumerate(launches)
        ),
    )


def _verify(plan: Plan, device: str, state_dir: Path, *, pair_count: int = 4) -> Verification:
    session = open_virtual(device, WORKS)
    with hold(session.gpu, state_dir=state_dir) as lease:
        return verify_plan(
            session, lease, plan, pair_count=pair_count, settings=SETTINGS, plan_sha256="abc"
        )


def _kinds(verification: Verification) -> set[CaveatKind]:
    return {caveat.kind for caveat in verification.caveats}


def test_without_noise_every_pair_is_the_truth(tmp_path: Path) -> None:
    device = "virtual:rtx3080ti,noise=0"
    plan = _plan(LOW, MIDDLE, AUTO)
    verification = _verify(plan, device, tmp_path)
    oracle = open_oracle(device, WORKS)
    time_s, energy_j = oracle.true_iteration(plan.launches)
    baseline = tuple(replace(launch, point=AUTO) for launch in plan.launches)
    baseline_time_s, baseline_energy_j = oracle.true_iteration(baseline)
    for pair in verification.pairs:
        assert pair.plan_time_s == pytest.approx(time_s, rel=1e-9)
        assert pair.baseline_time_s == pytest.approx(baseline_time_s, rel=1e-9)
        # Warm-ups between cells are short, so some warmth of the kernel before is left.
        assert pair.plan_energy_j == pytest.approx(energy_j, rel=1e-3)
        assert pair.baseline_energy_j == pytest.approx(baseline_energy_j, rel=1e-3)
    assert verification.slowdown_ratio == pytest.approx(time_s / baseline_time_s, rel=1e-9)
    assert verification.saving_ratio == pytest.approx(1 - energy_j / baseline_energy_j, abs=1e-3)


def test_a_plan_that_changes_nothing_verifies_as_exactly_nothing(tmp_path: Path) -> None:
    verification = _verify(_plan(AUTO), "virtual:rtx3080ti,noise=stress", tmp_path)
    assert (verification.slowdown_ratio, verification.saving_ratio) == (1.0, 0.0)
    assert verification.slowdown_interval == Interval(low_ratio=1.0, high_ratio=1.0)
    assert verification.is_within_budget is True
    assert CaveatKind.PROMISE_NOT_SHOWN not in _kinds(verification)
    assert CaveatKind.TRANSITIONS_NOT_COUNTED not in _kinds(verification)


def test_the_shift_between_runs_does_not_reach_the_ratio(tmp_path: Path) -> None:
    shifted = _verify(_plan(LOW), "virtual:rtx3080ti,noise=0,shift=5%", tmp_path)
    baselines = [pair.baseline_time_s for pair in shifted.pairs]
    ratios = [pair.plan_time_s / pair.baseline_time_s for pair in shifted.pairs]
    assert max(baselines) / min(baselines) > 1.01
    assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=1e-9)


def test_a_slow_plan_is_not_within_its_budget_and_says_so(tmp_path: Path) -> None:
    verification = _verify(_plan(LOW), "virtual:rtx3080ti", tmp_path)
    assert verification.slowdown_ratio > 1.05
    assert verification.is_within_budget is False
    assert CaveatKind.PROMISE_NOT_SHOWN in _kinds(verification)
    assert CaveatKind.SIMULATED_DEVICE in _kinds(verification)


def test_more_pairs_are_advised_only_where_they_could_show_more(tmp_path: Path) -> None:
    """A budget within the interval, and one that all of it lies beyond."""
    device = "virtual:rtx3080ti,noise=stress"
    interval = _verify(_plan(LOW, budget=None), device, tmp_path).slowdown_interval
    within = (interval.low_ratio + interval.high_ratio) / 2 - 1
    for budget, is_advised in ((within, True), (0.006, False)):
        verification = _verify(_plan(LOW, budget=budget), device, tmp_path)
        (said,) = [
            one.helps for one in verification.caveats if one.kind is CaveatKind.PROMISE_NOT_SHOWN
        ]
        assert is_advised == ("more pairs" in said)


def test_a_plan_without_budget_is_neither_within_nor_beyond_it(tmp_path: Path) -> None:
    verification = _verify(_plan(LOW, budget=None), "virtual:rtx3080ti", tmp_path)
    assert verification.is_within_budget is None
    assert CaveatKind.PROMISE_NOT_SHOWN not in _kinds(verification)


def test_a_plan_of_several_points_says_that_changes_were_not_counted(tmp_path: Path) -> None:
    assert CaveatKind.TRANSITIONS_NOT_COUNTED in _kinds(
        _verify(_plan(LOW, AUTO), "virtual:rtx3080ti", tmp_path)
    )


def test_medians_lie_within_their_intervals_and_savings_run_upwards(tmp_path: Path) -> None:
    verification = _verify(_plan(LOW, MIDDLE), "virtual:rtx3080ti", tmp_path, pair_count=8)
    slowdown, saving = verification.slowdown_interval, verification.saving_interval
    assert slowdown.low_ratio < verification.slowdown_ratio < slowdown.high_ratio
    assert saving.low_ratio < verification.saving_ratio < saving.high_ratio


def test_a_verification_repeats_itself(tmp_path: Path) -> None:
    plan = _plan(LOW, AUTO)
    device = "virtual:rtx3080ti,seed=9"
    assert _verify(plan, device, tmp_path) == _verify(plan, device, tmp_path)


@pytest.mark.parametrize("pair_count", [0, 1])
def test_fewer_than_two_pairs_are_refused(pair_count: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 2 pairs"):
        _verify(_plan(LOW), "virtual:rtx3080ti", tmp_path, pair_count=pair_count)


def test_an_empty_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no launches"):
        _verify(_plan(LOW, launch_count=0), "virtual:rtx3080ti", tmp_path)


def test_ten_pairs_of_all_46_kernels_verify(tmp_path: Path) -> None:
    plan = _plan(LOW, launch_count=len(WORKLOAD.launches))
    verification = _verify(plan, "virtual:rtx3080ti", tmp_path, pair_count=10)
    assert len(verification.pairs) == 10


def test_fresh_windows_are_one_run_numbered_by_round(tmp_path: Path) -> None:
    session = open_virtual("virtual:rtx3080ti", WORKS)
    cells = [(work.kernel, point) for work in WORKS[:2] for point in (AUTO, LOW)]
    with hold(session.gpu, state_dir=tmp_path) as lease:
        first, second = (
            measure_fresh(session, lease, cells, 3, settings=SETTINGS, first_window=first_window)
            for first_window in (0, 3)
        )
    assert [(cell.kernel, cell.point) for cell in first] == cells
    assert {cell.run for cell in (*first, *second)} == {"remeasure"}
    assert {tuple(w.window for w in cell.windows) for cell in first} == {(0, 1, 2)}
    assert {tuple(w.window for w in cell.windows) for cell in second} == {(3, 4, 5)}
    assert all(
        a.windows[0].time_s != b.windows[0].time_s for a, b in zip(first, second, strict=True)
    )


def test_fresh_cells_without_windows_are_refused(tmp_path: Path) -> None:
    session = open_virtual("virtual:rtx3080ti", WORKS)
    with (
        hold(session.gpu, state_dir=tmp_path) as lease,
        pytest.raises(MeasurementError, match="at least one window"),
    ):
        measure_fresh(session, lease, [(WORKS[0].kernel, AUTO)], 0, settings=SETTINGS)


def test_each_kernel_leads_with_the_baseline_as_often_as_with_the_plan() -> None:
    cells = [(f"k{number}", point) for number in range(4) for point in (AUTO, LOW)]
    leads = Counter(
        order[place]
        for number in range(6)
        for order in [interleaved(cells, seed=0, label="verify", round_number=number)]
        for place in range(0, len(order), 2)
    )
    assert leads == dict.fromkeys(cells, 3)
