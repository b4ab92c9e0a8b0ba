"""Plans that count their changes of clocks, on the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from joulewise.cli.sentences import tune_sentence
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.plan import Granularity, Status
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.report.clocks_figure import clocks_figure
from joulewise.report.compare import Role, comparison_rows, kernel_savings
from joulewise.report.inputs import ReportInputs
from joulewise.report.page import render_report
from joulewise.report.provenance import provenance_rows
from joulewise.report.regions import change_indices, plan_regions, stalls_s
from joulewise.report.timeline import change_count, stretches
from joulewise.report.verdict import headline

Make = Callable[..., ReportInputs]
STALL = uniform_transition("ascend", "a test", stall_s=1e-3, energy_j=0.06)
LAG = uniform_transition("slow", "a test", lag_s=2e-3)
OTHER = OperatingPoint(sm_clock_mhz=1050)


def counted(make_inputs: Make, model: TransitionModel | None = STALL) -> ReportInputs:
    return make_inputs(max_slowdown_ratio=0.3, transition=model, is_verified=False)


def at_points(inputs: ReportInputs, *points: OperatingPoint) -> ReportInputs:
    """The plan cut down to one launch of the first kernel per point."""
    first = inputs.plan.launches[0]
    launches = tuple(replace(first, point=point) for point in points)
    return replace(inputs, plan=replace(inputs.plan, launches=launches))


def test_the_timeline_holds_the_stalls_and_ends_with_the_plan(make_inputs: Make) -> None:
    inputs = counted(make_inputs)
    parts = stretches(inputs.plan, inputs.sweep)

    assert inputs.plan.transition_time_s > 0.0
    assert pytest.approx(inputs.plan.time_s) == parts[-1].end_s
    assert pytest.approx(inputs.plan.transition_time_s) == sum(part.stall_s for part in parts)
    for before, after in pairwise(parts):
        assert pytest.approx(after.stall_s) == after.start_s - before.end_s


def test_a_lag_leaves_no_hole_in_the_timeline(make_inputs: Make) -> None:
    inputs = counted(make_inputs, LAG)

    assert {0.0} == {part.stall_s for part in stretches(inputs.plan, inputs.sweep)}


def test_the_change_into_the_first_launch_is_stalled_for_at_the_start(make_inputs: Make) -> None:
    inputs = at_points(counted(make_inputs), AUTO, OTHER)
    parts = stretches(inputs.plan, inputs.sweep)

    assert {0: 1e-3, 1: 1e-3} == stalls_s(inputs.plan)
    assert 1e-3 == parts[0].start_s


def test_stalls_are_in_the_hover_text_of_the_clocks(make_inputs: Make) -> None:
    text = str(clocks_figure(stretches(counted(make_inputs).plan, counted(make_inputs).sweep)))
    free = str(clocks_figure(stretches(make_inputs().plan, make_inputs().sweep)))

    assert "after a stall of 1.000" in text
    assert "after a stall of" not in free


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([AUTO], [(0, 0)]),
        ([AUTO, AUTO, AUTO], [(0, 2)]),
        ([AUTO, AUTO, OTHER], [(0, 1), (2, 2)]),
        ([AUTO, OTHER, OTHER, AUTO], [(1, 2), (3, 0)]),
        ([AUTO, OTHER, AUTO, OTHER], [(0, 0), (1, 1), (2, 2), (3, 3)]),
    ],
)
def test_regions_go_around_the_iteration(
    make_inputs: Make, points: list[OperatingPoint], expected: list[tuple[int, int]]
) -> None:
    plan = at_points(counted(make_inputs), *points).plan

    found = plan_regions(plan)

    assert expected == [(region.first_launch, region.last_launch) for region in found]
    assert [points[first] for first, _ in expected] == [region.point for region in found]


def test_both_ways_to_count_changes_agree(make_inputs: Make) -> None:
    inputs = counted(make_inputs)

    assert change_count(stretches(inputs.plan, inputs.sweep)) == len(change_indices(inputs.plan))
    assert len(inputs.plan.requests) == len(change_indices(inputs.plan))


def test_the_page_says_what_the_changes_take(make_inputs: Make) -> None:
    inputs = counted(make_inputs)
    page = render_report(inputs).replace("\N{NARROW NO-BREAK SPACE}", " ")
    count = len(inputs.plan.requests)

    assert f"{count} times" in page
    assert (
        f"By the assumed transition model &#39;ascend&#39; the changes take {count}.00 ms" in page
    )
    assert "Changing takes no time here" not in page
    assert "Changing the point takes" in page
    assert "They are the sweep&#39;s numbers" not in page


def test_a_measured_model_is_called_so_and_leads_are_named(make_inputs: Make) -> None:
    device_name = make_inputs().plan.device_name
    inputs = counted(make_inputs, replace(LAG, device_name=device_name, is_simulated=True))
    page = render_report(inputs).replace("\N{NARROW NO-BREAK SPACE}", " ")

    assert "By the measured transition model &#39;slow&#39;" in page
    assert "they are asked for up to 2.000 ms ahead" in page


def test_a_simulated_model_makes_no_simulation_of_runs_on_a_real_device(
    make_inputs: Make,
) -> None:
    inputs = make_inputs()
    seen = inputs.verification
    assert seen is not None
    doubt = Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen="The model is of a virtual device.")
    plan = replace(inputs.plan, caveats=(doubt,))

    real = tune_sentence(plan, replace(seen, caveats=()), ())
    virtual = tune_sentence(plan, replace(seen, caveats=(doubt,)), ())

    unrun = headline(plan, None, (), is_table_simulated=False)
    assert real.startswith(f"Measured on {plan.device_name} ({plan.device}). ")
    assert virtual.startswith(f"Simulated {plan.device_name} ({plan.device}). ")
    assert unrun.startswith("Promised, not verified")


def test_a_model_of_another_device_is_an_assumption(make_inputs: Make) -> None:
    page = render_report(counted(make_inputs, replace(LAG, device_name="Another GPU")))

    assert "By the assumed transition model &#39;slow&#39;" in page


def test_rows_of_a_plan_that_counts_changes_say_how_many(make_inputs: Make) -> None:
    inputs = counted(make_inputs)
    clocks = {row.role: row.clocks for row in comparison_rows(inputs)}

    assert f", {len(inputs.plan.requests)} changes" in clocks[Role.PROMISED]
    free = {row.role: row.clocks for row in comparison_rows(make_inputs())}
    assert "change" not in free[Role.PROMISED]


def test_the_origin_of_the_model_is_in_the_provenance(make_inputs: Make) -> None:
    assert "ascend: a test" == dict(provenance_rows(counted(make_inputs)))["Transitions"]
    assert "not counted" == dict(provenance_rows(make_inputs()))["Transitions"]


def test_savings_by_kernel_and_the_changes_add_up_to_the_plan(make_inputs: Make) -> None:
    inputs = counted(make_inputs)
    saved_j = sum(saving.saved_energy_j for saving in kernel_savings(inputs.plan, inputs.sweep))

    assert pytest.approx(inputs.plan.baseline_energy_j - inputs.plan.energy_j) == (
        saved_j - inputs.plan.transition_energy_j
    )


def test_a_region_plan_without_a_model_is_drawn_as_before(make_inputs: Make) -> None:
    page = render_report(make_inputs(granularity=Granularity.REGION, max_slowdown_ratio=0.2))

    assert "Changing takes no time here" in page


def test_a_plan_that_changes_nothing_says_nothing_of_changes(make_inputs: Make) -> None:
    inputs = make_inputs(transition=STALL, status=Status.NO_GAIN, is_verified=False)

    assert {} == stalls_s(inputs.plan)
    assert "transition model" not in render_report(inputs).split("<main>")[1].split("<script")[0]
