"""Every plan around a chain, where there are few: exact, whatever restricts changes."""

from __future__ import annotations

import numpy as np

from joulewise.domain.sweep import BoolTable, FloatTable, IntTable
from joulewise.plan.chain.problem import Chain, ChainAnswer

EVERY_PLAN_COUNT = 500_000
"""Plans that may be looked at one by one."""


def plan_count(chain: Chain) -> int:
    """How many plans there are, possible or not."""
    node_count, point_count = chain.time_s.shape
    return int(point_count**node_count)


def every_total(chain: Chain) -> tuple[FloatTable, FloatTable]:
    """Time (s) and energy (J) of every possible plan."""
    _, time_s, energy_j = _possible(chain)
    return time_s, energy_j


def cheapest_of_every(chain: Chain, budget_s: float) -> ChainAnswer | None:
    """The plan of least energy within a budget, proven; `None` where there is none."""
    every, time_s, energy_j = _possible(chain)
    fits = np.flatnonzero(time_s <= budget_s)
    # Sums are rounded in another order here than they are in the end.
    for best in fits[np.argsort(energy_j[fits], kind="stable")].tolist():
        choice = every[:, best].copy()
        best_s, best_j = chain.totals(choice)
        if best_s <= budget_s and chain.is_possible(choice):
            return ChainAnswer(choice=choice, time_s=best_s, energy_j=best_j, bound_j=best_j)
    return None


def _possible(chain: Chain) -> tuple[IntTable, FloatTable, FloatTable]:
    """(N, M) choices, one a column, with their times (s) and energies (J)."""
    node_count, point_count = chain.time_s.shape
    places = np.array([point_count**k for k in range(node_count)], dtype=np.int64)
    every = np.arange(point_count**node_count) // places[:, None] % point_count
    time_s, energy_j = np.zeros(every.shape[1]), np.zeros(every.shape[1])
    for k in range(node_count):
        stalled_s, spent_j = chain.changes.of(every[k - 1], every[k])
        time_s += chain.time_s[k, every[k]] + stalled_s
        energy_j += chain.energy_j[k, every[k]] + spent_j
    is_kept = np.isfinite(time_s) & _are_possible(chain, every)
    return every[:, is_kept], time_s[is_kept], energy_j[is_kept]


def _are_possible(chain: Chain, every: IntTable) -> BoolTable:
    """`Chain.is_possible` of (N, M) choices, one a column."""
    found = np.ones(every.shape[1], dtype=np.bool_)
    if chain.max_region_count is not None:
        found &= (every != np.roll(every, 1, axis=0)).sum(axis=0) <= chain.max_region_count
    if not chain.changes.is_spaced:
        return found
    node_count = every.shape[0]
    elapsed_s = np.zeros(every.shape[1])
    # The first lap only tells how long the point at its end has been in force.
    for step in range(2 * node_count):
        k = step % node_count
        rows = chain.changes.domains(every[k - 1], every[k])
        is_change = rows >= 0
        if step >= node_count:
            found &= ~is_change | (elapsed_s >= chain.changes.spacing_s[rows, every[k]])
        elapsed_s = np.where(is_change, 0.0, elapsed_s) + chain.time_s[k, every[k]]
    return found
