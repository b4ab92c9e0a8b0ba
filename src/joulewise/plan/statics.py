"""What coarser settings reach at the same slowdown: the honest peers of a kernel-level plan."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.errors import InfeasibleBudget
from joulewise.domain.plan import Granularity, Objective, PlanRequest
from joulewise.domain.points import OperatingPoint
from joulewise.plan.solve import solve
from joulewise.plan.table import PlanTable, coarsened


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPlan:
    """One operating point per class of a coarse granularity, with its totals per iteration.

    `launch_classes` gives the class of every launch of the iteration, in order. Where changes
    count, a pass that runs twice is two classes of one name. Totals include the changes.
    """

    granularity: Granularity
    class_names: tuple[str, ...]
    points: tuple[OperatingPoint, ...]
    launch_classes: tuple[int, ...]
    time_s: float
    energy_j: float
    slowdown_ratio: float
    saving_ratio: float


def best_static(table: PlanTable, max_slowdown_ratio: float | None) -> StaticPlan | None:
    """The single point of least energy for the whole iteration within a slowdown.

    Args:
        table: Any granularity; its classes are joined.
        max_slowdown_ratio: 0.006 allows 0.6 % more time than the baseline; `None` any.

    Returns `None` where no single point is that fast. From a slowdown of 0 up the baseline
    itself always is.
    """
    return _best(table, Granularity.ITERATION, max_slowdown_ratio)


def best_pass_level(table: PlanTable, max_slowdown_ratio: float | None) -> StaticPlan | None:
    """The best plan with one point per pass within a slowdown; as `best_static` otherwise."""
    return _best(table, Granularity.PASS, max_slowdown_ratio)


def _best(
    table: PlanTable, granularity: Granularity, max_slowdown_ratio: float | None
) -> StaticPlan | None:
    coarse = coarsened(table, granularity)
    request = PlanRequest(
        objective=Objective.ENERGY, granularity=granularity, max_slowdown_ratio=max_slowdown_ratio
    )
    try:
        solution = solve(coarse, request)
    except InfeasibleBudget:
        return None
    return StaticPlan(
        granularity=granularity,
        class_names=coarse.class_names,
        points=tuple(coarse.points[column] for column in solution.choice),
        launch_classes=tuple(coarse.launch_classes.tolist()),
        time_s=solution.time_s,
        energy_j=solution.energy_j,
        slowdown_ratio=solution.slowdown_ratio,
        saving_ratio=solution.saving_ratio,
    )
