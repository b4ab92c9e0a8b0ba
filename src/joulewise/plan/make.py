"""From a sweep and a wish to a plan: the chosen points per launch, and the doubts about them."""

from __future__ import annotations

from collections import Counter

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.plan import Granularity, Plan, PlannedLaunch, PlanRequest, Status
from joulewise.domain.sweep import Sweep
from joulewise.domain.transition import TransitionModel
from joulewise.domain.workload import Pass, Workload
from joulewise.plan.change_doubts import frontier_change_doubts, plan_change_doubts
from joulewise.plan.requests import planned_requests
from joulewise.plan.solve import Solution, solve
from joulewise.plan.table import PlanTable, plan_table

EACH_KERNEL_ONCE = "each kernel once"
"""Name of the iteration that is planned where no workload is given."""


def make_plan(
    sweep: Sweep,
    workload: Workload | None,
    request: PlanRequest,
    *,
    sweep_sha256: str,
    guard_band_ratio: float = 0.0,
    caveats: tuple[Caveat, ...] = (),
) -> Plan:
    """Plan one iteration on a sweep.

    Args:
        sweep: Measured, shrunken or predicted cells.
        workload: What runs in one iteration; `None` runs each kernel once, in table order.
        request: Objective, granularity, scope, budget, and what changes cost.
        sweep_sha256: Names the table that the plan stands on.
        guard_band_ratio: Part of the budget that is kept back.
        caveats: Doubts that the caller knows of, first in the plan.

    Raises:
        InfeasibleBudget: Nothing is fast enough, and the budget excludes the baseline.
        PlanError: Sweep and workload do not fit together, or the transition model lacks a
            change between two points of the sweep.
    """
    table = plan_table(sweep, workload, request.granularity, request.transition)
    solution = solve(table, request, guard_band_ratio=guard_band_ratio)
    return plan_from_choice(
        sweep, workload, table, solution, sweep_sha256=sweep_sha256, caveats=caveats
    )


def plan_from_choice(
    sweep: Sweep,
    workload: Workload | None,
    table: PlanTable,
    solution: Solution,
    *,
    sweep_sha256: str,
    caveats: tuple[Caveat, ...] = (),
) -> Plan:
    """Write a solution of `table` down as a plan: launch by launch, and request by request."""
    launches, distinct = _planned_launches(table, solution)
    launch_points = tuple(launch.point for launch in launches)
    requests = planned_requests(launch_points, solution.request.transition)
    _, transition_time_s, transition_energy_j = table.change_totals(solution.choice)
    return Plan(
        status=solution.status,
        request=solution.request,
        device=sweep.source.device,
        device_name=sweep.source.device_name,
        workload=workload.name if workload else EACH_KERNEL_ONCE,
        sweep_sha256=sweep_sha256,
        baseline=sweep.baseline,
        time_s=solution.time_s,
        energy_j=solution.energy_j,
        baseline_time_s=solution.baseline_time_s,
        baseline_energy_j=solution.baseline_energy_j,
        slowdown_ratio=solution.slowdown_ratio,
        saving_ratio=solution.saving_ratio,
        bound_gap_ratio=solution.bound_gap_ratio,
        guard_band_ratio=solution.guard_band_ratio,
        launches=launches,
        requests=requests,
        transition_time_s=transition_time_s,
        transition_energy_j=transition_energy_j,
        size=workload.size if workload else None,
        caveats=first_of_each_kind(
            *caveats,
            *sweep.caveats,
            *(workload.caveats if workload else ()),
            *_of_plan(sweep, solution),
            *plan_change_doubts(sweep, launch_points, solution.request.transition),
            *(workload_doubts(workload) if solution.request.transition and requests else ()),
            *_of_cells(sweep, distinct),
        ),
    )


def _planned_launches(
    table: PlanTable, solution: Solution
) -> tuple[tuple[PlannedLaunch, ...], tuple[PlannedLaunch, ...]]:
    """Every launch at the point of its class, and those that differ: equal ones are one record."""
    columns = solution.choice[table.launch_classes].tolist()
    known: dict[tuple[str, Pass, int], PlannedLaunch] = {}
    launches = []
    for launch, column in zip(table.launches, columns, strict=True):
        key = launch.kernel, launch.pass_, column
        planned = known.get(key)
        if planned is None:
            planned = PlannedLaunch(
                kernel=launch.kernel, pass_=launch.pass_, point=table.points[column]
            )
            known[key] = planned
        launches.append(planned)
    return tuple(launches), tuple(known.values())


def frontier_caveats(
    sweep: Sweep, granularity: Granularity, transition: TransitionModel | None = None
) -> tuple[Caveat, ...]:
    """Doubts about every plan on a frontier of this sweep."""
    return first_of_each_kind(
        *sweep.caveats,
        *_of_scatter(sweep, is_guarded=False),
        *frontier_change_doubts(sweep, granularity, transition),
    )


def workload_doubts(workload: Workload | None) -> tuple[Caveat, ...]:
    """WorkloadAssumed where changes of clocks are counted in an iteration that nobody runs."""
    if workload is not None:
        return ()
    seen = "No workload is given: each kernel is taken to run once, in the order of the table."
    return (Caveat(kind=CaveatKind.WORKLOAD_ASSUMED, seen=seen),)


def _of_plan(sweep: Sweep, solution: Solution) -> list[Caveat]:
    """Doubts about the plan as a whole."""
    caveats = []
    if solution.status is not Status.NO_GAIN:
        caveats.append(Caveat(kind=CaveatKind.NOT_VERIFIED, seen="This plan has not been run."))
    if sweep.source.is_simulated:
        seen = f"The sweep comes from {sweep.source.device_name}, a virtual device."
        caveats.append(Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen))
    if not sweep.has_auto_baseline:
        seen = f"The table has no (auto, auto) point; {sweep.baseline.label} stands for it."
        caveats.append(Caveat(kind=CaveatKind.BASELINE_ASSUMED, seen=seen))
    is_safe = solution.status is Status.NO_GAIN or solution.guard_band_ratio > 0
    caveats += _of_scatter(sweep, is_guarded=is_safe)
    return caveats


def _of_scatter(sweep: Sweep, *, is_guarded: bool) -> list[Caveat]:
    if sweep.time_std_s is None or sweep.energy_std_j is None:
        seen = "The table has no standard deviations."
        return [Caveat(kind=CaveatKind.NO_UNCERTAINTY, seen=seen)]
    if not is_guarded and not sweep.is_noise_free:
        seen = "The cells that promise the best plan were chosen for it, and nothing is kept back."
        return [Caveat(kind=CaveatKind.SELECTION_BIAS, seen=seen)]
    return []


def _of_cells(sweep: Sweep, launches: tuple[PlannedLaunch, ...]) -> list[Caveat]:
    """Doubts about the cells that the plan stands on, added up by kind."""
    cells = {(launch.kernel, launch.point) for launch in launches}
    counts = Counter(
        kind
        for cell in cells
        for kind in {caveat.kind for caveat in sweep.cell_caveats.get(cell, ())}
    )
    return [
        Caveat(kind=kind, seen=f"{counts[kind]} of {len(cells)} chosen cells.")
        for kind in sorted(counts)
    ]
