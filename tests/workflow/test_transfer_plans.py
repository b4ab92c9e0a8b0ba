"""Which points a carried-over plan has, and when it has none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plans import bare_plan

from joulewise.domain.errors import InputError
from joulewise.domain.plan import Plan, PlannedLaunch, PlanRequest
from joulewise.domain.points import OperatingPoint
from joulewise.domain.transition import uniform_transition
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.plan.requests import planned_requests
from joulewise.workflow.transfer import carried_plan
from joulewise.workflow.truth import is_noise_free, true_iterations
from joulewise.workload.gpt3_xl import gpt3_xl
from joulewise.workload.published_transfer import gpt3_xl_transfer

FILE = Path("plan.json")
Row = tuple[str, Pass, int | None]
KERNELS = ("a", "b", "c")


def _plan(rows: Sequence[Row], request: PlanRequest | None = None) -> Plan:
    launches = [
        PlannedLaunch(kernel=kernel, pass_=pass_, point=OperatingPoint(sm_clock_mhz=clock))
        for kernel, pass_, clock in rows
    ]
    plan = bare_plan(launches, request)
    points = tuple(launch.point for launch in launches)
    return replace(plan, requests=planned_requests(points, plan.request.transition))


def _workload(launches: Sequence[tuple[str, Pass]]) -> Workload:
    return Workload(
        name="other",
        launches=tuple(Launch(kernel=kernel, pass_=pass_) for kernel, pass_ in launches),
    )


passes = st.sampled_from([Pass.FORWARD, Pass.BACKWARD])
clocks = st.sampled_from([None, 1000, 1500])
places = st.tuples(st.sampled_from(KERNELS), passes)


@given(st.lists(st.tuples(st.sampled_from(KERNELS), passes, clocks), min_size=1, max_size=9))
def test_the_same_launches_keep_their_points_one_by_one(rows: list[Row]) -> None:
    plan = _plan(rows)

    carried = carried_plan(plan, _workload([row[:2] for row in rows]), FILE)

    assert replace(plan, workload="other") == carried


@given(st.dictionaries(places, clocks, min_size=1), st.data())
def test_other_launches_of_the_same_kernels_take_the_point_of_their_kernel(
    points: dict[tuple[str, Pass], int | None], data: st.DataObject
) -> None:
    plan = _plan([(*place, clock) for place, clock in points.items()])
    more = data.draw(st.lists(st.sampled_from(sorted(points)), max_size=6))

    carried = carried_plan(plan, _workload([*more, *points]), FILE)

    assert [points[place] for place in (*more, *points)] == [
        launch.point.sm_clock_mhz for launch in carried.launches
    ]
    own = tuple(launch.point for launch in carried.launches)
    assert planned_requests(own, None) == carried.requests


def test_a_schedule_keeps_its_leads_on_the_same_launches_of_another_size() -> None:
    model = uniform_transition(name="late", source="test", lag_s=0.2)
    rows = [("a", Pass.FORWARD, 1000), ("b", Pass.FORWARD, None)]
    plan = _plan(rows, PlanRequest(transition=model))

    carried = carried_plan(plan, _workload([row[:2] for row in rows]), FILE)

    assert [(0, 0.2), (1, 0.2)] == [(one.launch_index, one.lead_s) for one in carried.requests]


def test_launches_at_several_points_do_not_carry_over_to_other_launches() -> None:
    plan = _plan([("a", Pass.FORWARD, 1000), ("b", Pass.FORWARD, None), ("a", Pass.FORWARD, 1500)])

    with pytest.raises(InputError, match="'a' at several points") as caught:
        carried_plan(plan, _workload([("a", Pass.FORWARD), ("b", Pass.FORWARD)]), FILE)

    assert "launches" == caught.value.field


def test_a_schedule_of_changes_does_not_carry_over_to_other_launches() -> None:
    model = uniform_transition(name="slow", source="test", stall_s=1e-3)
    plan = _plan([("a", Pass.FORWARD, 1000)], PlanRequest(transition=model))

    with pytest.raises(InputError, match="launch by launch"):
        carried_plan(plan, _workload([("a", Pass.FORWARD)] * 2), FILE)


@pytest.mark.parametrize(
    ("launches", "missing"),
    [
        ([("a", Pass.FORWARD), ("b", Pass.FORWARD)], "'b'"),
        ([("a", Pass.BACKWARD)], "backward"),
        ([("b", Pass.FORWARD)], "'b'"),
    ],
)
def test_kernels_that_differ_are_named(launches: list[tuple[str, Pass]], missing: str) -> None:
    plan = _plan([("a", Pass.FORWARD, 1000), ("a", Pass.FORWARD, 1000)])

    with pytest.raises(InputError, match=missing):
        carried_plan(plan, _workload(launches), FILE)


def test_a_kernel_that_the_target_lacks_is_named() -> None:
    plan = _plan([("a", Pass.FORWARD, 1000), ("b", Pass.FORWARD, 1000)])

    with pytest.raises(InputError, match="the plan launches 'b'"):
        carried_plan(plan, _workload([("a", Pass.FORWARD)]), FILE)


def test_the_truth_of_two_kinds_of_launches_adds_up() -> None:
    workload = gpt3_xl(batch_count=1)
    launches = [Launch(kernel=one.kernel, pass_=one.pass_) for one in workload.launches[:3]]
    rows = [(one.kernel, one.pass_, 1500) for one in launches]
    parts = [true_iterations("virtual:rtx3080ti", workload, _plan([row])) for row in rows]

    baseline, planned = true_iterations("virtual:rtx3080ti", workload, _plan(rows))

    for whole, side in ((baseline, 0), (planned, 1)):
        assert math.isclose(whole[0], sum(part[side][0] for part in parts))
        assert math.isclose(whole[1], sum(part[side][1] for part in parts))


@pytest.mark.parametrize(
    ("device", "is_free"),
    [
        ("virtual:rtx3080ti,noise=0", True),
        ("virtual:rtx3080ti,noise=0,seed=3", True),
        ("virtual:rtx3080ti", False),
        ("virtual:rtx3080ti,noise=0,shift=1%", False),
        ("virtual:rtx3080ti,noise=0,lost_after=3", False),
        ("gpu0", False),
    ],
)
def test_only_a_device_that_does_nothing_else_shows_its_truth(
    device: str, *, is_free: bool
) -> None:
    assert is_free == is_noise_free(device)


def test_published_spreads_hold_their_means() -> None:
    study = gpt3_xl_transfer()

    assert 12 == len(study.rows)
    for row in study.rows:
        assert row.slowdown.best_ratio <= row.slowdown.mean_ratio <= row.slowdown.worst_ratio
        assert row.saving.worst_ratio <= row.saving.mean_ratio <= row.saving.best_ratio


@pytest.mark.data
def test_published_figures_are_those_of_the_measured_table(measured_data: Path) -> None:
    table = measured_data / "spaan2026" / "fig78_parallelism.csv"
    lines = table.read_text("utf-8").splitlines()[1:]

    for row, line in zip(gpt3_xl_transfer().rows, lines, strict=True):
        axis, value, *percents = line.split(",")
        degrees = (int(value), 1) if axis == "batch" else (40, int(value))
        assert degrees == (row.batch_count, row.tensor_parallel_count)
        slow, saved = row.slowdown, row.saving
        seen = [one - 1 for one in (slow.mean_ratio, slow.best_ratio, slow.worst_ratio)]
        seen += [-one for one in (saved.mean_ratio, saved.best_ratio, saved.worst_ratio)]
        assert [float(one) / 100 for one in percents] == pytest.approx(seen, abs=1e-9)
