"""What a U-curve says: its best clock, the clocks that do as well, and what can be told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.report.ucurve import STD_ERROR_COUNT, CurveCharacter, CurveEdge

NEAR_RATIO = 0.02
"""Near the optimum a curve is flat: within 2 % of the least energy clocks are as good as equal.

On the published curves of DeBERTa-v2-xlarge that band is 510 to 714 MHz (QNLI) and 612 to 816 MHz
(SST-2), github.com/esainulab/slmdvfs; a label of one clock makes hits and misses of it.
"""


def characterise(curve: ClockCurve, *, near_ratio: float = NEAR_RATIO) -> CurveCharacter:
    """Find the best clock of a curve, the band around it, and what its errors leave of both.

    Args:
        curve: One job at C clocks and under the governor.
        near_ratio: How much more energy than the least still counts as near it.

    Raises:
        ValueError: a negative `near_ratio`.
    """
    if not near_ratio >= 0:
        raise ValueError(f"near_ratio must not be negative, got {near_ratio}")
    costs, best, base, highest = curve.costs, curve.best, curve.baseline, curve.costs[-1]
    place = costs.index(best)
    limit_j = best.energy_j * (1.0 + near_ratio)
    is_near = [cost.energy_j <= limit_j for cost in costs]
    first, last = _run_around(is_near, place)
    fast = min((cost for cost, near in zip(costs, is_near, strict=True) if near), key=_speed)
    saving_ratio = 1.0 - best.energy_j / base.energy_j
    error_ratio = _error_of_ratio(best, base)
    highest_saving_ratio = 1.0 - best.energy_j / highest.energy_j
    highest_error_ratio = _error_of_ratio(best, highest)
    return CurveCharacter(
        curve=curve,
        best=best,
        highest=highest,
        saving_ratio=saving_ratio,
        slowdown_ratio=best.time_s / base.time_s,
        highest_saving_ratio=highest_saving_ratio,
        highest_slowdown_ratio=best.time_s / highest.time_s,
        fast=fast,
        fast_saving_ratio=1.0 - fast.energy_j / base.energy_j,
        fast_slowdown_ratio=fast.time_s / base.time_s,
        fast_saving_error_ratio=_error_of_ratio(fast, base),
        near_ratio=near_ratio,
        band_mhz=curve.sm_clocks_mhz[first : last + 1],
        near_mhz=tuple(
            clock for clock, near in zip(curve.sm_clocks_mhz, is_near, strict=True) if near
        ),
        powers_w=tuple(cost.energy_j / cost.time_s for cost in costs),
        baseline_power_w=base.energy_j / base.time_s,
        alike_mhz=_alike(curve, best),
        saving_error_ratio=error_ratio,
        is_saving_shown=_is_shown(saving_ratio, error_ratio),
        highest_saving_error_ratio=highest_error_ratio,
        is_highest_saving_shown=_is_shown(highest_saving_ratio, highest_error_ratio),
        edge=_edge(place, len(costs)),
    )


def _speed(cost: ClockCost) -> tuple[float, float]:
    """Time first; of clocks that take the same, the one of less energy."""
    return cost.time_s, cost.energy_j


def _run_around(is_near: Sequence[bool], place: int) -> tuple[int, int]:
    """First and last index of the run of true values that `place` lies in."""
    first = last = place
    while first > 0 and is_near[first - 1]:
        first -= 1
    while last + 1 < len(is_near) and is_near[last + 1]:
        last += 1
    return first, last


def _edge(place: int, count: int) -> CurveEdge | None:
    """An optimum at the end of the list may lie beyond it; a single clock has no ends."""
    if count == 1:
        return None
    if place == 0:
        return CurveEdge.LOWEST
    return CurveEdge.HIGHEST if place == count - 1 else None


def _alike(curve: ClockCurve, best: ClockCost) -> tuple[int, ...] | None:
    """Clocks that two standard errors of the difference do not part from the best one."""
    best_error_j = best.energy_error_j
    if best_error_j is None:
        return None
    alike = []
    for clock, cost in zip(curve.sm_clocks_mhz, curve.costs, strict=True):
        if cost is best or cost.energy_error_j is None:
            continue
        error_j = math.hypot(best_error_j, cost.energy_error_j)
        if cost.energy_j - best.energy_j <= STD_ERROR_COUNT * error_j:
            alike.append(clock)
    return tuple(alike)


def _is_shown(saving_ratio: float, error_ratio: float | None) -> bool | None:
    return None if error_ratio is None else saving_ratio > STD_ERROR_COUNT * error_ratio


def _error_of_ratio(cost: ClockCost, base: ClockCost) -> float | None:
    """Standard error of the ratio of two independent energies, to first order.

    That of an energy to itself is exactly 1.
    """
    if cost is base:
        return 0.0
    if cost.energy_error_j is None or base.energy_error_j is None:
        return None
    own_ratio = cost.energy_error_j / cost.energy_j
    base_ratio = base.energy_error_j / base.energy_j
    return cost.energy_j / base.energy_j * math.hypot(own_ratio, base_ratio)
