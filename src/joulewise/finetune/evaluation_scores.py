"""Picked clocks held against the true curves: savings, regrets, slowdowns, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.domain.plan import Interval
from joulewise.finetune.characterisation import NEAR_RATIO
from joulewise.finetune.evaluation import EVALUATED_POLICIES, ONE_EPOCH, Bench, SeedPicks
from joulewise.finetune.evaluation_epoch import JobEpoch, true_cost
from joulewise.finetune.policies.published import PAPER
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
    jobs = [curves[row] for row in members]
    models, paper = _models(jobs), outcomes[PAPER].regrets
    for policy, outcome in outcomes.items():
        score = _score(policy, group, outcome, models, bench)
        if policy != PAPER:
            over_paper = outcome.regrets - paper
            score = replace(
                score,
                regret_over_paper_ratio=float(over_paper.mean()),
                regret_over_paper_interval=_interval(over_paper, models),
            )
        if policy == ONE_EPOCH:
            score = replace(score, probed_job_count=_probed_count(jobs, picks))
            if all(job.job in bench.steps for job in jobs):
                savings = 1.0 - _epoch_ratios(jobs, picks)
                score = replace(
                    score,
                    whole_job_saving_ratio=float(savings.mean()),
                    whole_job_saving_interval=_interval(savings, models),
                )
        yield score


def _score(
    policy: str,
    group: JobGroup,
    outcome: _Outcome,
    models: NDArray[np.int64],
    bench: Bench,
) -> PolicyScore:
    seed_count, job_count = outcome.regrets.shape
    savings = 1.0 - outcome.energy_ratios
    lowest = _worst_interval(outcome.energy_ratios)
    return PolicyScore(
        policy=policy,
        group=group,
        job_count=job_count,
        seed_count=seed_count,
        mean_saving_ratio=float(savings.mean()),
        mean_saving_interval=_interval(savings, models),
        worst_saving_ratio=float(savings.mean(axis=0).min()),
        worst_saving_interval=Interval(
            low_ratio=1.0 - lowest.high_ratio, high_ratio=1.0 - lowest.low_ratio
        ),
        best_saving_ratio=float(savings.mean(axis=0).max()),
        mean_regret_ratio=float(outcome.regrets.mean()),
        mean_regret_interval=_interval(outcome.regrets, models),
        worst_regret_ratio=float(outcome.regrets.mean(axis=0).max()),
        worst_regret_interval=_worst_interval(outcome.regrets),
        worst_single_regret_ratio=float(outcome.regrets.max()),
        accuracy_ratio=float(outcome.is_best.mean()),
        within_band_ratio=float((outcome.regrets <= NEAR_RATIO).mean()),
        mean_slowdown_ratio=float(outcome.slowdowns.mean()),
        mean_slowdown_interval=_interval(outcome.slowdowns, models),
        worst_slowdown_ratio=float(outcome.slowdowns.mean(axis=0).max()),
        worst_slowdown_interval=_worst_interval(outcome.slowdowns),
        within_budget_ratio=_within(bench, outcome),
    )


def _outcome(
    bench: Bench,
    curves: Sequence[ClockCurve],
    members: Sequence[int],
    chosen: Sequence[Sequence[int | None]],
) -> _Outcome:
    energy_ratios, regrets, slowdowns, is_best = [], [], [], []
    for clocks in chosen:
        costs = [true_cost(curves[row], clocks[row]) for row in members]
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


def _within(bench: Bench, outcome: _Outcome) -> float | None:
    """Share of picks that truly keep the time budget."""
    if bench.max_slowdown_ratio is None:
        return None
    limit = (1.0 + bench.max_slowdown_ratio) * (1.0 + _ROUNDING_RATIO)
    return float((outcome.slowdowns <= limit).mean())


def _epoch_ratios(jobs: Sequence[ClockCurve], picks: Sequence[SeedPicks]) -> Array:
    """Energy of whole epochs against the governor, shape (S, J)."""
    return np.array([[_epoch(one, curve).energy_ratio for curve in jobs] for one in picks])


def _epoch(picks: SeedPicks, curve: ClockCurve) -> JobEpoch:
    return next(one for one in picks.epochs if one.job == curve.job)


def _probed_count(jobs: Sequence[ClockCurve], picks: Sequence[SeedPicks]) -> float:
    """Jobs whose epoch is long enough to probe, the mean over seeds: it depends on the advice."""
    counts = [sum(_epoch(one, curve).is_probed for curve in jobs) for one in picks]
    return float(np.mean(counts))


def _models(jobs: Sequence[ClockCurve]) -> NDArray[np.int64]:
    """A number for the model of each job, which its name begins with: `bert-base/qnli`."""
    names = [job.job.split("/")[0] for job in jobs]
    known = sorted(set(names))
    return np.array([known.index(name) for name in names])


def _interval(values: Array, models: NDArray[np.int64]) -> Interval:
    """95 % interval of the mean by resampling models and seeds, each with replacement.

    Jobs of one model are alike, so that all of them are drawn or none (cluster bootstrap: Davison
    and Hinkley 1997, section 3.8).
    """
    rng = np.random.default_rng(0)
    seed_count, model_count = len(values), int(models.max()) + 1
    member = models[:, None] == np.arange(model_count)
    seeds = rng.multinomial(seed_count, np.full(seed_count, 1 / seed_count), RESAMPLE_COUNT)
    drawn = rng.multinomial(model_count, np.full(model_count, 1 / model_count), RESAMPLE_COUNT)
    sums = (((seeds @ values) / seed_count @ member) * drawn).sum(axis=1)
    return _percentiles(sums / (drawn * member.sum(axis=0)).sum(axis=1))


def _worst_interval(values: Array) -> Interval:
    """95 % interval of the largest job's mean, by resampling seeds.

    Jobs are not resampled: no sample of them holds a worse one than the worst.
    """
    rng = np.random.default_rng(0)
    seed_count = len(values)
    seeds = rng.multinomial(seed_count, np.full(seed_count, 1 / seed_count), RESAMPLE_COUNT)
    return _percentiles((seeds @ values / seed_count).max(axis=1))


def _percentiles(values: Array) -> Interval:
    low, high = np.quantile(values, [_TAIL_RATIO, 1.0 - _TAIL_RATIO])
    return Interval(low_ratio=float(low), high_ratio=float(high))
