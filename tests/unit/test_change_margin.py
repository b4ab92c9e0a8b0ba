"""What changes may take beyond what a plan counts, and that it is held back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.domain.plan import Granularity, PlanRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.transition import (
    ChangeLead,
    TransitionCost,
    TransitionDomain,
    TransitionModel,
)
from joulewise.domain.workload import Launch, Workload
from joulewise.plan.change_margin import change_margin_s, points_between, surcharged
from joulewise.plan.changes import BOTH, SM
from joulewise.plan.table import PlanTable, plan_table
from joulewise.workflow.promise import plan_with_margin

LOW_SM = OperatingPoint(sm_clock_mhz=840)
LOW_MEMORY = OperatingPoint(mem_clock_mhz=5001)
LOW_BOTH = OperatingPoint(sm_clock_mhz=840, mem_clock_mhz=5001)
POINTS = (AUTO, LOW_SM, LOW_MEMORY, LOW_BOTH)
# The first kernel feels the memory clock, the second the SM clock.
TIME_S = np.array([[1.0, 1.0, 2.0, 2.0], [1.0, 4.0, 1.0, 4.0]])
ENERGY_J = np.array([[100.0, 50.0, 100.0, 90.0], [100.0, 200.0, 50.0, 200.0]])
WORKLOAD = Workload(name="two", launches=(Launch(kernel="moves"), Launch(kernel="computes")))
PARTIAL_S = 0.25
LOST_S = 2 * PARTIAL_S * (1 - 1 / 2) + 4 * PARTIAL_S * (1 - 1 / 4)
EXACT = TransitionModel(
    name="exact",
    source="a test",
    costs=tuple(TransitionCost(domain=domain, lag_s=0.5) for domain in TransitionDomain),
)
PARTS = replace(
    EXACT,
    leads=(
        ChangeLead(before=LOW_SM, after=LOW_MEMORY, lead_s=0.5, partial_s=PARTIAL_S),
        ChangeLead(before=LOW_MEMORY, after=LOW_SM, lead_s=0.5, partial_s=PARTIAL_S),
    ),
)
UNSEEN = replace(EXACT, costs=tuple(replace(cost, unseen_stall_s=0.01) for cost in EXACT.costs))


def _sweep(points: tuple[OperatingPoint, ...] = POINTS) -> Sweep:
    columns = [POINTS.index(point) for point in points]
    return Sweep(
        kernels=("moves", "computes"),
        points=points,
        baseline=AUTO,
        source=SweepSource(device="d", device_name="d", tool="tests"),
        is_present=np.ones((2, len(points)), dtype=np.bool_),
        time_s=TIME_S[:, columns].copy(),
        energy_j=ENERGY_J[:, columns].copy(),
    )


def _table(model: TransitionModel, points: tuple[OperatingPoint, ...] = POINTS) -> PlanTable:
    return plan_table(_sweep(points), WORKLOAD, Granularity.KERNEL, model)


def test_what_measuring_could_not_show_is_counted_for_every_change() -> None:
    choice = np.array([1, 2])

    assert 0.02 == pytest.approx(change_margin_s(_table(UNSEEN), choice, UNSEEN))
    assert 0.0 == change_margin_s(_table(UNSEEN), np.array([1, 1]), UNSEEN)
    assert 0.0 == change_margin_s(_table(EXACT), choice, EXACT)
    assert 0.0 == change_margin_s(_table(EXACT), choice, None)


def test_while_a_change_is_in_force_in_parts_work_goes_at_the_slowest_point_in_between() -> None:
    """`moves` may be caught at both clocks low, half as fast; `computes` at a fourth.

    What they are behind by is done at the point after, again half as fast, and at a fourth.
    """
    lost_s = change_margin_s(_table(PARTS), np.array([1, 2]), PARTS)

    assert LOST_S == pytest.approx(lost_s)


def test_where_a_point_in_between_was_not_measured_the_point_after_stands_for_it() -> None:
    """(auto, auto), which lies in between, is no slower than either."""
    table = _table(PARTS, (AUTO, LOW_SM, LOW_MEMORY))
    lost_s = change_margin_s(table, np.array([1, 2]), PARTS)
    assert LOST_S == pytest.approx(lost_s)

    blind = replace(table, points=(OperatingPoint(sm_clock_mhz=1), LOW_SM, LOW_MEMORY))
    lost_s = change_margin_s(blind, np.array([1, 2]), PARTS)
    assert LOST_S == pytest.approx(lost_s)


@given(
    before=st.builds(
        OperatingPoint,
        sm_clock_mhz=st.sampled_from([None, 1]),
        mem_clock_mhz=st.sampled_from([None, 1]),
        power_limit_w=st.sampled_from([None, 1.0]),
    ),
    after=st.builds(
        OperatingPoint,
        sm_clock_mhz=st.sampled_from([None, 1]),
        mem_clock_mhz=st.sampled_from([None, 1]),
        power_limit_w=st.sampled_from([None, 1.0]),
    ),
)
def test_points_in_between_are_all_mixtures_of_both(
    before: OperatingPoint, after: OperatingPoint
) -> None:
    knobs = ("sm_clock_mhz", "mem_clock_mhz", "power_limit_w")
    changed = [knob for knob in knobs if getattr(before, knob) != getattr(after, knob)]

    between = points_between(before, after)

    assert len(set(between)) == len(between) == max(0, 2 ** len(changed) - 2)
    assert not {before, after} & set(between)
    for point in between:
        for knob in knobs:
            assert getattr(point, knob) in (getattr(before, knob), getattr(after, knob))


def test_a_plan_keeps_its_budget_with_all_that_its_changes_may_take() -> None:
    """Each kernel at its own best point saves most, and may be slower by half."""
    for budget_ratio in (0.1, 0.2):
        for model in (EXACT, UNSEEN, PARTS):
            request = PlanRequest(max_slowdown_ratio=budget_ratio, transition=model)
            kept = plan_with_margin(_sweep(), WORKLOAD, request)
            margin_s = change_margin_s(kept.table, kept.solution.choice, model)
            worst_s = kept.solution.time_s + margin_s
            assert worst_s <= (1 + budget_ratio) * kept.table.baseline_time_s + 1e-9
            assert kept.solution.guard_band_ratio >= margin_s / kept.table.baseline_time_s - 1e-9


def test_a_search_charges_changes_of_both_clocks_with_what_they_lose_in_the_mean() -> None:
    table = _table(PARTS)
    assert table.changes is not None
    charged = surcharged(table, PARTS).changes
    assert charged is not None
    added_s = charged.stall_s[BOTH] - table.changes.stall_s[BOTH]

    # To either point, the mean of both kernels by the time that they take at the point before.
    to_memory_s = PARTIAL_S * (1 * (1 / 2) * 2 + 4 * 0.0) / 5
    to_sm_s = PARTIAL_S * (2 * 0.0 + 1 * (3 / 4) * 4) / 3
    assert [0.0, to_sm_s, to_memory_s, 0.0] == pytest.approx(np.nan_to_num(added_s).tolist())
    assert charged.stall_s[SM].tolist() == table.changes.stall_s[SM].tolist()
    assert surcharged(table, UNSEEN) is table


def test_what_is_charged_in_a_search_is_part_of_the_guard_band_and_not_of_the_time() -> None:
    request = PlanRequest(max_slowdown_ratio=0.6, transition=PARTS)
    kept = plan_with_margin(_sweep(), WORKLOAD, request)

    assert [1, 2] == kept.solution.choice.tolist()
    assert kept.solution.time_s == kept.table.totals(kept.solution.choice)[0] == 2.0
    assert LOST_S / 2 <= kept.solution.guard_band_ratio <= 0.6 + 1e-9


def test_changes_that_leave_nothing_open_take_no_guard_band() -> None:
    request = PlanRequest(max_slowdown_ratio=0.1, transition=EXACT)
    kept = plan_with_margin(_sweep(), WORKLOAD, request)

    assert 0.0 == kept.solution.guard_band_ratio
    assert [1, 2] == kept.solution.choice.tolist()
