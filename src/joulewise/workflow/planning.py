"""`plan` and `frontier`: clocks from a sweep file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.domain.caveats import Caveat
from joulewise.domain.plan import FrontierPoint, Granularity, Plan, PlanRequest
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Progress, no_progress
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import Workload
from joulewise.plan.frontier import frontier
from joulewise.plan.make import (
    EACH_KERNEL_ONCE,
    frontier_caveats,
    make_plan,
    plan_from_choice,
    workload_doubts,
)
from joulewise.plan.table import plan_table
from joulewise.report.compare import ComparisonRow, comparison_rows
from joulewise.store.atomic import require_place
from joulewise.store.documents import write_plan
from joulewise.store.sweeps import read_sweep, sweep_sha256
from joulewise.workflow.mostly_gaps import with_gap_doubts
from joulewise.workflow.promise import plan_with_guard, plan_with_margin
from joulewise.workflow.reporting import report_inputs
from joulewise.workflow.transitions import (
    load_optional_transition,
    named_transition,
    transition_file,
)
from joulewise.workflow.workloads import load_optional_workload, refuse_other_size, source_files


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanJob:
    """What `plan` was asked for; `transition` as text, for the request."""

    sweep: Path
    workload: str | None
    request: PlanRequest
    is_guarded: bool
    out: Path | None
    transition: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierJob:
    """What `frontier` was asked for."""

    sweep: Path
    workload: str | None
    granularity: Granularity
    transition: str | None = None
    max_region_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPoint:
    """Where a kernel runs and how often; a kernel of several passes may come more than once."""

    kernel: str
    sm_clock_mhz: int | None
    mem_clock_mhz: int | None
    power_limit_w: float | None
    launch_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """A plan, its rivals, and its points kernel by kernel; and where its sweep comes from."""

    plan: Plan
    comparison: tuple[ComparisonRow, ...]
    points: tuple[PlannedPoint, ...]
    is_table_simulated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierResult:
    """A frontier and the doubts about the sweep it comes from.

    `transition` names the model by which changes count; `None` where they do not.
    """

    workload: str
    transition: str | None
    points: tuple[FrontierPoint, ...]
    caveats: tuple[Caveat, ...]


def plan_to_file(job: PlanJob, progress: Progress = no_progress) -> PlanResult:
    """Plan on a sweep; write the plan if asked to.

    With a guard, cells are first pulled toward the model and two standard errors of the budget
    are kept back; a table without scatter or without noise is planned as it stands. What
    changes may take beyond what is known of them is kept back either way. Raises InputError,
    PlanError, InfeasibleBudget.
    """
    if job.out is not None:
        model_file = transition_file(job.transition)
        files = (job.sweep,) if model_file is None else (job.sweep, model_file)
        require_place(job.out, sources=source_files(*files, workload=job.workload))
    request = replace(job.request, transition=load_optional_transition(job.transition))
    progress("planning", 0, 2)
    sweep = read_sweep(job.sweep)
    workload = load_optional_workload(job.workload)
    refuse_other_size(sweep.source.workload, workload, job.sweep)
    with named_transition(job.transition):
        plan, rivals = _planned(job, sweep, workload, request)
    plan = with_gap_doubts(plan, rivals or sweep)
    progress("planning", 1, 2)
    result = PlanResult(
        plan=plan,
        comparison=comparison_rows(
            report_inputs(
                plan,
                sweep,
                rivals=rivals,
                rivals_basis="the sweep, its noise smoothed by the model",
                is_drawn=False,
            )
        ),
        points=planned_points(plan),
        is_table_simulated=sweep.source.is_simulated,
    )
    progress("planning", 2, 2)
    if job.out is not None:
        write_plan(plan, job.out)
    return result


def _planned(
    job: PlanJob, sweep: Sweep, workload: Workload | None, request: PlanRequest
) -> tuple[Plan, Sweep | None]:
    """The plan, and the cells that rivals stand on where that is not the sweep itself."""
    digest = sweep_sha256(sweep)
    has_scatter = sweep.time_std_s is not None and sweep.energy_std_j is not None
    if job.is_guarded and has_scatter and not sweep.is_noise_free:
        kept = plan_with_guard(sweep, workload, request)
        plan = plan_from_choice(
            kept.sweep, workload, kept.table, kept.solution, sweep_sha256=digest
        )
        return plan, kept.sweep
    if job.is_guarded and request.transition is not None and request.transition.is_doubted:
        kept = plan_with_margin(sweep, workload, request)
        plan = plan_from_choice(sweep, workload, kept.table, kept.solution, sweep_sha256=digest)
        return plan, None
    return make_plan(sweep, workload, request, sweep_sha256=digest), None


def planned_points(plan: Plan) -> tuple[PlannedPoint, ...]:
    """Kernels in order of first launch, each with its point and number of launches."""
    counts: dict[tuple[str, OperatingPoint], int] = {}
    for launch in plan.launches:
        key = (launch.kernel, launch.point)
        counts[key] = counts.get(key, 0) + 1
    return tuple(
        PlannedPoint(
            kernel=kernel,
            sm_clock_mhz=point.sm_clock_mhz,
            mem_clock_mhz=point.mem_clock_mhz,
            power_limit_w=point.power_limit_w,
            launch_count=count,
        )
        for (kernel, point), count in counts.items()
    )


def frontier_of(job: FrontierJob, progress: Progress = no_progress) -> FrontierResult:
    """The whole energy-time frontier of a sweep file. Raises InputError, PlanError."""
    transition = load_optional_transition(job.transition)
    sweep = read_sweep(job.sweep)
    launches = load_optional_workload(job.workload)
    refuse_other_size(sweep.source.workload, launches, job.sweep)
    progress("planning at every budget", 0, 1)
    with named_transition(job.transition):
        table = plan_table(sweep, launches, job.granularity, transition)
    result = FrontierResult(
        workload=launches.name if launches is not None else EACH_KERNEL_ONCE,
        transition=None if transition is None else transition.name,
        points=frontier(table, max_region_count=job.max_region_count),
        caveats=(
            *frontier_caveats(sweep, job.granularity, transition),
            *(workload_doubts(launches) if transition is not None else ()),
        ),
    )
    progress("planning at every budget", 1, 1)
    return result
