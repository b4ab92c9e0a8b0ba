"""Find a better whole plan where many lie close together: two lists of partial plans that meet.

Where options trade time for energy at nearly one rate, bounds tell little apart, but whole plans
abound. Each half of the classes lists combinations; one sorted look-up per entry finds its best
partner in the other half, so that two lists of n entries search n² plans.

Source: Horowitz and Sahni, Computing partitions with applications to the knapsack problem,
Journal of the ACM 21 (1974).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.options import Options
from joulewise.plan.rest import Base, Closing

_ENTRY_COUNT = 32_768
_CELL_COUNT = 1_000_000


@dataclass(slots=True, kw_only=True, eq=False)
class _Half:
    """Combinations of some classes, relative to the base plan: time rises, energy falls."""

    time_s: FloatTable = field(default_factory=lambda: np.zeros(1))
    energy_j: FloatTable = field(default_factory=lambda: np.zeros(1))
    trail: list[tuple[IntTable, IntTable]] = field(default_factory=list)

    def take_in(self, choices: IntTable, base: Base, limit_j: float) -> None:
        """Combine every entry with every option of one more class."""
        times = np.add.outer(base.time_s[choices], self.time_s).ravel()
        energies = np.add.outer(base.energy_j[choices], self.energy_j).ravel()
        kept = np.flatnonzero(energies + base.rate_w * times < limit_j)
        kept = kept[np.argsort(times[kept], kind="stable")]
        falling = energies[kept]
        kept = kept[np.append([True], falling[1:] < np.minimum.accumulate(falling)[:-1])]
        if kept.size > _ENTRY_COUNT:
            # Evenly over the times: what a partner leaves of the budget may be any time.
            kept = kept[np.linspace(0, kept.size - 1, _ENTRY_COUNT).astype(np.int64)]
        self.trail.append((kept % self.time_s.size, choices[kept // self.time_s.size]))
        self.time_s, self.energy_j = times[kept], energies[kept]

    def options(self, entry: int) -> list[int]:
        """What an entry is made of."""
        found = []
        for parents, options in reversed(self.trail):
            found.append(int(options[entry]))
            entry = int(parents[entry])
        return found


def meet_halfway(options: Options, base: Base, *, incumbent_j: float) -> Closing:
    """Look for a plan within the budget that needs less energy than the incumbent.

    Energies are relative to the base plan; nothing is proven beyond its bound.
    """
    limit_j = incumbent_j - base.bound_j
    first, second = _Half(), _Half()
    for choices in _by_class(options, base, limit_j):
        small = first if first.time_s.size <= second.time_s.size else second
        if small.time_s.size * choices.size > _CELL_COUNT:
            break
        small.take_in(choices, base, limit_j)
    # Energy falls along a half, so the slowest partner that fits is the best one.
    partners = np.searchsorted(second.time_s, base.slack_s - first.time_s, side="right") - 1
    totals = np.where(partners >= 0, first.energy_j + second.energy_j[partners], np.inf)
    best = int(np.argmin(totals))
    if totals[best] >= incumbent_j:
        return Closing(choice=None, energy_j=incumbent_j, bound_j=base.bound_j)
    found = first.options(best) + second.options(int(partners[best]))
    choice = base.choice.copy()
    choice[options.classes[found]] = found
    return Closing(choice=choice, energy_j=float(totals[best]), bound_j=base.bound_j)


def _by_class(options: Options, base: Base, limit_j: float) -> list[IntTable]:
    """Options that may be in a better plan, by class, those of one option left out."""
    is_kept = base.excess_j < limit_j
    is_kept[base.choice] = True
    kept = np.flatnonzero(is_kept)
    groups = np.split(kept, np.flatnonzero(np.diff(options.classes[kept])) + 1)
    return [group for group in groups if group.size > 1]
