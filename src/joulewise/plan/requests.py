"""A plan as it is carried out: when to ask for which point."""

from __future__ import annotations

from joulewise.domain.plan import PlannedRequest
from joulewise.domain.points import OperatingPoint
from joulewise.domain.transition import TransitionModel
from joulewise.plan.changes import lead_of_change


def planned_requests(
    points: tuple[OperatingPoint, ...], model: TransitionModel | None
) -> tuple[PlannedRequest, ...]:
    """One request per change of point around an iteration, in order of launches.

    A request is made as long before its launch begins as this very change lags, so that the
    point is in force when the launch begins and not before: the iteration is known, and so is
    the one before it, for it is the same. Where the changes keep `ChangeCosts.spacing_s`, no
    request comes before the last is in force, nor within the dwell after it.

    Args:
        points: The point of every launch of the iteration. A change from the last to the first
            belongs to launch 0.
        model: What changes cost; `None` has no lag.

    Returns:
        The requests; none where one point serves the whole iteration.

    Raises:
        PlanError: The model has no entry for one of the changes.
    """
    requests = []
    for index, after in enumerate(points):
        before = points[index - 1]
        if before is after or before == after:
            continue
        lead_s = 0.0 if model is None else lead_of_change(model, before, after).lead_s
        requests.append(PlannedRequest(launch_index=index, lead_s=lead_s, point=after))
    return tuple(requests)
