"""Regions of a plan: runs of launches at one operating point, around the iteration."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.plan import Plan
from joulewise.domain.points import OperatingPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Launches from the first to the last, which count from 0, at one operating point.

    Where the last comes before the first the region goes on into the next iteration.
    """

    first_launch: int
    last_launch: int
    point: OperatingPoint


def plan_regions(plan: Plan) -> tuple[Region, ...]:
    """The regions in order of their first launches; one where nothing ever changes."""
    points = [launch.point for launch in plan.launches]
    starts = change_indices(plan)
    if not starts:
        return (Region(first_launch=0, last_launch=len(points) - 1, point=points[0]),)
    nexts = [*starts[1:], starts[0]]
    return tuple(
        Region(
            first_launch=start,
            last_launch=(following - 1) % len(points),
            point=points[start],
        )
        for start, following in zip(starts, nexts, strict=True)
    )


def change_indices(plan: Plan) -> tuple[int, ...]:
    """Launches that run at another point than the one before; before the first is the last."""
    points = [launch.point for launch in plan.launches]
    return tuple(index for index, point in enumerate(points) if point != points[index - 1])


def stalls_s(plan: Plan) -> dict[int, float]:
    """How long the GPU waits before each launch at which the point changes.

    Empty where changes are not counted or cost no time.
    """
    model = plan.request.transition
    if model is None:
        return {}
    points = [launch.point for launch in plan.launches]
    costs = {index: model.cost(points[index - 1], points[index]) for index in change_indices(plan)}
    return {index: cost.stall_s for index, cost in costs.items() if cost is not None}
