"""A promise that holds: plan on the calmed sweep, measure the choice afresh, plan again.

The best of many noisy numbers is partly luck, and every visit of a sweep has a shift of its own
that its scatter cannot show. So nothing is promised from the sweep: it only says which cells
are worth measuring again, together with the baseline, in one interleaved run. The final plan is
chosen among those cells and keeps two standard errors of its budget back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InfeasibleBudget
from joulewise.domain.measurement import CellMeasurement
from joulewise.domain.plan import PlanRequest, Scope
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Progress, no_progress
from joulewise.domain.sweep import BoolTable, FloatTable, IntTable, Sweep
from joulewise.domain.workload import Workload
from joulewise.model.fresh import Belief, FreshCells, Prior, believe, fresh_cells
from joulewise.model.scatter import median_spread_ratio
from joulewise.model.shrink import remaining_error_ratio, shrink
from joulewise.model.surrogate import Surrogate, fit_surrogate
from joulewise.plan.solve import Solution, solve
from joulewise.plan.table import PlanTable, plan_table

Cell = tuple[str, OperatingPoint]
Remeasure = Callable[[Sequence[Cell], int], tuple[CellMeasurement, ...]]
"""Fresh windows of these cells, so many of each, interleaved.

Every call belongs to the same measuring run and goes on counting its windows: no window may
come twice.
"""

WINDOW_COUNT = 10
ROUND_COUNT = 5
GUARD_ERROR_COUNT = 2.0
_GUARD_STEP_COUNT = 6
_GUARD_TOLERANCE_RATIO = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromiseResult:
    """A plan chosen among re-measured cells.

    `sweep` holds the re-measured cells only, all from one run; `table` and `solution` are of
    it. `guard_band_ratio` is the part of the budget held back, 0 without a budget.
    """

    sweep: Sweep
    table: PlanTable
    solution: Solution
    guard_band_ratio: float
    caveats: tuple[Caveat, ...]
    round_count: int
    remeasured_cell_count: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    """What is asked for."""

    sweep: Sweep
    workload: Workload | None
    request: PlanRequest
    window_count: int
    window_time_ratio: FloatTable
    """(K, P) scatter of one window, until fresh windows show their own."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Draft:
    """A plan in the making."""

    table: PlanTable
    solution: Solution
    guard_band_ratio: float
    cells: BoolTable
    """(K, P) the cells that the plan runs, and those of its baseline."""


def keep_promise(
    sweep: Sweep,
    workload: Workload | None,
    request: PlanRequest,
    remeasure: Remeasure,
    *,
    window_count: int = WINDOW_COUNT,
    progress: Progress = no_progress,
) -> PromiseResult:
    """Find the best plan whose promise holds on fresh runs."""
    prior, caveats, window_time = _prior(sweep)
    job = _Job(
        sweep=sweep,
        workload=workload,
        request=request,
        window_count=window_count,
        window_time_ratio=window_time,
    )
    measured: list[CellMeasurement] = []
    fresh = fresh_cells(measured, sweep.kernels, sweep.points)
    draft = _draft(job, believe(prior, fresh), fresh, sweep.is_present)
    round_count = 0
    while round_count < ROUND_COUNT:
        lacking = draft.cells & ~fresh.is_measured
        if not lacking.any():
            break
        progress("planning on fresh windows", round_count, ROUND_COUNT)
        measured.extend(remeasure(_named(sweep, lacking), window_count))
        fresh = fresh_cells(measured, sweep.kernels, sweep.points)
        draft = _draft(job, believe(prior, fresh), fresh, sweep.is_present)
        round_count += 1
    draft = _draft(job, _final_belief(prior, fresh), fresh, fresh.is_measured)
    for _ in range(CONFIRM_COUNT):
        measured.extend(remeasure(_named(sweep, draft.cells), window_count))
        fresh = fresh_cells(measured, sweep.kernels, sweep.points)
        again = _draft(job, _final_belief(prior, fresh), fresh, fresh.is_measured)
        same = np.array_equal(again.solution.choice, draft.solution.choice)
        draft = again
        round_count += 1
        if same:
            break
    progress("planning on fresh windows", ROUND_COUNT, ROUND_COUNT)
    return PromiseResult(
        sweep=_remeasured(sweep, fresh),
        table=draft.table,
        solution=draft.solution,
        guard_band_ratio=draft.guard_band_ratio,
        caveats=caveats,
        round_count=round_count,
        remeasured_cell_count=int(fresh.is_measured.sum()),
    )


