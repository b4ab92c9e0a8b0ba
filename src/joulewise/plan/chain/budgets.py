"""A row of budgets between two plans, where what is not known yet could save most."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from joulewise.domain.sweep import FloatTable
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.solve import solve_chain

_BUDGET_COUNT = 64
_SAME_RATIO = 1e-12
_ENOUGH_RATIO = 1e-6


class _Open(NamedTuple):
    """Times between two plans within which others may lie; those that leave most room first."""

    missing_j: float
    after_s: float
    before_s: float
    most_j: float
    least_j: float
    is_halved: bool


def between(chain: Chain, times: FloatTable, energies: FloatTable) -> tuple[FloatTable, FloatTable]:
    """Time (s) and energy (J) of plans between the fastest and the most frugal of those given.

    Budgets are solved one by one, each where a plan not known yet could save most: the middle of
    the span of time between two plans, and where it holds none, all of that span.
    """
    fast, slow = np.lexsort((energies, times))[0], np.lexsort((times, energies))[0]
    spans: list[_Open] = []
    _open(
        spans, float(times[fast]), float(times[slow]), float(energies[fast]), float(energies[slow])
    )
    found: list[tuple[float, float]] = []
    for _ in range(_BUDGET_COUNT):
        if not spans:
            break
        span = heapq.heappop(spans)
        budget_s = span.before_s * (1.0 - _SAME_RATIO)
        if not span.is_halved:
            budget_s = 0.5 * (span.after_s + span.before_s)
        answer = solve_chain(chain, budget_s)
        if answer is None or answer.energy_j >= span.most_j * (1.0 - _SAME_RATIO):
            if not span.is_halved:
                _open(spans, budget_s, span.before_s, span.most_j, span.least_j, is_halved=True)
            continue
        found.append((answer.time_s, answer.energy_j))
        _open(spans, span.after_s, answer.time_s, span.most_j, answer.energy_j)
        if not span.is_halved:
            _open(spans, budget_s, span.before_s, answer.energy_j, span.least_j)
    return np.array([time_s for time_s, _ in found]), np.array([energy_j for _, energy_j in found])


def _open(
    spans: list[_Open],
    after_s: float,
    before_s: float,
    most_j: float,
    least_j: float,
    *,
    is_halved: bool = False,
) -> None:
    """Look between two plans later on, unless there is hardly anything to find."""
    missing_j = most_j - least_j
    if missing_j > _ENOUGH_RATIO * most_j and before_s > after_s * (1.0 + _SAME_RATIO):
        heapq.heappush(spans, _Open(-missing_j, after_s, before_s, most_j, least_j, is_halved))
