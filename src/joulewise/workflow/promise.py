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
