"""Picked clocks held against the true curves: savings, regrets, slowdowns, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.domain.plan import Interval
from joulewise.finetune.evaluation import EVALUATED_POLICIES, ONE_EPOCH, Bench, SeedPicks, is_long
from joulewise.finetune.policies.published import PAPER
from joulewise.finetune.policies.training import NEAR_RATIO
from joulewise.finetune.probing import PROBE_CLOCK_COUNT, PROBE_STEP_COUNT
from joulewise.report.policy_table import JobGroup, PolicyScore

SMALL_PARAMETER_COUNT = 70_000_000
"""The paper reports models of up to 70M parameters apart, for their savings are unstable."""

RESAMPLE_COUNT = 2000
_TAIL_RATIO = 0.025
_ROUNDING_RATIO = 1e-9

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """One policy on J jobs over S seeds: shapes (S, J)."""

    energy_ratios: Array
    regrets: Array
    slowdowns: Array
    is_best: NDArray[np.bool_]


def policy_scores(bench: Bench, picks: Sequence[SeedPicks]) -> tuple[PolicyScore, ...]:
    """Score every policy on the jobs left out, the unseen ones, and the small ones of each.

    Args:
        bench: The true curves.
        picks: What was picked, one entry per seed; at least one.
    """
    scores: list[PolicyScore] = []
    for curves, group, small_group, chosen in (
        (
            bench.training,
            JobGroup.LEFT_OUT,
            JobGroup.LEFT_OUT_SMALL,
            [one.left_out for one in picks],
        ),
        (bench.unseen, JobGroup.UNSEEN, JobGroup.UNSEEN_SMALL, [one.unseen for one in picks]),
    ):
        small = [row for row, curve in enumerate(curves) if is_small(curve)]
        for members, label in ((list(range(len(curves))), group), (small, small_group)):
            if members:
                scores += _group_scores(bench, curves, members, label, chosen, picks)
    return tuple(scores)


def is_small(curve: ClockCurve) -> bool:
    """Whether the job's model has up to 70M parameters, as far as that is known."""
    count = None if curve.features is None else curve.features.parameter_count
    return count is not None and count <= SMALL_PARAMETER_COUNT


def _group_scores(
    bench: Bench,
    curves: Sequence[ClockCurve],
    members: Sequence[int],
    group: JobGroup,
    chosen: Sequence[Mapping[str, tuple[int | None, ...]]],
    picks: Sequence[SeedPicks],
) -> Iterator[PolicyScore]:
    outcomes = {
        policy: _outcome(bench, curves, members, [one[policy] for one in chosen])
        for policy in EVALUATED_POLICIES
    }
    paper = outcomes[PAPER].regrets
    for policy, outcome in outcomes.items():
        over_paper = None if policy == PAPER else outcome.regrets - paper
        is_epoch = policy == ONE_EPOCH
        jobs = [curves[row] for row in members]
        yield PolicyScore(
            policy=policy,
            group=group,
            job_count=len(members),
            seed_count=len(picks),
            mean_saving_ratio=float(1.0 - outcome.energy_ratios.mean()),
            mean_saving_interval=_interval(1.0 - outcome.energy_ratios),
            worst_saving_ratio=float(1.0 - outcome.energy_ratios.mean(axis=0).max()),
            best_saving_ratio=float(1.0 - outcome.energy_ratios.mean(axis=0).min()),
            mean_regret_ratio=float(outcome.regrets.mean()),
            mean_regret_interval=_interval(outcome.regrets),
            worst_regret_ratio=float(outcome.regrets.mean(axis=0).max()),
            worst_regret_interval=_worst_interval(outcome.regrets),
            worst_single_regret_ratio=float(outcome.regrets.max()),
            accuracy_ratio=float(outcome.is_best.mean()),
            within_band_ratio=float((outcome.regrets <= NEAR_RATIO).mean()),
            mean_slowdown_ratio=float(outcome.slowdowns.mean()),
            worst_slowdown_ratio=float(outcome.slowdowns.mean(axis=0).max()),
            within_budget_ratio=_within(bench, outcome),
            regret_over_paper_ratio=None if over_paper is None else float(over_paper.mean()),
            regret_over_paper_interval=None if over_paper is None else _interval(over_paper),
            whole_job_saving_ratio=_whole_job_saving(bench, jobs, outcome, picks)
            if is_epoch
            else None,
            probed_job_count=sum(is_long(bench, one) for one in jobs) if is_epoch else None,
        )


