"""Whether a plan that was read can be carried out: its requests, its changes, their costs."""

from __future__ import annotations

import math

from joulewise.domain.plan import Plan, Status
from joulewise.domain.points import OperatingPoint
from joulewise.domain.transition import TransitionModel
from joulewise.store.record_files import unlike
from joulewise.store.transition_files import LONGEST_S, check_transition

_ROUNDING_RATIO = 1e-9
_PROVEN_RATIO = 1e-6  # more than any solver's tolerance


def check_figures(plan: Plan, file: str) -> None:
    """Refuse ratios that are not those of the figures beside them.

    Raises:
        InputError: names the field.
    """
    slowdown_ratio = plan.time_s / plan.baseline_time_s
    if not math.isclose(plan.slowdown_ratio, slowdown_ratio, rel_tol=_ROUNDING_RATIO):
        message = f"time_s / baseline_time_s is {slowdown_ratio:.9g}"
        raise unlike(message, file, "slowdown_ratio")
    remaining_ratio = plan.energy_j / plan.baseline_energy_j
    if not math.isclose(1.0 - plan.saving_ratio, remaining_ratio, rel_tol=_ROUNDING_RATIO):
        message = f"1 - energy_j / baseline_energy_j is {1.0 - remaining_ratio:.9g}"
        raise unlike(message, file, "saving_ratio")
    gap_ratio = plan.bound_gap_ratio
    if gap_ratio is not None and not 0.0 <= gap_ratio <= 1.0:
        raise unlike("a gap is a part of the plan: from 0 to 1", file, "bound_gap_ratio")
    if plan.status is Status.OPTIMAL and gap_ratio is not None and gap_ratio > _PROVEN_RATIO:
        raise unlike("a plan with such a gap to its bound is not proven best", file, "status")


def check_schedule(plan: Plan, file: str) -> None:
    """Refuse requests that do not fit the launches, and changes that nothing is known of.

    A plan without any requests is from before there were any; it counts no transitions.

    Raises:
        InputError: names the field.
    """
    changes = _changes(plan)
    limit = plan.request.max_region_count
    if limit is not None and limit < 1:
        raise unlike("an iteration has at least one region", file, "request.max_region_count")
    if limit is not None and len(changes) > limit:
        raise unlike(
            f"the plan has {len(changes)} regions, more than this allows",
            file,
            "request.max_region_count",
        )
    _check_costs(plan, changes, file)
    _check_sums(plan, changes, file)
    if plan.requests or plan.request.transition is not None:
        _check_requests(plan, changes, file)
        _check_spacing(plan, changes, file)


def _changes(plan: Plan) -> dict[int, tuple[OperatingPoint, OperatingPoint]]:
    """Points before and after, by the launch that a change comes before; around the cycle."""
    points = [launch.point for launch in plan.launches]
    return {
        index: (points[index - 1], point)
        for index, point in enumerate(points)
        if point != points[index - 1]
    }


def _check_costs(
    plan: Plan, changes: dict[int, tuple[OperatingPoint, OperatingPoint]], file: str
) -> None:
    for name in ("transition_time_s", "transition_energy_j"):
        whole = plan.time_s if name.endswith("_s") else plan.energy_j
        if getattr(plan, name) > whole:
            raise unlike("this is a part of the whole iteration, not more", file, name)
    model = plan.request.transition
    if model is None:
        return
    check_transition(model, file, "request.transition.")
    for index, (before, after) in changes.items():
        if model.cost(before, after) is None:
            raise unlike(
                f"the plan changes from {before.label} to {after.label} before launch {index}, "
                "and its transition model does not say what that costs",
                file,
                "request.transition.costs",
            )


def _check_sums(
    plan: Plan, changes: dict[int, tuple[OperatingPoint, OperatingPoint]], file: str
) -> None:
    """What the changes take is what the model says of each; nothing where there is no model."""
    model = plan.request.transition
    costs = [] if model is None else [model.cost(*change) for change in changes.values()]
    for name, field in (("transition_time_s", "stall_s"), ("transition_energy_j", "energy_j")):
        whole = math.fsum(getattr(cost, field) for cost in costs)
        if not math.isclose(getattr(plan, name), whole, rel_tol=_ROUNDING_RATIO):
            raise unlike(
                f"by the plan's transition model its {len(changes)} changes take {whole:.9g} "
                f"{name[-1].replace('j', 'J')}",
                file,
                name,
            )


def _check_lead(lead_s: float, known_s: float, field: str, file: str) -> None:
    if lead_s > LONGEST_S:
        raise unlike(f"no lead is longer than {LONGEST_S:g} s", file, field)
    if lead_s != known_s:
        raise unlike(
            f"this change takes effect {known_s!r} s after it was asked for, and so it is asked "
            f"for as long ahead, not {lead_s!r} s",
            file,
            field,
        )


def _check_spacing(
    plan: Plan, changes: dict[int, tuple[OperatingPoint, OperatingPoint]], file: str
) -> None:
    """Requests go out one by one, each once the last is in force and its dwell is over.

    What a launch takes the plan does not say; all of them together take no longer than it does.
    """
    model = plan.request.transition
    if model is None:
        return
    lags_s = [_lag_s(model, *change) for change in changes.values()]
    needed_s = sum(max(lag_s, model.dwell_s) for lag_s in lags_s)
    if needed_s > plan.time_s * (1.0 + _ROUNDING_RATIO):
        raise unlike(
            f"one after the other the plan's {len(changes)} requests take at least "
            f"{needed_s:.6g} s, and its iteration {plan.time_s:.6g} s",
            file,
            "requests",
        )


def _lag_s(model: TransitionModel | None, before: OperatingPoint, after: OperatingPoint) -> float:
    """How long requests are kept apart for a change; what is not counted does not lag."""
    cost = None if model is None else model.cost(before, after)
    return 0.0 if cost is None else cost.lag_s


def _lead_s(model: TransitionModel | None, before: OperatingPoint, after: OperatingPoint) -> float:
    """How far ahead of a change it is asked for."""
    lead = None if model is None else model.lead(before, after)
    return 0.0 if lead is None else lead.lead_s


def _check_requests(
    plan: Plan, changes: dict[int, tuple[OperatingPoint, OperatingPoint]], file: str
) -> None:
    """One request per change, in order, for the point that the launch runs at."""
    last = -1
    for number, request in enumerate(plan.requests):
        index, here = request.launch_index, f"requests[{number}]"
        if not 0 <= index < len(plan.launches):
            raise unlike(
                f"the plan's launches count from 0 to {len(plan.launches) - 1}",
                file,
                f"{here}.launch_index",
            )
        if index <= last:
            raise unlike(
                "requests are in order of launches, one at most for each",
                file,
                f"{here}.launch_index",
            )
        if request.point != plan.launches[index].point:
            raise unlike(
                f"launch {index} runs at {plan.launches[index].point.label}, "
                f"and this asks for {request.point.label}",
                file,
                f"{here}.point",
            )
        if index not in changes:
            raise unlike(
                f"launch {index} runs at the point of the launch before it; nothing changes there",
                file,
                f"{here}.launch_index",
            )
        lead_s = _lead_s(plan.request.transition, *changes[index])
        _check_lead(request.lead_s, lead_s, f"{here}.lead_s", file)
        last = index
    asked = {request.launch_index for request in plan.requests}
    missing = [index for index in changes if index not in asked]
    if missing:
        before, after = changes[missing[0]]
        raise unlike(
            f"no request changes the point from {before.label} to {after.label} "
            f"before launch {missing[0]}",
            file,
            "requests",
        )
