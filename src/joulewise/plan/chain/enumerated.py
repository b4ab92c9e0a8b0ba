"""Small chains: look at every plan there is.

A few passes, or a handful of launches, leave so few plans that no bound is worth its while.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import BoolTable, FloatTable, IntTable
from joulewise.plan.chain.problem import Chain

_CELL_COUNT = 3_000_000
_BATCH_CELL_COUNT = 400_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plans:
    """n possible plans: (n, N) columns, and what an iteration of each takes."""

    choices: IntTable
    time_s: FloatTable
    energy_j: FloatTable


def is_enumerable(chain: Chain) -> bool:
    """Whether all plans of the chain are soon looked at."""
    counts = np.isfinite(chain.time_s).sum(axis=1)
    if not counts.all():
        return True
    return float(np.log(counts).sum()) <= math.log(_CELL_COUNT / counts.size)


def all_plans(chain: Chain) -> Iterator[Plans]:
    """Every possible plan, in batches (see `Chain.is_possible`)."""
    columns = [np.flatnonzero(np.isfinite(row)) for row in chain.time_s]
    counts = tuple(own.size for own in columns)
    plan_count = math.prod(counts)
    batch_count = max(1, _BATCH_CELL_COUNT // len(counts))
    for begin in range(0, plan_count, batch_count):
        numbers = np.arange(begin, min(begin + batch_count, plan_count))
        places = np.unravel_index(numbers, counts)
        choices = np.stack([own[place] for own, place in zip(columns, places, strict=True)], axis=1)
        yield _possible(chain, choices)


def cheapest_plan(chain: Chain, budget_s: float, exponent: int = 0) -> IntTable | None:
    """(N,) columns of the plan of least time^exponent x energy within a budget; exact.

    `None` where no possible plan keeps the budget.
    """
    best, least = None, math.inf
    for plans in all_plans(chain):
        values = np.where(plans.time_s <= budget_s, plans.time_s**exponent * plans.energy_j, np.inf)
        if values.size and values.min() < least:
            i = int(values.argmin())
            best, least = plans.choices[i], float(values[i])
    return best


def _possible(chain: Chain, choices: IntTable) -> Plans:
    is_kept = np.ones(choices.shape[0], dtype=np.bool_)
    if chain.max_region_count is not None:
        change_counts = (choices != np.roll(choices, 1, axis=1)).sum(axis=1)
        is_kept &= (change_counts == 0) | (change_counts <= chain.max_region_count)
    if chain.changes.is_spaced:
        is_kept &= _is_spaced(chain, choices)
    choices = choices[is_kept]
    stalled_s, spent_j = chain.changes.of(choices, np.roll(choices, -1, axis=1))
    nodes = np.arange(choices.shape[1])
    return Plans(
        choices=choices,
        time_s=chain.time_s[nodes, choices].sum(axis=1) + stalled_s.sum(axis=1),
        energy_j=chain.energy_j[nodes, choices].sum(axis=1) + spent_j.sum(axis=1),
    )


def _is_spaced(chain: Chain, choices: IntTable) -> BoolTable:
    """Whether every change finds the last one in force, plan by plan.

    Twice around: the first lap finds how long the region has run that the second begins in.
    """
    spacing_s = chain.changes.spacing_s
    node_count = choices.shape[1]
    region_s = np.zeros(choices.shape[0])
    is_kept = np.ones(choices.shape[0], dtype=np.bool_)
    for step in range(2 * node_count):
        k = step % node_count
        before, here = choices[:, k - 1], choices[:, k]
        rows = chain.changes.domains(before, here)
        is_change = rows >= 0
        if step >= node_count:
            is_kept &= ~is_change | (region_s >= spacing_s[rows, here])
        region_s = np.where(is_change, 0.0, region_s) + chain.time_s[k, here]
    return is_kept
