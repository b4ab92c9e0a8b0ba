"""The least energy within a time budget: a multiple-choice knapsack, solved to proof.

Linear relaxation, rounding, reduced-cost elimination until it eliminates no more, then the list of
partial plans of `plan.core`. Where that list outgrows its limit, whole plans abound: `plan.halves`
finds a better one, more options can be eliminated, and a longer list tries again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import IntTable
from joulewise.plan.core import close_gap
from joulewise.plan.halves import meet_halfway
from joulewise.plan.options import Options, Relaxation, relaxation_of
from joulewise.plan.rest import PROVEN_RATIO, ROUNDING_RATIO, Base, Closing

CELL_LIMITS = (20_000, 200_000, 1_000_000)
"""Partial plans times options that may be looked at per class, try by try."""

_WORTHWHILE_RATIO = 0.9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """The best choice found, (C,) columns of the table, and what is proven about any other."""

    columns: IntTable
    energy_j: float
    bound_j: float


def cheapest_within(
    options: Options, budget_s: float, *, cell_limits: tuple[int, ...] = CELL_LIMITS
) -> Answer | None:
    """Choose one option per class: least energy, total time at most `budget_s`.

    Returns `None` where even the fastest options take longer. `bound_j` equals `energy_j` within
    1e-9 unless the problem outgrew the longest list.

    Args:
        options: Undominated options of every class.
        budget_s: Time that the whole may take; the caller adds its tolerance.
        cell_limits: Partial plans times options looked at per class, try by try.
    """
    return _Solver(options, budget_s).run(cell_limits)


class _Solver:
    def __init__(self, options: Options, budget_s: float) -> None:
        self._options = options
        self._budget_s = budget_s
        self._best_j = np.inf
        self._best_columns: IntTable = options.columns[options.fastest]
        self._bound_j = -np.inf

    def run(self, cell_limits: tuple[int, ...]) -> Answer | None:
        """Shrink and search until the proof is there or the last limit is spent."""
        relaxation = relaxation_of(self._options)
        if relaxation.time_s[0] > self._budget_s:
            return None
        for cell_limit in cell_limits:
            relaxation, base = self._eliminate(relaxation)
            if base is None or self._is_proven(ROUNDING_RATIO):
                break
            self._take(base, self._close(relaxation, base, cell_limit))
            if self._is_proven(PROVEN_RATIO):
                break
            incumbent_j = self._best_j - base.total_energy_j
            self._take(base, meet_halfway(self._options, base, incumbent_j=incumbent_j))
        return Answer(
            columns=self._best_columns,
            energy_j=self._best_j,
            bound_j=min(self._bound_j, self._best_j),
        )

    def _eliminate(self, relaxation: Relaxation) -> tuple[Relaxation, Base | None]:
        """Drop options that are in no better plan, relax what is left, and again."""
        while True:
            base = self._relaxed(relaxation)
            if base is None or self._is_proven(ROUNDING_RATIO):
                return relaxation, base
            limit_j = self._best_j * (1.0 - ROUNDING_RATIO) - base.total_energy_j - base.bound_j
            is_kept = base.excess_j < limit_j
            is_kept[base.choice] = True
            if np.count_nonzero(is_kept) > _WORTHWHILE_RATIO * is_kept.size:
                return relaxation, base
            self._options = self._options.subset(is_kept)
            relaxation = relaxation_of(self._options)

    def _relaxed(self, relaxation: Relaxation) -> Base | None:
        """Take over what the relaxation proves and finds; `None` where nothing is left to gain."""
        base = _base(self._options, relaxation, self._budget_s)
        self._bound_j = max(self._bound_j, base.total_energy_j + base.bound_j)
        if base.total_energy_j < self._best_j:
            self._keep(base.choice, base.total_energy_j)
        if not base.rate_w:
            return None
        fits = np.flatnonzero(base.time_s <= base.slack_s)
        best = int(fits[np.argmin(base.energy_j[fits])])
        energy_j = base.total_energy_j + float(base.energy_j[best])
        if energy_j < self._best_j:
            choice = base.choice.copy()
            choice[self._options.classes[best]] = best
            self._keep(choice, energy_j)
        return base

    def _close(self, relaxation: Relaxation, base: Base, cell_limit: int) -> Closing:
        return close_gap(
            self._options,
            relaxation,
            base,
            incumbent_j=self._best_j - base.total_energy_j,
            cell_limit=cell_limit,
        )

    def _take(self, base: Base, closing: Closing) -> None:
        """Take over what a search proved and found."""
        self._bound_j = max(self._bound_j, base.total_energy_j + closing.bound_j)
        if closing.choice is not None:
            self._keep(closing.choice, base.total_energy_j + closing.energy_j)

    def _keep(self, choice: IntTable, energy_j: float) -> None:
        self._best_columns = self._options.columns[choice]
        self._best_j = energy_j

    def _is_proven(self, ratio: float) -> bool:
        return self._best_j - self._bound_j <= ratio * self._best_j


def _base(options: Options, relaxation: Relaxation, budget_s: float) -> Base:
    """The last whole plan of the relaxation within the budget."""
    steps = int(np.searchsorted(relaxation.time_s, budget_s, side="right")) - 1
    choice = relaxation.choice_after(steps)
    rate_w = float(relaxation.rate_w[steps]) if steps < relaxation.rate_w.size else 0.0
    time_s = options.time_s - options.time_s[choice][options.classes]
    energy_j = options.energy_j - options.energy_j[choice][options.classes]
    return Base(
        choice=choice,
        step_count=steps,
        total_energy_j=float(options.energy_j[choice].sum()),
        slack_s=max(0.0, budget_s - float(options.time_s[choice].sum())),
        rate_w=rate_w,
        time_s=time_s,
        energy_j=energy_j,
        excess_j=np.maximum(0.0, energy_j + rate_w * time_s),
    )
