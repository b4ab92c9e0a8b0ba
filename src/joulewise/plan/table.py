"""The table a plan is chosen from: classes of launches that share a point, times points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.errors import PlanError
from joulewise.domain.plan import Granularity
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import FloatTable, IntTable, Sweep
from joulewise.domain.workload import Launch, Workload


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanTable:
    """Time and energy per iteration of C classes at P operating points.

    A class is a set of launches that share one operating point: all launches of a kernel, of a
    pass, or of the whole iteration. `time_s` and `energy_j` have the shape (C, P), launch counts
    applied; a cell holds +inf where any kernel of the class was not measured there.
    `launch_classes` (L,) gives the class of every launch of the iteration, in order.
    """

    class_names: tuple[str, ...]
    points: tuple[OperatingPoint, ...]
    baseline_index: int
    time_s: FloatTable
    energy_j: FloatTable
    launch_classes: IntTable
    launches: tuple[Launch, ...]

    def __post_init__(self) -> None:
        """Check shapes; make the tables read-only."""
        shape = (len(self.class_names), len(self.points))
        for name in ("time_s", "energy_j"):
            table: FloatTable = getattr(self, name)
            if table.shape != shape:
                raise ValueError(f"{name} has the shape {table.shape}, want {shape}")
            table.setflags(write=False)
        if self.launch_classes.shape != (len(self.launches),):
            raise ValueError("launch_classes must name one class per launch")
        self.launch_classes.setflags(write=False)

    @property
    def baseline_time_s(self) -> float:
        """Time of one iteration at the baseline."""
        return float(self.time_s[:, self.baseline_index].sum())

    @property
    def baseline_energy_j(self) -> float:
        """Energy of one iteration at the baseline."""
        return float(self.energy_j[:, self.baseline_index].sum())

    def totals(self, choice: IntTable) -> tuple[float, float]:
        """Time (s) and energy (J) of one iteration when class c runs at point `choice[c]`."""
        rows = np.arange(len(self.class_names))
        return float(self.time_s[rows, choice].sum()), float(self.energy_j[rows, choice].sum())


def plan_table(sweep: Sweep, workload: Workload | None, granularity: Granularity) -> PlanTable:
    """Add a sweep up to classes that share an operating point.

    Args:
        sweep: Measured or predicted cells, per launch.
        workload: What runs in one iteration; `None` runs each kernel once, in table order.
        granularity: How much of the iteration shares a point. A kernel's launches share one
            point even where they lie in several passes.

    Raises:
        PlanError: A kernel of the workload that the sweep lacks, a kernel without its baseline
            cell, or an iteration without launches.
    """
    launches = workload.launches if workload else tuple(Launch(kernel=k) for k in sweep.kernels)
    if not launches:
        raise PlanError("the iteration has no launches, so there is nothing to plan")
    rows = _kernel_rows(sweep, launches)
    names, launch_classes = _classes(launches, granularity)
    pairs, counts = np.unique(np.stack([launch_classes, rows]), axis=1, return_counts=True)
    return PlanTable(
        class_names=names,
        points=sweep.points,
        baseline_index=sweep.baseline_index,
        time_s=_summed(sweep.time_s, pairs, counts, sweep.is_present),
        energy_j=_summed(sweep.energy_j, pairs, counts, sweep.is_present),
        launch_classes=launch_classes,
        launches=launches,
    )


def coarsened(table: PlanTable, granularity: Granularity) -> PlanTable:
    """Join the classes of a finer table: kernels to passes or to the iteration.

    A kernel launched in several passes gives each its share of launches. Asking for
    `Granularity.KERNEL` returns the table as it is.
    """
    if granularity is Granularity.KERNEL:
        return table
    names, launch_classes = _classes(table.launches, granularity)
    pairs, counts = np.unique(
        np.stack([launch_classes, table.launch_classes]), axis=1, return_counts=True
    )
    launch_counts = np.bincount(table.launch_classes, minlength=len(table.class_names))
    shares = counts / launch_counts[pairs[1]]
    is_present = np.isfinite(table.time_s)
    return PlanTable(
        class_names=names,
        points=table.points,
        baseline_index=table.baseline_index,
        time_s=_summed(table.time_s, pairs, shares, is_present),
        energy_j=_summed(table.energy_j, pairs, shares, is_present),
        launch_classes=launch_classes,
        launches=table.launches,
    )


def _kernel_rows(sweep: Sweep, launches: tuple[Launch, ...]) -> IntTable:
    row_of = {kernel: row for row, kernel in enumerate(sweep.kernels)}
    lacking = [k for k in dict.fromkeys(launch.kernel for launch in launches) if k not in row_of]
    if lacking:
        raise PlanError(
            f"the sweep has no kernel {lacking[0]!r}, which the workload launches"
            + (f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""),
            hint="Measure the kernels of this workload, or give the workload the sweep is of.",
        )
    rows = np.array([row_of[launch.kernel] for launch in launches], dtype=np.int64)
    used = np.unique(rows)
    holes = used[~sweep.is_present[used, sweep.baseline_index]]
    if holes.size:
        raise PlanError(
            f"kernel {sweep.kernels[int(holes[0])]!r} was not measured at the baseline "
            f"{sweep.baseline.label}" + (f" (and {holes.size - 1} more)" if holes.size > 1 else ""),
            hint="Savings are against the baseline: measure it for every kernel.",
        )
    return rows


def _classes(
    launches: tuple[Launch, ...], granularity: Granularity
) -> tuple[tuple[str, ...], IntTable]:
    """Names of the classes in order of first launch, and the class of every launch."""
    labels = [_class_name(launch, granularity) for launch in launches]
    names = tuple(dict.fromkeys(labels))
    index = {name: i for i, name in enumerate(names)}
    return names, np.array([index[label] for label in labels], dtype=np.int64)


def _class_name(launch: Launch, granularity: Granularity) -> str:
    match granularity:
        case Granularity.KERNEL:
            return launch.kernel
        case Granularity.PASS:
            return launch.pass_.value
        case Granularity.ITERATION:
            return granularity.value


def _summed(
    table: FloatTable,
    pairs: IntTable,
    weights: FloatTable | IntTable,
    is_present: NDArray[np.bool_],
) -> FloatTable:
    """Weighted rows of `table` added up per class; `pairs` (2, n) is sorted by class.

    An absent cell makes its class's cell +inf: no weight is zero, so inf never becomes NaN.
    """
    classes, rows = pairs
    present: FloatTable = np.where(is_present[rows], table[rows], np.inf)
    weighted: FloatTable = present * weights[:, None]
    starts = np.flatnonzero(np.diff(classes, prepend=-1))
    if starts.size == classes.size:
        return weighted
    return np.add.reduceat(weighted, starts, axis=0)
