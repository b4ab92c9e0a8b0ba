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

from dataclasses import dataclass, field

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.options import Options, Relaxation

ROUNDING_RATIO = 1e-12
"""Energies this close, relative to the whole, count as equal."""
PROVEN_RATIO = 1e-9
"""A gap this small, relative to the whole, counts as proof."""

_WINDOW_STEPS = 1024
_NARROW_COUNT = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Base:
    """The relaxation's last whole plan within the budget, and every option relative to it.

    `time_s`, `energy_j` (N,) are what changing one class to an option adds; `excess_j` (N,) is how
    far above the bound that change alone leads: Δe + rate·Δt, never negative.
    """

    choice: IntTable
    step_count: int
    total_energy_j: float
    slack_s: float
    rate_w: float
    time_s: FloatTable
    energy_j: FloatTable
    excess_j: FloatTable

    @property
    def bound_j(self) -> float:
        """No plan within the budget needs less energy, relative to the base plan: at most 0."""
        return -self.rate_w * self.slack_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Closing:
    """The best whole plan found and a proven bound, both relative to the base plan's energy.

    `choice` is `None` where nothing better than the given incumbent was found.
    """

    choice: IntTable | None
    energy_j: float
    bound_j: float


def close_gap(
    options: Options,
    relaxation: Relaxation,
    base: Base,
    *,
    incumbent_j: float,
    state_limit: int,
) -> Closing:
    """Find the plan of least energy within the budget.

    Args:
        options: What may be chosen.
        relaxation: That of these options.
        base: That of this relaxation and the budget.
        incumbent_j: Energy of a known plan relative to the base plan.
        state_limit: How many partial plans may be alive. Beyond it the least promising go, and
            `bound_j` says what remains proven.
    """
    return _Search(options, relaxation, base, incumbent_j).run(state_limit)


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
        self._rest = _Rest(relaxation, base, options.class_count, self._groups, options)
        self._time_s: FloatTable = np.zeros(1)
        self._energy_j: FloatTable = np.zeros(1)
        self._trail: list[tuple[IntTable, IntTable]] = []
        self._found: tuple[int, int, IntTable] | None = None
        self._dropped_j = np.inf

    def run(self, state_limit: int) -> Closing:
        """Take in class after class until the gap is closed."""
        bound_j = self._base.bound_j
        for group in self._groups:
            bound_j = self._take_in(group, state_limit)
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

    def _limit_j(self) -> float:
        """Options whose excess reaches this are in no better plan."""
        return self._best_j - self._base.bound_j - self._tiny_j

    def _take_in(self, group: IntTable, state_limit: int) -> float:
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
        bound_j = float(least[alive].min())
        alive = self._narrowed(alive, least, state_limit)
        self._extend_trail(alive, choices)
        self._time_s, self._energy_j = times[alive], energies[alive]
        return bound_j

    def _extend_trail(self, alive: IntTable, choices: IntTable) -> None:
        entry_count = self._time_s.size
        self._trail.append((alive % entry_count, choices[alive // entry_count]))

    def _round(
        self, alive: IntTable, times: FloatTable, energies: FloatTable, choices: IntTable
    ) -> None:
        """Complete every partial plan by the rest's rounded relaxation; keep the best."""
        rounded, step_counts = self._rest.rounded_j(self._base.slack_s - times[alive])
        totals = energies[alive] + rounded
        i = int(np.argmin(totals))
        if totals[i] < self._best_j - self._tiny_j:
            self._best_j = float(totals[i])
            parent, own = divmod(int(alive[i]), self._time_s.size)[::-1]
            changed = self._rest.changed_options(int(step_counts[i]))
            self._found = (
                len(self._trail),
                parent,
                np.append(changed, choices[own]),
            )

    def _narrowed(self, alive: IntTable, least: FloatTable, state_limit: int) -> IntTable:
        bounds = least[alive]
        is_proven = self._best_j - min(float(bounds.min()), self._dropped_j) <= self._enough_j
        limit = min(state_limit, _NARROW_COUNT) if is_proven else state_limit
        if alive.size <= limit:
            return alive
        by_bound = np.argpartition(bounds, limit)
        self._dropped_j = min(self._dropped_j, float(bounds[by_bound[limit]]))
        return alive[np.sort(by_bound[:limit])]

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
    alive = alive[np.argsort(times[alive], kind="stable")]
    kept = energies[alive]
    is_better = np.append([True], kept[1:] < np.minimum.accumulate(kept)[:-1])
    return alive[is_better]


@dataclass(slots=True, kw_only=True, eq=False)
class _Steps:
    """The relaxation's steps near the base plan, of the classes that are still relaxed."""

    classes: IntTable
    begins: IntTable
    ends: IntTable
    time_s: FloatTable
    energy_j: FloatTable
    is_taken: IntTable = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class _Rest:
    """What the classes not yet taken in can add, by their relaxation, as their time changes.

    Only steps near the base plan are looked at; beyond them the energy is bounded by the rate of
    the next step, which no later step betters.
    """

    def __init__(
        self,
        relaxation: Relaxation,
        base: Base,
        class_count: int,
        groups: list[IntTable],
        options: Options,
    ) -> None:
        open_classes = np.zeros(class_count, dtype=np.bool_)
        open_classes[[int(options.classes[group[0]]) for group in groups]] = True
        is_open = open_classes[relaxation.step_classes]
        steps = np.flatnonzero(is_open)
        taken_count = int(np.count_nonzero(is_open[: base.step_count]))
        low, high = max(0, taken_count - _WINDOW_STEPS), taken_count + _WINDOW_STEPS
        self._before = _Beyond(relaxation, steps[:low][::-1], class_count)
        self._after = _Beyond(relaxation, steps[high:], class_count)
        near = steps[low:high]
        self._classes = relaxation.step_classes[near]
        self._begins = relaxation.step_begins[near]
        self._ends = relaxation.step_ends[near]
        self._step_time_s = options.time_s[self._ends] - options.time_s[self._begins]
        self._step_energy_j = options.energy_j[self._ends] - options.energy_j[self._begins]
        self._is_taken = near < base.step_count
        self._sum_up()

    def drop(self, own_class: int) -> None:
        """Take a class out of the rest."""
        self._before.drop(own_class)
        self._after.drop(own_class)
        stays = self._classes != own_class
        self._classes = self._classes[stays]
        self._begins = self._begins[stays]
        self._ends = self._ends[stays]
        self._step_time_s = self._step_time_s[stays]
        self._step_energy_j = self._step_energy_j[stays]
        self._is_taken = self._is_taken[stays]
        self._sum_up()

    def _sum_up(self) -> None:
        """Time and energy after each step, relative to the base plan."""
        self._taken_count = int(np.count_nonzero(self._is_taken))
        self._time_s = _running_from(self._step_time_s, self._taken_count)
        self._energy_j = _running_from(self._step_energy_j, self._taken_count)

    def least_j(self, time_s: FloatTable) -> FloatTable:
        """Least energy that the rest adds when it may add `time_s`; +inf where it cannot."""
        least: FloatTable = np.interp(time_s, self._time_s, self._energy_j)
        if self._after.count:
            least -= self._after.rate_w * np.maximum(time_s - self._time_s[-1], 0.0)
        if self._before.count:
            least += self._before.rate_w * np.maximum(self._time_s[0] - time_s, 0.0)
        else:
            least[time_s < self._time_s[0]] = np.inf
        return least

    def rounded_j(self, time_s: FloatTable) -> tuple[FloatTable, IntTable]:
        """Energy that a whole choice of the rest adds within `time_s`, and its step count.

        +inf where the steps at hand do not reach.
        """
        counts = np.searchsorted(self._time_s, time_s, side="right") - 1
        return np.where(counts >= 0, self._energy_j[counts], np.inf), counts

    def changed_options(self, step_count: int) -> IntTable:
        """Options that differ from the base plan after so many steps; later entries overrule."""
        if step_count >= self._taken_count:
            return self._ends[self._taken_count : step_count]
        return self._begins[step_count : self._taken_count][::-1]


class _Beyond:
    """Steps too far from the base plan to be looked at singly; the nearest comes first."""

    def __init__(self, relaxation: Relaxation, steps: IntTable, class_count: int) -> None:
        self._per_class = np.bincount(relaxation.step_classes[steps], minlength=class_count)
        self.count = int(steps.size)
        self.rate_w = float(relaxation.rate_w[steps[0]]) if steps.size else 0.0

    def drop(self, own_class: int) -> None:
        self.count -= int(self._per_class[own_class])


def _running_from(steps: FloatTable, origin: int) -> FloatTable:
    """Running sum that is 0 after `origin` steps."""
    running = np.concatenate([[0.0], np.cumsum(steps)])
    return running - running[origin]
