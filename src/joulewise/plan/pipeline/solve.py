"""Plans and frontiers of pipelines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InfeasibleBudget, PlanError
from joulewise.domain.pipeline import (
    KernelPlan,
    PipelinePlan,
    PipelinePoint,
    PipelineRequest,
    PlannedOperation,
    StageProfile,
)
from joulewise.domain.plan import Status
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Progress, no_progress
from joulewise.domain.sweep import IntTable
from joulewise.plan.pipeline.exact import is_small, solve_exactly
from joulewise.plan.pipeline.graph import OperationGraph, earliest_ends
from joulewise.plan.pipeline.problem import PipelineProblem, pipeline_problem
from joulewise.plan.pipeline.program import PipelineProgram, Relaxed
from joulewise.plan.pipeline.rounding import rounded
from joulewise.plan.pipeline.sweeping import TIME_TOLERANCE_RATIO
from joulewise.plan.rest import PROVEN_RATIO, ROUNDING_RATIO, gap_ratio_of

_PLAN_COUNT = 64
_FRONTIER_PLAN_COUNT = 24
# Budgets that a frontier rounds side by side: many calls made one, within bounded memory.
_BATCH_COUNT = 25
_LEAST_POINT_COUNT = 2
_LATER_RATIOS = (1.0, 1.01, 1.05)
_DIGIT_COUNT = 6
_ALL_DIGITS_COUNT = 17


def plan_pipeline(
    profiles: Sequence[StageProfile],
    request: PipelineRequest,
    *,
    profile_name: str,
    caveats: tuple[Caveat, ...] = (),
    graph: OperationGraph | None = None,
    progress: Progress = no_progress,
) -> PipelinePlan:
    """Choose an option for every operation of one iteration: least energy within a time.

    Energy is that of all stages, waiting included: the sum over operations of energy - blocking
    power x time, plus stages x iteration time x blocking power. The bound is the linear
    program's; the plan is rounded from its optimum to options of the profiles. Where the options
    of all operations are few, plan and bound are those of the mixed-integer program.

    Args:
        profiles: One of each instruction on each stage.
        request: Shape, blocking power, budget and stragglers.
        profile_name: Says in the plan where the profiles come from.
        caveats: Doubts that the caller knows of.
        graph: Dependencies other than those of the request's schedule.
        progress: Told when the linear program is solved, and when the plan is found.

    Raises:
        InfeasibleBudget: No plan is that fast; says what the fastest takes.
        PlanError: Profiles, shape and stragglers do not fit together.
    """
    problem = pipeline_problem(profiles, request, graph)
    baseline = _baseline(problem)
    limit_s = _limit_s(request.max_time_s, problem, baseline)
    progress("pipeline plan", 0, 2)
    relaxed = PipelineProgram(problem).solve(limit_s)
    progress("pipeline plan", 1, 2)
    ends = _later(relaxed, limit_s)
    choices = rounded(problem, ends, plan_count=_PLAN_COUNT if len(ends) == 1 else _PLAN_COUNT // 2)
    found = _best_within(problem, choices, limit_s)
    bound_j = relaxed.bound_j
    if gap_ratio_of(found.energy_j, bound_j) > PROVEN_RATIO and is_small(problem):
        found, bound_j = _exactly(problem, found, bound_j, limit_s)
    is_baseline_allowed = baseline.time_s <= limit_s * (1.0 + TIME_TOLERANCE_RATIO)
    if is_baseline_allowed and not found.energy_j < baseline.energy_j * (1.0 - ROUNDING_RATIO):
        found, status = baseline, Status.NO_GAIN
    else:
        is_proven = gap_ratio_of(found.energy_j, bound_j) <= PROVEN_RATIO
        status = Status.OPTIMAL if is_proven else Status.FEASIBLE
    operations, kernel_plans = _written(problem, found.choice)
    progress("pipeline plan", 2, 2)
    return PipelinePlan(
        status=status,
        request=request,
        profile_name=profile_name,
        max_time_s=limit_s,
        time_s=found.time_s,
        energy_j=found.energy_j,
        bound_j=min(bound_j, found.energy_j),
        bound_gap_ratio=gap_ratio_of(found.energy_j, bound_j),
        baseline_time_s=baseline.time_s,
        baseline_energy_j=baseline.energy_j,
        slowdown_ratio=found.time_s / baseline.time_s,
        saving_ratio=1.0 - found.energy_j / baseline.energy_j,
        operations=operations,
        kernel_plans=kernel_plans,
        caveats=caveats,
    )


def pipeline_frontier(
    profiles: Sequence[StageProfile],
    request: PipelineRequest,
    *,
    point_count: int,
    progress: Progress = no_progress,
) -> tuple[PipelinePoint, ...]:
    """Plans from the fastest to the one of least energy, time ascending, none dominated.

    Args:
        profiles: One of each instruction on each stage.
        request: Shape, blocking power and stragglers; the frontier ends at its time, if it has
            one.
        point_count: Budgets to plan for, evenly over time. Fewer points come back where a plan
            for one budget also is the best for others.
        progress: Told of every budget twice: once bounded, once planned.

    Raises:
        InfeasibleBudget: No plan is as fast as the request's time.
        PlanError: Profiles, shape and stragglers do not fit together.
    """
    if point_count < _LEAST_POINT_COUNT:
        raise PlanError(f"a frontier needs at least 2 points, got {point_count}")
    problem = pipeline_problem(profiles, request)
    baseline = _baseline(problem)
    program = PipelineProgram(problem)
    frugal = program.solve(_longest_s(request, problem, baseline))
    budgets_s = np.linspace(problem.least_time_s(), frugal.time_s, point_count)
    return _undominated(_points(problem, program, baseline, budgets_s.tolist(), progress))


def pipeline_points(
    profiles: Sequence[StageProfile],
    request: PipelineRequest,
    *,
    budgets_s: Sequence[float],
    progress: Progress = no_progress,
) -> tuple[PipelinePoint, ...]:
    """A plan for each budget, in their order; the request's own time does not matter.

    Quicker than one `plan_pipeline` after another, and a little less thorough in rounding.

    Args:
        profiles: One of each instruction on each stage.
        request: Shape, blocking power and stragglers.
        budgets_s: Times for one iteration.
        progress: Told of every budget twice: once bounded, once planned.

    Raises:
        InfeasibleBudget: No plan is as fast as one of these times.
        PlanError: Profiles, shape and stragglers do not fit together.
    """
    problem = pipeline_problem(profiles, request)
    baseline = _baseline(problem)
    limits_s = [_limit_s(budget_s, problem, baseline) for budget_s in budgets_s]
    return tuple(_points(problem, PipelineProgram(problem), baseline, limits_s, progress))


def _points(
    problem: PipelineProblem,
    program: PipelineProgram,
    baseline: _Totals,
    budgets_s: Sequence[float],
    progress: Progress,
) -> list[PipelinePoint]:
    points: list[PipelinePoint] = []
    done_count, total_count = 0, 2 * len(budgets_s)
    progress("pipeline frontier", done_count, total_count)
    for begin in range(0, len(budgets_s), _BATCH_COUNT):
        batch_s = budgets_s[begin : begin + _BATCH_COUNT]
        relaxed = []
        for budget_s in batch_s:
            relaxed.append(program.solve(budget_s))
            done_count += 1
            progress("pipeline frontier", done_count, total_count)
        choices = rounded(problem, relaxed, plan_count=_FRONTIER_PLAN_COUNT)
        for budget_s, bound, places in zip(batch_s, relaxed, choices, strict=True):
            found = _best_within(problem, [places], budget_s)
            points.append(_point(problem, found, baseline, bound, budget_s))
        done_count += len(batch_s)
        progress("pipeline frontier", done_count, total_count)
    return points


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Totals:
    """One plan: (N,) the option of every operation in its profile, and what it comes to."""

    choice: IntTable
    time_s: float
    energy_j: float


def _totals(problem: PipelineProblem, choice: IntTable) -> _Totals:
    time_s, energy_j = problem.totals(choice)
    return _Totals(choice=choice, time_s=time_s, energy_j=energy_j)


def _best_within(problem: PipelineProblem, choices: Sequence[IntTable], limit_s: float) -> _Totals:
    """The plan of least energy among these and the fastest that keeps the time.

    The fastest always does. The others should; they are looked at again, for a promise of time
    is kept or not given.
    """
    fastest = np.zeros(problem.pass_of.size, dtype=np.int64)
    found = [_totals(problem, problem.indices(places)) for places in (*choices, fastest)]
    in_time = [one for one in found if one.time_s <= limit_s * (1.0 + TIME_TOLERANCE_RATIO)]
    return min(in_time, key=lambda totals: totals.energy_j)


def _exactly(
    problem: PipelineProblem, found: _Totals, bound_j: float, limit_s: float
) -> tuple[_Totals, float]:
    """The better of this plan and the exact one, and the higher of both bounds."""
    exact = solve_exactly(problem, limit_s)
    if exact is None:
        return found, bound_j
    if exact.places is not None:
        other = _best_within(problem, [exact.places], limit_s)
        found = min(found, other, key=lambda totals: totals.energy_j)
    return found, max(bound_j, exact.bound_j)


def _baseline(problem: PipelineProblem) -> _Totals:
    """Every operation as users have it today."""
    own = np.array([options.profile.baseline_index for options in problem.passes])
    return _totals(problem, own[problem.pass_of])


def _limit_s(max_time_s: float | None, problem: PipelineProblem, baseline: _Totals) -> float:
    """The budget, at least what the fastest takes."""
    limit_s = baseline.time_s if max_time_s is None else max_time_s
    if not math.isfinite(limit_s):
        raise PlanError(f"the time for one iteration must be a number, got {limit_s}")
    least_s = problem.least_time_s()
    if limit_s < least_s * (1.0 - TIME_TOLERANCE_RATIO):
        limit, least = _apart(limit_s, least_s)
        raise InfeasibleBudget(
            f"no plan finishes an iteration in {limit} s:"
            f" with every operation at its fastest it takes {least} s",
            least_slowdown_ratio=least_s / baseline.time_s,
            hint=f"Allow at least {_rounded_up(least_s):.6g} s.",
        )
    return max(limit_s, least_s)


def _apart(one: float, other: float) -> tuple[str, str]:
    """Two different numbers for people, with as many digits as it takes to tell them apart."""
    for digit_count in range(_DIGIT_COUNT, _ALL_DIGITS_COUNT):
        texts = f"{one:.{digit_count}g}", f"{other:.{digit_count}g}"
        if texts[0] != texts[1]:
            return texts
    return repr(one), repr(other)


def _rounded_up(time_s: float) -> float:
    """To five digits, for people to type."""
    unit_s = 10.0 ** (math.floor(math.log10(time_s)) - 4)
    return math.ceil(time_s / unit_s) * unit_s


def _longest_s(request: PipelineRequest, problem: PipelineProblem, baseline: _Totals) -> float:
    """Where a frontier may end: at the request's time, else where more cannot be used."""
    if request.max_time_s is not None:
        return _limit_s(request.max_time_s, problem, baseline)
    frugal = np.array([options.indices[-1] for options in problem.passes])
    return problem.totals(frugal[problem.pass_of])[0]


