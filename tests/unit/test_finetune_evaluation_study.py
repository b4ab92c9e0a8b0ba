"""`studies/finetune.py`: its tables, its targets, and the result that is kept."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from studies.finetune import RESULT, SETTINGS, Result, missed_targets, run_seeds, table_text

from joulewise.finetune.evaluation_scores import policy_scores
from joulewise.report.policy_table import JobGroup


def test_the_kept_result_is_simulated_and_says_what_was_missed() -> None:
    kept = json.loads(RESULT.read_text("utf-8"))

    assert kept["is_simulated"] is True
    assert [] == kept["missed"]
    assert ["usual", "hard", "budget"] == [one["setting"] for one in kept["results"]]
    assert {200} == {one["seed_count"] for one in kept["results"][0]["scores"]}
    assert "not ours" in kept["published"]


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
