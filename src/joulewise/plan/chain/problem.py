"""The problem of planning around a cycle of launches, and what its solvers answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.changes import ChangeCosts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chain:
    """N nodes in a cycle, each at one of P points; changes between neighbours cost something.

    A node is a launch or a run of launches that share a point. `time_s` and `energy_j` have the
    shape (N, P); +inf where a node cannot run. After the last node comes the first again.
    `max_region_count` bounds the regions around the cycle; `None` does not. One region has no
    changes, r > 1 regions have r.
    """

    time_s: FloatTable
    energy_j: FloatTable
    changes: ChangeCosts
    max_region_count: int | None = None

    def totals(self, choice: IntTable) -> tuple[float, float]:
        """Time (s) and energy (J) of one iteration, changes included; `choice` (N,) columns."""
        rows = np.arange(choice.size)
        stalled_s, spent_j = self.changes.of(choice, np.roll(choice, -1))
        return (
            float(self.time_s[rows, choice].sum() + stalled_s.sum()),
            float(self.energy_j[rows, choice].sum() + spent_j.sum()),
        )

    def is_possible(self, choice: IntTable) -> bool:
        """Whether the regions are few enough and every change finds the last one in force.

        The nodes of every region must take at least the spacing of the change that ends it
        (`ChangeCosts.spacing_s`); stalls do not count toward it.
        """
        starts = np.flatnonzero(choice != np.roll(choice, 1))
        if not starts.size:
            return True
        if self.max_region_count is not None and starts.size > self.max_region_count:
            return False
        if not self.changes.is_spaced:
            return True
        first = int(starts[0])
        turned = np.roll(choice, -first)
        node_s = np.roll(self.time_s[np.arange(choice.size), choice], -first)
        region_s = np.add.reduceat(node_s, starts - first)
        own, following = turned[starts - first], np.roll(turned[starts - first], -1)
        spacing_s = self.changes.spacing_s[self.changes.domains(own, following), following]
        return bool((region_s >= spacing_s).all())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priced:
    """The answer at one price of time.

    `choices` are possible plans, the best first. `bound` is a lower bound on
    energy + price x time over all possible plans, changes included, in J.
    """

    choices: tuple[IntTable, ...]
    bound: float


class PricedSolver(Protocol):
    """Finds plans of least energy + price x time around a chain, without a budget."""

    def least(self, price_w: float) -> Priced:
        """`price_w`: energy that a second of iteration time is worth, J/s; +inf: least time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainAnswer:
    """The best plan found within a budget, and what no plan within it falls below."""

    choice: IntTable
    time_s: float
    energy_j: float
    bound_j: float
