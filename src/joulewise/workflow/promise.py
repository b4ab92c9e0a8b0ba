"""A promise that holds: plan on the calmed sweep, measure the choice afresh, plan again.

The best of many noisy numbers is partly luck, and every visit of a sweep has a shift of its own
that its scatter cannot show. So nothing is promised from the sweep: it only says which cells
are worth measuring again, together with the baseline, in one interleaved run. The final plan is
chosen among those cells, on their fresh windows, and keeps two standard errors of its budget
back. `studies/promise.py` shows what this keeps and what it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import MeasurementError, PlanError
from joulewise.domain.measurement import CellMeasurement
from joulewise.domain.plan import PlanRequest
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Progress, no_progress
from joulewise.domain.sweep import BoolTable, FloatTable, Sweep
from joulewise.domain.workload import Workload
from joulewise.measure.table import sweep_from_cells
from joulewise.model.fresh import Belief, FreshCells, Prior, believe, fresh_cells
from joulewise.model.scatter import median_spread_ratio
from joulewise.model.shrink import remaining_error_ratio, shrink
from joulewise.model.surrogate import fit_surrogate
from joulewise.plan.host_time import host_waits, with_host_wait, with_host_waits
from joulewise.plan.solve import Solution
from joulewise.plan.table import PlanTable, plan_table
from joulewise.workflow.guard import (
    launch_counts,
    launched_cells,
    solve_guarded,
    time_errors,
)

Cell = tuple[str, OperatingPoint]
Remeasure = Callable[[Sequence[Cell], int], tuple[CellMeasurement, ...]]
"""Fresh windows of these cells, so many of each, interleaved.

Every call belongs to the same measuring run and goes on counting its windows: no window may
come twice.
"""

WINDOW_COUNT = 10
PAIR_COUNT = 10
"""Fresh windows that a cell gets whenever it is measured."""
ROUND_COUNT = 4
"""Most rounds in which newly chosen cells are measured; one more confirms the last choice."""
_WHAT = "planning on fresh windows"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromiseResult:
    """A plan chosen among re-measured cells.

    `sweep` holds the re-measured cells only, all from one run; `table` and `solution` are
    those of it. The solution carries the guard band: two standard errors, and more where the
    sweep, calmed by the model, sees the chosen plan slower than the fresh windows do; 0
    without a budget. `caveats` are doubts that `sweep` does not hold itself.
    """

    sweep: Sweep
    table: PlanTable
    solution: Solution
    caveats: tuple[Caveat, ...]
    round_count: int
    remeasured_cell_count: int

    @property
    def guard_band_ratio(self) -> float:
        """Part of the budget that is kept back."""
        return self.solution.guard_band_ratio


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuardedPlan:
    """A plan without fresh windows, and the sweep it stands on."""

    sweep: Sweep
    table: PlanTable
    solution: Solution


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Calmed:
    """A sweep pulled toward its model, and what is believed of its cells."""

    sweep: Sweep
    prior: Prior
    window_time_ratio: FloatTable
    """(K, P) scatter of one window; 0 where the sweep has none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Draft:
    """A plan in the making, with the cells of plan and baseline, (K, P)."""

    table: PlanTable
    solution: Solution
    cells: BoolTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    """What is asked for, and how many windows a cell will get."""

    workload: Workload | None
    request: PlanRequest
    calmed: _Calmed
    window_count: int
    pair_count: int | None


