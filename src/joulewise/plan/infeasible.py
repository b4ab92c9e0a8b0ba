"""Say why no plan keeps a budget, and what the least is that one could keep."""

from __future__ import annotations

import math

import numpy as np

from joulewise.domain.errors import InfeasibleBudget
from joulewise.domain.plan import PlanRequest, Scope
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.solve import LeastTime, least_time
from joulewise.plan.table import PlanTable

_SAME_RATIO = 1e-9


def infeasible(
    table: PlanTable,
    request: PlanRequest,
    chain: Chain | None,
    own_ratio: float,
    guard_band_ratio: float,
) -> InfeasibleBudget:
    """The error for a budget that no plan was found to keep.

    Args:
        table: What was planned on.
        request: What was asked for.
        chain: The table where changes count, without the cells that a local scope excludes.
        own_ratio: Largest time / baseline time that a class may take by itself, if any is bound.
        guard_band_ratio: Part of the budget that was kept back.
    """
    fastest_s = table.time_s.min(axis=1)
    ratios = fastest_s / table.time_s[:, table.baseline_index]
    slowest = int(np.argmax(ratios))
    if request.scope is Scope.LOCAL and ratios[slowest] > own_ratio:
        what = f"{table.class_names[slowest]!r} runs"
        return _no_faster(what, float(ratios[slowest]), guard_band_ratio)
    if chain is None:
        least_s = float(fastest_s.sum())
        return _no_faster("no plan is", least_s / table.baseline_time_s, guard_band_ratio)
    least = least_time(chain)
    return too_slow(chain, least, table.baseline_time_s, request, guard_band_ratio)


def too_slow(
    chain: Chain,
    least: LeastTime,
    baseline_s: float,
    request: PlanRequest,
    guard_band_ratio: float,
) -> InfeasibleBudget:
    """The error where changes count: what is proven, and what was found where that differs."""
    if math.isinf(least.bound_s):
        return InfeasibleBudget(
            f"no plan {_within(chain)} keeps every launch's budget",
            least_slowdown_ratio=None,
            hint=_relief(chain, request),
        )
    bound_ratio = least.bound_s / baseline_s
    if math.isinf(least.found_s):
        return InfeasibleBudget(
            f"no plan {_within(chain)} was found that keeps every launch's budget; "
            f"none is faster than {_percent(bound_ratio)} of the baseline's time",
            least_slowdown_ratio=bound_ratio,
            hint=_relief(chain, request),
        )
    found_ratio = least.found_s / baseline_s
    if _is_sure(least):
        return _no_faster("no plan is", found_ratio, guard_band_ratio)
    return InfeasibleBudget(
        f"no plan was found that is faster than {_percent(found_ratio)} of the baseline's time; "
        f"none is faster than {_percent(bound_ratio)}",
        least_slowdown_ratio=bound_ratio,
        hint=_allow(found_ratio, guard_band_ratio),
    )


def _no_faster(what: str, least_ratio: float, guard_band_ratio: float) -> InfeasibleBudget:
    words = "no faster than" if what.endswith("runs") else "faster than"
    return InfeasibleBudget(
        f"{what} {words} {_percent(least_ratio)} of the baseline's time",
        least_slowdown_ratio=least_ratio,
        hint=_allow(least_ratio, guard_band_ratio),
    )


def _is_sure(least: LeastTime) -> bool:
    return least.found_s - least.bound_s <= _SAME_RATIO * least.found_s


def _within(chain: Chain) -> str:
    """What restricts changes, in words."""
    parts = []
    if chain.max_region_count is not None:
        count = chain.max_region_count
        parts.append("of one region" if count == 1 else f"of at most {count} regions")
    if chain.changes.is_spaced:
        parts.append("with changes as far apart as the transition model asks")
    return " ".join(parts)


def _relief(chain: Chain, request: PlanRequest) -> str:
    ways = ["a larger --max-slowdown"]
    if chain.max_region_count is not None:
        ways.append("more regions")
    if request.scope is Scope.LOCAL:
        ways.append("--scope global")
    return f"Try {' or '.join(ways)}."


def _allow(least_ratio: float, guard_band_ratio: float) -> str:
    needed_ratio = math.ceil((least_ratio - 1.0 + guard_band_ratio) * 1e4) / 1e4
    guard = f" (with {guard_band_ratio:.2%} kept back)" if guard_band_ratio else ""
    return f"Allow at least --max-slowdown {100.0 * needed_ratio:.2f}%{guard}."


def _percent(ratio: float) -> str:
    return f"{100.0 * ratio:.2f} %"
