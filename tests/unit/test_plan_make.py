"""From a sweep and a wish to a plan: launches, totals and caveats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.plan import (
    Granularity,
    PlannedLaunch,
    PlannedRequest,
    PlanRequest,
    Status,
)
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.transition import uniform_transition
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.plan.make import frontier_caveats, make_plan

LOW = OperatingPoint(sm_clock_mhz=1000)
MEM = OperatingPoint(mem_clock_mhz=5001)
ITERATION = Workload(
    name="two kernels",
    launches=(
        Launch(kernel="gemm"),
        Launch(kernel="gelu"),
        Launch(kernel="gemm", pass_=Pass.BACKWARD),
    ),
)
HASH = "0" * 64


def sweep(*, std: float | None = None) -> Sweep:
    scatter = None if std is None else np.full((2, 3), std)
    return Sweep(
        kernels=("gemm", "gelu"),
        points=(AUTO, LOW, MEM),
        baseline=AUTO,
        source=SweepSource(device="lab", device_name="A board", tool="test"),
        is_present=np.ones((2, 3), dtype=np.bool_),
        time_s=np.array([[2.0, 3.0, 1.9], [1.0, 1.1, 2.0]]),
        energy_j=np.array([[8.0, 6.0, 7.0], [4.0, 2.0, 4.0]]),
        time_std_s=scatter,
        energy_std_j=scatter,
    )


def kinds(caveats: tuple[Caveat, ...]) -> list[CaveatKind]:
    return [caveat.kind for caveat in caveats]


def test_a_plan_names_a_point_for_every_launch_in_order() -> None:
    plan = make_plan(sweep(), ITERATION, PlanRequest(), sweep_sha256=HASH)
    assert plan.launches == (
        PlannedLaunch(kernel="gemm", pass_=Pass.FORWARD, point=MEM),
        PlannedLaunch(kernel="gelu", pass_=Pass.FORWARD, point=LOW),
        PlannedLaunch(kernel="gemm", pass_=Pass.BACKWARD, point=MEM),
    )
    assert (plan.status, plan.workload, plan.device) == (Status.OPTIMAL, "two kernels", "lab")
    assert (plan.baseline_time_s, plan.baseline_energy_j) == (5.0, 20.0)
    assert (plan.time_s, plan.energy_j) == (4.9, 16.0)
    assert plan.slowdown_ratio == 4.9 / 5.0
    assert plan.saving_ratio == 1.0 - 16.0 / 20.0
    assert (plan.sweep_sha256, plan.guard_band_ratio, plan.bound_gap_ratio) == (HASH, 0.0, 0.0)


def test_a_pass_shares_one_point() -> None:
    request = PlanRequest(granularity=Granularity.PASS, max_slowdown_ratio=1.0)
    plan = make_plan(sweep(), ITERATION, request, sweep_sha256=HASH)
    points = {(launch.pass_, launch.point) for launch in plan.launches}
    assert points == {(Pass.FORWARD, LOW), (Pass.BACKWARD, LOW)}


def test_without_a_workload_each_kernel_runs_once() -> None:
    plan = make_plan(sweep(), None, PlanRequest(), sweep_sha256=HASH)
    assert plan.workload == "each kernel once"
    assert [launch.kernel for launch in plan.launches] == ["gemm", "gelu"]


def test_a_table_without_scatter_says_so() -> None:
    plan = make_plan(sweep(), ITERATION, PlanRequest(), sweep_sha256=HASH)
    assert kinds(plan.caveats) == [
        CaveatKind.NOT_VERIFIED,
        CaveatKind.NO_UNCERTAINTY,
        CaveatKind.TRANSITIONS_NOT_COUNTED,
    ]


def test_scatter_without_a_guard_band_is_selection_bias() -> None:
    noisy = sweep(std=0.01)
    naive = make_plan(noisy, ITERATION, PlanRequest(), sweep_sha256=HASH)
    assert CaveatKind.SELECTION_BIAS in kinds(naive.caveats)
    guarded = make_plan(noisy, ITERATION, PlanRequest(), sweep_sha256=HASH, guard_band_ratio=0.001)
    assert CaveatKind.SELECTION_BIAS not in kinds(guarded.caveats)
    assert guarded.guard_band_ratio == 0.001


def test_windows_that_agree_to_the_last_digit_are_no_luck() -> None:
    silent = replace(sweep(std=0.0), window_count=np.full((2, 3), 3))
    once = replace(sweep(std=0.0), window_count=np.ones((2, 3), dtype=np.int64))

    assert CaveatKind.SELECTION_BIAS not in kinds(
        make_plan(silent, ITERATION, PlanRequest(), sweep_sha256=HASH).caveats
    )
    assert CaveatKind.SELECTION_BIAS in kinds(
        make_plan(once, ITERATION, PlanRequest(), sweep_sha256=HASH).caveats
    )


def test_one_point_for_all_needs_no_transition() -> None:
    request = PlanRequest(granularity=Granularity.ITERATION)
    plan = make_plan(sweep(), ITERATION, request, sweep_sha256=HASH)
    assert CaveatKind.TRANSITIONS_NOT_COUNTED not in kinds(plan.caveats)


def test_simulated_sources_and_assumed_baselines_are_marked() -> None:
    virtual = SweepSource(
        device="virtual:x", device_name="Virtual X", tool="test", is_simulated=True
    )
    plan = make_plan(
        replace(sweep(), source=virtual, baseline=MEM), ITERATION, PlanRequest(), sweep_sha256=HASH
    )
    assert {CaveatKind.SIMULATED_DEVICE, CaveatKind.BASELINE_ASSUMED} <= set(kinds(plan.caveats))
    assert plan.baseline == MEM


def test_doubts_about_chosen_cells_are_added_up_by_kind() -> None:
    capped = Caveat(kind=CaveatKind.POWER_CAPPED, seen="at 350 W")
    unheld = Caveat(kind=CaveatKind.CLOCK_NOT_HELD, seen="ran at 420")
    doubtful = replace(
        sweep(),
        cell_caveats={
            ("gemm", MEM): (capped, capped),
            ("gelu", LOW): (capped, unheld),
            ("gelu", MEM): (unheld,),
        },
    )
    plan = make_plan(doubtful, ITERATION, PlanRequest(), sweep_sha256=HASH)
    seen = {caveat.kind: caveat.seen for caveat in plan.caveats}
    assert seen[CaveatKind.POWER_CAPPED] == "2 of 2 chosen cells."
    assert seen[CaveatKind.CLOCK_NOT_HELD] == "1 of 2 chosen cells."


def test_the_callers_and_the_sweeps_caveats_come_first_and_once() -> None:
    own = Caveat(kind=CaveatKind.OUTLIERS_SEEN, seen="by the caller")
    known = Caveat(kind=CaveatKind.UNCALIBRATED, seen="by the sweep")
    again = Caveat(kind=CaveatKind.OUTLIERS_SEEN, seen="by the sweep")
    plan = make_plan(
        replace(sweep(), caveats=(known, again)),
        ITERATION,
        PlanRequest(),
        sweep_sha256=HASH,
        caveats=(own,),
    )
    assert plan.caveats[:2] == (own, known)
    assert kinds(plan.caveats).count(CaveatKind.OUTLIERS_SEEN) == 1


STALLING = uniform_transition("my-gpu", "a test", stall_s=0.01, energy_j=0.25)
LAGGING = uniform_transition("late", "a test", lag_s=0.75)
SEVERAL = PlanRequest(granularity=Granularity.KERNEL, max_slowdown_ratio=0.05)


def test_a_plan_counts_its_changes_and_says_what_they_add() -> None:
    request = replace(SEVERAL, transition=STALLING)
    plan = make_plan(sweep(), ITERATION, request, sweep_sha256=HASH)

    assert [MEM, LOW, MEM] == [launch.point for launch in plan.launches]
    assert (0.02, 0.5) == (plan.transition_time_s, plan.transition_energy_j)
    assert plan.time_s == pytest.approx(4.9 + 0.02)
    assert plan.energy_j == pytest.approx(16.0 + 0.5)
    assert plan.requests == (
        PlannedRequest(launch_index=1, lead_s=0.0, point=LOW),
        PlannedRequest(launch_index=2, lead_s=0.0, point=MEM),
    )


def test_requests_lead_by_the_lag() -> None:
    request = replace(SEVERAL, transition=LAGGING)
    plan = make_plan(sweep(), ITERATION, request, sweep_sha256=HASH)

    assert (0.0, 0.0) == (plan.transition_time_s, plan.transition_energy_j)
    assert plan.requests == (
        PlannedRequest(launch_index=1, lead_s=0.75, point=LOW),
        PlannedRequest(launch_index=2, lead_s=0.75, point=MEM),
    )


def test_without_a_model_the_requests_are_there_and_cost_nothing() -> None:
    plan = make_plan(sweep(), ITERATION, PlanRequest(), sweep_sha256=HASH)

    assert [(1, LOW), (2, MEM)] == [(one.launch_index, one.point) for one in plan.requests]
    assert (0.0, 0.0) == (plan.transition_time_s, plan.transition_energy_j)


def test_changes_whose_costs_were_not_measured_here_are_a_doubt() -> None:
    plan = make_plan(sweep(), ITERATION, replace(SEVERAL, transition=STALLING), sweep_sha256=HASH)

    seen = {caveat.kind: caveat.seen for caveat in plan.caveats}
    assert CaveatKind.TRANSITIONS_NOT_COUNTED not in seen
    assert seen[CaveatKind.TRANSITIONS_ASSUMED] == (
        "The plan changes clocks 2 times an iteration; "
        "each change is taken to cost what the model 'my-gpu' says."
    )


def test_a_plan_that_never_changes_has_no_requests_and_no_doubt_about_them() -> None:
    slow = replace(SEVERAL, transition=uniform_transition("slow", "a test", stall_s=10.0))
    plan = make_plan(sweep(), ITERATION, slow, sweep_sha256=HASH)

    assert 1 == len({launch.point for launch in plan.launches})
    assert () == plan.requests
    assert not {CaveatKind.TRANSITIONS_ASSUMED, CaveatKind.TRANSITIONS_NOT_COUNTED} & set(
        kinds(plan.caveats)
    )


def test_a_frontier_says_what_its_changes_are_taken_to_cost() -> None:
    granularity = Granularity.KERNEL
    assumed = {c.kind: c.seen for c in frontier_caveats(sweep(), granularity, STALLING)}
    uncounted = {c.kind: c.seen for c in frontier_caveats(sweep(), granularity)}

    assert assumed[CaveatKind.TRANSITIONS_ASSUMED] == (
        "Plans between the ends use several operating points; "
        "each change is taken to cost what the model 'my-gpu' says."
    )
    assert CaveatKind.TRANSITIONS_NOT_COUNTED not in assumed
    assert uncounted[CaveatKind.TRANSITIONS_NOT_COUNTED] == (
        "Plans between the ends use several operating points; changing them is free here."
    )
    iteration = frontier_caveats(sweep(), Granularity.ITERATION, STALLING)
    transitions = {CaveatKind.TRANSITIONS_ASSUMED, CaveatKind.TRANSITIONS_NOT_COUNTED}
    assert not transitions & set(kinds(iteration))
