"""Plans made of two known ones: one along an arc of the cycle, the other along the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import BoolTable, FloatTable, IntTable
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.takeover import may_take_over

_CUT_COUNT = 1_000
_CHECKED_COUNT = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """A possible plan with its totals."""

    choice: IntTable
    time_s: float
    energy_j: float

    def value_j(self, price_w: float) -> float:
        """Energy + price x time."""
        return self.energy_j + price_w * self.time_s


def known(chain: Chain, choice: IntTable) -> Known:
    """Add a plan up."""
    time_s, energy_j = chain.totals(choice)
    return Known(choice=choice, time_s=time_s, energy_j=energy_j)


def known_plans(chain: Chain, choices: Iterable[IntTable]) -> list[Known]:
    """Add plans up; those with a node where it cannot run are none."""
    plans = [known(chain, choice) for choice in choices]
    return [plan for plan in plans if math.isfinite(plan.time_s)]


def slope_w(fast: Known, slow: Known) -> float | None:
    """The price of time at which both are worth the same, J/s.

    `None` where neither is both faster and costlier.
    """
    if slow.time_s <= fast.time_s or slow.energy_j >= fast.energy_j:
        return None
    return (fast.energy_j - slow.energy_j) / (slow.time_s - fast.time_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The time that a plan must keep, and what a second is worth (J/s)."""

    budget_s: float
    price_w: float

    @property
    def budget_j(self) -> float:
        """What the whole budget is worth."""
        # Without a budget nothing is paid for time: 0 x inf is no number.
        return self.price_w * self.budget_s if self.price_w else 0.0


class Mixture:
    """Plans that follow `other` along an arc from boundary i to boundary j, `base` elsewhere.

    What the arc adds is a part that depends on i and one that depends on j. Arcs do not reach
    past the last node: with the two plans exchanged, those are seen to as well. The arc around
    the whole cycle is `other` itself, not a mixture: it has no boundaries that could add anything.
    """

    def __init__(
        self, chain: Chain, base: Known, other: Known, begins: FloatTable, ends: FloatTable
    ) -> None:
        """`begins` and `ends` are (3, N + 1): time (s), energy (J), changes a boundary adds."""
        self._chain, self._base, self._other = chain, base, other
        self._begins, self._ends = begins, ends

    def bound_j(self, goal: Goal) -> float:
        """No arc leads to less energy within the budget."""
        begins, ends = _at_price(self._begins, goal), _at_price(self._ends, goal)
        least_j = float((np.minimum.accumulate(begins)[:-1] + ends[1:]).min())
        # Without a budget a price proves nothing, but no arc at all is no plan.
        return least_j if math.isinf(least_j) else self._floor_j(goal) + least_j

    def totals(self, goal: Goal) -> tuple[FloatTable, FloatTable]:
        """Time (s) and energy (J) with the best arc at a price to every boundary."""
        begin = _last_least(_at_price(self._begins, goal)[:-1])
        ends = self._ends[:, 1:]
        # From boundary 0 to the last one is all the way around.
        if begin[-1] == 0:
            later = _at_price(self._begins, goal)[1:-1]
            if later.size:
                begin[-1] = 1 + int(np.argmin(later))
            else:
                begin, ends = begin[:-1], ends[:, :-1]
        added = self._begins[:, begin] + ends
        return self._base.time_s + added[0], self._base.energy_j + added[1]

    def _has_few_changes(self, begins: IntTable, ends: IntTable) -> BoolTable:
        """(begins, ends) whether an arc leads to no more regions than there may be."""
        limit = self._chain.max_region_count
        if limit is None:
            return np.ones((1, 1), dtype=np.bool_)
        base = self._base.choice
        left = limit - np.count_nonzero(base != np.roll(base, 1))
        added = np.add.outer(self._begins[2, begins], self._ends[2, ends])
        return np.asarray(added <= left)

    def best(self, goal: Goal, *, limit_j: float) -> Known | None:
        """The possible mixture of least energy; `None` where none is below the limit.

        All arcs are looked at that the price does not exclude, or, of a long chain, those between
        the most promising boundaries.
        """
        begins, ends = self._promising(goal, limit_j)
        for begin, end in self._arcs(begins, ends, goal, limit_j):
            choice = self._base.choice.copy()
            choice[begin:end] = self._other.choice[begin:end]
            found = known(self._chain, choice)
            is_kept = found.time_s <= goal.budget_s and found.energy_j < limit_j
            if is_kept and self._chain.is_possible(choice):
                return found
        return None

    def _promising(self, goal: Goal, limit_j: float) -> tuple[IntTable, IntTable]:
        """Boundaries at which an arc that may lead below the limit begins, and ends."""
        begins, ends = _at_price(self._begins, goal), _at_price(self._ends, goal)
        room_j = limit_j - self._floor_j(goal)
        later = np.minimum.accumulate(ends[:0:-1])[::-1]
        earlier = np.minimum.accumulate(begins[:-1])
        begin = np.flatnonzero(begins[:-1] + later < room_j)
        end = np.flatnonzero(earlier + ends[1:] < room_j) + 1
        return _thinned(begin, begins), _thinned(end, ends)

    def _arcs(
        self, begins: IntTable, ends: IntTable, goal: Goal, limit_j: float
    ) -> Iterator[tuple[int, int]]:
        """The arcs of least energy, the best first."""
        time_s = np.add.outer(self._begins[0, begins], self._ends[0, ends])
        energy_j = np.add.outer(self._begins[1, begins], self._ends[1, ends])
        is_better = time_s <= goal.budget_s - self._base.time_s
        is_better &= energy_j < limit_j - self._base.energy_j
        is_better &= begins[:, None] < ends[None, :]
        is_better &= ends[None, :] - begins[:, None] < self._base.choice.size
        is_better &= self._has_few_changes(begins, ends)
        flat = np.flatnonzero(is_better)
        values = energy_j.ravel()[flat]
        if flat.size > _CHECKED_COUNT:
            least = np.argpartition(values, _CHECKED_COUNT)[:_CHECKED_COUNT]
            flat, values = flat[least], values[least]
        for one in flat[np.argsort(values, kind="stable")].tolist():
            begin, end = divmod(one, ends.size)
            yield int(begins[begin]), int(ends[end])

    def _floor_j(self, goal: Goal) -> float:
        """A plan within the budget whose arc adds nothing at the price needs this at least."""
        return self._base.value_j(goal.price_w) - goal.budget_j


