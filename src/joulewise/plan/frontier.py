"""The whole trade of time for energy: every plan that no other plan beats in both."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from joulewise.domain.plan import FrontierPoint, PlanRequest, Scope
from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.chain.frontiers import chain_totals, quick_totals
from joulewise.plan.chain.problem import Chain
from joulewise.plan.changes import ChangeCosts
from joulewise.plan.options import Options, Relaxation, options_of, relaxation_of
from joulewise.plan.solve import BUDGET_TOLERANCE_RATIO, chain_of, counts_changes
from joulewise.plan.table import PlanTable

_EXACT_COUNT = 5_000
_NEIGHBOUR_STEPS = 8
_SAME_RATIO = 1e-12
_SLOWDOWN_COUNT = 16

_Totals = tuple[FloatTable, FloatTable]


def frontier(
    table: PlanTable,
    *,
    scope: Scope = Scope.GLOBAL,
    max_point_count: int | None = 2_000,
    max_region_count: int | None = None,
) -> tuple[FrontierPoint, ...]:
    """Non-dominated plans from the fastest to the one of least energy, time ascending.

    *Global*: the number of non-dominated plans may grow exponentially with the classes. Up to
    5,000 of them the set is exact (always so for one class, and for a handful of passes). Beyond,
    it holds every supported plan, which is every corner of the convex hull of all plans, and the
    best of those between that differ from a corner nearby in one class. Every point returned is a
    whole plan that can be run, and none is dominated by another; between two of them `solve` may
    find plans that are not listed.

    *Local*: what every class alone makes of a common tolerated slowdown, for every slowdown at
    which a class changes its point. Exact.

    Where changes of the point count, *global* is exact for about a million plans (two passes
    at a thousand points, three at a hundred). Otherwise it holds supported plans around the cycle,
    the single points, and, unless changes must lie apart or regions are bounded, mixtures of
    neighbouring supported plans; for up to eight classes at a hundred points also the best plans
    within 64 budgets. *Local* holds a plan for each of up to 16 tolerated slowdowns, kept by every
    class and by the total with its changes.

    Args:
        table: From `plan_table`.
        scope: Whether budgets bind the sum or every class.
        max_point_count: A longer frontier is thinned to this many points, evenly over time, the
            first and the last included; `None` keeps all (tens of thousands for large tables).
        max_region_count: Regions that the iteration may have, where changes count in the table.
    """
    if table.changes is not None and counts_changes(table, max_region_count):
        totals = _with_changes(table, table.changes, scope, max_region_count)
    else:
        totals = _free(table, scope)
    times, energies = _thinned(*_non_dominated(*totals), max_point_count)
    baseline_s, baseline_j = table.baseline_time_s, table.baseline_energy_j
    return tuple(
        FrontierPoint(
            time_s=time_s,
            energy_j=energy_j,
            slowdown_ratio=time_s / baseline_s,
            saving_ratio=1.0 - energy_j / baseline_j,
        )
        for time_s, energy_j in zip(times.tolist(), energies.tolist(), strict=True)
    )


def _free(table: PlanTable, scope: Scope) -> _Totals:
    """Changes cost nothing, or are left out of the account."""
    options = options_of(table.time_s, table.energy_j)
    if scope is Scope.LOCAL:
        return _local(options, table)
    exact = _exact(options)
    return _supported_and_near(options) if exact is None else exact


def _with_changes(
    table: PlanTable, changes: ChangeCosts, scope: Scope, max_region_count: int | None
) -> _Totals:
    if scope is Scope.GLOBAL:
        return chain_totals(
            Chain(
                time_s=table.time_s,
                energy_j=table.energy_j,
                changes=changes,
                max_region_count=max_region_count,
            )
        )
    baseline_s = table.baseline_time_s
    found = []
    for ratio in _slowdowns(table).tolist():
        request = PlanRequest(
            scope=scope, max_slowdown_ratio=ratio - 1.0, max_region_count=max_region_count
        )
        chain = chain_of(table, request, ratio * (1.0 + BUDGET_TOLERANCE_RATIO))
        if chain is not None:
            found.append(quick_totals(chain, ratio * (1.0 + BUDGET_TOLERANCE_RATIO) * baseline_s))
    totals = [one for one in found if one is not None]
    return np.array([time_s for time_s, _ in totals]), np.array(
        [energy_j for _, energy_j in totals]
    )


def _slowdowns(table: PlanTable) -> FloatTable:
    """Tolerated slowdowns from none to the one at which every class has its choice."""
    options = options_of(table.time_s, table.energy_j)
    baseline_s = table.time_s[:, table.baseline_index]
    ratios = options.time_s / baseline_s[options.classes]
    reached = np.unique(np.maximum(ratios, 1.0))
    places = np.linspace(0, reached.size - 1, min(reached.size, _SLOWDOWN_COUNT))
    return np.asarray(reached[places.astype(np.int64)])


def _non_dominated(times: FloatTable, energies: FloatTable) -> _Totals:
    """Sort by time; keep what needs less energy than all that is faster.

    Sums that differ by rounding only count as equal.
    """
    order = np.lexsort((energies, times))
    times, energies = times[order], energies[order]
    least = np.minimum.accumulate(energies)
    is_better = np.append([True], energies[1:] < least[:-1] * (1.0 - _SAME_RATIO))
    times, energies = times[is_better], energies[is_better]
    # Of two equal times the later one is cheaper.
    is_last = np.append(times[1:] > times[:-1] * (1.0 + _SAME_RATIO), [True])
    return times[is_last], energies[is_last]


def _thinned(times: FloatTable, energies: FloatTable, max_point_count: int | None) -> _Totals:
    """The cheapest point of each of so many equal spans of time."""
    if max_point_count is None or times.size <= max_point_count:
        return times, energies
    spans = ((times - times[0]) / (times[-1] - times[0]) * (max_point_count - 1)).astype(np.int64)
    kept = np.flatnonzero(np.diff(spans, append=-1))
    kept[0] = 0
    return times[kept], energies[kept]


def _exact(options: Options) -> _Totals | None:
    """Add class by class, dominated sums left out; `None` where the set outgrows its limit."""
    times, energies = np.zeros(1), np.zeros(1)
    bounds = np.append(options.fastest, options.classes.size)
    for begin, end in pairwise(bounds.tolist()):
        times, energies = _non_dominated(
            np.add.outer(times, options.time_s[begin:end]).ravel(),
            np.add.outer(energies, options.energy_j[begin:end]).ravel(),
        )
        if times.size > _EXACT_COUNT:
            return None
    return times, energies


def _supported_and_near(options: Options) -> _Totals:
    """Corners of the hull, and each option swapped into the corners around its place."""
    relaxation = relaxation_of(options)
    corner_count = relaxation.time_s.size
    places = _places(options, relaxation)
    shifts = np.arange(-_NEIGHBOUR_STEPS, _NEIGHBOUR_STEPS + 1)
    corners = np.clip(np.add.outer(places, shifts), 0, corner_count - 1).ravel()
    swapped = np.repeat(np.arange(options.classes.size), shifts.size)
    replaced = _options_at(relaxation, options.classes[swapped], corners)
    times = relaxation.time_s[corners] + options.time_s[swapped] - options.time_s[replaced]
    energies = relaxation.energy_j[corners] + options.energy_j[swapped] - options.energy_j[replaced]
    return (
        np.concatenate([relaxation.time_s, times]),
        np.concatenate([relaxation.energy_j, energies]),
    )


def _places(options: Options, relaxation: Relaxation) -> IntTable:
    """For every option the corner at which its class reaches or passes its time."""
    # A class's steps, in order of its options, end with its last one: look up by option index.
    by_option = np.argsort(relaxation.step_ends, kind="stable")
    ends = relaxation.step_ends[by_option]
    if not ends.size:
        return np.zeros(options.classes.size, dtype=np.int64)
    found = np.searchsorted(ends, np.arange(options.classes.size))
    is_passed = found < ends.size
    found = np.minimum(found, ends.size - 1)
    # The fastest option is where its class starts; one after the last step cannot be.
    is_start = np.zeros(options.classes.size, dtype=np.bool_)
    is_start[relaxation.start] = True
    places: IntTable = np.where(is_passed & ~is_start, by_option[found] + 1, 0)
    return places


def _options_at(relaxation: Relaxation, classes: IntTable, corners: IntTable) -> IntTable:
    """The option that each class has at each corner, elementwise."""
    span = relaxation.time_s.size + 1
    order = np.lexsort((np.arange(relaxation.step_classes.size), relaxation.step_classes))
    keys = relaxation.step_classes[order] * span + order
    # Steps before the corner: those of the class with a smaller position.
    found = np.searchsorted(keys, classes * span + corners) - 1
    is_moved = found >= 0
    last = order[np.maximum(found, 0)] if order.size else np.zeros(found.size, dtype=np.int64)
    if order.size:
        is_moved &= relaxation.step_classes[last] == classes
        return np.where(is_moved, relaxation.step_ends[last], relaxation.start[classes])
    return relaxation.start[classes]


def _local(options: Options, table: PlanTable) -> _Totals:
    """Totals as the slowdown that every class alone may have rises."""
    baseline_s = table.time_s[:, table.baseline_index]
    ratios = options.time_s / baseline_s[options.classes]
    fastest = options.fastest
    is_change = np.ones(options.classes.size, dtype=np.bool_)
    is_change[fastest] = False
    changes = np.flatnonzero(is_change)
    changes = changes[np.argsort(ratios[changes], kind="stable")]
    times = _running(options.time_s, fastest, changes)
    energies = _running(options.energy_j, fastest, changes)
    reached = np.append(-np.inf, ratios[changes])
    # Below this slowdown some class has no option at all; equal slowdowns change together.
    least_ratio = ratios[fastest].max()
    is_plan = np.append(reached[1:] > reached[:-1], [True])
    is_plan &= np.append(reached[1:], np.inf) > least_ratio
    return times[is_plan], energies[is_plan]


def _running(values: FloatTable, start: IntTable, changes: IntTable) -> FloatTable:
    steps = values[changes] - values[changes - 1]
    return np.cumsum(np.append(values[start].sum(), steps))