def _outcome(
    bench: Bench,
    curves: Sequence[ClockCurve],
    members: Sequence[int],
    chosen: Sequence[Sequence[int | None]],
) -> _Outcome:
    energy_ratios, regrets, slowdowns, is_best = [], [], [], []
    for clocks in chosen:
        costs = [_at(curves[row], clocks[row]) for row in members]
        bases = [curves[row].baseline for row in members]
        bests = [best_within(curves[row], bench.max_slowdown_ratio) for row in members]
        pairs = list(zip(costs, bases, bests, strict=True))
        energy_ratios.append([cost.energy_j / base.energy_j for cost, base, _ in pairs])
        slowdowns.append([cost.time_s / base.time_s for cost, base, _ in pairs])
        regrets.append([cost.energy_j / best.energy_j - 1.0 for cost, _, best in pairs])
        is_best.append([cost.sm_clock_mhz == best.sm_clock_mhz for cost, _, best in pairs])
    return _Outcome(
        energy_ratios=np.array(energy_ratios),
        regrets=np.array(regrets),
        slowdowns=np.array(slowdowns),
        is_best=np.array(is_best),
    )


def best_within(curve: ClockCurve, max_slowdown_ratio: float | None) -> ClockCost:
    """The clock of least energy; within a budget the governor counts as one, for it keeps any."""
    if max_slowdown_ratio is None:
        return curve.best
    limit_s = curve.baseline.time_s * (1.0 + max_slowdown_ratio) * (1.0 + _ROUNDING_RATIO)
    fitting = [cost for cost in curve.costs if cost.time_s <= limit_s]
    return min((curve.baseline, *fitting), key=lambda cost: cost.energy_j)


def _at(curve: ClockCurve, sm_clock_mhz: int | None) -> ClockCost:
    found = curve.at(sm_clock_mhz)
    if found is None:
        raise ValueError(f"{curve.job!r} was not measured at {sm_clock_mhz} MHz")
    return found


def _within(bench: Bench, outcome: _Outcome) -> float | None:
    """Share of picks that truly keep the time budget."""
    if bench.max_slowdown_ratio is None:
        return None
    limit = (1.0 + bench.max_slowdown_ratio) * (1.0 + _ROUNDING_RATIO)
    return float((outcome.slowdowns <= limit).mean())


def _whole_job_saving(
    bench: Bench, jobs: Sequence[ClockCurve], outcome: _Outcome, picks: Sequence[SeedPicks]
) -> float | None:
    """Mean saving over whole jobs of one epoch, with the steps that were spent on probing.

    `None` where a job's steps are not known.
    """
    if any(one.job not in bench.steps for one in jobs):
        return None
    ratios = outcome.energy_ratios.copy()
    for place, one in enumerate(picks):
        tried = {probe.job: probe.sm_clocks_mhz for probe in one.probed}
        for column, curve in enumerate(jobs):
            if not is_long(bench, curve):
                continue
            probing_j = sum(_at(curve, clock).energy_j for clock in tried[curve.job])
            mean_ratio = probing_j / PROBE_CLOCK_COUNT / curve.baseline.energy_j
            share = PROBE_CLOCK_COUNT * PROBE_STEP_COUNT / bench.steps[curve.job]
            ratios[place, column] += share * (mean_ratio - ratios[place, column])
    return float(1.0 - ratios.mean())


def _interval(values: Array) -> Interval:
    """95 % interval of the mean by resampling jobs and seeds, each with replacement."""
    rng = np.random.default_rng(0)
    seed_count, job_count = values.shape
    seeds = rng.multinomial(seed_count, np.full(seed_count, 1 / seed_count), RESAMPLE_COUNT)
    jobs = rng.multinomial(job_count, np.full(job_count, 1 / job_count), RESAMPLE_COUNT)
    means = ((seeds @ values) * jobs).sum(axis=1) / (seed_count * job_count)
    return _percentiles(means)


def _worst_interval(values: Array) -> Interval:
    """95 % interval of the worst job's mean, by resampling seeds.

    Jobs are not resampled: no sample of them holds a worse one than the worst.
    """
    rng = np.random.default_rng(0)
    seed_count = len(values)
    seeds = rng.multinomial(seed_count, np.full(seed_count, 1 / seed_count), RESAMPLE_COUNT)
    return _percentiles((seeds @ values / seed_count).max(axis=1))


def _percentiles(values: Array) -> Interval:
    low, high = np.quantile(values, [_TAIL_RATIO, 1.0 - _TAIL_RATIO])
    return Interval(low_ratio=float(low), high_ratio=float(high))
