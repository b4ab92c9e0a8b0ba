"""The table a plan is chosen from: classes of launches that share a point, times points."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.errors import PlanError
from joulewise.domain.plan import Granularity
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import FloatTable, IntTable, Sweep
from joulewise.domain.transition import TransitionModel
from joulewise.domain.workload import Launch, Workload
from joulewise.plan.changes import ChangeCosts, change_costs
from joulewise.plan.host_time import host_waits, with_host_waits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanTable:
    """Time and energy per iteration of C classes at P operating points.

    A class is a set of launches that share one operating point: all of a kernel, of a pass, of
    the whole iteration, or a run of neighbours. `time_s` and `energy_j` have the shape (C, P),
    launch counts applied; a cell holds +inf where any kernel of the class was not measured
    there.
    `launch_classes` (L,) gives the class of every launch of the iteration, in order.

    `changes` is what changing the point between neighbouring classes costs, from the last to
    the first too: the classes are then runs of neighbours, in order. `None` leaves changes out
    of the account.
    """

    class_names: tuple[str, ...]
    points: tuple[OperatingPoint, ...]
    baseline_index: int
    time_s: FloatTable
    energy_j: FloatTable
    launch_classes: IntTable
    launches: tuple[Launch, ...]
    changes: ChangeCosts | None = None

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
        if self.changes is not None and not _are_runs(self.launch_classes, shape[0]):
            raise ValueError("where changes count, classes must be runs of neighbours, in order")

    @property
    def baseline_time_s(self) -> float:
        """Time of one iteration at the baseline."""
        return float(self.time_s[:, self.baseline_index].sum())

    @property
    def baseline_energy_j(self) -> float:
        """Energy of one iteration at the baseline."""
        return float(self.energy_j[:, self.baseline_index].sum())

    def totals(self, choice: IntTable) -> tuple[float, float]:
        """Time (s) and energy (J) of one iteration when class c runs at point `choice[c]`.

        Changes are in it where they count.
        """
        rows = np.arange(len(self.class_names))
        _, stalled_s, spent_j = self.change_totals(choice)
        return (
            float(self.time_s[rows, choice].sum()) + stalled_s,
            float(self.energy_j[rows, choice].sum()) + spent_j,
        )

    def change_totals(self, choice: IntTable) -> tuple[int, float, float]:
        """Changes of point per iteration, and what they add in time (s) and energy (J)."""
        if self.changes is None:
            return 0, 0.0, 0.0
        after = np.roll(choice, -1)
        times, energies = self.changes.of(choice, after)
        return int((choice != after).sum()), float(times.sum()), float(energies.sum())


def plan_table(
    sweep: Sweep,
    workload: Workload | None,
    granularity: Granularity,
    transition: TransitionModel | None = None,
) -> PlanTable:
    """Add a sweep up to classes that share an operating point.

    Args:
        sweep: Measured or predicted cells, per launch.
        workload: What runs in one iteration; `None` runs each kernel once, in table order. Its
            gaps take the time that its works say, at every point.
        granularity: How much of the iteration shares a point. A kernel's launches share one
            point even where they lie in several passes; with a transition model every launch
            has its own, and so has every run of launches of one pass.
        transition: What changing the point costs; `None` leaves it out. At `region`
            granularity changes count in any case, and `None` makes them free.

    Raises:
        PlanError: A kernel of the workload that the sweep lacks, a kernel without its baseline
            cell, an iteration without launches, or a change that the model does not know.
    """
    launches = workload.launches if workload else tuple(Launch(kernel=k) for k in sweep.kernels)
    if not launches:
        raise PlanError("the iteration has no launches, so there is nothing to plan")
    rows = _kernel_rows(sweep, launches)
    sweep = with_host_waits(sweep, host_waits(workload))
    changes = None
    if transition is not None or granularity is Granularity.REGION:
        changes = change_costs(sweep.points, transition)
    names, launch_classes = _classes(launches, granularity, are_runs=changes is not None)
    pairs, counts = _counted_pairs(launch_classes, rows)
    return PlanTable(
        class_names=names,
        points=sweep.points,
        baseline_index=sweep.baseline_index,
        time_s=_summed(sweep.time_s, pairs, counts, sweep.is_present),
        energy_j=_summed(sweep.energy_j, pairs, counts, sweep.is_present),
        launch_classes=launch_classes,
        launches=launches,
        changes=changes,
    )


def coarsened(table: PlanTable, granularity: Granularity) -> PlanTable:
    """Join the classes of a finer table: kernels or launches to passes or to the iteration.

    A kernel launched in several passes gives each its share of launches. Asking for
    `Granularity.KERNEL` or `REGION` returns the table as it is. Where changes count in the finer
    table they count in the coarser.
    """
    if granularity in (Granularity.KERNEL, Granularity.REGION):
        return table
    are_runs = table.changes is not None
    names, launch_classes = _classes(table.launches, granularity, are_runs=are_runs)
    pairs, counts = _counted_pairs(launch_classes, table.launch_classes)
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
        changes=table.changes,
    )


def _kernel_rows(sweep: Sweep, launches: tuple[Launch, ...]) -> IntTable:
    row_of = {kernel: row for row, kernel in enumerate(sweep.kernels)}
    kernels = list(map(_KERNEL, launches))
    lacking = [kernel for kernel in dict.fromkeys(kernels) if kernel not in row_of]
    if lacking:
        raise PlanError(
            f"the sweep has no kernel {lacking[0]!r}, which the workload launches"
            + (f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""),
            hint="Measure the kernels of this workload, or give the workload the sweep is of.",
        )
    rows = np.array([row_of[kernel] for kernel in kernels], dtype=np.int64)
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
    launches: tuple[Launch, ...], granularity: Granularity, *, are_runs: bool
) -> tuple[tuple[str, ...], IntTable]:
    """Names of the classes in order of first launch, and the class of every launch.

    As runs, classes of one name that lie apart are different ones; names may then repeat.
    """
    if granularity is Granularity.ITERATION:
        return (granularity.value,), np.zeros(len(launches), dtype=np.int64)
    is_each = granularity in (Granularity.KERNEL, Granularity.REGION)
    labels: list[str] = list(map(_KERNEL if is_each else _PASS, launches))
    names = tuple(dict.fromkeys(labels))
    index = {name: i for i, name in enumerate(names)}
    numbers = np.array([index[label] for label in labels], dtype=np.int64)
    if not are_runs:
        return tuple(map(str, names)), numbers
    is_start = np.diff(numbers, prepend=-1) != 0
    is_start |= is_each
    return (
        tuple(str(names[number]) for number in numbers[is_start]),
        np.cumsum(is_start, dtype=np.int64) - 1,
    )


# Iterations may have a million launches: what is looked up for each is looked up fast.
_KERNEL, _PASS = attrgetter("kernel"), attrgetter("pass_")


def _counted_pairs(classes: IntTable, rows: IntTable) -> tuple[IntTable, IntTable]:
    """Distinct pairs (2, n), by class and then by row, and how often each occurs."""
    width = int(rows.max()) + 1
    keys, counts = np.unique(classes * width + rows, return_counts=True)
    return np.stack(np.divmod(keys, width)), counts


def _are_runs(launch_classes: IntTable, class_count: int) -> bool:
    """Whether classes follow one another in order."""
    if not launch_classes.size:
        return class_count == 0
    steps = np.diff(launch_classes)
    is_in_order = bool(((steps == 0) | (steps == 1)).all())
    return is_in_order and launch_classes[0] == 0 and launch_classes[-1] == class_count - 1


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
