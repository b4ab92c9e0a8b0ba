"""Options, budgets, stragglers, chunks and errors of pipeline plans."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InfeasibleBudget, PlanError
from joulewise.domain.pipeline import (
    BoundPoint,
    Instruction,
    OperationOption,
    PipelineRequest,
    PipelineSchedule,
    PipelineShape,
    StageProfile,
    Straggler,
)
from joulewise.domain.plan import PlannedLaunch, Status
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Pass
from joulewise.plan.pipeline.graph import Operation, operation_graph
from joulewise.plan.pipeline.options import pass_options
from joulewise.plan.pipeline.solve import pipeline_frontier, pipeline_points, plan_pipeline

BLOCKING_POWER_W = 80.0
# Fast, on the hull, undominated but above the hull, slower and costlier than the one before.
OPTIONS = (
    OperationOption(time_s=1.5, energy_j=500.0),
    OperationOption(time_s=1.0, energy_j=400.0, point=OperatingPoint(sm_clock_mhz=1410)),
    OperationOption(time_s=1.2, energy_j=300.0, point=OperatingPoint(sm_clock_mhz=1200)),
    OperationOption(time_s=1.3, energy_j=298.0, point=OperatingPoint(sm_clock_mhz=1100)),
    OperationOption(time_s=1.4, energy_j=230.0, point=OperatingPoint(sm_clock_mhz=1000)),
)


def profiles(stage_count: int = 2) -> tuple[StageProfile, ...]:
    return tuple(
        StageProfile(stage=stage, instruction=instruction, options=OPTIONS, baseline_index=1)
        for stage in range(stage_count)
        for instruction in Instruction
    )


def request(stage_count: int = 2, micro_batch_count: int = 3) -> PipelineRequest:
    shape = PipelineShape(stage_count=stage_count, micro_batch_count=micro_batch_count)
    return PipelineRequest(shape=shape, blocking_power_w=BLOCKING_POWER_W)


def test_options_are_the_undominated_ones_beyond_waiting_and_the_hull_the_convex_ones() -> None:
    options = pass_options(profiles(), request())[0, Instruction.FORWARD]

    net_j = [o.energy_j - BLOCKING_POWER_W * o.time_s for o in OPTIONS]
    assert [1, 2, 3, 4] == options.indices.tolist()
    assert [net_j[i] for i in (1, 2, 3, 4)] == options.net_j.tolist()
    assert [0, 1, 3] == options.hull.tolist()


def test_one_operation_after_the_other_has_no_waiting_and_a_plan_by_hand() -> None:
    # One stage, one micro-batch: two operations in a row, 2.65 s for both.
    one = replace(request(1, 1), max_time_s=2.65)

    plan = plan_pipeline(profiles(1), one, profile_name="by hand")

    assert {1200, 1000} == {o.point.sm_clock_mhz for o in plan.operations if o.point}
    assert (2.6, 530.0) == pytest.approx((plan.time_s, plan.energy_j))
    assert [0.0, plan.operations[0].time_s] == [o.start_s for o in plan.operations]
    assert (2.0, 800.0) == pytest.approx((plan.baseline_time_s, plan.baseline_energy_j))
    assert 1.3 == pytest.approx(plan.slowdown_ratio)
    assert 1 - 530 / 800 == pytest.approx(plan.saving_ratio)


def test_time_that_costs_more_waiting_than_it_saves_is_not_used() -> None:
    # Waiting of ten stages costs more than slower operations save.
    lazy = replace(request(10, 1), max_time_s=1000.0, blocking_power_w=200.0)

    plan = plan_pipeline(profiles(10), lazy, profile_name="lazy")

    assert plan.time_s < 22.0
    assert Status.NO_GAIN is plan.status
    assert plan.baseline_energy_j == plan.energy_j


def test_a_plan_that_is_proven_says_so() -> None:
    longest = replace(request(1, 1), max_time_s=2.8)

    plan = plan_pipeline(profiles(1), longest, profile_name="all frugal")

    assert Status.OPTIMAL is plan.status
    assert 460.0 == pytest.approx(plan.energy_j)


def test_a_straggler_leaves_the_others_time_to_save_energy() -> None:
    wish = request(4, 6)
    slow = replace(wish, stragglers=(Straggler(stage=1, slowdown_ratio=1.3),))

    plans = [plan_pipeline(profiles(4), one, profile_name="stragglers") for one in (wish, slow)]

    others_j = [sum(o.energy_j for o in plan.operations if o.stage != 1) for plan in plans]
    assert others_j[1] < others_j[0]
    assert plans[1].time_s <= plans[1].baseline_time_s
    # At the same clock the straggler takes longer by its ratio, at the same power.
    first = next(o for o in plans[1].operations if o.stage == 1)
    option = next(o for o in OPTIONS if o.point == first.point)
    assert 1.3 * option.time_s == pytest.approx(first.time_s)
    assert 1.3 * option.energy_j == pytest.approx(first.energy_j)


def test_each_chunk_does_an_equal_share_of_its_stages_work() -> None:
    shape = PipelineShape(
        stage_count=2,
        micro_batch_count=4,
        schedule=PipelineSchedule.INTERLEAVED,
        chunk_count=2,
    )
    plain = plan_pipeline(profiles(), request(2, 4), profile_name="whole")
    chunked = plan_pipeline(profiles(), replace(request(), shape=shape), profile_name="chunks")

    assert 2 * len(plain.operations) == len(chunked.operations)
    # Half of the bubble: one stage's passes of 1 s each, halved.
    assert plain.baseline_time_s - 1.0 == pytest.approx(chunked.baseline_time_s)
    waiting_j = 2 * BLOCKING_POWER_W * 1.0
    assert plain.baseline_energy_j - waiting_j == pytest.approx(chunked.baseline_energy_j)


def test_a_kernel_level_plan_is_listed_once_and_pointed_at() -> None:
    launches = (
        PlannedLaunch(kernel="k", pass_=Pass.FORWARD, point=OperatingPoint(sm_clock_mhz=900)),
    )
    nested = tuple(
        replace(p, options=(*p.options[:4], replace(p.options[4], point=None, launches=launches)))
        for p in profiles()
    )

    plan = plan_pipeline(nested, replace(request(), max_time_s=99.0), profile_name="nested")

    assert 4 == len(plan.kernel_plans)
    for operation in plan.operations:
        assert operation.launches_index is not None
        own = plan.kernel_plans[operation.launches_index]
        assert (operation.stage, operation.instruction) == (own.stage, own.instruction)
        assert (operation.time_s, operation.energy_j) == (own.time_s, own.energy_j)
        assert launches == own.launches
        assert operation.point is None


def test_plans_carry_their_request_name_and_caveats() -> None:
    caveat = Caveat(kind=CaveatKind.NO_UNCERTAINTY, seen="none")

    plan = plan_pipeline(profiles(), request(), profile_name="mine", caveats=(caveat,))

    assert ("mine", (caveat,), request()) == (plan.profile_name, plan.caveats, plan.request)


def test_dependencies_of_ones_own_can_be_planned() -> None:
    operations = [
        Operation(stage=stage, instruction=Instruction.FORWARD, micro_batch=0) for stage in (0, 1)
    ]
    side_by_side = operation_graph(operations, [])

    plan = plan_pipeline(profiles(), request(), profile_name="own", graph=side_by_side)

    assert 1.0 == plan.baseline_time_s
    assert [0.0, 0.0] == [o.start_s for o in plan.operations]


def test_the_same_request_has_the_same_plan() -> None:
    one, other = (plan_pipeline(profiles(4), request(4, 8), profile_name="x") for _ in range(2))

    assert one == other


def test_points_for_budgets_come_in_their_order() -> None:
    budgets_s = [9.5, 8.0, 11.0]

    points = pipeline_points(profiles(), request(), budgets_s=budgets_s)

    assert budgets_s == [point.max_time_s for point in points]
    assert all(point.time_s <= point.max_time_s * (1 + 1e-12) for point in points)


def test_a_frontier_ends_at_the_requests_time() -> None:
    points = pipeline_frontier(profiles(), replace(request(), max_time_s=9.0), point_count=5)

    assert np.all([point.time_s <= 9.0 * (1 + 1e-12) for point in points])


def test_a_profile_without_choice_has_a_frontier_of_one_point() -> None:
    fixed = tuple(replace(p, options=p.options[1:2], baseline_index=0) for p in profiles())

    points = pipeline_frontier(fixed, request(), point_count=10)

    assert [8.0] == [point.time_s for point in points]
    assert 0.0 == points[0].saving_ratio


def test_the_bound_holds_for_ways_to_run_that_are_no_options() -> None:
    # Cheaper at 1.3 s than any option: plans cannot take it, bounds must not lie above it.
    richer = tuple(
        replace(p, bound_points=(BoundPoint(time_s=1.3, energy_j=220.0),)) for p in profiles(1)
    )
    cheaper = tuple(
        replace(p, options=(*OPTIONS, OperationOption(time_s=1.3, energy_j=220.0)))
        for p in profiles(1)
    )
    wish = replace(request(1, 3), max_time_s=7.8)

    plan, best = (plan_pipeline(found, wish, profile_name="x") for found in (richer, cheaper))
    poorer = plan_pipeline(profiles(1), wish, profile_name="x")

    assert poorer.energy_j == plan.energy_j
    assert best.energy_j < poorer.bound_j
    assert plan.bound_j <= best.energy_j
    assert Status.FEASIBLE is plan.status


def test_kernel_level_plans_do_not_interleave() -> None:
    launches = (
        PlannedLaunch(kernel="k", pass_=Pass.FORWARD, point=OperatingPoint(sm_clock_mhz=900)),
    )
    nested = tuple(
        replace(p, options=(*OPTIONS[:4], replace(OPTIONS[4], launches=launches)))
        for p in profiles()
    )
    shape = PipelineShape(
        stage_count=2,
        micro_batch_count=4,
        schedule=PipelineSchedule.INTERLEAVED,
        chunk_count=2,
    )

    with pytest.raises(PlanError, match="stage 0 runs kernel-level plans") as caught:
        plan_pipeline(nested, replace(request(), shape=shape), profile_name="x")

    assert "schedule" == caught.value.field


def test_a_frontier_tells_of_every_budget_twice_and_of_stages_that_change_clocks() -> None:
    told: list[tuple[str, int, int]] = []
    alone = tuple(replace(p, options=OPTIONS[1:2], baseline_index=0) for p in profiles())

    points = pipeline_points(
        profiles(),
        request(),
        budgets_s=[8.5, 9.0, 99.0],
        progress=lambda what, done_count, total_count: told.append((what, done_count, total_count)),
    )

    assert ("pipeline frontier", 0, 6) == told[0]
    assert ("pipeline frontier", 6, 6) == told[-1]
    assert len(told) >= 5
    assert [2, 2, 0] == [point.changing_stage_count for point in points]
    assert [0] == [
        point.changing_stage_count for point in pipeline_frontier(alone, request(), point_count=3)
    ]


def test_a_budget_just_below_the_fastest_is_told_apart_from_it() -> None:
    tight = replace(request(), max_time_s=8.0 - 1e-9)

    with pytest.raises(InfeasibleBudget, match=r"in 7.999999999 s: .* it takes 8 s"):
        plan_pipeline(profiles(), tight, profile_name="tight")


def test_a_budget_below_the_fastest_says_what_the_fastest_takes() -> None:
    tight = replace(request(), max_time_s=7.9)

    with pytest.raises(InfeasibleBudget) as caught:
        plan_pipeline(profiles(), tight, profile_name="tight")

    assert (
        "no plan finishes an iteration in 7.9 s: with every operation at its fastest it takes 8 s"
        == caught.value.message
    )
    assert "Allow at least 8 s." == caught.value.hint
    assert 1.0 == caught.value.least_slowdown_ratio


def test_the_fastest_possible_time_is_a_possible_budget() -> None:
    plan = plan_pipeline(profiles(), replace(request(), max_time_s=8.0), profile_name="fastest")

    assert 8.0 == plan.time_s


@pytest.mark.parametrize("time_s", [math.nan, math.inf])
def test_a_time_must_be_a_number(time_s: float) -> None:
    with pytest.raises(PlanError, match="the time for one iteration must be a number, got"):
        plan_pipeline(profiles(), replace(request(), max_time_s=time_s), profile_name="x")


def slowed(*pairs: tuple[int, float]) -> PipelineRequest:
    stragglers = tuple(Straggler(stage=stage, slowdown_ratio=ratio) for stage, ratio in pairs)
    return replace(request(), stragglers=stragglers)


@pytest.mark.parametrize(
    ("found", "wish", "message"),
    [
        (profiles()[:3], request(), "stage 1 has no profile of its backward"),
        (profiles(), request(3), "stage 2 has no profile of its forward"),
        ((*profiles(), profiles()[0]), request(), "stage 0 has two profiles of its forward"),
        (
            profiles(3),
            request(),
            "there is a profile of stage 2, but the pipeline has 2 stages, counted from 0",
        ),
        (
            (replace(profiles()[0], options=()), *profiles()[1:]),
            request(),
            "the profile of stage 0, forward, has no options",
        ),
        (
            (replace(profiles()[0], baseline_index=5), *profiles()[1:]),
            request(),
            "the profile of stage 0, forward, has 5 options and no baseline 5",
        ),
        (
            (
                replace(profiles()[0], options=(OperationOption(time_s=0.0, energy_j=1.0),) * 2),
                *profiles()[1:],
            ),
            request(),
            (
                "the profile of stage 0, forward, has an option of 0.0 s and 1.0 J;"
                " both must be positive numbers"
            ),
        ),
        (
            profiles(),
            slowed((2, 1.1)),
            "there is no stage 2 to slow down: the pipeline has 2 stages, counted from 0",
        ),
        (profiles(), slowed((1, 1.1), (1, 1.2)), "stage 1 is slowed down twice"),
        (
            profiles(),
            slowed((1, -0.1)),
            "a straggler's slowdown must be a positive number, got -0.1",
        ),
    ],
)
def test_what_does_not_fit_together_is_named(
    found: tuple[StageProfile, ...], wish: PipelineRequest, message: str
) -> None:
    with pytest.raises(PlanError) as caught:
        plan_pipeline(found, wish, profile_name="wrong")

    assert message == caught.value.message


def test_a_graph_of_stages_that_the_pipeline_lacks_is_refused() -> None:
    graph = operation_graph(
        [Operation(stage=7, instruction=Instruction.FORWARD, micro_batch=0)], []
    )

    with pytest.raises(PlanError, match="forward of micro-batch 0 on stage 7 is on none of the 2"):
        plan_pipeline(profiles(), request(), profile_name="x", graph=graph)


def test_a_frontier_needs_two_points() -> None:
    with pytest.raises(PlanError, match="at least 2 points, got 1"):
        pipeline_frontier(profiles(), request(), point_count=1)


def test_planning_prints_nothing() -> None:
    code = (
        "from tests.unit.test_pipeline_solve import *\n"
        "plan_pipeline(profiles(), request(), profile_name='quiet')"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ("", "") == (done.stdout, done.stderr)
