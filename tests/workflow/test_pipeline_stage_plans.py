"""Kernel-level plans of a stage as options of its operations."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan_tables import jobs

from joulewise.domain.pipeline import Instruction, PipelineRequest, PipelineShape, StageProfile
from joulewise.domain.points import AUTO
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.plan.pipeline.solve import plan_pipeline
from joulewise.simulator.oracle import open_oracle
from joulewise.workflow.stage_plans import MOST_OPTIONS_COUNT, launches_of, stage_options
from joulewise.workload.gpt3_xl import gpt3_xl

DEVICE = "virtual:rtx3080ti,noise=0"
WORKLOAD = Workload(
    name="stage",
    launches=tuple(
        Launch(kernel=kernel, pass_=pass_)
        for kernel, pass_ in (
            ("k0", Pass.FORWARD),
            ("k1", Pass.COMMUNICATION),
            ("k1", Pass.FORWARD),
            ("k2", Pass.BACKWARD),
            ("k0", Pass.BACKWARD),
            ("k1", Pass.COMMUNICATION),
            ("k2", Pass.OPTIMIZER),
        )
    ),
)


def true_sweep() -> tuple[Sweep, Workload]:
    """GPT-3 XL at batch 1, as the virtual board would run it without noise."""
    workload = gpt3_xl(batch_count=1)
    oracle = open_oracle(DEVICE, workload.works)
    points = oracle.spec.grid.points((None, 1680, 1380, 1050), (None, 5001))
    time_s, energy_j = oracle.table(points)
    sweep = Sweep(
        kernels=oracle.kernels,
        points=points,
        baseline=AUTO,
        source=SweepSource(device=DEVICE, device_name=oracle.spec.name, tool="test"),
        is_present=np.ones(time_s.shape, dtype=np.bool_),
        time_s=time_s,
        energy_j=energy_j,
    )
    return sweep, workload


@st.composite
def stages(draw: st.DrawFn) -> tuple[Sweep, Workload]:
    """A sweep with holes, and an iteration that runs its first kernel in both passes."""
    sweep, workload = draw(jobs())
    ends = [Launch(kernel="k0", pass_=pass_) for pass_ in (Pass.FORWARD, Pass.BACKWARD)]
    return sweep, Workload(name="w", launches=(ends[0], *workload.launches, ends[1]))


@settings(max_examples=40, deadline=None)
@given(stages(), st.sampled_from(Instruction))
def test_options_are_what_their_launches_take_and_hold_the_baseline(
    stage: tuple[Sweep, Workload], instruction: Instruction
) -> None:
    sweep, workload = stage
    found = stage_options(sweep, workload, instruction, "stage.csv")

    launches, _ = launches_of(workload, instruction)
    rows = {kernel: row for row, kernel in enumerate(sweep.kernels)}
    assert 1 <= len(found.options) <= MOST_OPTIONS_COUNT
    assert found.options[found.baseline_index].point == sweep.baseline
    for option in found.options:
        points = [one.point for one in option.launches]
        if option.point is not None:
            points = [option.point] * len(launches)
        cells = [
            (rows[launch.kernel], sweep.points.index(point))
            for launch, point in zip(launches, points, strict=True)
        ]
        assert math.isclose(option.time_s, sum(sweep.time_s[cell] for cell in cells))
        assert math.isclose(option.energy_j, sum(sweep.energy_j[cell] for cell in cells))


@settings(max_examples=40, deadline=None)
@given(stages(), st.sampled_from(Instruction))
def test_options_but_for_the_baseline_trade_time_for_energy(
    stage: tuple[Sweep, Workload], instruction: Instruction
) -> None:
    sweep, workload = stage
    found = stage_options(sweep, workload, instruction, "stage.csv")

    others = [o for i, o in enumerate(found.options) if i != found.baseline_index]
    assert all(a.time_s <= b.time_s and a.energy_j > b.energy_j for a, b in pairwise(others))
    launches, _ = launches_of(workload, instruction)
    rows = [sweep.kernels.index(launch.kernel) for launch in launches]
    fastest_s = sum(sweep.time_s[row].min() for row in rows)
    cheapest_j = sum(sweep.energy_j[row].min() for row in rows)
    assert math.isclose(fastest_s, min(option.time_s for option in found.options))
    assert math.isclose(cheapest_j, min(option.energy_j for option in found.options))


@settings(max_examples=40, deadline=None)
@given(stages(), st.sampled_from(Instruction), st.sampled_from([3, 60]))
def test_no_option_lies_below_the_bound_points(
    stage: tuple[Sweep, Workload], instruction: Instruction, most_options_count: int
) -> None:
    sweep, workload = stage
    found = stage_options(
        sweep, workload, instruction, "stage.csv", most_options_count=most_options_count
    )

    corners = found.bound_points
    assert all(a.time_s < b.time_s and a.energy_j > b.energy_j for a, b in pairwise(corners))
    times, energies = ([getattr(one, name) for one in corners] for name in ("time_s", "energy_j"))
    for option in found.options:
        least_j = float(np.interp(option.time_s, times, energies))
        assert option.energy_j >= least_j * (1 - 1e-9)


def _profiles(
    sweep: Sweep, workload: Workload, most_options_count: int
) -> tuple[StageProfile, ...]:
    """Two equal stages."""
    found = {
        instruction: stage_options(
            sweep, workload, instruction, "stage.csv", most_options_count=most_options_count
        )
        for instruction in Instruction
    }
    return tuple(
        StageProfile(
            stage=stage,
            instruction=instruction,
            options=own.options,
            baseline_index=own.baseline_index,
            bound_points=own.bound_points,
        )
        for stage in range(2)
        for instruction, own in found.items()
    )


def test_the_bound_of_a_few_options_lies_below_a_plan_on_a_much_finer_frontier() -> None:
    sweep, workload = true_sweep()
    wish = PipelineRequest(
        shape=PipelineShape(stage_count=2, micro_batch_count=4), blocking_power_w=95.0
    )
    few, many = (_profiles(sweep, workload, count) for count in (5, 120))
    baseline_s = plan_pipeline(few, wish, profile_name="x").baseline_time_s
    wish = replace(wish, max_time_s=1.05 * baseline_s)

    coarse, fine = (plan_pipeline(one, wish, profile_name="x") for one in (few, many))

    of_sample = plan_pipeline(
        tuple(replace(one, bound_points=()) for one in few), wish, profile_name="x"
    )
    assert coarse.bound_j <= fine.energy_j < of_sample.bound_j
    # Two searches add the same energies up in another order.
    assert math.isclose(coarse.energy_j, of_sample.energy_j, rel_tol=1e-12)


def test_communication_counts_to_the_pass_it_stands_in_and_the_optimizer_to_none() -> None:
    forward, left_out_count = launches_of(WORKLOAD, Instruction.FORWARD)
    backward, _ = launches_of(WORKLOAD, Instruction.BACKWARD)

    assert ["k0", "k1", "k1"] == [launch.kernel for launch in forward]
    assert ["k2", "k0", "k1"] == [launch.kernel for launch in backward]
    assert 1 == left_out_count