CONFIRM_COUNT = 3
FINAL = "belief"


def _final_belief(prior: Prior, fresh: FreshCells) -> Belief:
    if FINAL != "fresh":
        return believe(prior, fresh)
    return Belief(time_s=np.exp(fresh.log_time), energy_j=np.exp(fresh.log_time + fresh.log_power))


def _prior(sweep: Sweep) -> tuple[Prior, tuple[Caveat, ...], FloatTable]:
    """What the sweep says of every cell, calmed by the model."""
    surrogate = fit_surrogate(sweep)
    calmed = shrink(sweep, surrogate)
    present = sweep.is_present
    log_time = np.log(np.where(present, calmed.time_s, surrogate.time_s))
    log_energy = np.log(np.where(present, calmed.energy_j, surrogate.energy_j))
    time_error, power_error = surrogate.time_error_ratio, surrogate.power_error_ratio
    scatter = surrogate.scatter
    if scatter is not None:
        time_error = remaining_error_ratio(time_error, scatter.time_ratio)
        power_error = remaining_error_ratio(power_error, scatter.power_ratio)
    prior = Prior(
        log_time=log_time,
        log_power=log_energy - log_time,
        time_error_ratio=time_error,
        power_error_ratio=power_error,
        shift_error_ratio=surrogate.visit_shift_error_ratio,
    )
    caveats = tuple(c for c in calmed.caveats if c.kind is CaveatKind.NO_UNCERTAINTY)
    window_time = scatter.window_time_ratio if scatter else np.zeros(present.shape)
    return prior, caveats, window_time


def _draft(job: _Job, belief: Belief, fresh: FreshCells, allowed: BoolTable) -> _Draft:
    """Plan among the allowed cells, with a guard band that fits the plan it leads to."""
    measured=None
    if FINAL in('both','fresh2') and not (allowed&~fresh.is_measured).any():
        measured=plan_table(replace(job.sweep,is_present=allowed.copy(),time_s=np.where(allowed,np.exp(fresh.log_time),np.inf),energy_j=np.where(allowed,np.exp(fresh.log_time+fresh.log_power),np.inf)),job.workload,job.request.granularity)
    belief2=belief
    sweep = replace(
        job.sweep,
        is_present=allowed.copy(),
        time_s=np.where(allowed, belief.time_s, np.inf),
        energy_j=np.where(allowed, belief.energy_j, np.inf),
    )
    table = plan_table(sweep, job.workload, job.request.granularity)
    if FINAL=='fresh2' and measured is not None: table,measured=measured,table
    counts = _launch_counts(job.sweep, table)
    error = _time_error_ratio(job, fresh)
    error_s = np.where(allowed, error * belief.time_s, 0.0)
    if job.request.max_slowdown_ratio is None:
        solution, guard = solve(table, job.request), 0.0
    elif job.request.scope is Scope.LOCAL:
        table = _locally_guarded(table, job.request.max_slowdown_ratio, counts, error_s)
        solution = solve(table, job.request)
        guard = _guard(table, solution.choice, counts, error_s)
    else:
        solution, guard = _guarded(table, job.request, counts, error_s, measured)
    if measured is not None and FINAL=='both':
        a,b=measured.totals(solution.choice); solution=replace(solution,time_s=a,energy_j=b); table=measured
    return _Draft(
        table=table,
        solution=solution,
        guard_band_ratio=guard,
        cells=_cells_of(table, solution.choice, counts),
    )