def keep_promise(  # noqa: PLR0913 - what, how, and whom to tell
    sweep: Sweep,
    workload: Workload | None,
    request: PlanRequest,
    remeasure: Remeasure,
    *,
    window_count: int = WINDOW_COUNT,
    pair_count: int | None = PAIR_COUNT,
    progress: Progress = no_progress,
) -> PromiseResult:
    """Find the best plan that fresh runs will keep.

    Plan on the calmed sweep; measure the chosen cells and the baseline afresh; correct the
    other cells by what that says of their points; plan again, until no new cell is chosen.
    Then choose among the re-measured cells, measure that choice and the baseline once more, and
    choose for good on all fresh windows. The time of gaps is their host's: it counts as the
    workload says, with no doubt in it.

    Args:
        sweep: Measured cells, with their scatter if the model shall calm them.
        workload: What runs in one iteration; `None` runs each kernel once.
        request: Objective, granularity, scope and budget.
        remeasure: Measures cells afresh.
        window_count: Fresh windows per cell and round; at least 2, to see their scatter.
        pair_count: Paired runs that will verify the plan; `None` if none will.
        progress: Told after every round.

    Raises:
        PlanError: The sweep's baseline is not (auto, auto), or sweep and workload do not fit.
        InfeasibleBudget: No plan keeps the budget with its guard band.
        MeasurementError: Fresh windows came twice, are too few or are not of one run.
    """
    if not sweep.has_auto_baseline:
        raise PlanError(
            f"the sweep's baseline is {sweep.baseline.label}, but a promise is against what "
            "the driver does by itself",
            hint="Measure the (auto, auto) point of every kernel too.",
        )
    if window_count < 2:  # noqa: PLR2004 - scatter takes two
        raise MeasurementError("a promise takes at least two fresh windows of every cell")
    waits = host_waits(workload)
    job = _Job(
        workload=workload,
        request=request,
        calmed=_calmed(with_host_waits(sweep, waits)),
        window_count=window_count,
        pair_count=pair_count,
    )

    def measure(cells: Sequence[Cell], window_count: int) -> tuple[CellMeasurement, ...]:
        return tuple(with_host_wait(cell, waits) for cell in remeasure(cells, window_count))

    measured, round_count = _explore(job, measure, progress)
    draft, _ = _final(job, measured)
    measured.extend(measure(_named(sweep, draft.cells), window_count))
    draft, remeasured = _final(job, measured)
    progress(_WHAT, ROUND_COUNT + 1, ROUND_COUNT + 1)
    return PromiseResult(
        sweep=remeasured,
        table=draft.table,
        solution=draft.solution,
        caveats=tuple(c for c in job.calmed.sweep.caveats if c.kind is CaveatKind.NO_UNCERTAINTY),
        round_count=round_count + 1,
        remeasured_cell_count=int(remeasured.is_present.sum()),
    )


def calmed_sweep(sweep: Sweep) -> Sweep:
    """The sweep pulled toward its model, as `plan_with_guard` sees it."""
    return _calmed(sweep).sweep


def plan_with_guard(sweep: Sweep, workload: Workload | None, request: PlanRequest) -> GuardedPlan:
    """Plan on a sweep alone: calm it, and hold back two standard errors of the calmed cells.

    The errors are those of cells after shrinking and of the shifts that all kernels at a point
    share, as far as the model sees them. A sweep without scatter is planned as it stands.

    Raises:
        PlanError: Sweep and workload do not fit together.
        InfeasibleBudget: No plan keeps the budget with its guard band.
    """
    sweep = with_host_waits(sweep, host_waits(workload))
    calmed = _calmed(sweep)
    table = plan_table(calmed.sweep, workload, request.granularity, request.transition)
    is_known = bool(calmed.window_time_ratio.any())
    errors = time_errors(
        calmed.sweep.time_s,
        calmed.prior.time_error_ratio * is_known,
        calmed.prior.shift_error_ratio * is_known,
        sweep.is_present,
        is_unshaken=calmed.prior.is_unshaken,
    )
    solution = solve_guarded(table, request, launch_counts(table, sweep.kernels), errors)
    return GuardedPlan(sweep=calmed.sweep, table=table, solution=solution)


def plan_with_margin(sweep: Sweep, workload: Workload | None, request: PlanRequest) -> GuardedPlan:
    """Plan on a sweep as it stands, and hold back what its changes may take on top.

    Raises:
        PlanError: Sweep and workload do not fit together.
        InfeasibleBudget: No plan keeps the budget with its guard band.
    """
    table = plan_table(sweep, workload, request.granularity, request.transition)
    certain = np.zeros_like(sweep.time_s)
    errors = time_errors(sweep.time_s, certain, np.zeros(len(sweep.points)), sweep.is_present)
    solution = solve_guarded(table, request, launch_counts(table, sweep.kernels), errors)
    return GuardedPlan(sweep=sweep, table=table, solution=solution)


def _explore(
    job: _Job, remeasure: Remeasure, progress: Progress
) -> tuple[list[CellMeasurement], int]:
    """Measure what is chosen, until nothing new is; also the number of rounds that took."""
    sweep = job.calmed.sweep
    measured: list[CellMeasurement] = []
    for round_count in range(ROUND_COUNT):
        fresh = _fresh(sweep, measured)
        is_new = _draft(job, fresh).cells & ~fresh.is_measured
        if not is_new.any():
            return measured, round_count
        measured.extend(remeasure(_named(sweep, is_new), job.window_count))
        progress(_WHAT, round_count + 1, ROUND_COUNT + 1)
    return measured, ROUND_COUNT


