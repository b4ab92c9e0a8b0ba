"""Kernel-level plans of one stage's forward or backward pass, as options of that operation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulewise.domain.errors import InputError
from joulewise.domain.pipeline import BoundPoint, Instruction, OperationOption
from joulewise.domain.plan import Granularity, Objective, PlannedLaunch, PlanRequest
from joulewise.domain.sweep import IntTable, Sweep
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.plan.options import options_of, relaxation_of
from joulewise.plan.solve import solve
from joulewise.plan.table import PlanTable, plan_table

MOST_OPTIONS_COUNT = 40
"""Options of one operation, the baseline included.

Plans choose among these; bounds hold for all kernel-level plans between them as well.
"""

_PASS = {Instruction.FORWARD: Pass.FORWARD, Instruction.BACKWARD: Pass.BACKWARD}
# A step along the frontier costs more energy per second the faster the plan already is.
_CLUSTERING = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """What one operation can choose from, slowest last.

    `bound_points` are all corners of the convex hull of the pass's kernel-level plans: the
    linear relaxation, below which no plan lies, whether it is among the options or not.
    """

    options: tuple[OperationOption, ...]
    bound_points: tuple[BoundPoint, ...]
    baseline_index: int
    kernels: tuple[str, ...]
    left_out_launch_count: int


def stage_options(
    sweep: Sweep,
    workload: Workload,
    instruction: Instruction,
    file: str,
    *,
    most_options_count: int = MOST_OPTIONS_COUNT,
) -> StageOptions:
    """Plans along the energy-time frontier of one pass, and the baseline.

    Each option is the cheapest plan within one of a row of time budgets between the fastest
    possible and that of the least energy. Communication counts to the pass it stands in; the
    optimizer runs once an iteration, in no operation, and is left out.

    Raises:
        InputError: The workload launches nothing in this pass; names the file.
        PlanError: The sweep lacks a kernel or its baseline.
    """
    launches, left_out_count = launches_of(workload, instruction)
    if not launches:
        raise InputError(
            f"the workload {workload.name!r} launches nothing in its {instruction} pass",
            file=file,
            field="workload",
            hint='Give each launch its "pass" in the workload file.',
        )
    part = Workload(name=workload.name, launches=launches)
    table = plan_table(sweep, part, Granularity.KERNEL)
    baseline = np.full(len(table.class_names), table.baseline_index, dtype=np.int64)
    choices = _without_dominated(table, _choices(table, most_options_count))
    chosen = [choice for choice in choices if not np.array_equal(choice, baseline)]
    options = [_option(table, choice) for choice in chosen]
    at_baseline = _option(table, baseline)
    index = sum(one.time_s < at_baseline.time_s for one in options)
    options.insert(index, at_baseline)
    return StageOptions(
        options=tuple(options),
        bound_points=_bound_points(table),
        baseline_index=index,
        kernels=part.kernels,
        left_out_launch_count=left_out_count,
    )


def launches_of(workload: Workload, instruction: Instruction) -> tuple[tuple[Launch, ...], int]:
    """The launches of one pass in order, and how many belong to no pass of a micro-batch."""
    own: list[Launch] = []
    current, left_out_count = Pass.FORWARD, 0
    for launch in workload.launches:
        if launch.pass_ is Pass.OPTIMIZER:
            left_out_count += 1
            continue
        if launch.pass_ is not Pass.COMMUNICATION:
            current = launch.pass_
        if current is _PASS[instruction]:
            own.append(launch)
    return tuple(own), left_out_count


def _bound_points(table: PlanTable) -> tuple[BoundPoint, ...]:
    relaxation = relaxation_of(options_of(table.time_s, table.energy_j))
    corners = zip(relaxation.time_s.tolist(), relaxation.energy_j.tolist(), strict=True)
    return tuple(BoundPoint(time_s=time_s, energy_j=energy_j) for time_s, energy_j in corners)


def _choices(table: PlanTable, most_options_count: int) -> list[IntTable]:
    """Cheapest plans within budgets from the fastest to the least energy, fastest first."""
    fastest_ratio = float(table.time_s.min(axis=1).sum()) / table.baseline_time_s
    cheapest = solve(table, _request(None))
    span_ratio = cheapest.slowdown_ratio - fastest_ratio
    steps = np.linspace(0.0, 1.0, most_options_count - 1)[:-1] ** _CLUSTERING
    budgets = [fastest_ratio - 1.0 + span_ratio * float(step) for step in steps]
    found = [solve(table, _request(budget)).choice for budget in budgets if span_ratio > 0]
    return [*found, cheapest.choice]


def _request(max_slowdown_ratio: float | None) -> PlanRequest:
    return PlanRequest(objective=Objective.ENERGY, max_slowdown_ratio=max_slowdown_ratio)


def _without_dominated(table: PlanTable, choices: list[IntTable]) -> list[IntTable]:
    """Each faster or cheaper than all others, fastest first."""
    totals = [(*table.totals(choice), number) for number, choice in enumerate(choices)]
    kept: list[IntTable] = []
    least_j = np.inf
    for _, energy_j, number in sorted(totals):
        if energy_j < least_j:
            least_j = energy_j
            kept.append(choices[number])
    return kept


def _option(table: PlanTable, choice: IntTable) -> OperationOption:
    """A plan with its launches; where one point serves them all, that point says it."""
    time_s, energy_j = table.totals(choice)
    points = [table.points[column] for column in choice[table.launch_classes].tolist()]
    if len(set(points)) == 1:
        return OperationOption(time_s=time_s, energy_j=energy_j, point=points[0])
    launches = tuple(
        PlannedLaunch(kernel=launch.kernel, pass_=launch.pass_, point=point)
        for launch, point in zip(table.launches, points, strict=True)
    )
    return OperationOption(time_s=time_s, energy_j=energy_j, launches=launches)
