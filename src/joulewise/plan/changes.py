"""What changing between the points of a table costs, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulewise.domain.errors import PlanError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.domain.transition import (
    ChangeLead,
    TransitionCost,
    TransitionDomain,
    TransitionModel,
    changed_domain,
    uniform_transition,
)

SM, MEMORY, BOTH = range(3)
"""Rows of the cost arrays."""
_DOMAINS = (TransitionDomain.SM, TransitionDomain.MEMORY, TransitionDomain.BOTH)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangeCosts:
    """A transition model over P points.

    `stall_s`, `lag_s` and `energy_j` have the shape (3, P): what a change costs by domain (rows
    `SM`, `MEMORY`, `BOTH`) and target. `sm_groups` and `mem_groups` (P,) number the points' SM
    and memory settings: two points differ in a domain where their numbers do. +inf marks a
    change that no two points of the table can make.
    """

    sm_groups: IntTable
    mem_groups: IntTable
    stall_s: FloatTable
    lag_s: FloatTable
    energy_j: FloatTable
    dwell_s: float
    least_lead_s: float | None = None

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for name in ("sm_groups", "mem_groups", "stall_s", "lag_s", "energy_j"):
            getattr(self, name).setflags(write=False)

    @property
    def is_free(self) -> bool:
        """Whether no change costs or delays anything."""
        return not (self.is_spaced or _any_cost(self.stall_s) or _any_cost(self.energy_j))

    @property
    def is_spaced(self) -> bool:
        """Whether two changes must lie apart, for a lag or a dwell."""
        return self.dwell_s > 0.0 or _any_cost(self.lag_s)

    @property
    def spacing_s(self) -> FloatTable:
        """(3, P) least time between the last change and a change of this kind taking effect.

        A request waits until the last one is in force, and for the rest of the dwell. Where
        lags differ the dwell counts from the shortest, which never allows too much.
        """
        known = self.lag_s[np.isfinite(self.lag_s)]
        least_lag_s = float(known.min()) if known.size else 0.0
        if self.least_lead_s is not None:
            least_lag_s = min(least_lag_s, self.least_lead_s)
        return np.asarray(self.lag_s + max(0.0, self.dwell_s - least_lag_s))

    def domains(self, before: IntTable, after: IntTable) -> IntTable:
        """Row of the cost arrays for every change, elementwise; -1 where nothing changes."""
        moves_sm = self.sm_groups[before] != self.sm_groups[after]
        moves_memory = self.mem_groups[before] != self.mem_groups[after]
        rows = np.where(moves_memory, np.where(moves_sm, BOTH, MEMORY), np.where(moves_sm, SM, -1))
        return np.asarray(rows, dtype=np.int64)

    def of(self, before: IntTable, after: IntTable) -> tuple[FloatTable, FloatTable]:
        """Time (s) and energy (J) that every change adds, elementwise; 0 where there is none."""
        rows = self.domains(before, after)
        is_change = rows >= 0
        return (
            np.where(is_change, self.stall_s[rows, after], 0.0),
            np.where(is_change, self.energy_j[rows, after], 0.0),
        )


def change_costs(points: tuple[OperatingPoint, ...], model: TransitionModel | None) -> ChangeCosts:
    """Look up every change that the points allow; `None` is the model in which all are free.

    Raises:
        PlanError: the model has no entry for a change between two of the points.
    """
    model = model or uniform_transition("free", "no model")
    shape = (len(_DOMAINS), len(points))
    tables = {name: np.full(shape, np.inf) for name in ("stall_s", "lag_s", "energy_j")}
    sm_groups, mem_groups = _settings(points)
    for column, target in enumerate(points):
        for row, source in _sources(column, sm_groups, mem_groups):
            cost = cost_of_change(model, points[source], target)
            for name, table in tables.items():
                table[row, column] = getattr(cost, name)
    return ChangeCosts(
        sm_groups=sm_groups,
        mem_groups=mem_groups,
        dwell_s=model.dwell_s,
        least_lead_s=min((lead.lead_s for lead in model.leads), default=None),
        **tables,
    )


def cost_of_change(
    model: TransitionModel, before: OperatingPoint, after: OperatingPoint
) -> TransitionCost:
    """What the model says of a change.

    Raises:
        PlanError: it says nothing.
    """
    cost = model.cost(before, after)
    if cost is not None:
        return cost
    domain = changed_domain(before, after)
    raise PlanError(
        f"the transition model {model.name!r} says nothing of a change of {domain} from "
        f"{before.label} to {after.label}",
        field="transition",
        hint=f"Add an entry for the domain '{domain}' without a target; it stands for every "
        "target that has none of its own.",
    )


def lead_of_change(
    model: TransitionModel, before: OperatingPoint, after: OperatingPoint
) -> ChangeLead:
    """How far ahead the model says to ask for a change between two points.

    Raises:
        PlanError: it says nothing.
    """
    return model.lead(before, after) or ChangeLead(
        before=before, after=after, lead_s=cost_of_change(model, before, after).lag_s
    )


def untargeted_count(points: tuple[OperatingPoint, ...], model: TransitionModel) -> int:
    """Points to which some change from another of them has no entry of its own target.

    Raises:
        PlanError: the model has no entry for a change between two of the points.
    """
    groups = _settings(points)
    return sum(
        any(
            cost_of_change(model, points[source], target).target is None
            for _, source in _sources(column, *groups)
        )
        for column, target in enumerate(points)
    )


def unknown_clocks(
    points: tuple[OperatingPoint, ...], model: TransitionModel
) -> tuple[tuple[TransitionDomain, OperatingPoint], ...]:
    """Targets of the model that no point has: misspelt, or of another device."""
    reached = {
        TransitionCost(domain=domain, target=point).change
        for domain in TransitionDomain
        for point in points
    }
    return tuple(
        (cost.domain, cost.target)
        for cost in model.costs
        if cost.target is not None and cost.change not in reached
    )


def _settings(points: tuple[OperatingPoint, ...]) -> tuple[IntTable, IntTable]:
    """(P,) numbers of the points' SM settings, and of their memory settings."""
    return (
        _groups([(point.sm_clock_mhz, point.power_limit_w) for point in points]),
        _groups([point.mem_clock_mhz for point in points]),
    )


def _sources(column: int, sm_groups: IntTable, mem_groups: IntTable) -> list[tuple[int, int]]:
    """For each domain in which some point can change to this one: its row, and such a point."""
    is_same_sm = sm_groups == sm_groups[column]
    is_same_memory = mem_groups == mem_groups[column]
    found = []
    for row, able in (
        (SM, ~is_same_sm & is_same_memory),
        (MEMORY, is_same_sm & ~is_same_memory),
        (BOTH, ~is_same_sm & ~is_same_memory),
    ):
        if able.any():
            found.append((row, int(np.argmax(able))))
    return found


def _groups(settings: list[object]) -> IntTable:
    """Number equal settings alike, in order of appearance."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(one, len(numbers)) for one in settings], dtype=np.int64)


def _any_cost(table: FloatTable) -> bool:
    return bool((np.isfinite(table) & (table > 0.0)).any())
