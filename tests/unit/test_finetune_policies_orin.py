"""Policies on the virtual AGX Orin: what the study promises, on fewer seeds."""

from __future__ import annotations

import numpy as np
import pytest

from joulewise.domain.finetuning import ClockCurve
from joulewise.finetune.evaluation import Bench, pick_clocks
from joulewise.finetune.evaluation_noise import HARD_NOISE, USUAL_NOISE, probed_costs
from joulewise.finetune.evaluation_scores import policy_scores
from joulewise.finetune.policies.catalogue import shipped_policy
from joulewise.finetune.policies.published import PaperPolicy
from joulewise.finetune.policies.training import train_policy
from joulewise.finetune.probing import choose_by_probing, probe_clocks
from joulewise.report.policy_table import JobGroup, scored
from joulewise.store.policies import PolicyKind
from joulewise.workflow.finetune_evaluating import virtual_bench


@pytest.fixture(scope="module")
def bench() -> Bench:
    return virtual_bench("virtual:agx-orin", USUAL_NOISE)


def regret_ratio(curve: ClockCurve, sm_clock_mhz: int | None) -> float:
    cost = curve.at(sm_clock_mhz)
    assert cost is not None
    return cost.energy_j / curve.best.energy_j - 1


def paper_regret_ratio(curves: tuple[ClockCurve, ...]) -> float:
    paper = PaperPolicy()
    regrets = []
    for curve in curves:
        assert curve.features is not None
        chosen = paper.choose(curve.features, curve.sm_clocks_mhz)
        regrets.append(regret_ratio(curve, chosen.sm_clock_mhz))
    return float(np.mean(regrets))


def test_there_are_27_jobs_to_learn_from_and_54_that_nobody_saw(bench: Bench) -> None:
    assert (27, 54, 81) == (len(bench.training), len(bench.unseen), len(bench.steps))
    assert len({curve.best.sm_clock_mhz for curve in bench.training}) > 1


@pytest.mark.parametrize("noise", [USUAL_NOISE, HARD_NOISE], ids=["usual", "hard"])
def test_thirty_steps_at_three_clocks_come_near_the_best_clock_of_every_job(
    bench: Bench, noise: object
) -> None:
    level = HARD_NOISE if noise is HARD_NOISE else USUAL_NOISE
    rng = np.random.default_rng(5)
    policy = shipped_policy()
    regrets = []
    for _ in range(3):
        for curve in (*bench.training, *bench.unseen):
            assert curve.features is not None
            advice = policy.choose(curve.features, curve.sm_clocks_mhz).sm_clock_mhz
            clocks = probe_clocks(advice, curve.sm_clocks_mhz)
            costs = probed_costs(curve, clocks, level, rng)
            chosen = choose_by_probing(costs, curve.sm_clocks_mhz)
            regrets.append(regret_ratio(curve, chosen.sm_clock_mhz))

    by_job = np.reshape(regrets, (3, -1)).mean(axis=0)
    assert by_job.mean() <= 0.015
    assert by_job.max() <= 0.04


def test_a_tree_that_counts_regret_beats_the_published_one_on_left_out_jobs(
    bench: Bench,
) -> None:
    left_out = train_policy(bench.training, PolicyKind.REGRET).left_out

    assert left_out.mean_regret_ratio < paper_regret_ratio(bench.training)


@pytest.mark.integration
def test_the_targets_of_the_study_are_met_over_ten_seeds(bench: Bench) -> None:
    scores = policy_scores(bench, [pick_clocks(bench, seed) for seed in range(10)])

    for group in (JobGroup.LEFT_OUT, JobGroup.UNSEEN):
        probe = scored(scores, "probe", group)
        paper = scored(scores, "paper-mlg", group)
        assert probe is not None
        assert paper is not None
        assert probe.mean_regret_ratio <= 0.015
        assert probe.worst_regret_ratio <= 0.04
        for name in ("tree", "regret"):
            ours = scored(scores, name, group)
            assert ours is not None
            assert ours.mean_regret_ratio <= paper.mean_regret_ratio