def mixtures(chain: Chain, one: Known, another: Known) -> tuple[Mixture, Mixture]:
    """Mixtures of two plans: arcs of the other in the one, and of the one in the other."""
    rows = np.arange(one.choice.size)
    first, second = one.choice, another.choice
    before_first, before_second = np.roll(first, 1), np.roll(second, 1)
    within = [
        _costs(chain, before_first, first),
        _costs(chain, before_second, second),
    ]
    across = [_costs(chain, before_first, second), _costs(chain, before_second, first)]
    if chain.changes.is_spaced:
        # Where the other plan cannot take over, nothing is to be looked for.
        across[0][:, ~may_take_over(chain, first, second)] = np.inf
        across[1][:, ~may_take_over(chain, second, first)] = np.inf
    nodes = [
        np.stack([chain.time_s[rows, plan], chain.energy_j[rows, plan], np.zeros(rows.size)])
        for plan in (first, second)
    ]
    steps = nodes[1] + within[1][:, :-1] - nodes[0] - within[0][:, :-1]
    gained = np.concatenate([np.zeros((3, 1)), np.cumsum(steps, axis=1)], axis=1)
    return (
        Mixture(
            chain,
            one,
            another,
            begins=across[0] - within[1] - gained,
            ends=across[1] - within[0] + gained,
        ),
        Mixture(
            chain,
            another,
            one,
            begins=across[1] - within[0] + gained,
            ends=across[0] - within[1] - gained,
        ),
    )


def _costs(chain: Chain, before: IntTable, after: IntTable) -> FloatTable:
    """(3, N + 1) time, energy and number of changes into each node, the first one's at the end."""
    costs = np.stack([*chain.changes.of(before, after), before != after])
    return np.concatenate([costs, costs[:, :1]], axis=1)


def _at_price(added: FloatTable, goal: Goal) -> FloatTable:
    # An arc that may not be is +inf in both; 0 x inf is no number.
    return np.asarray(added[1] + goal.price_w * added[0]) if goal.price_w else added[1]


def _last_least(values: FloatTable) -> IntTable:
    """At every place the last place up to it where the running minimum is reached."""
    is_lower = values <= np.minimum.accumulate(values)
    return np.maximum.accumulate(np.where(is_lower, np.arange(values.size), 0))


def _thinned(places: IntTable, values: FloatTable) -> IntTable:
    """The best of every stretch, where there are too many."""
    if places.size <= _CUT_COUNT:
        return places
    stretches = np.array_split(places, _CUT_COUNT)
    return np.array([stretch[np.argmin(values[stretch])] for stretch in stretches])
