"""The price of time at which plans around a chain just keep a budget, and the bound it proves."""

from __future__ import annotations

import math

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.chain.mixing import Known, known_plans, slope_w
from joulewise.plan.chain.problem import Chain, Priced, PricedSolver

_EVALUATION_LIMIT = 40
_SAME_RATIO = 1e-11


class PriceSearch:
    """Lagrangian relaxation of a time budget.

    At a price of time, a second of iteration time is worth so much energy. The least
    energy + price x time over all plans, less price x budget, is a lower bound on the energy of
    every plan within the budget. It is highest where the line through a plan within the budget and
    one beyond it has no plan below. Each round prices time by that line's slope; a plan below the
    line replaces one of the two.

    `plans` are the plans met, single points included; `bound_j` the best bound so far; `price_w`
    the price that proved it.

    Source: Handler and Zang, A dual algorithm for the constrained shortest path problem, Networks
    10 (1980).
    """

    def __init__(self, chain: Chain, solver: PricedSolver, budget_s: float) -> None:
        """Take the single points in; nothing is solved yet."""
        self._chain = chain
        self._solver = solver
        self._budget_s = budget_s
        self.singles = single_plans(chain)
        self.plans: list[Known] = list(self.singles)
        self.bound_j = -math.inf
        self.price_w = 0.0
        self.lines: list[tuple[float, float]] = []

    def run(self, *, tolerance_ratio: float) -> bool:
        """Search until the bound is as good as prices make it, within a share of the energy.

        Returns whether there is a plan within the budget.
        """
        if self.best() is None:
            self._meet(self._solver.least(math.inf))
        best = self.best()
        if best is None:
            return False
        if all(plan.energy_j >= best.energy_j for plan in self._beyond()):
            self.evaluate(0.0)
        if any(plan.energy_j < best.energy_j for plan in self._beyond()):
            self._close_in(tolerance_ratio)
        return True

    def best(self) -> Known | None:
        """The plan of least energy within the budget among those met."""
        fits = [plan for plan in self.plans if plan.time_s <= self._budget_s]
        return min(fits, key=lambda plan: plan.energy_j) if fits else None

    def evaluate(self, price_w: float) -> list[Known]:
        """Solve at a finite price; keep what it proves and finds."""
        priced = self._solver.least(price_w)
        self.lines.append((price_w, priced.bound))
        bound_j = priced.bound - price_w * self._budget_s if price_w else priced.bound
        if bound_j > self.bound_j:
            self.bound_j, self.price_w = bound_j, price_w
        return self._meet(priced)

    def _meet(self, priced: Priced) -> list[Known]:
        found = known_plans(self._chain, priced.choices)
        self.plans += found
        return found

    def _beyond(self) -> list[Known]:
        return [plan for plan in self.plans if plan.time_s > self._budget_s]

    def _close_in(self, tolerance_ratio: float) -> None:
        within, beyond = self._edge()
        for _ in range(_EVALUATION_LIMIT):
            price_w = slope_w(within, beyond) or 0.0
            line_j = within.value_j(price_w)
            # A search that was cut short may have found nothing at this price.
            best = min([within, *self.evaluate(price_w)], key=lambda plan: plan.value_j(price_w))
            # No price proves more than this.
            most_j = line_j - price_w * self._budget_s
            is_enough = most_j - self.bound_j <= tolerance_ratio * abs(most_j)
            if is_enough or best.value_j(price_w) >= line_j - _SAME_RATIO * abs(line_j):
                return
            if best.time_s <= self._budget_s:
                within = best
            else:
                beyond = best

    def _edge(self) -> tuple[Known, Known]:
        """The plans whose line is lowest where it meets the budget."""
        within = [plan for plan in self.plans if plan.time_s <= self._budget_s]
        beyond = self._beyond()
        fast_s, fast_j = _totals(within)
        slow_s, slow_j = _totals(beyond)
        shares = (self._budget_s - fast_s[:, None]) / (slow_s - fast_s[:, None])
        at_budget_j = fast_j[:, None] + shares * (slow_j - fast_j[:, None])
        fast, slow = divmod(int(np.argmin(at_budget_j)), slow_s.size)
        return within[fast], beyond[slow]


def _totals(plans: list[Known]) -> tuple[FloatTable, FloatTable]:
    return np.array([plan.time_s for plan in plans]), np.array([plan.energy_j for plan in plans])


def single_plans(chain: Chain) -> list[Known]:
    """The plans that never change their point and that no other such plan beats, by time."""
    times, energies = chain.time_s.sum(axis=0), chain.energy_j.sum(axis=0)
    found: list[Known] = []
    for column in np.lexsort((energies, times)).tolist():
        time_s, energy_j = float(times[column]), float(energies[column])
        if math.isfinite(time_s) and (not found or energy_j < found[-1].energy_j):
            choice: IntTable = np.full(chain.time_s.shape[0], column, dtype=np.int64)
            found.append(Known(choice=choice, time_s=time_s, energy_j=energy_j))
    return found
