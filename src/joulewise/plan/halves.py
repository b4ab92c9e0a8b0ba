"""Close the gap of the linear relaxation exactly: two lists of partial plans that meet.

The relaxation at the multiplier `rate_w` gives each class a base option. A deviation of one
class costs `excess_j = Δe + rate·Δt ≥ 0` above the bound and moves the time by Δt. A whole plan
then lies `excess + rate·(slack − Δt)` above the bound, so deviations whose excess alone exceeds
the best plan's are out: reduced-cost elimination. What is left is split into two halves; each
lists its undominated combinations, and one sorted look-up per entry finds the best partner.
The lists grow with the square root of what enumeration would need.

Sources: Pisinger, A minimal algorithm for the multiple-choice knapsack problem, EJOR 83 (1995),
for growing a core in order of excess; Horowitz and Sahni, JACM 21 (1974), for meeting halfway.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable

ROUNDING_RATIO = 1e-12
"""Energies this close, relative to the whole, count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deviations:
    """Every option as a deviation from the relaxation's base plan: (N,) arrays, by class.

    `slack_s` is what the base plan leaves of the time budget. Base options have 0, 0.
    """

    classes: IntTable
    time_s: FloatTable
    excess_j: FloatTable
    base: IntTable
    slack_s: float
    rate_w: float

    @property
    def base_gap_j(self) -> float:
        """How far the base plan lies above the bound."""
        return self.rate_w * self.slack_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meeting:
    """The best plan found: its gap above the relaxation's bound, and a lower bound on any gap."""

    choice: IntTable
    gap_j: float
    least_gap_j: float


@dataclass(slots=True, kw_only=True, eq=False)
class _Half:
    """Undominated combinations of some classes: time rises, energy falls."""

    time_s: FloatTable = field(default_factory=lambda: np.zeros(1))
    excess_j: FloatTable = field(default_factory=lambda: np.zeros(1))
    trail: list[tuple[IntTable, IntTable]] = field(default_factory=list)
    """Per class taken in: the parent of every entry and the option it adds."""
    dropped_j: float = np.inf
    """Least excess of the entries dropped for want of room."""

    def options(self, entry: int) -> list[int]:
        """The options that an entry is made of."""
        found = []
        for parents, added in reversed(self.trail):
            found.append(int(added[entry]))
            entry = int(parents[entry])
        return found


def close_gap(deviations: Deviations, *, scale_j: float, entry_count: int) -> Meeting:
    """Find the plan closest above the relaxation's bound.

    Args:
        deviations: All options relative to the base plan.
        scale_j: Energy of a whole plan, for rounding.
        entry_count: How many combinations a half may list. Beyond it those of least excess
            stay, and `least_gap_j` is what remains proven.
    """
    tiny_j = ROUNDING_RATIO * scale_j
    best_j = deviations.base_gap_j
    best: IntTable = deviations.base
    halves = (_Half(), _Half())
    for options in _by_class(deviations, best_j - tiny_j):
        excess = deviations.excess_j[options]
        if excess[1:].min() >= best_j - tiny_j:
            break
        small = min(halves, key=lambda half: half.time_s.size)
        _extend(small, deviations, options, best_j - tiny_j, entry_count)
        gap_j, first, second = _meet(halves, deviations)
        if gap_j < best_j - tiny_j:
            best_j = gap_j
            best = deviations.base.copy()
            found = halves[0].options(first) + halves[1].options(second)
            best[deviations.classes[found]] = found
    least_j = min(best_j, halves[0].dropped_j, halves[1].dropped_j)
    return Meeting(choice=best, gap_j=best_j, least_gap_j=least_j)


def _by_class(deviations: Deviations, limit_j: float) -> list[IntTable]:
    """Options worth a look, one array per class, base first; least excess first."""
    is_kept = deviations.excess_j < limit_j
    is_kept[deviations.base] = False
    kept = np.flatnonzero(is_kept)
    if not kept.size:
        return []
    kept = kept[np.lexsort((deviations.excess_j[kept], deviations.classes[kept]))]
    starts = np.flatnonzero(np.diff(deviations.classes[kept], prepend=-1))
    order = np.argsort(deviations.excess_j[kept[starts]], kind="stable")
    groups = np.split(kept, starts[1:])
    return [
        np.concatenate([[deviations.base[deviations.classes[groups[i][0]]]], groups[i]])
        for i in order
    ]


def _extend(
    half: _Half, deviations: Deviations, options: IntTable, limit_j: float, entry_count: int
) -> None:
    """Take one class into a half: every entry with every option, the hopeless left out."""
    sums = np.add.outer(half.excess_j, deviations.excess_j[options])
    parents, added = np.nonzero(sums < limit_j)
    excess = sums[parents, added]
    times = half.time_s[parents] + deviations.time_s[options[added]]
    order = np.argsort(times, kind="stable")
    energies = excess[order] - deviations.rate_w * times[order]
    is_better = np.append([True], energies[1:] < np.minimum.accumulate(energies)[:-1])
    order = order[is_better]
    if order.size > entry_count:
        by_excess = np.argpartition(excess[order], entry_count)
        half.dropped_j = min(half.dropped_j, float(excess[order[by_excess[entry_count]]]))
        order = order[np.sort(by_excess[:entry_count])]
    half.time_s, half.excess_j = times[order], excess[order]
    half.trail.append((parents[order], options[added[order]]))


def _meet(halves: tuple[_Half, _Half], deviations: Deviations) -> tuple[float, int, int]:
    """Best pair within the slack: its gap and its entries; +inf where none fits."""
    first, second = halves
    # Energy falls along a half, so the slowest partner that fits is the best one.
    partners = np.searchsorted(second.time_s, deviations.slack_s - first.time_s, side="right") - 1
    entries = np.flatnonzero(partners >= 0)
    if not entries.size:
        return np.inf, 0, 0
    partners = partners[entries]
    spare_s = deviations.slack_s - first.time_s[entries] - second.time_s[partners]
    gaps = first.excess_j[entries] + second.excess_j[partners] + deviations.rate_w * spare_s
    best = int(np.argmin(gaps))
    return float(gaps[best]), int(entries[best]), int(partners[best])
