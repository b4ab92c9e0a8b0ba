"""A workload's facts, figures and page."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.traced_workloads import traced_workload, work

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.trace import TracedLaunch
from joulewise.domain.workload import KernelKind, Launch, Pass, Workload
from joulewise.report.figures import Figure
from joulewise.report.workload_facts import (
    DeviceCosts,
    KernelCost,
    PassFacts,
    TimeSource,
    WorkloadFacts,
    workload_facts,
)
from joulewise.report.workload_figure import (
    MOST_BARS,
    roofline_figure,
    timeline_bars,
    timeline_figure,
)
from joulewise.report.workload_page import render_workload
from joulewise.report.workload_words import (
    ESTIMATED_NOTE,
    amount,
    iteration_text,
    pass_flop_text,
    short_passes_text,
    work_text,
    workload_sentence,
)

BUILT = Workload(
    name="built",
    launches=(
        *(Launch(kernel="gemm"), Launch(kernel="norm")) * 2,
        Launch(kernel="gemm", pass_=Pass.BACKWARD),
        Launch(kernel="gap", pass_=Pass.BACKWARD),
    ),
    works=(
        work("gemm", flop=8e9, traffic=2e7, kind=KernelKind.GEMM),
        work("norm", flop=1e6, traffic=4e7),
        work("gap", wait=1e-3, kind=KernelKind.GAP),
    ),
)
COSTS = DeviceCosts(
    device="virtual:x",
    device_name="X",
    is_calibrated=True,
    costs={
        "gemm": KernelCost(time_s=2e-3, energy_j=0.6),
        "norm": KernelCost(time_s=5e-4, energy_j=0.1),
        "gap": KernelCost(time_s=1e-3, energy_j=0.1),
    },
)


def test_facts_of_a_built_workload_count_work_and_no_time() -> None:
    facts = workload_facts(BUILT)

    assert (None, None, None) == (facts.time_source, facts.time_s, facts.energy_j)
    assert (5, 1, 2) == (facts.launch_count, facts.gap_count, facts.kernel_count)
    assert ["gemm", "norm"] == [one.kernel for one in facts.kernels]
    assert [2.4e10, 2e6] == [one.flop_count for one in facts.kernels]
    assert [400.0, 0.025] == [one.flop_per_byte_ratio for one in facts.kernels]
    assert 2.4e10 + 2e6 == facts.flop_count
    assert 1e-3 == facts.gap_s


def test_facts_on_a_device_add_up_launches_one_after_another() -> None:
    facts = workload_facts(BUILT, COSTS)

    assert TimeSource.SIMULATED is facts.time_source
    assert facts.time_s == pytest.approx(3 * 2e-3 + 2 * 5e-4 + 1e-3)
    assert facts.energy_j == pytest.approx(3 * 0.6 + 2 * 0.1 + 0.1)
    assert facts.busy_s == pytest.approx(7e-3)
    assert {Pass.FORWARD: 5e-3, Pass.BACKWARD: 2e-3} == pytest.approx(
        {one.pass_: one.time_s for one in facts.passes}
    )
    assert 1.0 == pytest.approx(sum(one.time_share_ratio or 0.0 for one in facts.kernels))


def test_facts_of_a_trace_are_those_of_its_own_kernels() -> None:
    facts = workload_facts(traced_workload())

    assert TimeSource.TRACED is facts.time_source
    assert (1e-3, 8e-4, 1e-4, 2e-4) == (facts.time_s, facts.busy_s, facts.overlap_s, facts.gap_s)
    assert ["gemm", "adam", "all-reduce"] == [one.kernel for one in facts.kernels]
    assert (Pass.FORWARD, Pass.BACKWARD) == facts.kernels[0].passes
    assert 1.2e10 == facts.kernels[0].flop_count
    assert facts.kernels[2].flop_count is None
    times = {one.pass_: one.time_s for one in facts.passes}
    assert times == {
        Pass.FORWARD: 2e-4,
        Pass.BACKWARD: 3e-4,
        Pass.COMMUNICATION: 2e-4,
        Pass.OPTIMIZER: 2e-4,
    }


def test_work_is_that_of_traced_kernels_and_guesses_are_marked() -> None:
    workload = traced_workload()
    assert workload.trace is not None
    gemm, reduction, adam = workload.trace.kernels
    kernels = (
        gemm,  # as files of older versions have it
        replace(reduction, flop_count=3584.0, traffic_bytes=4e4),  # only beside others
        replace(adam, flop_count=2e6, traffic_bytes=9e7, is_work_estimated=True),
    )
    guessed = replace(workload, trace=replace(workload.trace, kernels=kernels))
    facts = workload_facts(guessed)
    costs = {one.kernel: KernelCost(time_s=1e-3, energy_j=0.2) for one in workload.works}
    simulated = workload_facts(guessed, replace(COSTS, costs=costs))
    in_region = replace(
        guessed,
        trace=replace(
            workload.trace,
            kernels=(gemm, replace(reduction, is_work_estimated=True), adam),
        ),
    )

    texts = {one.kernel: work_text(one)[0] for one in facts.kernels}
    assert {
        "gemm": "12.00\N{NARROW NO-BREAK SPACE}GFLOP",
        "adam": "~2.000\N{NARROW NO-BREAK SPACE}MFLOP",
        "all-reduce": "3.584\N{NARROW NO-BREAK SPACE}kFLOP",
    } == texts
    assert [Pass.OPTIMIZER] == [one.pass_ for one in facts.passes if one.is_work_estimated]
    assert facts.is_work_estimated
    assert not workload_facts(workload).is_work_estimated
    assert ["adam"] == [one.kernel for one in simulated.kernels if one.is_work_estimated]
    region = workload_facts(in_region, replace(COSTS, costs=costs))
    assert ["region 1"] == [one.kernel for one in region.kernels if one.is_work_estimated]
    page = render_workload(facts, ())
    assert ESTIMATED_NOTE in page
    assert "~2.000\N{NARROW NO-BREAK SPACE}MFLOP" in page
    assert ESTIMATED_NOTE not in render_workload(workload_facts(workload), ())


def test_a_device_wins_over_the_trace_and_the_traced_time_is_kept() -> None:
    workload = traced_workload()
    costs = {one.kernel: KernelCost(time_s=1e-3, energy_j=0.2) for one in workload.works}
    facts = workload_facts(workload, replace(COSTS, costs=costs))

    assert TimeSource.SIMULATED is facts.time_source
    assert [4e-3, 1e-3] == pytest.approx([facts.time_s, facts.traced_time_s])


def test_a_workload_without_works_has_launches_alone() -> None:
    facts = workload_facts(replace(BUILT, works=()))

    assert (6, None, None) == (facts.launch_count, facts.flop_count, facts.traffic_bytes)
    assert "6 launches of 3 kernels on each GPU" in workload_sentence(facts)


def shown(facts: WorkloadFacts, costs: DeviceCosts | None = None) -> list[Figure]:
    figures = (timeline_figure(facts, costs), roofline_figure(facts))
    return [figure for figure in figures if figure is not None]


@pytest.mark.parametrize("is_traced", [True, False])
def test_every_figure_of_a_workload_is_valid_plotly(is_traced: bool) -> None:  # noqa: FBT001
    facts = workload_facts(traced_workload()) if is_traced else workload_facts(BUILT, COSTS)

    figures = shown(facts, None if is_traced else COSTS)

    assert 2 == len(figures)
    for figure in figures:
        assert len(go.Figure(figure).data) == len(cast("Sequence[object]", figure["data"]))


def test_without_times_nothing_is_drawn() -> None:
    assert [] == shown(workload_facts(BUILT))


def test_streams_are_rows_and_gaps_have_one_of_their_own() -> None:
    bars = timeline_bars(workload_facts(traced_workload()))

    assert ["stream 7", "stream 20", "no kernel"] == list(dict.fromkeys(bar.row for bar in bars))
    (gap,) = [bar for bar in bars if bar.pass_ is None]
    assert [6e-4, 8e-4] == pytest.approx([gap.start_s, gap.end_s])


@given(
    durations=st.lists(st.floats(1e-7, 1e-4), min_size=1, max_size=40),
    repeat=st.sampled_from([1, 500]),
)
@settings(deadline=None, max_examples=20)
def test_however_many_launches_the_bars_are_few_and_cover_the_same_time(
    durations: list[float], repeat: int
) -> None:
    workload = traced_workload()
    trace = workload.trace
    assert trace is not None
    launches, now_s = [], 0.0
    for number, duration_s in enumerate(durations * repeat):
        launches.append(
            TracedLaunch(
                kernel="gemm",
                pass_=Pass.FORWARD if number % 3 else Pass.BACKWARD,
                stream=7,
                start_s=now_s,
                duration_s=duration_s,
            )
        )
        now_s += duration_s * 1.5
    traced = replace(trace, launches=tuple(launches), duration_s=now_s, kernels=trace.kernels[:1])

    bars = timeline_bars(workload_facts(replace(workload, trace=traced)))

    assert len(bars) <= MOST_BARS
    kernels = [bar for bar in bars if bar.pass_ is not None]
    assert len(launches) == sum(bar.launch_count for bar in kernels)
    last = launches[-1]
    assert last.start_s + last.duration_s == pytest.approx(max(bar.end_s for bar in kernels))


def test_the_page_stands_alone_and_names_what_it_shows() -> None:
    workload = traced_workload()
    page = render_workload(workload_facts(workload), workload.caveats)

    assert page.startswith("<!DOCTYPE html>")
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", page)
    figures = json.loads(_block(page))
    assert {"timeline-plot", "roofline-plot"} == set(figures)
    for text in ("ProfilerStep#3", "NVIDIA A100-SXM4-80GB", "Streams merged", "all-reduce"):
        assert text in page


def _block(page: str) -> str:
    found = re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return found[1]


def test_a_hostile_name_does_nothing_on_the_page() -> None:
    evil = "</script><script>alert(1)</script>"
    launch = Launch(kernel=evil)
    workload = Workload(name=evil, launches=(launch,), works=(work(evil, flop=1e9, traffic=1e6),))
    costs = replace(COSTS, costs={evil: KernelCost(time_s=1.0, energy_j=1.0)})
    caveat = Caveat(kind=CaveatKind.WORK_ESTIMATED, seen=evil)

    page = render_workload(workload_facts(workload, costs), (caveat,), costs)

    assert evil not in page


def test_amounts_have_four_digits_and_a_prefix() -> None:
    def said(value: float) -> str:
        return amount(value, "B").replace("\N{NARROW NO-BREAK SPACE}", " ")

    values = (0.0, 12.0, 999.0, 1000.0, 12_345.0, 5.0e9, 3.21e14, 6.5e20)
    assert ["0 B", "12 B", "999 B", "1.000 kB", "12.35 kB", "5.000 GB", "321.0 TB", "650.0 EB"] == [
        said(value) for value in values
    ]


@pytest.mark.parametrize(
    ("all_of_them", "known", "is_guessed", "expected"),
    [
        (2e9, 2e9, False, "2.000 GFLOP"),
        (2e9, 2e9, True, "~2.000 GFLOP"),
        (None, 1e9, False, "≥ 1.000 GFLOP"),
        (None, None, False, ""),
    ],
)
def test_flops_of_a_pass_are_a_bound_where_not_all_are_known(
    *, all_of_them: float | None, known: float | None, is_guessed: bool, expected: str
) -> None:
    one = PassFacts(
        pass_=Pass.FORWARD,
        launch_count=2,
        time_s=None,
        flop_count=all_of_them,
        energy_j=None,
        is_work_estimated=is_guessed,
        known_flop_count=known,
    )

    assert expected == pass_flop_text(one).replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_passes_know_the_flops_of_their_known_kernels() -> None:
    workload = replace(
        traced_workload(),
        works=tuple(one for one in traced_workload().works if one.kernel != "adam"),
        launches=(*traced_workload().launches, Launch(kernel="gemm", pass_=Pass.OPTIMIZER)),
        trace=None,
    )

    update = next(one for one in workload_facts(workload).passes if one.pass_ is Pass.OPTIMIZER)

    assert (None, 6e9) == (update.flop_count, update.known_flop_count)


def test_a_mark_of_any_length_keeps_one_line() -> None:
    trace = traced_workload().trace
    assert trace is not None

    text = iteration_text(replace(trace, step="step " * 40))

    assert text.endswith(", one of 3")
    assert len(text) < 60


def test_passes_of_a_kernel_are_short() -> None:
    assert "forward" == short_passes_text((Pass.FORWARD,))
    assert "fwd+bwd" == short_passes_text((Pass.BACKWARD, Pass.FORWARD))
    assert "mixed" == short_passes_text(tuple(Pass))


def test_shares_of_kernels_and_passes_add_up() -> None:
    for facts in (workload_facts(traced_workload()), workload_facts(BUILT, COSTS)):
        by_kernel: Mapping[str, float] = {one.kernel: one.time_s or 0.0 for one in facts.kernels}
        by_pass = [one.time_s or 0.0 for one in facts.passes]
        assert math.fsum(by_pass) == pytest.approx(math.fsum(by_kernel.values()))
