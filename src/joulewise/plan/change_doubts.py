"""Doubts about what changes of the operating point cost, in a plan and along a frontier."""

from __future__ import annotations

from collections.abc import Sequence

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.plan import Granularity
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.transition import TransitionModel
from joulewise.plan.changes import cost_of_change, untargeted_count


def plan_change_doubts(
    source: SweepSource, points: Sequence[OperatingPoint], model: TransitionModel | None
) -> tuple[Caveat, ...]:
    """Doubts about the changes that a plan makes; none where it makes none.

    Args:
        source: Where the sweep that the plan was made on comes from.
        points: The point of every launch of the iteration, which repeats.
        model: What changes cost; `None` where that is not counted.

    Raises:
        PlanError: the model has no entry for one of the changes.
    """
    changes = [
        (points[index - 1], after)
        for index, after in enumerate(points)
        if points[index - 1] != after
    ]
    if not changes:
        return ()
    if model is None:
        count = len(set(points))
        seen = f"The plan uses {count} operating points; changing between them is free in it."
        return (Caveat(kind=CaveatKind.TRANSITIONS_NOT_COUNTED, seen=seen),)
    others = sum(cost_of_change(model, *change).target is None for change in changes)
    made = f"The plan changes clocks {len(changes)} times an iteration"
    aside = f"{made}, and {others} of these changes are to clocks"
    return _of_model(source, model, made, aside if others else "")


def frontier_change_doubts(
    sweep: Sweep, granularity: Granularity, model: TransitionModel | None
) -> tuple[Caveat, ...]:
    """Doubts about the changes that the plans along a frontier of this sweep make.

    Raises:
        PlanError: the model has no entry for a change between two points of the sweep.
    """
    if granularity is Granularity.ITERATION or len(sweep.points) == 1:
        return ()
    made = "Plans between the ends use several operating points"
    if model is None:
        seen = f"{made}; changing them is free here."
        return (Caveat(kind=CaveatKind.TRANSITIONS_NOT_COUNTED, seen=seen),)
    others = untargeted_count(sweep.points, model)
    aside = f"{made}, and {others} of the {len(sweep.points)} points of the sweep have clocks"
    return _of_model(sweep.source, model, made, aside if others else "")


def _of_model(
    source: SweepSource, model: TransitionModel, made: str, aside: str
) -> tuple[Caveat, ...]:
    """Whether the model was measured: on this device, on a real one, and for these clocks.

    `aside` begins the sentence on changes that have no entry of their own; empty: all have one.
    """
    doubts = []
    name = repr(model.name)
    where = model.device_name or ""
    if model.is_simulated:
        where = f"{where}, a virtual device".removeprefix(", ")
    if not model.is_measured_on(source.device_name, is_simulated=source.is_simulated):
        seen = f"{made}; each change is taken to cost what the model {name} says"
        seen += f", measured on {where}." if where else "."
        doubts.append(Caveat(kind=CaveatKind.TRANSITIONS_ASSUMED, seen=seen))
    elif aside:
        seen = (
            f"{aside} that the model {name} has no measurement of; its entries for all other "
            "clocks stand for them."
        )
        doubts.append(Caveat(kind=CaveatKind.TRANSITIONS_ASSUMED, seen=seen))
    if model.is_simulated:
        seen = f"The transition model {name} was measured on {where}."
        doubts.append(Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen))
    return tuple(doubts)