def _later(relaxed: Relaxed, limit_s: float) -> list[Relaxed]:
    """The same optimum with later ends, where the budget leaves time that it does not use.

    Options being what they are, a whole plan may do better with a little more time.
    """
    ends_s = (min(limit_s, relaxed.time_s * ratio) for ratio in _LATER_RATIOS)
    return [replace(relaxed, time_s=end_s) for end_s in dict.fromkeys(ends_s)]


def _point(
    problem: PipelineProblem,
    found: _Totals,
    baseline: _Totals,
    relaxed: Relaxed,
    budget_s: float,
) -> PipelinePoint:
    return PipelinePoint(
        max_time_s=budget_s,
        time_s=found.time_s,
        energy_j=found.energy_j,
        bound_j=min(relaxed.bound_j, found.energy_j),
        slowdown_ratio=found.time_s / baseline.time_s,
        saving_ratio=1.0 - found.energy_j / baseline.energy_j,
        changing_stage_count=_changing_stage_count(problem, found.choice),
    )


def _changing_stage_count(problem: PipelineProblem, choice: IntTable) -> int:
    """Stages on which not everything runs at one operating point."""
    used: dict[int, set[OperatingPoint]] = {}
    for place, index in set(zip(problem.pass_of.tolist(), choice.tolist(), strict=True)):
        profile = problem.passes[place].profile
        option = profile.options[index]
        points = used.setdefault(profile.stage, set())
        points.update(launch.point for launch in option.launches)
        if option.point is not None:
            points.add(option.point)
    return sum(len(points) > 1 for points in used.values())


