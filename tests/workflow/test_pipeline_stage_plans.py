"""Kernel-level plans of a stage as options of its operations."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan_tables import jobs

from joulewise.domain.pipeline import Instruction
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.workflow.stage_plans import MOST_OPTIONS_COUNT, launches_of, stage_options

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


def test_communication_counts_to_the_pass_it_stands_in_and_the_optimizer_to_none() -> None:
    forward, left_out_count = launches_of(WORKLOAD, Instruction.FORWARD)
    backward, _ = launches_of(WORKLOAD, Instruction.BACKWARD)

    assert ["k0", "k1", "k1"] == [launch.kernel for launch in forward]
    assert ["k2", "k0", "k1"] == [launch.kernel for launch in backward]
    assert 1 == left_out_count
