"""What policies are worth, side by side: the records, the cells of the table, the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.plan import Interval
from joulewise.report.wording import change, decimal, percent

POLICY_COLUMNS = (
    *("policy", "saving", "worst", "regret", "95 % interval", "worst", "time", "slowest"),
)
"""Savings, regrets and times: the mean over jobs, and the job that does worst."""


class JobGroup(StrEnum):
    """Which jobs a score is over, and what a policy knew of them."""

    LEFT_OUT = "left-out"
    UNSEEN = "unseen"
    LEFT_OUT_SMALL = "left-out-small"
    UNSEEN_SMALL = "unseen-small"


GROUP_TITLES = {
    JobGroup.LEFT_OUT: "Training jobs, each left out of the training",
    JobGroup.UNSEEN: "Jobs on tasks that no policy was trained on",
    JobGroup.LEFT_OUT_SMALL: "Of the training jobs, models of up to 70M parameters",
    JobGroup.UNSEEN_SMALL: "Of the unseen jobs, models of up to 70M parameters",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyScore:
    """One policy on one group of jobs, over all seeds.

    Savings and slowdowns are against the governor, regret is against the best clock of each job,
    all by the true curves. Means are over jobs and seeds, and their intervals from resampling
    models and seeds; what is worst is the worst job's mean over seeds, with an interval from
    resampling seeds, except `worst_single_regret_ratio`, which is that of the unluckiest pick of
    all. `whole_job_saving_ratio` is over whole jobs with all that learning takes among their
    steps; `probed_job_count` are the jobs that are long enough to probe, the mean over seeds.
    """

    policy: str
    group: JobGroup
    job_count: int
    seed_count: int
    mean_saving_ratio: float
    mean_saving_interval: Interval
    worst_saving_ratio: float
    worst_saving_interval: Interval
    best_saving_ratio: float
    mean_regret_ratio: float
    mean_regret_interval: Interval
    worst_regret_ratio: float
    worst_regret_interval: Interval
    worst_single_regret_ratio: float
    accuracy_ratio: float
    within_band_ratio: float
    mean_slowdown_ratio: float
    mean_slowdown_interval: Interval
    worst_slowdown_ratio: float
    worst_slowdown_interval: Interval
    within_budget_ratio: float | None = None
    regret_over_paper_ratio: float | None = None
    regret_over_paper_interval: Interval | None = None
    whole_job_saving_ratio: float | None = None
    whole_job_saving_interval: Interval | None = None
    probed_job_count: float | None = None


def policy_rows(scores: Sequence[PolicyScore], group: JobGroup) -> Iterator[tuple[str, ...]]:
    """The cells under `POLICY_COLUMNS`, one row for each policy that was scored on the group."""
    for one in scores:
        if one.group is not group:
            continue
        spread = one.mean_regret_interval
        low, high = (decimal(100 * end, 2) for end in (spread.low_ratio, spread.high_ratio))
        yield (
            one.policy,
            percent(one.mean_saving_ratio, digit_count=1),
            percent(one.worst_saving_ratio, digit_count=1),
            percent(one.mean_regret_ratio),
            f"{low} … {high}",
            percent(one.worst_regret_ratio),
            change(one.mean_slowdown_ratio, digit_count=1),
            change(one.worst_slowdown_ratio, digit_count=1),
        )


def scored(scores: Sequence[PolicyScore], policy: str, group: JobGroup) -> PolicyScore | None:
    """The score of a policy on a group, where there is one."""
    return next((one for one in scores if (one.policy, one.group) == (policy, group)), None)


def policy_sentence(scores: Sequence[PolicyScore]) -> str:
    """Which policy costs least on jobs that it was not shown, and what the others miss."""
    ranked = sorted(
        (one for one in scores if one.group is JobGroup.LEFT_OUT),
        key=lambda one: one.mean_regret_ratio,
    )
    if not ranked:
        return "No policy was scored."
    best = ranked[0]
    said = (
        f"Least energy on jobs that were left out: {best.policy}, "
        f"{percent(best.mean_regret_ratio)} above the best clock in the mean and "
        f"{percent(best.worst_regret_ratio)} for its worst job; it saves "
        f"{percent(best.mean_saving_ratio, digit_count=1)} against the governor at "
        f"{change(best.mean_slowdown_ratio, digit_count=1)} time."
    )
    others = [f"{one.policy} {percent(one.mean_regret_ratio)}" for one in ranked[1:]]
    return f"{said} Mean regret of the others: {', '.join(others)}." if others else said
