"""`pipeline plan` and `pipeline frontier`: clocks for the operations of a pipeline."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.errors import InputError
from joulewise.domain.pipeline import (
    OperationOption,
    PipelinePlan,
    PipelinePoint,
    PipelineRequest,
    PipelineSchedule,
    PipelineShape,
    PlannedOperation,
    StageProfile,
    Straggler,
)
from joulewise.domain.plan import Status
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Progress, no_progress
from joulewise.plan.pipeline.solve import pipeline_frontier, plan_pipeline
from joulewise.report.pipeline_rows import OperationRow, operation_rows
from joulewise.store.atomic import require_place
from joulewise.store.pipeline_files import write_pipeline
from joulewise.workflow.pipeline_profiles import LoadedProfiles, load_profiles
from joulewise.workflow.workloads import source_files

LONGEST_TIME_S = 1e9
"""Budget of an iteration: 30 years."""
_RUN_IT = "Run an iteration at these clocks, and measure its time and energy."
_FEWER_CHANGES = "Where a change takes long beside an operation, plan on a profile of fewer clocks."


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineJob:
    """What `pipeline plan` or `pipeline frontier` was asked for.

    Without a `stage_count` the pipeline has as many stages as the profile. The budget is
    `max_time_s`, or `max_slowdown_ratio` against the baseline's time, or else that time.
    """

    profiles: tuple[Path, ...]
    workload: str | None
    stage_count: int | None
    micro_batch_count: int
    schedule: PipelineSchedule
    chunk_count: int
    blocking_power_w: float
    frontier_point_count: int
    max_time_s: float | None = None
    max_slowdown_ratio: float | None = None
    stragglers: tuple[Straggler, ...] = ()
    out: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """A plan for a pipeline, its operations added up, and how much of the profile it uses."""

    plan: PipelinePlan
    rows: tuple[OperationRow, ...]
    stages_in_profile_count: int
    left_out_launch_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFrontierResult:
    """A pipeline's whole trade of time for energy, and the doubts about it."""

    request: PipelineRequest
    profile_name: str
    baseline_time_s: float
    baseline_energy_j: float
    points: tuple[PipelinePoint, ...]
    caveats: tuple[Caveat, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Problem:
    """Profiles and request, and the pipeline with every operation at its baseline."""

    loaded: LoadedProfiles
    request: PipelineRequest
    baseline: PipelinePlan


def plan_pipeline_to_file(job: PipelineJob, progress: Progress = no_progress) -> PipelineResult:
    """Plan a pipeline; write the plan, with the frontier around it, if asked to.

    Raises:
        InputError: A file or field that cannot be used; names it.
        PlanError: Profiles and pipeline do not fit together.
        InfeasibleBudget: Nothing is fast enough; says what is.
    """
    if job.out is not None:
        require_place(job.out, sources=source_files(*job.profiles, workload=job.workload))
    problem = _problem(job)
    planned = plan_pipeline(
        problem.loaded.profiles,
        problem.request,
        profile_name=problem.loaded.name,
        progress=progress,
    )
    planned = replace(planned, baseline_operations=problem.baseline.operations)
    planned = replace(planned, caveats=_plan_caveats(problem.loaded, planned))
    if job.out is not None:
        if job.frontier_point_count:
            points = _frontier(problem, job.frontier_point_count, progress)
            planned = replace(planned, frontier=points)
        write_pipeline(planned, job.out)
    return PipelineResult(
        plan=planned,
        rows=operation_rows(planned),
        stages_in_profile_count=problem.loaded.stages_in_profile_count,
        left_out_launch_count=problem.loaded.left_out_launch_count,
    )


def frontier_of_pipeline(
    job: PipelineJob, progress: Progress = no_progress
) -> PipelineFrontierResult:
    """The whole energy-time frontier of a pipeline. Raises InputError, PlanError."""
    problem = _problem(job)
    points = _frontier(problem, job.frontier_point_count, progress)
    return PipelineFrontierResult(
        request=problem.request,
        profile_name=problem.loaded.name,
        baseline_time_s=problem.baseline.time_s,
        baseline_energy_j=problem.baseline.energy_j,
        points=points,
        caveats=first_of_each_kind(*problem.loaded.caveats, *_of_changes(points)),
    )


def _problem(job: PipelineJob) -> _Problem:
    loaded = load_profiles(job.profiles, job.stage_count, job.workload)
    stage_count = 1 + max(profile.stage for profile in loaded.profiles)
    shape = PipelineShape(
        stage_count=stage_count,
        micro_batch_count=job.micro_batch_count,
        schedule=job.schedule,
        chunk_count=job.chunk_count,
    )
    request = PipelineRequest(
        shape=shape,
        blocking_power_w=job.blocking_power_w,
        max_time_s=None,
        stragglers=job.stragglers,
    )
    baseline = plan_pipeline(
        tuple(_at_baseline(profile) for profile in loaded.profiles),
        request,
        profile_name=loaded.name,
    )
    max_time_s = job.max_time_s
    if job.max_slowdown_ratio is not None:
        max_time_s = baseline.time_s * (1.0 + job.max_slowdown_ratio)
        if max_time_s > LONGEST_TIME_S:
            raise InputError(
                f"this allows {max_time_s:.3g} s an iteration, and no budget is longer than "
                f"{LONGEST_TIME_S:g} s",
                field="max-slowdown",
            )
    return _Problem(
        loaded=loaded, request=replace(request, max_time_s=max_time_s), baseline=baseline
    )


def _at_baseline(profile: StageProfile) -> StageProfile:
    option: OperationOption = profile.options[profile.baseline_index]
    return replace(profile, options=(option,), baseline_index=0)


def _frontier(problem: _Problem, point_count: int, progress: Progress) -> tuple[PipelinePoint, ...]:
    request = replace(problem.request, max_time_s=None)
    return pipeline_frontier(
        problem.loaded.profiles, request, point_count=point_count, progress=progress
    )


def _of_changes(points: tuple[PipelinePoint, ...]) -> tuple[Caveat, ...]:
    """Where a plan on the frontier changes clocks, it does so for free."""
    changing_count = sum(bool(point.changing_stage_count) for point in points)
    if not changing_count:
        return ()
    seen = (
        f"{changing_count} of {len(points)} plans change clocks between operations or within "
        "them; changing is free in them."
    )
    return (_not_counted(seen),)


def _not_counted(seen: str) -> Caveat:
    return Caveat(kind=CaveatKind.TRANSITIONS_NOT_COUNTED, seen=seen, advice=_FEWER_CHANGES)


def _plan_caveats(loaded: LoadedProfiles, plan: PipelinePlan) -> tuple[Caveat, ...]:
    doubts = []
    if plan.status is not Status.NO_GAIN:
        seen = "This plan has not been run, and `joulewise verify` does not run pipelines yet."
        doubts.append(Caveat(kind=CaveatKind.NOT_VERIFIED, seen=seen, advice=_RUN_IT))
    doubts += loaded.caveats
    changing_count = _changing_stage_count(plan)
    if changing_count:
        seen = (
            f"On {changing_count} of {plan.request.shape.stage_count} stages the plan changes "
            "clocks between operations or within them; changing is free in it."
        )
        doubts.append(_not_counted(seen))
    doubts += _of_cells(loaded, plan)
    return first_of_each_kind(*doubts)


def _changing_stage_count(plan: PipelinePlan) -> int:
    points: dict[int, set[OperatingPoint]] = {}
    for one in plan.operations:
        points.setdefault(one.stage, set()).update(_points_of(plan, one))
    return sum(len(used) > 1 for used in points.values())


def _points_of(plan: PipelinePlan, one: PlannedOperation) -> set[OperatingPoint]:
    if one.launches_index is None:
        return set() if one.point is None else {one.point}
    return {launch.point for launch in plan.kernel_plans[one.launches_index].launches}


def _of_cells(loaded: LoadedProfiles, plan: PipelinePlan) -> list[Caveat]:
    """Doubts about the cells that the plan stands on, added up by kind."""
    cells = {
        (one.stage, kernel, point)
        for one in plan.operations
        for kernel, point in _cells_of(loaded, plan, one)
    }
    counts = Counter(
        kind
        for stage, kernel, point in cells
        for kind in {c.kind for c in loaded.sweeps[stage].cell_caveats.get((kernel, point), ())}
    )
    return [
        Caveat(kind=kind, seen=f"{counts[kind]} of {len(cells)} chosen cells.")
        for kind in sorted(counts)
    ]


def _cells_of(
    loaded: LoadedProfiles, plan: PipelinePlan, one: PlannedOperation
) -> set[tuple[str, OperatingPoint]]:
    """Kernels and points that an operation runs."""
    if one.launches_index is not None:
        launches = plan.kernel_plans[one.launches_index].launches
        return {(launch.kernel, launch.point) for launch in launches}
    if one.point is None:
        return set()
    return {(kernel, one.point) for kernel in loaded.kernels[one.stage, one.instruction]}
