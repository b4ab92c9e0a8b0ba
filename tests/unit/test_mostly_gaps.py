"""Savings of iterations in which the GPU mostly waits for its host."""

from __future__ import annotations

import numpy as np
import pytest

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.gaps import HOST_GAP
from joulewise.domain.plan import Plan, PlanRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.workload import Launch, Workload
from joulewise.plan.make import make_plan
from joulewise.workflow.mostly_gaps import mostly_gaps, with_gap_doubts

LOW = OperatingPoint(sm_clock_mhz=1000)


def _planned(gap_s: float, gap_j: float, kernel_j: float) -> tuple[Plan, Sweep]:
    """A kernel of 1 s and 100 J, and a gap; what they take at a lower clock, in as much time."""
    kernels = ("k", HOST_GAP)
    sweep = Sweep(
        kernels=kernels,
        points=(AUTO, LOW),
        is_present=np.ones((2, 2), dtype=np.bool_),
        time_s=np.array([[1.0, 1.0], [gap_s, gap_s]]),
        energy_j=np.array([[100.0, kernel_j], [50.0, gap_j]]),
        baseline=AUTO,
        source=SweepSource(device="by hand", device_name="by hand", tool="by hand"),
    )
    workload = Workload(name="w", launches=tuple(Launch(kernel=name) for name in kernels))
    return make_plan(sweep, workload, PlanRequest(), sweep_sha256=""), sweep


def test_most_of_an_iteration_in_gaps_is_told_with_their_share_of_the_saving() -> None:
    plan, sweep = _planned(gap_s=3.0, gap_j=35.0, kernel_j=95.0)

    (doubt,) = mostly_gaps(plan, sweep)

    assert doubt.kind is CaveatKind.MOSTLY_GAPS
    assert doubt.seen == (
        "75% of the saving is in gaps: for 75% of the iteration the GPU waits for its host"
    )
    assert CaveatKind.MOSTLY_GAPS in {one.kind for one in with_gap_doubts(plan, sweep).caveats}


def test_a_saving_of_nothing_in_gaps_claims_no_share() -> None:
    plan, sweep = _planned(gap_s=3.0, gap_j=50.0, kernel_j=95.0)

    assert [one.seen for one in mostly_gaps(plan, sweep)] == [
        "for 75% of the iteration the GPU waits for its host"
    ]


@pytest.mark.parametrize("gap_s", [0.2, 1.0])
def test_gaps_of_half_the_time_or_less_are_no_doubt(gap_s: float) -> None:
    plan, sweep = _planned(gap_s=gap_s, gap_j=35.0, kernel_j=95.0)

    assert not mostly_gaps(plan, sweep)
    assert plan is with_gap_doubts(plan, sweep)
