"""Doubts about what changes of the operating point cost, in a plan and along a frontier."""

from __future__ import annotations

import math
from collections.abc import Sequence

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.plan import Granularity
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import Sweep
from joulewise.domain.transition import TransitionModel
from joulewise.plan.changes import cost_of_change, unknown_clocks, untargeted_count


def plan_change_doubts(
    sweep: Sweep, points: Sequence[OperatingPoint], model: TransitionModel | None
) -> tuple[Caveat, ...]:
    """Doubts about the changes that a plan makes; none where it makes none.

    Args:
        sweep: What the plan was made on.
        points: The point of every launch of the iteration, which repeats.
        model: What changes cost; `None` where that is not counted.

    Raises:
        PlanError: the model has no entry for one of the changes.
    """
    changes = [
        (points[index - 1], after)
        for index, after in enumerate(points)
        if points[index - 1] is not after and points[index - 1] != after
    ]
    if not changes:
        return ()
    if model is None:
        count = len(set(points))
        seen = f"The plan uses {count} operating points; changing between them is free in it."
        return (Caveat(kind=CaveatKind.TRANSITIONS_NOT_COUNTED, seen=seen),)
    costs = [cost_of_change(model, *change) for change in changes]
    others = sum(cost.target is None for cost in costs)
    made = f"The plan changes clocks {len(changes)} times an iteration"
    asides = []
    if others:
        asides.append(f"{made}, and {others} of these changes are to clocks{_unmeasured(model)}")
    unseen_s = math.fsum(cost.unseen_stall_s for cost in costs)
    unseen_j = math.fsum(cost.unseen_energy_j for cost in costs)
    if unseen_s or unseen_j:
        asides.append(
            f"Its changes may take up to {unseen_s * 1e3:.2g} ms and {unseen_j:.2g} J in all more "
            f"than the model {model.name!r} says: less than measuring them could show"
        )
    return _of_model(sweep, model, made, asides)


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
    asides = []
    if others:
        asides.append(
            f"{made}, and {others} of the {len(sweep.points)} points of the sweep have "
            f"clocks{_unmeasured(model)}"
        )
    if any(cost.unseen_stall_s or cost.unseen_energy_j for cost in model.costs):
        asides.append(
            f"{made}, and a change may take more than the model {model.name!r} says: less than "
            "measuring it could show"
        )
    return _of_model(sweep, model, made, asides)


def _unmeasured(model: TransitionModel) -> str:
    return (
        f" that the model {model.name!r} has no measurement of; its entries for all other "
        "clocks stand for them"
    )


def _of_model(
    sweep: Sweep, model: TransitionModel, made: str, asides: Sequence[str]
) -> tuple[Caveat, ...]:
    """Whether the model was measured: on this device, on a real one, and for these clocks.

    `asides` are what a model that was measured on the device leaves open.
    """
    doubts, source = [], sweep.source
    name = repr(model.name)
    where = model.device_name or ""
    if model.is_simulated:
        where = f"{where}, a virtual device".removeprefix(", ")
    seen = ""
    if not model.is_measured_on(source.device_name, is_simulated=source.is_simulated):
        seen = f"{made}; each change is taken to cost what the model {name} says"
        seen += f", measured on {where}" if where else ""
        seen += _unknown_words(sweep, model)
    elif asides:
        seen = ". ".join(asides)
    if seen:
        doubts.append(Caveat(kind=CaveatKind.TRANSITIONS_ASSUMED, seen=f"{seen}."))
    if model.is_simulated:
        seen = f"The transition model {name} was measured on {where}."
        doubts.append(Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen))
    return tuple(doubts)


def _unknown_words(sweep: Sweep, model: TransitionModel) -> str:
    """Names targets of the model that no point of the sweep has, for one may be misspelt."""
    unknown = unknown_clocks(sweep.points, model)
    if not unknown:
        return ""
    domain, target = unknown[0]
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return f". It has an entry for {domain} to {target.label}{more}, which no point has"
