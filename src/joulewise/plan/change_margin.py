"""Time that a plan's changes may take on top of what the plan counts.

Knobs are set one after the other. While the first of them are in force and the last is not, work
goes on at a point in between, and often at a slower one than before or after: what lowers power
is set first. What that costs hangs on the launch that is caught by it, so it is no cost of the
change; it is held back of the budget.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np

from joulewise.domain.points import KNOBS, OperatingPoint
from joulewise.domain.sweep import IntTable
from joulewise.domain.transition import (
    ChangeLead,
    TransitionDomain,
    TransitionModel,
    changed_domain,
)
from joulewise.plan.changes import BOTH, cost_of_change, lead_of_change
from joulewise.plan.table import PlanTable


def change_margin_s(table: PlanTable, choice: IntTable, model: TransitionModel | None) -> float:
    """How much longer an iteration may take by its changes than the plan counts.

    Of every change it is what measuring could not have shown (`unseen_stall_s`), and what work
    loses in `ChangeLead.partial_s`, while some knobs are at the new setting and others at the
    old one: the classes that run then are taken to run as slowly as at the slowest of the
    points in between, and what they are behind by is done at the point after. For points in
    between that the table lacks the point after stands.

    Args:
        table: Its classes are in order of launch.
        choice: (C,) point of every class.
        model: What changes cost; `None` leaves nothing open.

    Raises:
        PlanError: the model has no entry for one of the changes.
    """
    if model is None or not model.is_doubted:
        return 0.0
    margin_s = 0.0
    slowest: dict[tuple[OperatingPoint, OperatingPoint], list[int]] = {}
    for index in np.flatnonzero(choice != np.roll(choice, 1)).tolist():
        before, after = table.points[choice[index - 1]], table.points[choice[index]]
        margin_s += cost_of_change(model, before, after).unseen_stall_s
        lead = lead_of_change(model, before, after)
        if lead.partial_s:
            columns = slowest.setdefault((before, after), _columns_between(table, before, after))
            margin_s += _lost_s(table, choice, index, lead, columns)
    return margin_s


def has_partial_limits(model: TransitionModel | None) -> bool:
    """Whether some change of the SM side is in force in parts, as one of clock and limit is."""
    return model is not None and any(
        lead.partial_s and changed_domain(lead.before, lead.after) is TransitionDomain.SM
        for lead in model.leads
    )


def surcharged(table: PlanTable, model: TransitionModel | None) -> PlanTable:
    """The table with changes of both clocks that wait for what work loses by them in the mean.

    To search with, so that plans are found that need little held back. Changes of the SM side
    alone share their cost with those of one knob, and so have no surcharge.
    """
    changes = table.changes
    if model is None or changes is None or not any(lead.partial_s for lead in model.leads):
        return table
    columns = {point: column for column, point in enumerate(table.points)}
    total_s, count = np.zeros(len(columns)), np.zeros(len(columns))
    for lead in model.leads:
        before, after = columns.get(lead.before), columns.get(lead.after)
        if before is None or after is None or not lead.partial_s:
            continue
        if changed_domain(lead.before, lead.after) is TransitionDomain.BOTH:
            between = _columns_between(table, lead.before, lead.after)
            total_s[after] += lead.partial_s * _mean_loss_ratio(table, before, after, between)
            count[after] += 1
    stall_s = changes.stall_s.copy()
    stall_s[BOTH] += total_s / np.maximum(count, 1.0)
    return replace(table, changes=replace(changes, stall_s=stall_s))


def points_between(before: OperatingPoint, after: OperatingPoint) -> tuple[OperatingPoint, ...]:
    """Every point with some of the knobs that change at the new setting and others at the old."""
    knobs = [knob for knob in KNOBS if getattr(before, knob) != getattr(after, knob)]
    return tuple(
        replace(before, **{knob: getattr(after, knob) for knob in some})
        for count in range(1, len(knobs))
        for some in combinations(knobs, count)
    )


def _columns_between(table: PlanTable, before: OperatingPoint, after: OperatingPoint) -> list[int]:
    """Columns of the points in between; that of the point after, where some was not measured.

    What is slow at both ends of a change is hardly slower in between than at the slower end.
    """
    columns = {point: column for column, point in enumerate(table.points)}
    between = points_between(before, after)
    known = [columns[point] for point in between if point in columns]
    return known if len(known) == len(between) else [*known, columns[after]]


def _lost_s(
    table: PlanTable, choice: IntTable, index: int, lead: ChangeLead, columns: list[int]
) -> float:
    """What the classes lose that run up to this one while the change is in force in parts."""
    lost_s, left_s, earlier = 0.0, lead.partial_s, index - 1
    # Ends: classes take time, and no lag is looked at beyond one iteration.
    while left_s > 0.0 and earlier > index - 1 - len(choice):
        own_s = float(table.time_s[earlier, choice[earlier]])
        times_s = table.time_s[earlier, columns]
        known_s = times_s[np.isfinite(times_s)]
        if known_s.size and math.isfinite(own_s):
            lost_s += min(left_s, own_s) * max(0.0, 1.0 - own_s / float(known_s.max()))
        left_s -= own_s
        earlier -= 1
    # What is left to do when the change is in force in whole is done at the point after.
    last_s, next_s = (float(table.time_s[index - 1, choice[one]]) for one in (index - 1, index))
    return lost_s * (max(1.0, next_s / last_s) if math.isfinite(next_s) else 1.0)


def _mean_loss_ratio(table: PlanTable, before: int, after: int, between: list[int]) -> float:
    """Share of its time that work at a point loses where a change catches it, in the mean."""
    own_s, next_s = table.time_s[:, before], table.time_s[:, after]
    slowest_s = table.time_s[:, between].max(axis=1)
    is_known = np.isfinite(own_s) & np.isfinite(next_s) & np.isfinite(slowest_s)
    if not is_known.any():
        return 0.0
    own_s, next_s, slowest_s = own_s[is_known], next_s[is_known], slowest_s[is_known]
    lost = np.maximum(0.0, 1.0 - own_s / slowest_s) * np.maximum(1.0, next_s / own_s)
    return float(np.average(lost, weights=own_s))
