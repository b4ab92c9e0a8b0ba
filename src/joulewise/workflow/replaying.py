"""`replay`: a plan carried out, beside what it predicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.errors import InputError
from joulewise.domain.measurement import ReplayWindow
from joulewise.domain.plan import Plan
from joulewise.domain.ports import HardwareRunners, Progress
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import TransitionModel
from joulewise.measure.replay import replay_schedule, schedule_of
from joulewise.measure.replayed_pairs import (
    assumed_transitions,
    baseline_schedule,
    uncounted_transitions,
)
from joulewise.measure.settings import MeasureSettings
from joulewise.store.documents import read_plan
from joulewise.workflow.baseline_state import baseline_doubts, with_baseline_doubts
from joulewise.workflow.leasing import lease_on
from joulewise.workflow.preparing import refuse_without_rights
from joulewise.workflow.verifying import (
    points_of_plan,
    refuse_impossible_points,
    session_for_plan,
)

PREDICTION_TOLERANCE_RATIO = 0.005
"""A plan whose time and energy come this near is carried out as planned."""
# Ratios this near read the same.
_READING_RATIO = 5e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """What `replay` was asked for; device and workload default to those that the plan names.

    Without `iteration_count` as many iterations are measured as the energy counter needs.
    """

    plan: Path
    device: str | None = None
    workload: str | None = None
    iteration_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """A plan and what carrying it out showed, per iteration.

    `time_difference_ratio` and `energy_difference_ratio` are replayed / predicted - 1, and
    `is_as_planned` says whether both are small. `baseline` is the plan's launches at its
    baseline, replayed as well: `slowdown_ratio` and `saving_ratio` are against that, and
    `is_within_budget` is `None` where the plan has no budget. `transition` is what changes cost
    on the device, where that is known for sure because it is virtual.
    """

    plan: Plan
    device: str
    device_name: str
    transition: TransitionModel | None
    window: ReplayWindow
    baseline: ReplayWindow
    predicted_time_s: float
    predicted_energy_j: float
    time_difference_ratio: float
    energy_difference_ratio: float
    is_as_planned: bool
    slowdown_ratio: float
    saving_ratio: float
    is_within_budget: bool | None
    caveats: tuple[Caveat, ...]


def replay_to_result(
    job: ReplayJob, progress: Progress, *, hardware: HardwareRunners | None = None
) -> ReplayResult:
    """Carry a plan out and compare.

    Raises:
        InputError: the plan was made for another device or workload, or has no requests that
            lead to its points.
        MeasurementError: no trustworthy number came out.
        NotSupported: the device runs no whole iterations.
        DeviceError: the device refused a point, or was lost.
    """
    if job.iteration_count is not None and job.iteration_count < 1:
        raise InputError(
            f"a replay needs at least 1 iteration, got {job.iteration_count}", field="iterations"
        )
    plan = read_plan(job.plan)
    session = session_for_plan(
        plan, job.plan, device=job.device, workload=job.workload, hardware=hardware
    )
    with lease_on(session.gpu) as lease:
        refuse_impossible_points(plan, session.gpu, job.plan)
        refuse_without_rights(session, lease, points_of_plan(plan))
        doubts = baseline_doubts(session.gpu)
        windows = {
            schedule: replay_schedule(
                session,
                lease,
                schedule,
                settings=MeasureSettings(),
                iteration_count=job.iteration_count,
                is_soak_optional=number > 0,
                progress=_named(progress, " the baseline" if number else ""),
            )
            for number, schedule in enumerate(
                dict.fromkeys((schedule_of(plan), baseline_schedule(plan)))
            )
        }
    window, baseline = windows[schedule_of(plan)], windows[baseline_schedule(plan)]
    compared = _compared(session, plan, window, baseline)
    return replace(compared, caveats=with_baseline_doubts(compared.caveats, doubts))


def _named(progress: Progress, suffix: str) -> Progress:
    return lambda what, done_count, total_count: progress(
        f"{what}{suffix}", done_count, total_count
    )


def _compared(
    session: DeviceSession, plan: Plan, window: ReplayWindow, baseline: ReplayWindow
) -> ReplayResult:
    time_ratio = window.time_s / plan.time_s - 1.0
    energy_ratio = window.energy_j / plan.energy_j - 1.0
    slowdown_ratio = window.time_s / baseline.time_s
    budget = plan.request.max_slowdown_ratio
    identity = session.gpu.identity
    return ReplayResult(
        plan=plan,
        device=identity.spec,
        device_name=identity.name,
        transition=session.transition,
        window=window,
        baseline=baseline,
        predicted_time_s=plan.time_s,
        predicted_energy_j=plan.energy_j,
        time_difference_ratio=time_ratio,
        energy_difference_ratio=energy_ratio,
        is_as_planned=max(abs(time_ratio), abs(energy_ratio)) <= PREDICTION_TOLERANCE_RATIO,
        slowdown_ratio=slowdown_ratio,
        saving_ratio=1.0 - window.energy_j / baseline.energy_j,
        is_within_budget=None
        if budget is None
        else slowdown_ratio <= 1.0 + budget + _READING_RATIO,
        caveats=first_of_each_kind(
            *identity.caveats,
            *window.caveats,
            *baseline.caveats,
            *_missed(time_ratio, energy_ratio),
            *_over_budget(slowdown_ratio, budget),
            *uncounted_transitions(plan),
            *assumed_transitions(session, plan),
        ),
    )


def _missed(time_ratio: float, energy_ratio: float) -> tuple[Caveat, ...]:
    """PredictionMissed where time or energy is not what the plan says."""
    if max(abs(time_ratio), abs(energy_ratio)) <= PREDICTION_TOLERANCE_RATIO:
        return ()
    seen = (
        f"the replay took {time_ratio:+.2%} time and {energy_ratio:+.2%} energy against the plan, "
        f"more than {PREDICTION_TOLERANCE_RATIO:.1%} apart"
    )
    return (Caveat(kind=CaveatKind.PREDICTION_MISSED, seen=seen),)


def _over_budget(slowdown_ratio: float, budget: float | None) -> tuple[Caveat, ...]:
    """PromiseNotShown where the replay was slower than the plan may be."""
    if budget is None or slowdown_ratio <= 1.0 + budget + _READING_RATIO:
        return ()
    seen = (
        f"the replay took {slowdown_ratio - 1.0:+.2%} time against the replayed baseline, beyond "
        f"the budget of {budget:+.2%}"
    )
    return (Caveat(kind=CaveatKind.PROMISE_NOT_SHOWN, seen=seen),)
