from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from joulewise.domain.errors import PlanError
from joulewise.domain.plan import Granularity, Status
from joulewise.domain.points import OperatingPoint
from joulewise.report.compare import (
    Role,
    comparison_rows,
    equal_slowdown_ratio,
    kernel_savings,
    static_points,
)
from joulewise.report.inputs import ReportInputs

Make = Callable[..., ReportInputs]


def _roles(inputs: ReportInputs) -> list[Role]:
    return [row.role for row in comparison_rows(inputs)]


def test_rows_come_in_the_order_in_which_they_are_compared(make_inputs: Make) -> None:
    assert _roles(make_inputs()) == list(Role)


def test_a_plan_that_nobody_verified_has_no_verified_row(make_inputs: Make) -> None:
    assert _roles(make_inputs(is_verified=False)) == list(Role)[:-1]


def test_static_points_are_sums_over_all_launches(make_inputs: Make) -> None:
    inputs = make_inputs()
    rows = {kernel: row for row, kernel in enumerate(inputs.sweep.kernels)}
    for column, static in enumerate(static_points(inputs.plan, inputs.sweep)):
        cells = [(rows[launch.kernel], column) for launch in inputs.plan.launches]
        assert static.point == inputs.sweep.points[column]
        assert static.time_s == pytest.approx(sum(inputs.sweep.time_s[cell] for cell in cells))
        assert static.energy_j == pytest.approx(sum(inputs.sweep.energy_j[cell] for cell in cells))


def test_a_point_that_one_kernel_lacks_is_no_static_point(make_inputs: Make) -> None:
    inputs = make_inputs()
    present = inputs.sweep.is_present.copy()
    lost = next(
        column
        for column, point in enumerate(inputs.sweep.points)
        if point
        not in {inputs.sweep.baseline, *(planned.point for planned in inputs.plan.launches)}
    )
    present[2, lost] = False
    time_s, energy_j = inputs.sweep.time_s.copy(), inputs.sweep.energy_j.copy()
    time_s[2, lost] = energy_j[2, lost] = np.inf
    sweep = replace(inputs.sweep, is_present=present, time_s=time_s, energy_j=energy_j)
    expected = [point for column, point in enumerate(sweep.points) if column != lost]
    assert [static.point for static in static_points(inputs.plan, sweep)] == expected


def test_rivals_are_the_cheapest_within_the_slowdown_of_the_plan(make_inputs: Make) -> None:
    inputs = make_inputs(max_slowdown_ratio=0.05)
    limit_ratio = equal_slowdown_ratio(inputs.plan, inputs.verification)
    by_role = {row.role: row for row in comparison_rows(inputs)}
    statics = static_points(inputs.plan, inputs.sweep)
    assert by_role[Role.BEST_STATIC].energy_j == min(
        static.energy_j for static in statics if static.slowdown_ratio <= limit_ratio
    )
    assert inputs.best_pass is not None
    assert inputs.best_pass.slowdown_ratio == by_role[Role.BEST_PASS].slowdown_ratio
    assert inputs.best_pass.energy_j == pytest.approx(by_role[Role.BEST_PASS].energy_j)


def test_rivals_get_the_time_that_the_plan_in_truth_took(make_inputs: Make) -> None:
    inputs = make_inputs(max_slowdown_ratio=0.006)
    assert inputs.verification is not None
    late = replace(inputs.verification, slowdown_ratio=1.02)
    assert equal_slowdown_ratio(inputs.plan, None) == 1.006
    assert equal_slowdown_ratio(inputs.plan, late) == 1.02


def test_a_plan_without_budget_is_compared_at_its_own_slowdown(make_inputs: Make) -> None:
    inputs = make_inputs(max_slowdown_ratio=None, is_verified=False)
    assert equal_slowdown_ratio(inputs.plan, None) == inputs.plan.slowdown_ratio


def test_a_rival_that_cannot_keep_up_has_no_row(make_inputs: Make) -> None:
    inputs = make_inputs(is_verified=False, max_slowdown_ratio=-0.5)
    fast = replace(inputs.plan, slowdown_ratio=0.5)
    rushed = replace(inputs, plan=fast, best_pass=None)
    assert _roles(rushed) == [Role.BASELINE, Role.PROMISED]


@pytest.mark.parametrize("granularity", list(Granularity))
def test_savings_by_kernel_add_up_to_the_plan(make_inputs: Make, granularity: Granularity) -> None:
    inputs = make_inputs(granularity=granularity)
    savings = kernel_savings(inputs.plan, inputs.sweep)
    saved_energy_j = sum(saving.saved_energy_j for saving in savings)
    assert saved_energy_j == pytest.approx(inputs.plan.baseline_energy_j - inputs.plan.energy_j)
    assert sum(saving.time_s for saving in savings) == pytest.approx(inputs.plan.time_s)
    assert sum(saving.launch_count for saving in savings) == len(inputs.plan.launches)


def test_savings_by_kernel_come_largest_first(make_inputs: Make) -> None:
    inputs = make_inputs()
    saved = [saving.saved_energy_j for saving in kernel_savings(inputs.plan, inputs.sweep)]
    assert saved == sorted(saved, reverse=True)


def test_a_kernel_at_two_points_is_one_row_with_both(make_inputs: Make) -> None:
    inputs = make_inputs(status=Status.NO_GAIN)
    other = inputs.sweep.points[-1]
    first, *rest = inputs.plan.launches
    twice = (first, replace(first, point=other), *rest)
    savings = kernel_savings(replace(inputs.plan, launches=twice), inputs.sweep)
    both = next(saving for saving in savings if saving.kernel == first.kernel)
    cells = inputs.sweep.energy_j[0]
    assert both.points == (first.point, other)
    assert both.energy_j == pytest.approx(cells[inputs.sweep.baseline_index] + cells[-1])


def test_a_plan_of_another_sweep_is_refused_by_name(make_inputs: Make) -> None:
    inputs = make_inputs()
    foreign = OperatingPoint(sm_clock_mhz=123)
    launches = tuple(replace(launch, point=foreign) for launch in inputs.plan.launches)
    with pytest.raises(PlanError, match=r"'embedding' at 123/auto, which the sweep does not hold"):
        kernel_savings(replace(inputs.plan, launches=launches), inputs.sweep)
    unknown = tuple(replace(launch, kernel="unheard-of") for launch in inputs.plan.launches)
    with pytest.raises(PlanError, match="'unheard-of', which the sweep does not hold"):
        static_points(replace(inputs.plan, launches=unknown), inputs.sweep)
