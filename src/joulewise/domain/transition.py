"""What changing the operating point costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial

from joulewise.domain.points import KNOBS, OperatingPoint


class TransitionDomain(StrEnum):
    """Which clocks a change moves. A changed power limit counts as a changed SM clock."""

    SM = "sm"
    MEMORY = "memory"
    BOTH = "both"


_Key = tuple[TransitionDomain, Hashable]


def changed_domain(before: OperatingPoint, after: OperatingPoint) -> TransitionDomain | None:
    """Which clocks differ; `None` where the points are the same."""
    moves_memory = before.mem_clock_mhz != after.mem_clock_mhz
    moves_sm = _sm_side(before) != _sm_side(after)
    if moves_sm and moves_memory:
        return TransitionDomain.BOTH
    if moves_sm:
        return TransitionDomain.SM
    return TransitionDomain.MEMORY if moves_memory else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionCost:
    """What one change of this domain to this target costs.

    The GPU waits `stall_s`. The new point takes effect `lag_s` after it was asked for; work
    goes on at the old point meanwhile. `energy_j` is all that the change itself takes, what is
    drawn during the stall included. A `target` of `None` stands for every target that has no
    entry of its own; of a target only the clocks of the domain count. `unseen_stall_s` and
    `unseen_energy_j` are what may come on top, for measuring it could not have shown it; they
    are told and not counted, but a guard band holds the time back.
    """

    domain: TransitionDomain
    target: OperatingPoint | None = None
    stall_s: float = 0.0
    lag_s: float = 0.0
    energy_j: float = 0.0
    unseen_stall_s: float = 0.0
    unseen_energy_j: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no change can cost."""
        for name in ("stall_s", "lag_s", "energy_j", "unseen_stall_s", "unseen_energy_j"):
            value: float = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise ValueError(f"{name} must be a number from 0 up, got {value}")

    @property
    def change(self) -> Hashable:
        """What this entry is for; alike in two entries that are for the same."""
        return _key(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLead:
    """How far ahead to ask for one change, as measured.

    All of it is in force `lead_s` after it was asked for. Knobs are set one after the other, so
    where it sets several the first may be in force up to `partial_s` before the last; work goes
    on meanwhile with one knob at the new setting and another at the old one.
    """

    before: OperatingPoint
    after: OperatingPoint
    lead_s: float
    partial_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no change, and times that none takes."""
        if self.before == self.after:
            raise ValueError(f"there is no change from {self.before.label} to itself")
        for name in ("lead_s", "partial_s"):
            value: float = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise ValueError(f"{name} must be a number from 0 up, got {value}")
        if self.partial_s > self.lead_s:
            raise ValueError(f"partial_s must be at most lead_s, got {self.partial_s}")


class _Indexed:
    """Costs by domain and target, and leads by change, made once; no fields of the record."""

    __slots__ = ("_index", "_lead_index")

    _index: Mapping[_Key, TransitionCost]
    _lead_index: Mapping[tuple[OperatingPoint, OperatingPoint], ChangeLead]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionModel(_Indexed):
    """Costs of all changes of operating point on one device.

    Requests are made one at a time: the next once the last is in force. Between two requests
    at least `dwell_s` pass besides. `source` says where the numbers come from; `device_name`
    on which device they were measured, `None` where on none, and `is_simulated` whether that
    was a virtual one. Of a measured model the entries with a target were measured, and one
    without stands for targets that were not. `leads` say how far ahead to ask for changes that
    were measured one by one, which may be shorter than the lag of their entry in `costs`: that
    is the longest of all changes to its target, and keeps requests apart.
    """

    name: str
    source: str
    costs: tuple[TransitionCost, ...]
    dwell_s: float = 0.0
    device_name: str | None = None
    is_simulated: bool = False
    leads: tuple[ChangeLead, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no dwell, two entries for one change, and a lead beyond its lag."""
        if not 0.0 <= self.dwell_s < math.inf:
            raise ValueError(f"dwell_s must be a number from 0 up, got {self.dwell_s}")
        index = _index_of(self.costs)
        if len(index) < len(self.costs):
            second = next(cost for cost in self.costs if index[_key(cost)] is not cost)
            target = second.target.label if second.target else "every target"
            raise ValueError(f"costs has two entries for {second.domain} to {target}")
        object.__setattr__(self, "_index", index)
        object.__setattr__(self, "_lead_index", _leads_of(self))

    def __reduce__(self) -> tuple[Callable[[], TransitionModel], tuple[()]]:
        """Copies are made from the fields, and make an index of their own."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return partial(TransitionModel, **values), ()

    def is_measured_on(self, device_name: str, *, is_simulated: bool) -> bool:
        """Whether this device is the one measured; a virtual GPU is not the one it stands for."""
        return self.device_name == device_name and self.is_simulated == is_simulated

    def cost(self, before: OperatingPoint, after: OperatingPoint) -> TransitionCost | None:
        """What this change costs; `None` where the model does not say.

        Staying costs nothing.
        """
        domain = changed_domain(before, after)
        if domain is None:
            return TransitionCost(domain=TransitionDomain.SM)
        own = self._index.get((domain, _of_domain(domain, after)))
        return own or self._index.get((domain, None))

    def lead(self, before: OperatingPoint, after: OperatingPoint) -> ChangeLead | None:
        """How far ahead to ask for a change; `None` where the model does not say.

        As measured for this very change, else as long as its entry in `costs` lags.
        """
        own = self._lead_index.get((before, after))
        if own is not None:
            return own
        cost = None if before == after else self.cost(before, after)
        return None if cost is None else ChangeLead(before=before, after=after, lead_s=cost.lag_s)

    @property
    def is_doubted(self) -> bool:
        """Whether changes may take more than `costs` say."""
        return any(cost.unseen_stall_s for cost in self.costs) or any(
            lead.partial_s for lead in self.leads
        )


def changed_knob_count(before: OperatingPoint, after: OperatingPoint) -> int:
    """How many knobs differ; each is set by a call of its own."""
    return sum(getattr(before, knob) != getattr(after, knob) for knob in KNOBS)


def uniform_transition(
    name: str,
    source: str,
    *,
    stall_s: float = 0.0,
    lag_s: float = 0.0,
    energy_j: float = 0.0,
    dwell_s: float = 0.0,
) -> TransitionModel:
    """The model in which every change costs the same."""
    return TransitionModel(
        name=name,
        source=source,
        dwell_s=dwell_s,
        costs=tuple(
            TransitionCost(domain=domain, stall_s=stall_s, lag_s=lag_s, energy_j=energy_j)
            for domain in TransitionDomain
        ),
    )


def _sm_side(point: OperatingPoint) -> tuple[int | None, float | None]:
    return point.sm_clock_mhz, point.power_limit_w


def _key(cost: TransitionCost) -> _Key:
    return cost.domain, _of_domain(cost.domain, cost.target)


def _index_of(costs: Iterable[TransitionCost]) -> dict[_Key, TransitionCost]:
    """Every cost by what it is for; of several for the same the last."""
    return {_key(cost): cost for cost in costs}


def _leads_of(
    model: TransitionModel,
) -> dict[tuple[OperatingPoint, OperatingPoint], ChangeLead]:
    """Every lead by its change; requests are kept a lag apart, so no lead may be longer."""
    leads: dict[tuple[OperatingPoint, OperatingPoint], ChangeLead] = {}
    for lead in model.leads:
        change, cost = (lead.before, lead.after), model.cost(lead.before, lead.after)
        words = f"{lead.before.label} to {lead.after.label}"
        if change in leads:
            raise ValueError(f"leads has two entries for {words}")
        if cost is None or lead.lead_s > cost.lag_s:
            raise ValueError(f"the lead of {words} is longer than any lag that costs has for it")
        leads[change] = lead
    return leads


def _of_domain(domain: TransitionDomain, target: OperatingPoint | None) -> Hashable:
    """What of a target counts in this domain."""
    if target is None:
        return None
    match domain:
        case TransitionDomain.SM:
            return _sm_side(target)
        case TransitionDomain.MEMORY:
            return (target.mem_clock_mhz,)
        case TransitionDomain.BOTH:
            return target