def _calmed(sweep: Sweep) -> _Calmed:
    surrogate = fit_surrogate(sweep)
    calmed = shrink(sweep, surrogate)
    time_error, power_error = surrogate.time_error_ratio, surrogate.power_error_ratio
    scatter = surrogate.scatter
    if scatter is not None:
        time_error = remaining_error_ratio(time_error, scatter.time_ratio)
        power_error = remaining_error_ratio(power_error, scatter.power_ratio)
    log_time = np.log(np.where(sweep.is_present, calmed.time_s, surrogate.time_s))
    log_energy = np.log(np.where(sweep.is_present, calmed.energy_j, surrogate.energy_j))
    return _Calmed(
        sweep=calmed,
        prior=Prior(
            log_time=log_time,
            log_power=log_energy - log_time,
            time_error_ratio=time_error,
            power_error_ratio=power_error,
            shift_error_ratio=surrogate.visit_shift_error_ratio,
            is_unshaken=surrogate.is_unshaken,
        ),
        window_time_ratio=scatter.window_time_ratio if scatter else np.zeros(log_time.shape),
    )


def _fresh(sweep: Sweep, measured: Sequence[CellMeasurement]) -> FreshCells:
    return fresh_cells(measured, sweep.kernels, sweep.points)


def _draft(job: _Job, fresh: FreshCells) -> _Draft:
    """Plan on what is believed of all cells."""
    believed = _believed(job, fresh, job.calmed.sweep.is_present)
    table = _table(job, believed)
    return _guarded(job, fresh, table, None)


def _final(job: _Job, measured: Sequence[CellMeasurement]) -> tuple[_Draft, Sweep]:
    """Plan on the fresh windows alone; what else is believed only widens the guard band."""
    sweep = job.calmed.sweep
    fresh = _fresh(sweep, measured)
    remeasured = sweep_from_cells(
        measured,
        sweep.kernels,
        sweep.points,
        sweep.source,
        caveats=[c for c in sweep.caveats if c.kind is not CaveatKind.NO_UNCERTAINTY],
    )
    believed = _believed(job, fresh, fresh.is_measured)
    draft = _guarded(job, fresh, _table(job, remeasured), _table(job, believed))
    return draft, remeasured


def _table(job: _Job, sweep: Sweep) -> PlanTable:
    request = job.request
    return plan_table(sweep, job.workload, request.granularity, request.transition)


def _believed(job: _Job, fresh: FreshCells, allowed: BoolTable) -> Sweep:
    belief: Belief = believe(job.calmed.prior, fresh)
    return replace(
        job.calmed.sweep,
        is_present=allowed.copy(),
        time_s=np.where(allowed, belief.time_s, np.inf),
        energy_j=np.where(allowed, belief.energy_j, np.inf),
    )


def _guarded(job: _Job, fresh: FreshCells, table: PlanTable, doubted: PlanTable | None) -> _Draft:
    """Hold back the errors that the cells have, or will have once they are measured."""
    window_ratio = fresh.window_time_ratio
    if window_ratio is None:
        window_ratio = job.calmed.window_time_ratio
    count = np.where(fresh.is_measured, fresh.window_count, job.window_count)
    belief = believe(job.calmed.prior, fresh)
    errors = time_errors(
        belief.time_s,
        window_ratio * median_spread_ratio(count),
        np.zeros(len(table.points)),
        job.calmed.sweep.is_present,
        is_unshaken=job.calmed.prior.is_unshaken,
    )
    if job.pair_count is not None:
        verified = (
            errors.time_s
            * window_ratio
            * median_spread_ratio(np.full_like(window_ratio, job.pair_count))
        )
        errors = replace(errors, verified_s=verified)
    counts = launch_counts(table, job.calmed.sweep.kernels)
    solution = solve_guarded(table, job.request, counts, errors, doubted=doubted)
    launches = launched_cells(table, solution.choice, counts)
    launches[:, table.baseline_index] += counts.sum(axis=0)
    return _Draft(table=table, solution=solution, cells=launches > 0)


def _named(sweep: Sweep, cells: BoolTable) -> tuple[Cell, ...]:
    rows, columns = np.nonzero(cells)
    return tuple(
        (sweep.kernels[row], sweep.points[column])
        for row, column in zip(rows, columns, strict=True)
    )
