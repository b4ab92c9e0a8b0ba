"""The report of a pipeline plan."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline_plans import nested_plan, toy_plan
from tests.report.test_report_browser import _opened, chromium

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.pipeline import PipelinePlan, Straggler
from joulewise.domain.plan import Status
from joulewise.report.inputs import Provenance
from joulewise.report.pipeline_page import render_pipeline_report
from joulewise.report.pipeline_verdict import pipeline_verdict, shape_words

__all__ = ["chromium"]  # the fixture

PROVENANCE = Provenance(joulewise_version="9.9", written_on="2026-01-01")
ATTACK = "</script><img src=x onerror=\"document.title='attacked'\">"
NBSP = "\N{NARROW NO-BREAK SPACE}"


def _page(plan: PipelinePlan) -> str:
    return render_pipeline_report(plan, PROVENANCE)


def _main(page: str) -> str:
    return page.split("<main>")[1].split("</main>", maxsplit=1)[0]


def test_a_page_holds_verdict_figures_and_provenance() -> None:
    page = _page(toy_plan())

    assert f"<h1>{pipeline_verdict(toy_plan())}</h1>" in page
    figures = json.loads(re.findall(r'id="figures">(.*?)</script>', page, re.DOTALL)[0])
    assert {"gantt-plot", "frontier-plot"} == set(figures)
    assert "joulewise 9.9" in page
    assert "3 stages \N{MULTIPLICATION SIGN} 4 micro-batches, 1F1B" in page


def test_a_page_asks_for_nothing_from_elsewhere() -> None:
    own = _main(_page(toy_plan()))

    assert not re.findall(r"(?:src|href)=", own)
    assert "default-src &#39;none&#39;" in _page(toy_plan())


def test_a_hostile_name_stays_text() -> None:
    plan = replace(
        toy_plan(),
        profile_name=ATTACK,
        caveats=(Caveat(kind=CaveatKind.NO_UNCERTAINTY, seen=ATTACK),),
    )

    own = _main(_page(plan))

    assert "<img" not in own
    assert "&lt;/script&gt;&lt;img" in own


def test_simulated_figures_are_said_to_be_loudly() -> None:
    seen = "The profile comes from a virtual device."
    caveat = Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen)

    page = _page(replace(toy_plan(), caveats=(caveat,)))

    assert "<strong>Simulated.</strong>" in page
    assert "<strong>Simulated.</strong>" not in _page(toy_plan())


def test_a_plan_without_baseline_operations_and_frontier_is_shown_all_the_same() -> None:
    page = _page(replace(toy_plan(), baseline_operations=(), frontier=()))

    assert "The frontier was not kept" in page


def test_stragglers_are_told() -> None:
    request = replace(toy_plan().request, stragglers=(Straggler(stage=1, slowdown_ratio=1.1),))

    page = _page(replace(toy_plan(), request=request))

    assert f"stage 1 takes +10.00{NBSP}% time" in page


def test_the_verdict_says_what_was_proven() -> None:
    plan = toy_plan()
    doubted = replace(plan, status=Status.FEASIBLE, bound_gap_ratio=0.01)

    assert "at most 1.00\u202f% above the least possible." in pipeline_verdict(doubted)
    assert "proven best." in pipeline_verdict(replace(plan, status=Status.OPTIMAL))
    assert "Leave the clocks alone" in pipeline_verdict(replace(plan, status=Status.NO_GAIN))


def test_a_shape_is_told_in_words() -> None:
    request = toy_plan().request
    one = replace(request, shape=replace(request.shape, stage_count=1, micro_batch_count=1))

    assert "1 stage \N{MULTIPLICATION SIGN} 1 micro-batch, 1F1B" == shape_words(one)


@pytest.mark.integration
@pytest.mark.parametrize("plan", [toy_plan, nested_plan], ids=["clocks", "kernel plans"])
def test_a_page_draws_both_figures_without_a_word_on_the_console(
    chromium: str,
    tmp_path: Path,
    plan: object,
) -> None:
    assert callable(plan)
    dom, console = _opened(chromium, _page(plan()), tmp_path)

    assert [] == console
    assert 'data-figures="drawn"' in dom
    assert 2 == dom.count('<g class="cartesianlayer">')
