"""`replay`: a plan carried out, beside what it predicts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from joulewise.control.lease import hold
from joulewise.control.state import default_state_dir
from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InputError
from joulewise.domain.measurement import ReplayWindow
from joulewise.domain.plan import Plan
from joulewise.domain.ports import Progress
from joulewise.domain.transition import TransitionModel
from joulewise.measure.replay import replay_plan
from joulewise.measure.replayed_pairs import assumed_transitions
from joulewise.measure.settings import MeasureSettings
from joulewise.store.documents import read_plan
from joulewise.workflow.verifying import session_for_plan


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

    `time_difference_ratio` and `energy_difference_ratio` are replayed / predicted - 1.
    `transition` is what changes cost on the device, where that is known for sure because it
    is virtual.
    """

    plan: Plan
    device: str
    device_name: str
    transition: TransitionModel | None
    window: ReplayWindow
    predicted_time_s: float
    predicted_energy_j: float
    time_difference_ratio: float
    energy_difference_ratio: float
    caveats: tuple[Caveat, ...]


def replay_to_result(job: ReplayJob, progress: Progress) -> ReplayResult:
    """Carry a plan out and compare.

    Raises:
        InputError: the plan was made for another device or workload, or has no requests that
            lead to its points.
        MeasurementError: no trustworthy number came out.
        DeviceError: the device refused a point, or was lost.
    """
    if job.iteration_count is not None and job.iteration_count < 1:
        raise InputError(
            f"a replay needs at least 1 iteration, got {job.iteration_count}", field="iterations"
        )
    plan = read_plan(job.plan)
    session = session_for_plan(plan, job.plan, device=job.device, workload=job.workload)
    with hold(session.gpu, state_dir=default_state_dir()) as lease:
        window = replay_plan(
            session,
            lease,
            plan,
            settings=MeasureSettings(),
            iteration_count=job.iteration_count,
            progress=progress,
        )
    identity = session.gpu.identity
    return ReplayResult(
        plan=plan,
        device=identity.spec,
        device_name=identity.name,
        transition=session.transition,
        window=window,
        predicted_time_s=plan.time_s,
        predicted_energy_j=plan.energy_j,
        time_difference_ratio=window.time_s / plan.time_s - 1.0,
        energy_difference_ratio=window.energy_j / plan.energy_j - 1.0,
        caveats=(*identity.caveats, *window.caveats, *assumed_transitions(session, plan)),
    )
