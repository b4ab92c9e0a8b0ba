"""Laws of the pipeline planner, against brute force on tiny pipelines."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulewise.domain.pipeline import (
    Instruction,
    OperationOption,
    PipelinePlan,
    PipelineRequest,
    PipelineSchedule,
    PipelineShape,
    StageProfile,
    Straggler,
)
from joulewise.domain.plan import Status
from joulewise.plan.pipeline.problem import pipeline_problem
from joulewise.plan.pipeline.program import PipelineProgram
from joulewise.plan.pipeline.solve import pipeline_frontier, pipeline_points, plan_pipeline

Profiles = tuple[StageProfile, ...]
Key = tuple[int, str, int]
Numbers = NDArray[np.float64]
OPTION_COUNT = 3

numbers = st.integers(min_value=1, max_value=400).map(lambda n: n / 100.0)
option_lists = st.lists(
    st.builds(
        lambda time_s, power_w: OperationOption(time_s=time_s, energy_j=time_s * power_w),
        numbers,
        st.integers(min_value=20, max_value=500).map(float),
    ),
    min_size=OPTION_COUNT,
    max_size=OPTION_COUNT,
)


def profiles_of(stage_count: int) -> st.SearchStrategy[Profiles]:
    return st.lists(option_lists, min_size=2 * stage_count, max_size=2 * stage_count).map(
        lambda lists: tuple(
            StageProfile(
                stage=place // 2,
                instruction=tuple(Instruction)[place % 2],
                options=tuple(options),
                baseline_index=place % OPTION_COUNT,
            )
            for place, options in enumerate(lists)
        )
    )


requests = st.builds(
    lambda schedule, blocking_power_w: PipelineRequest(
        shape=PipelineShape(
            stage_count=2,
            micro_batch_count=2,
            schedule=schedule,
            chunk_count=2 if schedule is PipelineSchedule.INTERLEAVED else 1,
        ),
        blocking_power_w=blocking_power_w,
    ),
    st.sampled_from([PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.GPIPE]),
    st.sampled_from([0.0, 15.0, 80.0, 600.0]),
)


def iteration_times(request: PipelineRequest, times: dict[Key, Numbers]) -> Numbers:
    """Play two stages of two micro-batches through, by hand."""
    last = "F0 B0 F1 B1" if request.shape.schedule is PipelineSchedule.ONE_F_ONE_B else ""
    queues = [
        {"1f1b": "F0 F1 B0 B1", "gpipe": "F0 F1 B1 B0"}[request.shape.schedule].split(),
        (last or "F0 F1 B1 B0").split(),
    ]
    ends: dict[tuple[int, str, int], np.ndarray] = {}
    free = [np.zeros(1), np.zeros(1)]
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue:
                kind, micro_batch = queue[0][0], int(queue[0][1])
                source = {
                    (0, "F"): None,
                    (1, "F"): (0, "F", micro_batch),
                    (1, "B"): (1, "F", micro_batch),
                    (0, "B"): (1, "B", micro_batch),
                }[stage, kind]
                if source is not None and source not in ends:
                    break
                arrival = np.zeros(1) if source is None else ends[source]
                key = (stage, kind, micro_batch)
                ends[key] = np.maximum(free[stage], arrival) + times[key]
                free[stage] = ends[key]
                queue.pop(0)
    last_s: Numbers = np.maximum(free[0], free[1])
    return last_s


def all_plans(profiles: Profiles, request: PipelineRequest) -> tuple[np.ndarray, np.ndarray]:
    """Times and energies of every plan."""
    keys = list(product((0, 1), "FB", (0, 1)))
    choices = np.array(list(product(range(OPTION_COUNT), repeat=len(keys))))
    options = {(p.stage, p.instruction[0].upper()): p.options for p in profiles}
    times, own_j, busy_s = {}, 0.0, 0.0
    for column, key in zip(choices.T, keys, strict=True):
        own = options[key[:2]]
        times[key] = np.array([option.time_s for option in own])[column]
        own_j = own_j + np.array([option.energy_j for option in own])[column]
        busy_s = busy_s + times[key]
    iteration_s = iteration_times(request, times)
    # Each stage draws blocking power whenever it does not work.
    return iteration_s, own_j + request.blocking_power_w * (2 * iteration_s - busy_s)


def played(plan: PipelinePlan) -> tuple[float, float]:
    """Time and energy of a plan from its operations alone."""
    times = {
        (o.stage, o.instruction[0].upper(), o.micro_batch): np.array(o.time_s)
        for o in plan.operations
    }
    time_s = iteration_times(plan.request, times).item()
    busy_s = sum(o.time_s for o in plan.operations)
    waiting_j = plan.request.blocking_power_w * (2 * time_s - busy_s)
    return time_s, sum(o.energy_j for o in plan.operations) + waiting_j


@settings(max_examples=40, deadline=None)
@given(profiles_of(2), requests, st.floats(min_value=0.0, max_value=1.0))
def test_plans_lie_between_the_optimum_and_the_budget_and_bounds_below(
    profiles: Profiles, request: PipelineRequest, share: float
) -> None:
    times, energies = all_plans(profiles, request)
    max_time_s = times.min() + share * (times.max() - times.min())
    request = replace(request, max_time_s=max_time_s)

    plan = plan_pipeline(profiles, request, profile_name="tiny")

    optimum_j = energies[times <= max_time_s * (1 + 1e-12)].min()
    assert plan.time_s <= max_time_s * (1 + 1e-12)
    assert plan.bound_j <= optimum_j * (1 + 1e-9)
    assert optimum_j == pytest.approx(plan.energy_j, rel=1e-9)  # as small as it is, it is solved
    assert plan.status in {Status.OPTIMAL, Status.NO_GAIN}
    assert (plan.energy_j - plan.bound_j) / plan.energy_j == pytest.approx(
        plan.bound_gap_ratio, abs=1e-9
    )
    assert played(plan) == pytest.approx((plan.time_s, plan.energy_j))
    if plan.status is Status.OPTIMAL:
        assert plan.energy_j == pytest.approx(optimum_j, rel=1e-8)


@settings(max_examples=30, deadline=None)
@given(profiles_of(2), requests)
def test_without_a_budget_a_plan_keeps_the_baselines_time_and_never_costs_more(
    profiles: Profiles, request: PipelineRequest
) -> None:
    plan = plan_pipeline(profiles, request, profile_name="tiny")

    assert plan.baseline_time_s == plan.max_time_s
    assert plan.time_s <= plan.baseline_time_s * (1 + 1e-12)
    assert plan.energy_j <= plan.baseline_energy_j
    assert (Status.NO_GAIN is plan.status) == (plan.energy_j == plan.baseline_energy_j)


@settings(max_examples=25, deadline=None)
@given(profiles_of(2), requests)
def test_the_frontier_falls_and_none_of_it_is_dominated(
    profiles: Profiles, request: PipelineRequest
) -> None:
    points = pipeline_frontier(profiles, request, point_count=9)

    times, energies = all_plans(profiles, request)
    assert points[0].time_s == pytest.approx(times.min())
    for point in points:
        assert point.time_s <= point.max_time_s * (1 + 1e-12)
        assert point.bound_j <= point.energy_j
        assert np.isclose(times, point.time_s).any()
    for before, after in pairwise(points):
        assert before.time_s < after.time_s
        assert before.energy_j > after.energy_j
    assert energies.min() <= points[-1].energy_j * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(profiles_of(2), requests)
def test_more_time_never_raises_the_bound(profiles: Profiles, request: PipelineRequest) -> None:
    times, _ = all_plans(profiles, request)
    budgets_s = np.linspace(times.min(), times.max(), 7).tolist()

    points = pipeline_points(profiles, request, budgets_s=budgets_s)

    bounds_j = [point.bound_j for point in points]
    assert all(b <= a * (1 + 1e-7) for a, b in pairwise(bounds_j))


def bound_j(profiles: Profiles, request: PipelineRequest, slack_ratio: float) -> float:
    problem = pipeline_problem(profiles, request)
    return PipelineProgram(problem).solve(problem.least_time_s() * slack_ratio).bound_j


@settings(max_examples=20, deadline=None)
@given(
    profiles_of(2),
    requests,
    st.floats(min_value=1.0, max_value=2.0),
    st.sampled_from([1e-4, 0.03, 7.0, 1000.0]),
)
def test_units_do_not_matter(
    profiles: Profiles, request: PipelineRequest, slack_ratio: float, scale: float
) -> None:
    longer = tuple(
        replace(
            p,
            options=tuple(
                replace(o, time_s=o.time_s * scale, energy_j=o.energy_j * scale) for o in p.options
            ),
        )
        for p in profiles
    )

    one, other = (bound_j(p, request, slack_ratio) for p in (profiles, longer))

    assert one * scale == pytest.approx(other, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(profiles_of(2), requests, st.floats(min_value=0.5, max_value=3.0), st.integers(0, 1))
def test_a_straggler_is_a_stage_whose_options_all_take_longer_at_the_same_power(
    profiles: Profiles, request: PipelineRequest, slowdown_ratio: float, stage: int
) -> None:
    straggler = Straggler(stage=stage, slowdown_ratio=slowdown_ratio)
    slowed = tuple(
        replace(
            p,
            options=tuple(
                replace(o, time_s=o.time_s * slowdown_ratio, energy_j=o.energy_j * slowdown_ratio)
                for o in p.options
            ),
        )
        if p.stage == stage
        else p
        for p in profiles
    )

    one = plan_pipeline(profiles, replace(request, stragglers=(straggler,)), profile_name="tiny")
    other = plan_pipeline(slowed, request, profile_name="tiny")

    assert other.operations == one.operations
    assert (other.time_s, other.energy_j) == (one.time_s, one.energy_j)


def test_nearly_every_tiny_pipeline_is_planned_at_its_optimum() -> None:
    random = np.random.default_rng(0)
    wish = PipelineRequest(
        shape=PipelineShape(stage_count=2, micro_batch_count=2), blocking_power_w=80.0
    )
    excess = []
    for _ in range(40):
        found = tuple(
            StageProfile(
                stage=stage,
                instruction=instruction,
                options=tuple(
                    OperationOption(time_s=time_s, energy_j=time_s * power_w)
                    for time_s, power_w in zip(
                        random.uniform(0.5, 2.0, OPTION_COUNT).tolist(),
                        random.uniform(90.0, 400.0, OPTION_COUNT).tolist(),
                        strict=True,
                    )
                ),
            )
            for stage in (0, 1)
            for instruction in Instruction
        )
        times, energies = all_plans(found, wish)
        max_time_s = float(times.min() + random.uniform() * (times.max() - times.min()))
        plan = plan_pipeline(found, replace(wish, max_time_s=max_time_s), profile_name="tiny")
        excess.append(plan.energy_j / energies[times <= max_time_s * (1 + 1e-12)].min() - 1.0)

    assert np.mean(np.array(excess) < 1e-9) >= 0.9
    assert max(excess) < 0.05
