"""Close the gap of the linear relaxation exactly, by a list of partial plans under its bound.

Classes are taken in one by one, those with the largest steps first; the rest stay relaxed. Each
partial plan knows from the rest's relaxation how little energy it can end with, and how little it
certainly ends with (the relaxation rounded down to a whole plan). Those that cannot beat the best
whole plan go, and so do those that are slower and costlier than another. Small steps come last,
where rounding costs least, so that few partial plans are alive at any time.

Sources: Pisinger, A minimal algorithm for the multiple-choice knapsack problem, European Journal
of Operational Research 83 (1995), for lists that grow under the bound of the rest.
"""

from __future__ import annotations

import numpy as np

from joulewise.domain.sweep import BoolTable, FloatTable, IntTable
from joulewise.plan.options import Options, Relaxation
from joulewise.plan.rest import PROVEN_RATIO, ROUNDING_RATIO, Base, Closing, Rest

_NARROW_COUNT = 64


def close_gap(
    options: Options,
    relaxation: Relaxation,
    base: Base,
    *,
    incumbent_j: float,
    cell_limit: int,
) -> Closing:
    """Find the plan of least energy within the budget.

    Args:
        options: What may be chosen.
        relaxation: That of these options.
        base: That of this relaxation and the budget.
        incumbent_j: Energy of a known plan relative to the base plan.
        cell_limit: How many partial plans times options may be looked at per class. Beyond it
            the least promising plans go, and `bound_j` says what remains proven.
    """
    return _Search(options, relaxation, base, incumbent_j).run(cell_limit)


class _Search:
    """The list of partial plans: time rises and energy falls along it, strictly."""

    def __init__(
        self, options: Options, relaxation: Relaxation, base: Base, incumbent_j: float
    ) -> None:
        self._options = options
        self._base = base
        self._best_j = incumbent_j
        self._tiny_j = ROUNDING_RATIO * base.total_energy_j
        self._enough_j = PROVEN_RATIO * base.total_energy_j
        self._groups = self._ordered_groups(relaxation)
        self._rest = Rest(options, relaxation, base, self._group_classes())
        self._time_s: FloatTable = np.zeros(1)
        self._energy_j: FloatTable = np.zeros(1)
        self._least_j: FloatTable = np.full(1, base.bound_j)
        self._trail: list[tuple[IntTable, IntTable]] = []
        self._found: tuple[int, int, IntTable] | None = None
        self._dropped_j = np.inf

    def run(self, cell_limit: int) -> Closing:
        """Take in class after class until the gap is closed."""
        bound_j = self._base.bound_j
        for group in self._groups:
            self._narrow(max(1, cell_limit // (group.size + 1)))
            bound_j = self._take_in(group)
            if self._best_j - min(bound_j, self._dropped_j) <= self._tiny_j:
                break
        else:
            bound_j = self._best_j
        return Closing(
            choice=self._choice(),
            energy_j=self._best_j,
            bound_j=min(bound_j, self._dropped_j, self._best_j),
        )

    def _ordered_groups(self, relaxation: Relaxation) -> list[IntTable]:
        """Options that may still be in a better plan, by class, without the base options.

        The class that the relaxation splits comes first, then by largest step.
        """
        base = self._base
        is_kept = base.excess_j < self._limit_j()
        is_kept[base.choice] = False
        kept = np.flatnonzero(is_kept)
        if not kept.size:
            return []
        classes = self._options.classes[kept]
        starts = np.flatnonzero(np.diff(classes, prepend=-1))
        sizes = np.maximum.reduceat(np.abs(base.time_s[kept]), starts)
        sizes[classes[starts] == relaxation.step_classes[base.step_count]] = np.inf
        groups = np.split(kept, starts[1:])
        return [groups[i] for i in np.argsort(-sizes, kind="stable")]

    def _group_classes(self) -> IntTable:
        return np.array([self._options.classes[group[0]] for group in self._groups], dtype=np.int64)

    def _limit_j(self) -> float:
        """Options whose excess reaches this are in no better plan."""
        return self._best_j - self._base.bound_j - self._tiny_j

    def _take_in(self, group: IntTable) -> float:
        """Branch on one class; returns the least energy that any partial plan may end with."""
        base, rest = self._base, self._rest
        own_class = int(self._options.classes[group[0]])
        rest.drop(own_class)
        kept = group[base.excess_j[group] < self._limit_j()]
        choices = np.append(kept, base.choice[own_class])
        # One sorted run per option, which a stable sort merges quickly.
        times = np.add.outer(base.time_s[choices], self._time_s).ravel()
        energies = np.add.outer(base.energy_j[choices], self._energy_j).ravel()
        least = energies + rest.least_j(base.slack_s - times)
        alive = np.flatnonzero(least < self._best_j - self._tiny_j)
        if not alive.size:
            return self._best_j
        alive = _undominated(alive, times, energies)
        self._round(alive, times, energies, choices)
        entry_count = self._time_s.size
        self._trail.append((alive % entry_count, choices[alive // entry_count]))
        self._time_s, self._energy_j = times[alive], energies[alive]
        self._least_j = least[alive]
        return float(self._least_j.min())

    def _round(
        self, alive: IntTable, times: FloatTable, energies: FloatTable, choices: IntTable
    ) -> None:
        """Complete every partial plan by the rest's rounded relaxation; keep the best."""
        rounded, step_counts = self._rest.rounded_j(self._base.slack_s - times[alive])
        totals = energies[alive] + rounded
        i = int(np.argmin(totals))
        if totals[i] < self._best_j - self._tiny_j:
            self._best_j = float(totals[i])
            own, parent = divmod(int(alive[i]), self._time_s.size)
            changed = self._rest.changed_options(int(step_counts[i]))
            self._found = (len(self._trail), parent, np.append(changed, choices[own]))

    def _narrow(self, limit: int) -> None:
        """Keep the most promising partial plans; few will do once the proof is there."""
        bound_j = min(float(self._least_j.min()), self._dropped_j)
        if self._best_j - bound_j <= self._enough_j:
            limit = min(limit, _NARROW_COUNT)
        if self._least_j.size <= limit:
            return
        by_bound = np.argpartition(self._least_j, limit)
        self._dropped_j = min(self._dropped_j, float(self._least_j[by_bound[limit]]))
        kept = np.sort(by_bound[:limit])
        self._time_s, self._energy_j = self._time_s[kept], self._energy_j[kept]
        self._least_j = self._least_j[kept]
        if self._trail:
            parents, options = self._trail[-1]
            self._trail[-1] = (parents[kept], options[kept])

    def _choice(self) -> IntTable | None:
        if self._found is None:
            return None
        depth, entry, changed = self._found
        choice = self._base.choice.copy()
        for option in changed:
            choice[self._options.classes[option]] = option
        for parents, options in reversed(self._trail[:depth]):
            option = options[entry]
            choice[self._options.classes[option]] = option
            entry = int(parents[entry])
        return choice


def _undominated(alive: IntTable, times: FloatTable, energies: FloatTable) -> IntTable:
    """Those that no faster one undercuts, by time."""
    by_time: IntTable = alive[np.argsort(times[alive], kind="stable")]
    kept = energies[by_time]
    is_better: BoolTable = np.append([True], kept[1:] < np.minimum.accumulate(kept)[:-1])
    return by_time[is_better]