def _undominated(points: Sequence[PipelinePoint]) -> tuple[PipelinePoint, ...]:
    """Of points with rising budgets those that no other beats or equals, by time."""
    kept: list[PipelinePoint] = []
    for point in points:
        if kept and point.energy_j >= kept[-1].energy_j * (1.0 - ROUNDING_RATIO):
            continue
        while kept and kept[-1].time_s >= point.time_s:
            kept.pop()
        kept.append(point)
    return tuple(kept)


def _written(
    problem: PipelineProblem, choice: IntTable
) -> tuple[tuple[PlannedOperation, ...], tuple[KernelPlan, ...]]:
    """Operations with their starts, and each kernel-level plan that they use once."""
    kernel_plans: dict[tuple[int, int], KernelPlan] = {}
    places: dict[tuple[int, int], int] = {}
    operations = []
    time_s = problem.times(choice)
    # Starts are ends of others, not own ends less own times: no gaps of rounding between them.
    ends_s = np.append(earliest_ends(problem.graph, time_s), 0.0)
    starts_s = ends_s[problem.graph.predecessors].max(axis=1)
    for place, operation in enumerate(problem.graph.operations):
        key = (int(problem.pass_of[place]), int(choice[place]))
        options = problem.passes[key[0]]
        option = options.profile.options[key[1]]
        if option.launches and key not in kernel_plans:
            places[key] = len(kernel_plans)
            kernel_plans[key] = KernelPlan(
                stage=operation.stage,
                instruction=operation.instruction,
                time_s=option.time_s,
                energy_j=option.energy_j,
                launches=option.launches,
            )
        operations.append(
            PlannedOperation(
                stage=operation.stage,
                chunk=operation.chunk,
                micro_batch=operation.micro_batch,
                instruction=operation.instruction,
                start_s=float(starts_s[place]),
                time_s=float(time_s[place]),
                energy_j=options.scale_ratio * option.energy_j,
                point=option.point,
                launches_index=places.get(key),
            )
        )
    return tuple(operations), tuple(kernel_plans.values())
