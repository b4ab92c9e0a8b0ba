"""Policies held against true curves: what is counted, and how sure it is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.finetuning_curves import training_curves

from joulewise.finetune.evaluation import (
    EVALUATED_POLICIES,
    ONE_EPOCH,
    Bench,
    SeedPicks,
    pick_clocks,
)
from joulewise.finetune.evaluation_noise import NO_NOISE, USUAL_NOISE, noisy_curves, probed_costs
from joulewise.finetune.evaluation_scores import best_within, is_small, policy_scores
from joulewise.report.policy_table import (
    JobGroup,
    PolicyScore,
    policy_rows,
    policy_sentence,
    scored,
)

CURVES = training_curves()
# Every other job is trained on; the rest is never shown.
BENCH = Bench(
    training=CURVES[::2],
    unseen=CURVES[1::2],
    steps={one.job: 100 if one.job.startswith("s") else 1000 for one in CURVES},
    noise=USUAL_NOISE,
)


@pytest.fixture(scope="module")
def picks() -> tuple[SeedPicks, ...]:
    return tuple(pick_clocks(BENCH, seed) for seed in (0, 1))


@pytest.fixture(scope="module")
def scores(picks: tuple[SeedPicks, ...]) -> tuple[PolicyScore, ...]:
    return policy_scores(BENCH, picks)


def score(scores: tuple[PolicyScore, ...], policy: str, group: JobGroup) -> PolicyScore:
    found = scored(scores, policy, group)
    assert found is not None
    return found


def test_the_same_seed_picks_the_same_clocks(picks: tuple[SeedPicks, ...]) -> None:
    assert picks[0] == pick_clocks(BENCH, 0)
    assert picks[0].unseen != picks[1].unseen


def test_every_policy_is_scored_on_every_group(scores: tuple[PolicyScore, ...]) -> None:
    assert {(one.policy, one.group) for one in scores} == {
        (policy, group) for policy in EVALUATED_POLICIES for group in JobGroup
    }


def test_the_governor_saves_nothing_and_its_regret_is_what_could_be_saved(
    scores: tuple[PolicyScore, ...],
) -> None:
    found = score(scores, "default", JobGroup.LEFT_OUT)

    assert (0.0, 0.0) == (found.mean_saving_ratio, found.worst_saving_ratio)
    assert (1.0, 1.0) == (found.mean_slowdown_ratio, found.worst_slowdown_ratio)
    regrets = [one.baseline.energy_j / one.best.energy_j - 1 for one in BENCH.training]
    assert found.mean_regret_ratio == pytest.approx(np.mean(regrets))
    assert found.worst_regret_ratio == pytest.approx(max(regrets))
    assert found.worst_single_regret_ratio == pytest.approx(max(regrets))


def test_regret_saving_and_time_are_of_the_true_curve_at_the_picked_clock(
    picks: tuple[SeedPicks, ...], scores: tuple[PolicyScore, ...]
) -> None:
    found = score(scores, "probe", JobGroup.UNSEEN)

    regrets, savings, times = [], [], []
    for one in picks:
        for curve, clock in zip(BENCH.unseen, one.unseen["probe"], strict=True):
            cost = curve.at(clock)
            assert cost is not None
            regrets.append(cost.energy_j / curve.best.energy_j - 1)
            savings.append(1 - cost.energy_j / curve.baseline.energy_j)
            times.append(cost.time_s / curve.baseline.time_s)
    assert found.mean_regret_ratio == pytest.approx(np.mean(regrets))
    assert found.mean_saving_ratio == pytest.approx(np.mean(savings))
    assert found.mean_slowdown_ratio == pytest.approx(np.mean(times))


def test_means_lie_within_their_intervals_and_below_what_is_worst(
    scores: tuple[PolicyScore, ...],
) -> None:
    for one in scores:
        spread = one.mean_regret_interval
        assert spread.low_ratio <= one.mean_regret_ratio <= spread.high_ratio
        worst = one.worst_regret_interval
        assert worst.low_ratio <= one.worst_regret_ratio + 1e-12
        assert one.mean_regret_ratio <= one.worst_regret_ratio + 1e-12
        assert one.worst_regret_ratio <= one.worst_single_regret_ratio + 1e-12
        assert one.worst_saving_ratio <= one.mean_saving_ratio <= one.best_saving_ratio
        lowest = one.worst_saving_interval
        assert lowest.low_ratio - 1e-12 <= lowest.high_ratio <= one.best_saving_ratio + 1e-12
        assert lowest.low_ratio <= one.worst_saving_ratio + 1e-12
        times = one.mean_slowdown_interval
        assert times.low_ratio <= one.mean_slowdown_ratio <= times.high_ratio
        assert one.worst_slowdown_ratio <= one.worst_slowdown_interval.high_ratio + 1e-12


def test_paper_is_what_the_others_are_compared_with(scores: tuple[PolicyScore, ...]) -> None:
    paper = score(scores, "paper-mlg", JobGroup.UNSEEN)
    ours = score(scores, "regret", JobGroup.UNSEEN)

    assert paper.regret_over_paper_ratio is None
    assert ours.regret_over_paper_ratio == pytest.approx(
        ours.mean_regret_ratio - paper.mean_regret_ratio
    )


def test_probing_and_learned_trees_lose_less_than_one_clock_for_all(
    scores: tuple[PolicyScore, ...],
) -> None:
    for group in (JobGroup.LEFT_OUT, JobGroup.UNSEEN):
        one_clock = score(scores, "ffg", group).mean_regret_ratio
        assert score(scores, "regret", group).mean_regret_ratio < one_clock
        assert score(scores, "probe", group).mean_regret_ratio < 0.015


def test_short_jobs_take_the_advice_and_long_ones_pay_for_their_learning(
    picks: tuple[SeedPicks, ...], scores: tuple[PolicyScore, ...]
) -> None:
    for one in picks:
        epochs = {epoch.job: epoch for epoch in one.epochs}
        for place, curve in enumerate(BENCH.unseen):
            is_probed = epochs[curve.job].is_probed
            assert is_probed is not curve.job.startswith("s")
            instead = "probe" if is_probed else "regret"
            assert one.unseen[ONE_EPOCH][place] == one.unseen[instead][place]
    found = score(scores, ONE_EPOCH, JobGroup.UNSEEN)
    long_count = sum(not curve.job.startswith("s") for curve in BENCH.unseen)
    assert long_count == found.probed_job_count
    spread = found.whole_job_saving_interval
    assert found.whole_job_saving_ratio is not None
    assert spread is not None
    assert spread.low_ratio <= found.whole_job_saving_ratio <= spread.high_ratio
    assert 0 < found.mean_saving_ratio - found.whole_job_saving_ratio < 0.04


def test_within_a_budget_probing_measures_the_governor_and_leaves_the_clock_to_it() -> None:
    good = tuple(
        replace(one, baseline=replace(one.baseline, energy_j=0.5 * one.best.energy_j))
        for one in CURVES[1::4]
    )
    bench = replace(BENCH, unseen=good, steps={}, noise=NO_NOISE, max_slowdown_ratio=0.3)

    assert set(pick_clocks(bench, 0).unseen["probe"]) == {None}
    without = pick_clocks(replace(bench, max_slowdown_ratio=None), 0).unseen
    assert None not in without["probe"]
    assert set(without[ONE_EPOCH]) == {None}


def test_jobs_of_one_model_are_no_more_evidence_than_one_of_them() -> None:
    """Three models of one job each, and each of those four times over: the same interval."""
    few = replace(BENCH, unseen=CURVES[1::3], noise=NO_NOISE)
    many = replace(
        few,
        unseen=tuple(
            replace(one, job=f"{one.job}/{copy}") for one in few.unseen for copy in range(4)
        ),
        steps={},
    )

    spreads = []
    for bench in (few, many):
        picks = pick_clocks(bench, 0)
        found = score(policy_scores(bench, [picks]), "paper-mlg", JobGroup.UNSEEN)
        spreads.append((found.mean_saving_interval, found.mean_slowdown_interval))

    assert spreads[0][0].low_ratio < spreads[0][0].high_ratio
    for left, right in zip(spreads[0], spreads[1], strict=True):
        assert left.low_ratio == pytest.approx(right.low_ratio)
        assert left.high_ratio == pytest.approx(right.high_ratio)


def test_within_a_budget_regret_is_against_the_best_clock_that_keeps_it() -> None:
    bench = replace(BENCH, unseen=BENCH.unseen[:2], noise=NO_NOISE, max_slowdown_ratio=0.1)
    one = pick_clocks(bench, 0)

    found = policy_scores(bench, [one])

    for curve in bench.training:
        best = best_within(curve, 0.1)
        assert best.time_s <= 1.1 * curve.baseline.time_s * (1 + 1e-9)
    assert 1.0 == score(found, "default", JobGroup.LEFT_OUT).within_budget_ratio
    paper = score(found, "paper-mlg", JobGroup.LEFT_OUT)
    assert 1.0 == paper.within_budget_ratio
    probe = score(found, "probe", JobGroup.UNSEEN)
    assert probe.mean_slowdown_ratio < 1.11


def test_noise_has_the_spread_that_it_names_and_blocks_share_their_runs_shift() -> None:
    rng = np.random.default_rng(0)
    many = [noisy_curves(CURVES[:3], USUAL_NOISE, rng) for _ in range(40)]

    ratios = [
        math.log(blurred.energy_j / cost.energy_j)
        for curves in many
        for noisy, curve in zip(curves, CURVES, strict=False)
        for blurred, cost in zip(noisy.costs, curve.costs, strict=True)
    ]
    assert np.std(ratios) == pytest.approx(0.02, rel=0.1)

    shifts = []
    for _ in range(40):
        blocks = probed_costs(CURVES[0], (408, 714, 1122), USUAL_NOISE, rng)
        exact = probed_costs(CURVES[0], (408, 714, 1122), NO_NOISE, rng)
        logs = [math.log(a.time_s / b.time_s) for a, b in zip(blocks, exact, strict=True)]
        assert np.ptp(logs) < 0.005
        shifts.append(np.mean(logs))
    assert np.std(shifts) == pytest.approx(0.02, rel=0.4)


def test_small_models_have_up_to_seventy_million_parameters() -> None:
    features = CURVES[0].features
    assert features is not None

    for count, expected in ((70_000_000, True), (70_000_001, False), (None, False)):
        one = replace(CURVES[0], features=replace(features, parameter_count=count))
        assert expected is is_small(one)


def test_the_table_has_a_row_for_each_policy_and_a_verdict(
    scores: tuple[PolicyScore, ...],
) -> None:
    rows = list(policy_rows(scores, JobGroup.UNSEEN))

    assert list(EVALUATED_POLICIES) == [row[0] for row in rows]
    assert "0.0" in rows[0][1]
    sentence = policy_sentence(scores)
    assert sentence.startswith("Least energy on jobs that were left out: probe, ")
    assert "pinned-max" in sentence
    assert "No policy was scored." == policy_sentence(())
