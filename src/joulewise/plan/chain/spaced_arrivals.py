"""The least cost of arriving at every point, over all points that one may come from."""

from __future__ import annotations

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.chain.spaced_rules import SpacingRules
from joulewise.plan.chain.steps import least_of_others
from joulewise.plan.changes import BOTH, MEMORY, SM, ChangeCosts


class Arrivals:
    """Minimum over predecessors in O(P), at one price.

    Coming from the point itself may count as a change of any domain: that never pays, for it is
    the same plan with one change too many, but rounding may prefer it.
    """

    def __init__(self, changes: ChangeCosts, rules: SpacingRules, costs: FloatTable) -> None:
        """`costs` (3, P) by domain and target, +inf where no two points make that change."""
        self.changes = changes
        self.rules = rules
        self.costs = costs
        self._any_cost = self._cost_of_any()
        self._is_both_dearest = self._is_dearest(costs) and self._is_dearest(changes.spacing_s)
        self._domains = [_Domain(self, row) for row in range(3) if np.isfinite(costs[row]).any()]

    def least(self, ended: FloatTable) -> FloatTable:
        """(P, Z) least cost after a change to each point.

        `ended` (L, P, Z): cost before it, by spacing level and point, in Z independent lanes.
        """
        if self._any_cost is not None:
            return np.asarray(ended[0].min(axis=0) + self._any_cost)
        found = self._domains[0].least(ended)
        for domain in self._domains[1:]:
            np.minimum(found, domain.least(ended), out=found)
        return found

    def costs_to(self, column: int) -> FloatTable:
        """(3, P) cost of a change to this point by the domain it counts as and its origin.

        +inf where a change from there is none of that domain.
        """
        is_same_sm = self.changes.sm_groups == self.changes.sm_groups[column]
        is_same_memory = self.changes.mem_groups == self.changes.mem_groups[column]
        is_other = ~is_same_sm & ~is_same_memory
        is_other[column] = True
        is_allowed = np.stack([is_same_memory, is_same_sm, is_other])
        return np.where(is_allowed, self.costs[:, column][:, None], np.inf)

    @property
    def is_both_dearest(self) -> bool:
        """Whether a change of both domains costs and waits at least as much as one of them."""
        return self._is_both_dearest

    def _cost_of_any(self) -> FloatTable | None:
        """(P, 1) what any change costs by target, where domains and spacings make no odds."""
        is_made = np.isfinite(self.costs)
        least = np.where(is_made, self.costs, np.inf).min(axis=0)
        most = np.where(is_made, self.costs, -np.inf).max(axis=0)
        is_same = bool((np.isinf(most) | (least == most)).all())
        is_none = not is_made.any()
        return least[:, None] if is_none or (is_same and self.rules.levels_s.size == 1) else None

    @staticmethod
    def _is_dearest(table: FloatTable) -> bool:
        singles = np.where(np.isfinite(table[[SM, MEMORY]]), table[[SM, MEMORY]], -np.inf)
        return bool((table[BOTH] >= singles.max(axis=0)).all())


class _Domain:
    """Changes of one domain."""

    def __init__(self, arrivals: Arrivals, row: int) -> None:
        changes = arrivals.changes
        self.cost = arrivals.costs[row][:, None]
        level_of = np.where(np.isfinite(arrivals.costs[row]), arrivals.rules.level_of[row], -1)
        levels = np.unique(level_of[level_of >= 0])
        is_run = levels.size in {1, arrivals.rules.levels_s.size}
        self.levels = slice(int(levels[0]), int(levels[-1]) + 1) if is_run else levels
        self.level = np.maximum(np.searchsorted(levels, level_of), 0)
        self.grid: tuple[IntTable, IntTable] | None = None
        # One group of all: from a point that differs in one domain only, the change of that
        # domain alone is no dearer.
        groups = np.zeros_like(changes.sm_groups)
        if row == BOTH and not arrivals.is_both_dearest:
            self.grid = (changes.sm_groups, changes.mem_groups)
        elif row != BOTH:
            groups = changes.mem_groups if row == SM else changes.sm_groups
        self.order: IntTable | None = np.argsort(groups, kind="stable")
        self.first = np.flatnonzero(np.diff(groups[self.order], prepend=-1))
        self.place = self.level * self.first.size + groups
        if (self.order == np.arange(groups.size)).all():
            self.order = None

    def least(self, ended: FloatTable) -> FloatTable:
        """(P, Z) least cost after a change of this domain to each point."""
        own = ended[self.levels]
        if self.grid is not None:
            return np.asarray(self._least_elsewhere(own, *self.grid) + self.cost)
        ordered = own if self.order is None else own.take(self.order, axis=1)
        least = np.minimum.reduceat(ordered, self.first, axis=1)
        picked = least.reshape(-1, own.shape[2]).take(self.place, axis=0)
        picked += self.cost
        return picked

    def _least_elsewhere(self, own: FloatTable, sm: IntTable, memory: IntTable) -> FloatTable:
        """Minimum over the points that differ in both domains."""
        level_count, _, lane_count = own.shape
        shape = (level_count, int(sm.max()) + 1, int(memory.max()) + 1, lane_count)
        grid = np.full(shape, np.inf)
        grid[:, sm, memory] = own
        others = least_of_others(least_of_others(grid, axis=1), axis=2)
        return np.asarray(others[self.level, sm, memory])
