"""`transition-cost`: what the latency of a change leaves of a kernel plan's saving."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.errors import InfeasibleBudget, InputError
from joulewise.domain.plan import Granularity, PlanRequest
from joulewise.domain.ports import Progress
from joulewise.domain.sweep import IntTable, Sweep
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.domain.workload import Workload
from joulewise.plan.make import EACH_KERNEL_ONCE, frontier_caveats, workload_doubts
from joulewise.plan.solve import BUDGET_TOLERANCE_RATIO, Solution, solve
from joulewise.plan.statics import StaticPlan, best_static
from joulewise.plan.table import PlanTable, plan_table
from joulewise.report.transition_cost import TransitionCostRow, TransitionCosts
from joulewise.report.transition_cost_page import render_transition_cost
from joulewise.store.atomic import require_place, write_atomically
from joulewise.store.sweeps import read_sweep
from joulewise.workflow.lagging import late_totals
from joulewise.workflow.transitions import MOST_STALL_W, parse_duration
from joulewise.workflow.workloads import load_optional_workload, refuse_other_size, source_files

DEFAULT_LATENCIES = "0,10us,100us,1ms,6ms,15ms,100ms"
_MOST_LATENCIES = 100


class LatencyModel(StrEnum):
    """What a latency is: the GPU waits, or the new point comes late while work goes on."""

    STALL = "stall"
    LAG = "lag"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionCostJob:
    """What `transition-cost` was asked for."""

    sweep: Path
    workload: str | None
    max_slowdown_ratio: float
    latencies: str
    stall_power_w: float
    model: LatencyModel
    out: Path | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rivals:
    """What does not hang on the latency: the naive choice, (L,) columns, and the best point."""

    naive: IntTable
    static: StaticPlan | None


def transition_costs(job: TransitionCostJob, progress: Progress) -> TransitionCosts:
    """Plan at every latency, on the table as it stands; write the page if asked to.

    No guard band is kept back: the rows are to be compared with each other, and each is the best
    for the numbers of the sweep. Raises InputError, PlanError; InfeasibleBudget where the budget
    leaves out every plan even if changes are free.
    """
    if not 0.0 <= job.stall_power_w <= MOST_STALL_W:
        raise InputError(
            f"{job.stall_power_w:g} W is no power that a GPU draws while it waits",
            field="power",
            hint=f"Write watts from 0 to {MOST_STALL_W:g}.",
        )
    if job.out is not None:
        require_place(job.out, sources=source_files(job.sweep, workload=job.workload))
    latencies_s = parse_latencies(job.latencies)
    sweep = read_sweep(job.sweep)
    workload = load_optional_workload(job.workload)
    refuse_other_size(sweep.source.workload, workload, job.sweep)
    request = PlanRequest(max_slowdown_ratio=job.max_slowdown_ratio)
    free = plan_table(sweep, workload, Granularity.KERNEL)
    rivals = _Rivals(
        naive=solve(free, request).choice[free.launch_classes],
        static=best_static(free, job.max_slowdown_ratio),
    )
    rows = []
    for number, latency_s in enumerate(latencies_s):
        progress("planning at each latency", number, len(latencies_s))
        rows.append(_row(sweep, workload, request, rivals, latency_model(job, latency_s)))
    progress("planning at each latency", len(latencies_s), len(latencies_s))
    costs = TransitionCosts(
        workload=workload.name if workload else EACH_KERNEL_ONCE,
        device_name=sweep.source.device_name,
        is_simulated=sweep.source.is_simulated,
        model=job.model.value,
        stall_power_w=job.stall_power_w if job.model is LatencyModel.STALL else None,
        max_slowdown_ratio=job.max_slowdown_ratio,
        baseline_time_s=free.baseline_time_s,
        baseline_energy_j=free.baseline_energy_j,
        static_point=rivals.static.points[0] if rivals.static else None,
        rows=tuple(rows),
        caveats=(*_caveats(job, sweep), *workload_doubts(workload)),
    )
    if job.out is not None:
        write_atomically(job.out, render_transition_cost(costs).encode())
    return costs


def parse_latencies(text: str) -> tuple[float, ...]:
    """`0,10us,1ms` in seconds, ascending, each once. Raises InputError."""
    found = {parse_duration(part, "latencies") for part in text.split(",")}
    if len(found) > _MOST_LATENCIES:
        raise InputError(
            f"{len(found)} latencies are more than can be planned in a while",
            field="latencies",
            hint=f"Name at most {_MOST_LATENCIES}.",
        )
    return tuple(sorted(found))


def latency_model(job: TransitionCostJob, latency_s: float) -> TransitionModel:
    """The model in which every change takes this long, as a stall or as a lag."""
    source = "a latency of the table"
    if job.model is LatencyModel.LAG:
        return uniform_transition(f"lag={latency_s:g}", source, lag_s=latency_s)
    return uniform_transition(
        f"stall={latency_s:g},power={job.stall_power_w:g}",
        source,
        stall_s=latency_s,
        energy_j=latency_s * job.stall_power_w,
    )


def _solved(table: PlanTable, request: PlanRequest) -> Solution | None:
    try:
        return solve(table, request)
    except InfeasibleBudget:
        return None


def _row(
    sweep: Sweep,
    workload: Workload | None,
    request: PlanRequest,
    rivals: _Rivals,
    model: TransitionModel,
) -> TransitionCostRow:
    table = plan_table(sweep, workload, Granularity.KERNEL, model)
    plan = _solved(table, replace(request, transition=model))
    naive_s, naive_j = _naive_totals(table, rivals.naive, model) or (None, None)
    static = rivals.static
    bound_j = _bound_j(plan)
    limit_s = (1.0 + (request.max_slowdown_ratio or 0.0)) * table.baseline_time_s
    is_naive_late = naive_s is None or naive_s > limit_s * (1.0 + BUDGET_TOLERANCE_RATIO)
    return TransitionCostRow(
        latency_s=max(model.costs[0].stall_s, model.costs[0].lag_s),
        saving_ratio=plan.saving_ratio if plan else None,
        slowdown_ratio=plan.slowdown_ratio if plan else None,
        change_count=table.change_totals(plan.choice)[0] if plan else None,
        bound_gap_ratio=plan.bound_gap_ratio if plan else None,
        time_s=plan.time_s if plan else None,
        energy_j=plan.energy_j if plan else None,
        naive_saving_ratio=None if naive_j is None else 1.0 - naive_j / table.baseline_energy_j,
        naive_slowdown_ratio=None if naive_s is None else naive_s / table.baseline_time_s,
        naive_change_count=table.change_totals(rivals.naive)[0],
        naive_bound_gap_ratio=None if is_naive_late else _gap_ratio(naive_j, bound_j),
        naive_time_s=naive_s,
        naive_energy_j=naive_j,
        static_saving_ratio=static.saving_ratio if static else None,
        static_slowdown_ratio=static.slowdown_ratio if static else None,
        static_change_count=0 if static else None,
        static_bound_gap_ratio=_gap_ratio(static.energy_j, bound_j) if static else None,
        static_time_s=static.time_s if static else None,
        static_energy_j=static.energy_j if static else None,
    )


def _bound_j(plan: Solution | None) -> float | None:
    """Energy below which no plan within the budget lies, as far as that was proven."""
    if plan is None or plan.bound_gap_ratio is None:
        return None
    return plan.energy_j * (1.0 - plan.bound_gap_ratio)


def _gap_ratio(energy_j: float | None, bound_j: float | None) -> float | None:
    if energy_j is None or bound_j is None or not energy_j:
        return None
    return max(0.0, 1.0 - bound_j / energy_j)


def _naive_totals(
    table: PlanTable, choice: IntTable, model: TransitionModel
) -> tuple[float, float] | None:
    """Time and energy of the plan that did not count changes, at what they cost."""
    lag_s = model.costs[0].lag_s
    return late_totals(table, choice, lag_s) if lag_s else table.totals(choice)


def _caveats(job: TransitionCostJob, sweep: Sweep) -> tuple[Caveat, ...]:
    """Of the sweep, of planning on it as it stands, and of latencies that nobody measured."""
    doubts = []
    if sweep.source.is_simulated:
        seen = f"The sweep comes from {sweep.source.device_name}, a virtual device."
        doubts.append(Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen))
    seen = "Every latency of the table is assumed, and the same for every change."
    if job.model is LatencyModel.STALL:
        seen += f" The {job.stall_power_w:g} W during a stall are assumed as well."
    return first_of_each_kind(
        *doubts,
        Caveat(kind=CaveatKind.TRANSITIONS_ASSUMED, seen=seen),
        *frontier_caveats(sweep, Granularity.KERNEL, latency_model(job, 0.0)),
    )
