"""Better plans from known ones: one plan along an arc of the cycle, another along the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import BoolTable, FloatTable, IntTable
from joulewise.plan.chain.problem import Chain

_CUT_COUNT = 1_000
_CHECKED_COUNT = 40
_POOL_COUNT = 8
_PAIR_COUNT = 12
_ROUND_COUNT = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """A possible plan with its totals."""

    choice: IntTable
    time_s: float
    energy_j: float


def known(chain: Chain, choice: IntTable) -> Known:
    """Add a plan up."""
    time_s, energy_j = chain.totals(choice)
    return Known(choice=choice, time_s=time_s, energy_j=energy_j)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a mixture is looked for: a time it must keep, an energy it must better.

    `price_w` is what a second is worth, J/s: it says which mixtures are promising.
    """

    budget_s: float
    price_w: float


def improved(chain: Chain, plans: list[Known], best: Known, goal: Goal) -> Known:
    """The best mixture of two plans that is better than `best`, and of what it becomes again.

    Plans that are good at the price are mixed: those that keep the budget with those that do not.
    """
    by_value = sorted(plans, key=lambda plan: _value(plan, goal.price_w))
    fast = [plan for plan in by_value if plan.time_s <= goal.budget_s][:_POOL_COUNT]
    slow = [plan for plan in by_value if plan.time_s > goal.budget_s][:_POOL_COUNT]
    pairs = [pair for one in fast for other in slow for pair in ((one, other), (other, one))]
    best = _best_of_pairs(chain, pairs, best, goal)
    for _ in range(_ROUND_COUNT):
        found = _best_of_pairs(chain, [(best, other) for other in (*fast, *slow)], best, goal)
        if found is best:
            break
        best = found
    return best


def _best_of_pairs(
    chain: Chain, pairs: list[tuple[Known, Known]], best: Known, goal: Goal
) -> Known:
    """Mix the most promising pairs of a base and another plan."""
    mixtures = [Mixture(chain, base, other) for base, other in pairs]
    bounds = [mixture.bound_j(goal) for mixture in mixtures]
    for i in np.argsort(bounds, kind="stable")[:_PAIR_COUNT].tolist():
        if bounds[i] >= best.energy_j:
            break
        best = mixtures[i].best(goal, limit_j=best.energy_j) or best
    return best


class Mixture:
    """Plans that follow one plan along an arc of the cycle and another elsewhere.

    What an arc from boundary i to boundary j adds is a part that depends on i and one that
    depends on j. Arcs do not reach past the last node: the two plans in the other order see to
    those that would.
    """

    def __init__(self, chain: Chain, base: Known, other: Known) -> None:
        """`other` is followed along the arc."""
        self._chain, self._base, self._other = chain, base, other
        self._begins, self._ends = _boundaries(chain, base.choice, other.choice)

    def bound_j(self, goal: Goal) -> float:
        """No arc leads to less energy within the budget."""
        begins = self._begins.energy_j + goal.price_w * self._begins.time_s
        ends = self._ends.energy_j + goal.price_w * self._ends.time_s
        least = float((np.minimum.accumulate(begins)[:-1] + ends[1:]).min())
        return _value(self._base, goal.price_w) + least - goal.price_w * goal.budget_s

    def best(self, goal: Goal, *, limit_j: float) -> Known | None:
        """The possible mixture of least energy; `None` where none is below the limit.

        All arcs are looked at, or those between the most promising boundaries of a long chain.
        """
        begins, ends = self._begins, self._ends
        places = _promising(begins, ends, goal.price_w)
        time_s = np.add.outer(begins.time_s[places], ends.time_s[places])
        energy_j = np.add.outer(begins.energy_j[places], ends.energy_j[places])
        is_better = time_s <= goal.budget_s - self._base.time_s
        is_better &= energy_j < limit_j - self._base.energy_j
        is_better &= places[:, None] < places[None, :]
        for begin, end in _arcs(places, is_better, energy_j):
            choice = self._base.choice.copy()
            choice[begin:end] = self._other.choice[begin:end]
            found = known(self._chain, choice)
            is_kept = found.time_s <= goal.budget_s and found.energy_j < limit_j
            if is_kept and self._chain.is_possible(choice):
                return found
        return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Boundaries:
    """What beginning, or ending, the arc at each of the N + 1 boundaries adds."""

    time_s: FloatTable
    energy_j: FloatTable


def _boundaries(chain: Chain, base: IntTable, other: IntTable) -> tuple[_Boundaries, _Boundaries]:
    """Split what an arc [i, j) adds into a part for i and a part for j."""
    rows = np.arange(base.size)
    before = np.roll(base, 1)
    own = chain.changes.of(before, base)
    within = chain.changes.of(np.roll(other, 1), other)
    entering = chain.changes.of(before, other)
    leaving = chain.changes.of(np.roll(other, 1), base)
    begins, ends = [], []
    tables = (chain.time_s, chain.energy_j)
    for table, *costs in zip(tables, own, within, entering, leaving, strict=True):
        own_cost, within_cost, entering_cost, leaving_cost = (np.append(c, c[0]) for c in costs)
        steps = table[rows, other] + within_cost[:-1] - table[rows, base] - own_cost[:-1]
        gained = np.append(0.0, np.cumsum(steps))
        begins.append(entering_cost - within_cost - gained)
        ends.append(gained + leaving_cost - own_cost)
    return (
        _Boundaries(time_s=begins[0], energy_j=begins[1]),
        _Boundaries(time_s=ends[0], energy_j=ends[1]),
    )


def _promising(begins: _Boundaries, ends: _Boundaries, price_w: float) -> IntTable:
    """Boundaries to look at: all, or the best to begin and to end at of every stretch."""
    count = begins.time_s.size
    if count <= _CUT_COUNT:
        return np.arange(count)
    stretches = np.linspace(0, count, _CUT_COUNT // 2, endpoint=False).astype(np.int64)
    found = []
    for part in (begins, ends):
        values = part.energy_j + price_w * part.time_s
        least = np.repeat(np.minimum.reduceat(values, stretches), np.diff(stretches, append=count))
        found.append(np.flatnonzero(values <= least))
    return np.unique(np.concatenate(found))[: 2 * _CUT_COUNT]


def _arcs(
    places: IntTable, is_better: BoolTable, energy_j: FloatTable
) -> Iterator[tuple[int, int]]:
    """The best arcs, the best first."""
    flat = np.flatnonzero(is_better)
    values = energy_j.ravel()[flat]
    if flat.size > _CHECKED_COUNT:
        flat = flat[np.argpartition(values, _CHECKED_COUNT)[:_CHECKED_COUNT]]
        values = energy_j.ravel()[flat]
    for one in flat[np.argsort(values, kind="stable")].tolist():
        begin, end = divmod(one, places.size)
        yield int(places[begin]), int(places[end])


def _value(plan: Known, price_w: float) -> float:
    return plan.energy_j + price_w * plan.time_s