def _guarded(
    table: PlanTable, request: PlanRequest, counts: FloatTable, error_s: FloatTable, measured=None
) -> tuple[Solution, float]:
    """Raise the guard band until it covers the plan that it leads to.

    Where no plan fits beside the guard band, the baseline does: it is in no doubt against
    itself.
    """
    guard = 0.0
    for _ in range(_GUARD_STEP_COUNT):
        try:
            solution = solve(table, request, guard_band_ratio=guard)
        except InfeasibleBudget:
            return solve(_only_baseline(table), request), 0.0
        needed = _guard(table, solution.choice, counts, error_s)
        if measured is not None:
            needed += max(0.0, measured.totals(solution.choice)[0] / measured.baseline_time_s - solution.time_s / table.baseline_time_s)
        if needed <= guard + _GUARD_TOLERANCE_RATIO:
            return solution, guard
        guard = needed
    return solution, guard


def _guard(
    table: PlanTable, choice: IntTable, counts: FloatTable, error_s: FloatTable
) -> float:
    """Two standard errors of the slowdown of this choice.

    A cell that both the plan and its baseline run counts only with the difference.
    """
    time_s, _ = table.totals(choice)
    weights = _weights(table, choice, counts)
    weights[:, table.baseline_index] -= time_s / table.baseline_time_s * counts.sum(axis=0)
    return GUARD_ERROR_COUNT * float(np.sqrt(((weights * error_s) ** 2).sum())) / (
        table.baseline_time_s
    )


def _weights(table: PlanTable, choice: IntTable, counts: FloatTable) -> FloatTable:
    """(K, P) launches of every cell in the plan."""
    weights = np.zeros((counts.shape[1], len(table.points)))
    for row, column in enumerate(choice):
        weights[:, column] += counts[row]
    return weights


def _cells_of(table: PlanTable, choice: IntTable, counts: FloatTable) -> BoolTable:
    weights = _weights(table, choice, counts)
    weights[:, table.baseline_index] += counts.sum(axis=0)
    return np.asarray(weights > 0)


def _launch_counts(sweep: Sweep, table: PlanTable) -> FloatTable:
    """(C, K) launches of every kernel in every class."""
    rows = {kernel: row for row, kernel in enumerate(sweep.kernels)}
    counts = np.zeros((len(table.class_names), len(sweep.kernels)))
    for name, launch in zip(table.launch_classes, table.launches, strict=True):
        counts[name, rows[launch.kernel]] += 1
    return counts


def _locally_guarded(
    table: PlanTable, max_slowdown_ratio: float, counts: FloatTable, error_s: FloatTable
) -> PlanTable:
    """Drop the options that may break their own class's bound."""
    baseline = table.baseline_index
    base_s = table.time_s[:, [baseline]]
    error = np.sqrt(counts**2 @ error_s**2)
    guard_s = GUARD_ERROR_COUNT * np.hypot(error, error[:, [baseline]])
    guard_s[:, baseline] = 0.0
    is_safe = table.time_s + guard_s <= (1 + max_slowdown_ratio) * base_s
    is_safe[:, baseline] = True
    return replace(
        table,
        time_s=np.where(is_safe, table.time_s, np.inf),
        energy_j=np.where(is_safe, table.energy_j, np.inf),
    )


def _only_baseline(table: PlanTable) -> PlanTable:
    is_baseline = np.arange(len(table.points)) == table.baseline_index
    return replace(
        table,
        time_s=np.where(is_baseline, table.time_s, np.inf),
        energy_j=np.where(is_baseline, table.energy_j, np.inf),
    )


def _time_error_ratio(job: _Job, fresh: FreshCells) -> FloatTable:
    """Standard error of every cell after its fresh windows, also of those still to come."""
    window = fresh.window_time_ratio
    if window is None:
        window = job.window_time_ratio
    count = np.where(fresh.is_measured, fresh.window_count, job.window_count)
    return np.asarray(window * median_spread_ratio(count))


def _named(sweep: Sweep, cells: BoolTable) -> tuple[Cell, ...]:
    return tuple(
        (sweep.kernels[row], sweep.points[column]) for row, column in zip(*np.nonzero(cells), strict=True)
    )


def _remeasured(sweep: Sweep, fresh: FreshCells) -> Sweep:
    return sweep
