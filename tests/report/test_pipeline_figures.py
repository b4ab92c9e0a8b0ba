"""The figures of a pipeline's report: valid plotly, and what they draw is what the plan says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import plotly.graph_objects as go
import pytest
from tests.pipeline_plans import nested_plan, toy_plan

from joulewise.domain.pipeline import Instruction, PipelinePlan, PlannedOperation
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.report.figures import Figure
from joulewise.report.pipeline_colours import colour_scale
from joulewise.report.pipeline_frontier import pipeline_frontier_figure
from joulewise.report.pipeline_gantt import MOST_OPERATIONS, gantt_figure
from joulewise.report.pipeline_rows import clocks_in_use, operation_rows, waiting_time_s

Trace = Mapping[str, Sequence[float]]


def _traces(figure: Figure | None) -> list[Trace]:
    assert figure is not None
    return cast("list[Trace]", figure["data"])


def _named(figure: Figure | None, name: str) -> Trace:
    return next(trace for trace in _traces(figure) if cast("object", trace["name"]) == name)


PLANS: dict[str, PipelinePlan] = {
    "toy": toy_plan(),
    "nested": nested_plan(),
    "no baseline": replace(toy_plan(), baseline_operations=()),
    "no frontier": replace(toy_plan(), frontier=()),
    "auto": replace(
        toy_plan(), operations=tuple(replace(one, point=AUTO) for one in toy_plan().operations)
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_figure_is_valid_plotly(name: str) -> None:
    for figure in (gantt_figure(PLANS[name]), pipeline_frontier_figure(PLANS[name])):
        assert len(go.Figure(figure).data) == len(_traces(figure))


@pytest.mark.parametrize("instruction", Instruction)
def test_every_operation_is_a_bar_on_its_stage(instruction: Instruction) -> None:
    plan = toy_plan()

    bars = _named(gantt_figure(plan), f"plan: {instruction}")

    own = [one for one in plan.operations if one.instruction is instruction]
    assert [one.stage for one in own] == list(bars["y"])
    assert [one.start_s * 1e3 for one in own] == pytest.approx(list(bars["base"]))
    assert [one.time_s * 1e3 for one in own] == pytest.approx(list(bars["x"]))


@pytest.mark.parametrize("panel", ["baseline", "plan"])
def test_bars_and_waits_fill_every_stage(panel: str) -> None:
    plan = toy_plan()
    figure = gantt_figure(plan)
    end_s = plan.time_s if panel == "plan" else plan.baseline_time_s

    filled = dict.fromkeys(range(plan.request.shape.stage_count), 0.0)
    for name in (f"{panel}: waiting", f"{panel}: forward", f"{panel}: backward"):
        bars = _named(figure, name)
        for stage, length in zip(bars["y"], bars["x"], strict=True):
            filled[int(stage)] += length / 1e3

    assert all(math.isclose(end_s, length_s) for length_s in filled.values())


def test_waits_come_to_what_the_plan_charges_for_them() -> None:
    plan = toy_plan()

    waits = _named(gantt_figure(plan), "plan: waiting")

    waiting_s = waiting_time_s(plan, plan.operations, plan.time_s)
    assert math.isclose(waiting_s, sum(waits["x"]) / 1e3)
    busy_j = sum(one.energy_j for one in plan.operations)
    assert math.isclose(plan.energy_j, busy_j + waiting_s * plan.request.blocking_power_w)


def test_the_colour_is_the_clock_that_the_operations_differ_in() -> None:
    operations = toy_plan().operations
    by_memory = [
        replace(one, point=OperatingPoint(sm_clock_mhz=1000, mem_clock_mhz=5001 + one.micro_batch))
        for one in operations
    ]

    assert "SM clock (MHz)" == colour_scale(operations).title
    assert "memory clock (MHz)" == colour_scale(by_memory).title
    for one in operations:
        assert one.point is not None
        assert one.point.sm_clock_mhz == colour_scale(operations).value(one)


def test_colours_run_from_the_lowest_to_the_highest() -> None:
    operations = sorted(toy_plan().operations, key=_clock)
    scale = colour_scale(operations)

    assert "#27457c" == scale.colour(operations[0])
    assert "#c8691c" == scale.colour(operations[-1])
    assert "#1c7f84" == replace(scale, value=lambda _: 1200.0).colour(operations[0])


def _clock(one: PlannedOperation) -> int:
    assert one.point is not None
    assert one.point.sm_clock_mhz is not None
    return one.point.sm_clock_mhz


def test_auto_stands_above_every_clock() -> None:
    one, *others = toy_plan().operations
    scale = colour_scale([replace(one, point=AUTO), *others])

    assert scale.value(replace(one, point=AUTO)) > max(scale.value(other) for other in others)
    assert "auto" == scale.ticks[-1][1]


def test_kernel_level_plans_are_coloured_by_their_power() -> None:
    plan = nested_plan()

    scale = colour_scale(plan.operations)

    assert "mean power (W)" == scale.title
    assert all(scale.value(one) == one.energy_j / one.time_s for one in plan.operations)


def test_too_many_operations_are_not_drawn() -> None:
    plan = toy_plan()
    many = plan.operations * (MOST_OPERATIONS // len(plan.operations) + 1)

    assert gantt_figure(replace(plan, operations=many)) is None


def test_the_frontier_figure_marks_plan_baseline_and_bound() -> None:
    plan = toy_plan()
    figure = pipeline_frontier_figure(plan)

    for name, place in (
        ("plan", (plan.time_s, plan.energy_j)),
        ("baseline", (plan.baseline_time_s, plan.baseline_energy_j)),
        ("bound", (plan.max_time_s, plan.bound_j)),
    ):
        mark = _named(figure, name)
        assert place == (mark["x"][0], mark["y"][0])
    line = _named(figure, "plans")
    assert [point.energy_j for point in plan.frontier] == list(line["y"])


def test_rows_add_operations_up() -> None:
    plan = toy_plan()

    rows = operation_rows(plan)

    assert 2 * plan.request.shape.stage_count == len(rows)
    assert math.isclose(
        sum(row.energy_j for row in rows), sum(one.energy_j for one in plan.operations)
    )
    assert math.isclose(sum(row.time_s for row in rows), sum(one.time_s for one in plan.operations))


def test_few_clocks_are_listed_and_many_are_counted() -> None:
    row = operation_rows(toy_plan())[0]
    listed = [(OperatingPoint(sm_clock_mhz=clock), 1) for clock in (1400, 1000, 1200, 1300)]

    assert "1000, 1200, 1400 MHz" == clocks_in_use(replace(row, points=tuple(listed[:3])))
    assert "1000 … 1400 MHz (4)" == clocks_in_use(replace(row, points=tuple(listed)))
    mixed = (*listed[:1], (OperatingPoint(mem_clock_mhz=5001), 1))
    assert "1400 MHz, auto/5001" == clocks_in_use(replace(row, points=mixed))
    assert "2 kernel plans" == clocks_in_use(replace(row, points=(), kernel_plan_count=2))
