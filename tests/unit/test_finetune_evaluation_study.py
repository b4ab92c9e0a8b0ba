"""`studies/finetune.py`: its tables, its targets, and the result that is kept."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from studies.finetune import RESULT, SETTINGS, Result, missed_targets, run_seeds, table_text
from studies.finetune_tables import PAGE, tables_text, with_tables

from joulewise.finetune.evaluation_scores import policy_scores
from joulewise.finetune.evaluation_sensitivity import PROBE_METHODS
from joulewise.report.policy_table import JobGroup


def kept() -> dict[str, object]:
    return msgspec.json.decode(RESULT.read_bytes(), type=dict[str, object])


def kept_results() -> list[Result]:
    return msgspec.convert(kept()["results"], list[Result])


def test_the_kept_result_is_simulated_and_misses_no_target() -> None:
    results = kept_results()

    assert kept()["is_simulated"] is True
    assert [] == missed_targets(results) == kept()["missed"]
    assert ["usual", "hard", "budget"] == [one.setting for one in results]
    assert {200} == {one.seed_count for one in results[0].scores}
    assert "not ours" in str(kept()["published"])


def test_the_kept_result_varies_the_law_and_the_clocks_of_probing() -> None:
    usual = kept_results()[0].variants

    assert {one.name for one in PROBE_METHODS} == {one.method for one in usual}
    assert {JobGroup.LEFT_OUT, JobGroup.UNSEEN} == {one.group for one in usual}


def test_the_page_tells_the_figures_of_the_kept_result() -> None:
    # If not: python studies/finetune_tables.py --write
    page = PAGE.read_text("utf-8")

    assert page == with_tables(page, tables_text(kept()))
    assert "Simulated: all curves are those of virtual:agx-orin" in page


def test_a_broken_budget_and_a_tree_worse_than_the_published_one_are_missed_targets() -> None:
    results = kept_results()
    broken = [
        replace(one, within_budget_ratio=0.98)
        if (one.policy, one.group) == ("tree", JobGroup.UNSEEN)
        else one
        for one in results[2].scores
    ]
    worse = [
        replace(one, mean_regret_ratio=0.9)
        if (one.policy, one.group) == ("regret", JobGroup.LEFT_OUT)
        else one
        for one in results[0].scores
    ]

    missed = missed_targets(
        [
            replace(results[0], scores=tuple(worse)),
            results[1],
            replace(results[2], scores=tuple(broken)),
        ]
    )

    assert [
        "left-out: regret regrets more than paper-mlg",
        "budget, unseen: tree keeps 98.0% of its budgets",
    ] == missed


@pytest.mark.integration
def test_one_seed_makes_tables_and_is_held_against_the_targets() -> None:
    setting = SETTINGS[0]
    result = Result(setting="usual", scores=policy_scores(setting.bench, run_seeds(setting, [0])))

    text = table_text(result)

    assert "probe, one epoch" in text
    assert "points of regret" in text
    assert [] == missed_targets([result])
    bad = [
        replace(one, mean_regret_ratio=0.5, worst_regret_ratio=0.6)
        if (one.policy, one.group) == ("probe", JobGroup.UNSEEN)
        else one
        for one in result.scores
    ]
    assert 2 == len(missed_targets([replace(result, scores=tuple(bad))]))
