"""Doubts about a transition model: of which device it is, and for which clocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import PlanError
from joulewise.domain.plan import Granularity, Plan, PlanRequest, Status
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.transition import (
    TransitionCost,
    TransitionDomain,
    TransitionModel,
    uniform_transition,
)
from joulewise.plan.change_doubts import frontier_change_doubts, plan_change_doubts
from joulewise.plan.make import frontier_caveats, make_plan

LOW = OperatingPoint(sm_clock_mhz=1000)
MEM = OperatingPoint(mem_clock_mhz=5001)
BOARD = "A board"
SWEEP = Sweep(
    kernels=("gemm", "gelu"),
    points=(AUTO, LOW, MEM),
    baseline=AUTO,
    source=SweepSource(device="lab", device_name=BOARD, tool="test"),
    is_present=np.ones((2, 3), dtype=np.bool_),
    time_s=np.array([[2.0, 3.0, 1.9], [1.0, 1.1, 2.0]]),
    energy_j=np.array([[8.0, 6.0, 7.0], [4.0, 2.0, 4.0]]),
)
ALL = tuple(
    TransitionCost(domain=domain, target=target, stall_s=0.01)
    for domain, targets in (
        (TransitionDomain.SM, (AUTO, LOW)),
        (TransitionDomain.MEMORY, (AUTO, MEM)),
        (TransitionDomain.BOTH, (LOW, MEM)),
    )
    for target in (*targets, None)
)
MEASURED = TransitionModel(name="measured", source="a test", costs=ALL, device_name=BOARD)
PRESET = uniform_transition("hopper", "a test", stall_s=0.01)
OF_MODELS = {
    CaveatKind.TRANSITIONS_ASSUMED,
    CaveatKind.TRANSITIONS_NOT_COUNTED,
    CaveatKind.SIMULATED_DEVICE,
}


def planned(model: TransitionModel | None, sweep: Sweep = SWEEP) -> Plan:
    request = PlanRequest(max_slowdown_ratio=0.05, transition=model)
    return make_plan(sweep, None, request, sweep_sha256="0" * 64)


def said(caveats: tuple[Caveat, ...]) -> dict[CaveatKind, str]:
    return {caveat.kind: caveat.seen for caveat in caveats if caveat.kind in OF_MODELS}


def without(model: TransitionModel, target: OperatingPoint) -> TransitionModel:
    return replace(model, costs=tuple(cost for cost in model.costs if cost.target != target))


def test_a_model_measured_here_for_these_clocks_leaves_no_doubt() -> None:
    plan = planned(MEASURED)

    assert (LOW, MEM) == (plan.launches[1].point, plan.launches[0].point)
    assert {} == said(plan.caveats)
    assert {} == said(frontier_caveats(SWEEP, Granularity.KERNEL, MEASURED))


def test_a_model_of_another_device_is_assumed_here() -> None:
    other = replace(MEASURED, device_name="Another board")

    assert {
        CaveatKind.TRANSITIONS_ASSUMED: "The plan changes clocks 2 times an iteration; each change "
        "is taken to cost what the model 'measured' says, measured on Another board."
    } == said(planned(other).caveats)
    assert {CaveatKind.TRANSITIONS_ASSUMED} == set(
        said(frontier_caveats(SWEEP, Granularity.KERNEL, other))
    )


def test_a_model_of_no_device_is_assumed_everywhere() -> None:
    assert {
        CaveatKind.TRANSITIONS_ASSUMED: "The plan changes clocks 2 times an iteration; each change "
        "is taken to cost what the model 'hopper' says."
    } == said(planned(PRESET).caveats)


def test_a_model_of_a_virtual_device_says_so_in_plans_on_measured_sweeps() -> None:
    virtual = replace(MEASURED, device_name="Virtual board", is_simulated=True)
    same_name = replace(MEASURED, is_simulated=True)
    unnamed = replace(PRESET, is_simulated=True)

    for caveats in (
        planned(virtual).caveats,
        frontier_caveats(SWEEP, Granularity.KERNEL, virtual),
    ):
        assert (
            "was measured on Virtual board, a virtual device"
            in (said(caveats)[CaveatKind.SIMULATED_DEVICE])
        )
        assert CaveatKind.TRANSITIONS_ASSUMED in said(caveats)
    assert {
        CaveatKind.SIMULATED_DEVICE: "The transition model 'hopper' was measured on a virtual "
        "device.",
        CaveatKind.TRANSITIONS_ASSUMED: "The plan changes clocks 2 times an iteration; each change "
        "is taken to cost what the model 'hopper' says, measured on a virtual device.",
    } == said(planned(unnamed).caveats)
    # A virtual board of the name is not the board.
    assert {CaveatKind.SIMULATED_DEVICE, CaveatKind.TRANSITIONS_ASSUMED} == set(
        said(planned(same_name).caveats)
    )


def test_a_model_of_a_virtual_device_is_trusted_on_its_own_sweeps() -> None:
    sweep = replace(SWEEP, source=replace(SWEEP.source, is_simulated=True))
    virtual = replace(MEASURED, is_simulated=True)

    assert CaveatKind.TRANSITIONS_ASSUMED not in said(planned(virtual, sweep=sweep).caveats)
    assert CaveatKind.TRANSITIONS_ASSUMED in said(planned(MEASURED, sweep=sweep).caveats)


def test_clocks_that_were_not_among_those_measured_are_told() -> None:
    partial = without(MEASURED, MEM)

    assert {
        CaveatKind.TRANSITIONS_ASSUMED: "The plan changes clocks 2 times an iteration, and 1 of "
        "these changes are to clocks that the model 'measured' has no measurement of; its entries "
        "for all other clocks stand for them."
    } == said(planned(partial).caveats)
    assert {
        CaveatKind.TRANSITIONS_ASSUMED: "Plans between the ends use several operating points, and "
        "1 of the 3 points of the sweep have clocks that the model 'measured' has no measurement "
        "of; its entries for all other clocks stand for them."
    } == said(frontier_caveats(SWEEP, Granularity.KERNEL, partial))


def test_only_clocks_that_the_plan_goes_to_are_missed() -> None:
    """It goes from LOW to MEM and back; what a change to AUTO costs is no matter."""
    assert {} == said(planned(without(MEASURED, AUTO)).caveats)


@pytest.mark.parametrize(
    "model",
    [None, PRESET, MEASURED, replace(MEASURED, device_name="Virtual board", is_simulated=True)],
)
def test_a_plan_of_one_point_has_no_doubt_about_changes(model: TransitionModel | None) -> None:
    assert () == plan_change_doubts(SWEEP, (LOW, LOW, LOW), model)
    assert () == plan_change_doubts(SWEEP, (LOW,), model)
    assert () == frontier_change_doubts(SWEEP, Granularity.ITERATION, model)


@pytest.mark.parametrize("stall_s", [10.0, 100.0])
def test_a_plan_without_gain_has_no_doubt_about_changes(stall_s: float) -> None:
    """Nothing but the baseline is within the budget where a change takes that long."""
    slow = uniform_transition("slow", "a test", stall_s=stall_s)
    plan = make_plan(
        replace(SWEEP, time_s=np.array([[2.0, 3.0, 2.3], [1.0, 1.1, 2.0]])),
        None,
        PlanRequest(max_slowdown_ratio=0.0, transition=replace(slow, is_simulated=True)),
        sweep_sha256="0" * 64,
    )

    assert Status.NO_GAIN is plan.status
    assert {} == said(plan.caveats)


def test_a_hole_in_a_model_is_the_same_error_wherever_it_is_met() -> None:
    hole = TransitionModel(name="half", source="a test", costs=ALL[:3])
    errors = []
    for attempt in (
        lambda: plan_change_doubts(SWEEP, (LOW, MEM), hole),
        lambda: frontier_change_doubts(SWEEP, Granularity.KERNEL, hole),
        lambda: planned(hole),
    ):
        with pytest.raises(PlanError, match="'half' says nothing of a change of") as caught:
            attempt()
        errors.append(caught.value.hint)
    assert all("without a target" in (hint or "") for hint in errors)


def test_a_target_that_no_point_has_is_named() -> None:
    misspelt = OperatingPoint(mem_clock_mhz=5002)
    model = replace(
        PRESET,
        costs=(
            *PRESET.costs,
            TransitionCost(domain=TransitionDomain.MEMORY, target=misspelt, stall_s=0.01),
        ),
    )

    seen = said(planned(model).caveats)[CaveatKind.TRANSITIONS_ASSUMED]

    assert "an entry for memory to auto/5002, which no point has" in seen
    assert "no point has" not in said(planned(PRESET).caveats)[CaveatKind.TRANSITIONS_ASSUMED]


def test_what_measuring_could_not_show_is_told_with_its_amount() -> None:
    costs = tuple(replace(cost, unseen_stall_s=0.001, unseen_energy_j=0.25) for cost in ALL)
    model = replace(MEASURED, costs=costs)

    seen = said(planned(model).caveats)[CaveatKind.TRANSITIONS_ASSUMED]

    assert "Its changes may take up to 2 ms and 0.5 J in all more than" in seen
    frontier = said(frontier_change_doubts(SWEEP, Granularity.KERNEL, model))
    assert "may take more than the model" in frontier[CaveatKind.TRANSITIONS_ASSUMED]


def test_counted_changes_without_a_workload_are_those_of_an_iteration_that_nobody_runs() -> None:
    kinds = {caveat.kind for caveat in planned(PRESET).caveats}
    uncounted = {caveat.kind for caveat in planned(None).caveats}

    assert CaveatKind.WORKLOAD_ASSUMED in kinds
    assert CaveatKind.WORKLOAD_ASSUMED not in uncounted
