from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from joulewise.domain.plan import Granularity, PlannedLaunch, Status
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.workload import Pass
from joulewise.report.compare import CellReader, clocks_in_use, kernel_savings
from joulewise.report.inputs import ReportInputs
from joulewise.report.timeline import change_count, pass_bands, point_shares, stretches

Make = Callable[..., ReportInputs]
SLOW = OperatingPoint(sm_clock_mhz=1050, mem_clock_mhz=5001)


@pytest.mark.parametrize("granularity", list(Granularity))
def test_stretches_cover_the_iteration_without_gaps(
    make_inputs: Make, granularity: Granularity
) -> None:
    inputs = make_inputs(granularity=granularity, max_slowdown_ratio=0.2)
    parts = stretches(inputs.plan, inputs.sweep)
    assert parts[0].start_s == 0.0
    assert parts[-1].end_s == pytest.approx(inputs.plan.time_s)
    assert all(before.end_s == after.start_s for before, after in pairwise(parts))
    assert sum(part.launch_count for part in parts) == len(inputs.plan.launches)


def test_neighbours_at_one_point_are_one_stretch_per_pass(make_inputs: Make) -> None:
    inputs = make_inputs(status=Status.NO_GAIN)
    parts = stretches(inputs.plan, inputs.sweep)
    assert [part.pass_ for part in parts] == [Pass.FORWARD, Pass.BACKWARD]
    assert [band.pass_ for band in pass_bands(parts)] == [Pass.FORWARD, Pass.BACKWARD]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([AUTO], 0),
        ([AUTO, AUTO], 0),
        ([AUTO, SLOW], 2),
        ([AUTO, SLOW, AUTO], 2),
        ([AUTO, SLOW, AUTO, SLOW], 4),
    ],
)
def test_changes_are_counted_around_the_cycle(
    make_inputs: Make, points: list[OperatingPoint], expected: int
) -> None:
    inputs = make_inputs(status=Status.NO_GAIN)
    kernel = inputs.sweep.kernels[0]
    launches = tuple(
        PlannedLaunch(kernel=kernel, pass_=Pass.FORWARD, point=point) for point in points
    )
    plan = replace(inputs.plan, launches=launches)
    assert change_count(stretches(plan, inputs.sweep)) == expected


def test_shares_by_point_add_up_to_the_plan(make_inputs: Make) -> None:
    inputs = make_inputs(max_slowdown_ratio=0.1)
    shares = point_shares(inputs.plan, inputs.sweep)
    assert len({share.point for share in shares}) == len(shares) > 1
    assert sum(share.time_s for share in shares) == pytest.approx(inputs.plan.time_s)
    assert sum(share.energy_j for share in shares) == pytest.approx(inputs.plan.energy_j)
    assert sum(share.baseline_energy_j for share in shares) == pytest.approx(
        inputs.plan.baseline_energy_j
    )


def test_counting_launches_once_gives_what_going_through_them_one_by_one_does(
    make_inputs: Make,
) -> None:
    inputs = make_inputs(max_slowdown_ratio=0.1)
    # Points that are equal but not the same object, as those of files are.
    launches = tuple(replace(one, point=replace(one.point)) for one in inputs.plan.launches)
    plan, sweep = replace(inputs.plan, launches=launches), inputs.sweep
    reader = CellReader.of(sweep)
    times_s = [reader.cell(one.kernel, one.point)[0] for one in launches]

    shares = {share.point: share for share in point_shares(plan, sweep)}
    savings = {saving.kernel: saving for saving in kernel_savings(plan, sweep)}
    parts = stretches(plan, sweep)

    assert {one.point for one in launches} == set(shares)
    assert f"{len(shares)} operating points" == clocks_in_use(plan)
    for point, share in shares.items():
        own = [s for one, s in zip(launches, times_s, strict=True) if one.point == point]
        assert len(own) == share.launch_count
        assert share.time_s == pytest.approx(sum(own))
    for kernel, saving in savings.items():
        own = [s for one, s in zip(launches, times_s, strict=True) if one.kernel == kernel]
        used = dict.fromkeys(one.point for one in launches if one.kernel == kernel)
        assert len(own) == saving.launch_count
        assert saving.time_s == pytest.approx(sum(own))
        assert tuple(used) == saving.points
    ends = [sum(times_s[: sum(one.launch_count for one in parts[: n + 1])]) for n in range(3)]
    assert [part.end_s for part in parts[:3]] == pytest.approx(ends)
    assert parts == stretches(inputs.plan, sweep)
