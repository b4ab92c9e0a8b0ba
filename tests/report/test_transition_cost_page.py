"""The page of `joulewise transition-cost`, from records alone."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.points import OperatingPoint
from joulewise.report.transition_cost import (
    TransitionCostRow,
    TransitionCosts,
    latency_text,
    transition_cost_sentence,
)
from joulewise.report.transition_cost_figure import transition_cost_figure
from joulewise.report.transition_cost_page import render_transition_cost


def row(latency_s: float, saving: float | None, naive: float, slow: float) -> TransitionCostRow:
    is_none = saving is None
    return TransitionCostRow(
        latency_s=latency_s,
        saving_ratio=saving,
        slowdown_ratio=None if is_none else 1.006,
        change_count=None if is_none else 12,
        bound_gap_ratio=None if is_none else 0.0001,
        time_s=None if is_none else 1.006,
        energy_j=None if is_none else 100.0 * (1.0 - (saving or 0.0)),
        naive_saving_ratio=naive,
        naive_slowdown_ratio=slow,
        naive_change_count=800,
        naive_bound_gap_ratio=None,
        naive_time_s=slow,
        naive_energy_j=100.0 * (1.0 - naive),
        static_saving_ratio=0.05,
        static_slowdown_ratio=0.98,
        static_change_count=0,
        static_bound_gap_ratio=0.1,
        static_time_s=0.98,
        static_energy_j=95.0,
    )


COSTS = TransitionCosts(
    workload="gpt3-xl",
    device_name="NVIDIA GeForce RTX 3080 Ti",
    is_simulated=True,
    model="stall",
    stall_power_w=60.0,
    max_slowdown_ratio=0.006,
    baseline_time_s=5.36,
    baseline_energy_j=1800.0,
    static_point=OperatingPoint(sm_clock_mhz=1680, mem_clock_mhz=9501),
    rows=(
        row(0.0, 0.16, 0.16, 1.006),
        row(1e-5, 0.155, 0.159, 1.0075),
        row(1e-3, 0.09, 0.13, 1.15),
        row(0.1, 0.05, -2.0, 16.0),
    ),
    caveats=(Caveat(kind=CaveatKind.TRANSITIONS_ASSUMED, seen="Every latency is assumed."),),
)


def sentence(costs: TransitionCosts) -> str:
    text = transition_cost_sentence(costs)
    return text.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")


def test_the_sentence_tells_what_is_left_and_where_the_naive_plan_breaks() -> None:
    assert (
        "Within +0.60 % time, 16.0 % less energy at latency 0; 9.0 % are left at 1 ms, and from "
        "100 ms on changing clocks pays no more; the plan that does not count changes breaks the "
        "budget from 10 \N{MICRO SIGN}s on and takes +1500 % time at worst."
    ) == sentence(COSTS)


def test_the_sentence_fits_tables_of_one_kind() -> None:
    assert (
        "Within +0.60 % time, 16.0 % less energy at latency 0; the plan that does not count "
        "changes keeps the budget as well."
    ) == sentence(replace(COSTS, rows=COSTS.rows[:1]))
    assert (
        "Within +0.60 % time, 5.0 % less energy at latency 100 ms; changing clocks never betters "
        "the best single point; the plan that does not count changes breaks the budget from 100 ms "
        "on and takes +1500 % time at worst."
    ) == sentence(replace(COSTS, rows=COSTS.rows[3:]))
    assert "At no latency does any plan keep a budget of -5.00 % time." == sentence(
        replace(COSTS, max_slowdown_ratio=-0.05, rows=(row(0.0, None, 0.1, 1.0),))
    )


@pytest.mark.parametrize(
    ("latency_s", "expected"),
    [(0.0, "0"), (1e-5, "10 \N{MICRO SIGN}s"), (1e-3, "1 ms"), (0.15, "150 ms"), (2.0, "2 s")],
)
def test_latencies_read_as_they_were_asked_for(latency_s: float, expected: str) -> None:
    assert expected == latency_text(latency_s).replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_the_figure_obeys_plotly_and_keeps_latency_0_at_the_left() -> None:
    figure = transition_cost_figure(COSTS)
    drawn = go.Figure(figure)

    assert 5 == len(drawn.data)
    assert [-6.0, -5.0, -3.0, -1.0] == [round(place, 9) for place in drawn.data[0].x]
    assert "0" == drawn.layout.xaxis.ticktext[0]
    assert [16.0, 15.5, 9.0, 5.0] == [round(value, 9) for value in drawn.data[0].y]
    # The naive plan's energy leaves the figure; its time does not.
    low, high = drawn.layout.yaxis.range
    assert low > -200.0
    assert high > 16.0
    assert list(drawn.data[4].y) == sorted(drawn.data[4].y)
    budget = drawn.layout.shapes[0].y0
    assert pytest.approx(budget) == drawn.data[4].y[0]
    assert budget < drawn.data[4].y[1]


def test_rows_without_a_plan_have_no_mark() -> None:
    costs = replace(COSTS, rows=(*COSTS.rows, row(1.0, None, -20.0, 160.0)))

    assert 4 == len(go.Figure(transition_cost_figure(costs)).data[0].x)
    assert ">none<" in render_transition_cost(costs)


def test_a_gap_is_told_down_to_the_tolerance_and_where_none_was_proven() -> None:
    tight = replace(COSTS.rows[0], bound_gap_ratio=0.00097)
    unproven = replace(COSTS.rows[1], bound_gap_ratio=None)
    page = render_transition_cost(replace(COSTS, rows=(tight, unproven)))

    assert ">0.097\N{NARROW NO-BREAK SPACE}%<" in page
    assert ">unproven<" in page


def test_one_latency_of_0_can_be_drawn() -> None:
    assert (0.0,) == go.Figure(transition_cost_figure(replace(COSTS, rows=COSTS.rows[:1]))).data[
        0
    ].x


def test_the_page_asks_for_nothing_from_elsewhere_and_says_what_it_is() -> None:
    page = render_transition_cost(replace(COSTS, workload="<b>w</b>"))
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)

    assert "default-src 'none'" in html.unescape(page)
    assert not re.search(r"<(link|img|iframe|object|base|a)\b|\bsrc=|href=", markup)
    assert "Simulated." in markup
    assert "&lt;b&gt;w&lt;/b&gt;" in markup
    assert "Every latency is assumed." in markup
    assert "draws 60 W" in markup
    figures = re.search(r'id="figures">(.*?)</script>', page, flags=re.DOTALL)
    assert figures is not None
    assert {"cost-plot"} == set(json.loads(figures[1]))


def test_a_lag_is_told_apart_from_a_stall() -> None:
    markup = render_transition_cost(replace(COSTS, model="lag", stall_power_w=None))

    assert "asks ahead" in markup
    assert "draws 60 W" not in markup
