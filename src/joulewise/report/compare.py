"""The plan beside what else could have been done, at equal slowdown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from joulewise.domain.errors import PlanError
from joulewise.domain.plan import FrontierPoint, Interval, Plan, Verification
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import Sweep
from joulewise.report.inputs import ReportInputs
from joulewise.report.launch_counts import launch_counts, points_in_use
from joulewise.report.regions import change_indices
from joulewise.report.wording import counted, setting

_ROUNDING_RATIO = 1e-9  # a sum of the same numbers in another order is the same sum


class Role(StrEnum):
    """What a row of the comparison stands for."""

    BASELINE = "baseline"
    BEST_STATIC = "best_static"
    BEST_PASS = "best_pass"  # noqa: S105 - the pass of an iteration
    PROMISED = "promised"
    VERIFIED = "verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPoint:
    """A whole iteration at one operating point, as the sweep has it."""

    point: OperatingPoint
    time_s: float
    energy_j: float
    slowdown_ratio: float
    saving_ratio: float


_RIVAL_LABELS = {
    Role.BEST_STATIC: "Best single point",
    Role.BEST_PASS: "Best pass-level plan",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One way to run the iteration; `basis` says where its figures come from.

    `point_count` is how many single points the sweep has, for the best of them.
    """

    role: Role
    label: str
    clocks: str
    basis: str
    time_s: float
    energy_j: float
    slowdown_ratio: float
    saving_ratio: float
    slowdown_interval: Interval | None = None
    saving_interval: Interval | None = None
    point_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSaving:
    """One kernel's share, per iteration. A kernel may run at several points (one per pass)."""

    kernel: str
    launch_count: int
    points: tuple[OperatingPoint, ...]
    baseline_time_s: float
    baseline_energy_j: float
    time_s: float
    energy_j: float

    @property
    def saved_energy_j(self) -> float:
        """Energy saved per iteration; negative where the plan spends more."""
        return self.baseline_energy_j - self.energy_j


@dataclass(frozen=True, slots=True)
class CellReader:
    """Looks cells of a sweep up by name; a missing one is an error that names it."""

    sweep: Sweep
    _rows: Mapping[str, int]
    _columns: Mapping[OperatingPoint, int]

    @classmethod
    def of(cls, sweep: Sweep) -> CellReader:
        """Index the sweep once."""
        return cls(
            sweep,
            {kernel: row for row, kernel in enumerate(sweep.kernels)},
            {point: column for column, point in enumerate(sweep.points)},
        )

    def row(self, kernel: str) -> int:
        """Row of a kernel. Raises PlanError."""
        if kernel not in self._rows:
            raise PlanError(
                f"the plan launches kernel {kernel!r}, which the sweep does not hold",
                hint="Report on the sweep that the plan was made from.",
            )
        return self._rows[kernel]

    def cell(self, kernel: str, point: OperatingPoint) -> tuple[float, float]:
        """Time (s) and energy (J) of one launch. Raises PlanError where never measured."""
        row, column = self.row(kernel), self._columns.get(point)
        if column is None or not self.sweep.is_present[row, column]:
            raise PlanError(
                f"the plan runs kernel {kernel!r} at {point.label}, which the sweep does not hold",
                hint="Report on the sweep that the plan was made from.",
            )
        return float(self.sweep.time_s[row, column]), float(self.sweep.energy_j[row, column])


def static_points(plan: Plan, sweep: Sweep) -> tuple[StaticPoint, ...]:
    """The iteration at every single operating point that all its kernels were measured at.

    In the sweep's order of points. Raises PlanError if the sweep lacks a kernel of the plan.
    """
    reader = CellReader.of(sweep)
    counts = Counter(launch.kernel for launch in plan.launches)
    rows = np.array([reader.row(kernel) for kernel in counts], dtype=np.int64)
    weights = np.array(list(counts.values()), dtype=np.float64)
    whole = np.flatnonzero(sweep.is_present[rows].all(axis=0))
    # Row by row, so that points alike to the last bit stay so, whatever the processor.
    times = (weights[:, None] * sweep.time_s[np.ix_(rows, whole)]).sum(axis=0)
    energies = (weights[:, None] * sweep.energy_j[np.ix_(rows, whole)]).sum(axis=0)
    base = np.flatnonzero(whole == sweep.baseline_index)
    if base.size == 0:
        raise PlanError("the sweep lacks the baseline of a kernel that the plan launches")
    base_time_s, base_energy_j = float(times[base[0]]), float(energies[base[0]])
    return tuple(
        StaticPoint(
            point=sweep.points[column],
            time_s=float(time_s),
            energy_j=float(energy_j),
            slowdown_ratio=float(time_s) / base_time_s,
            saving_ratio=1.0 - float(energy_j) / base_energy_j,
        )
        for column, time_s, energy_j in zip(whole.tolist(), times, energies, strict=True)
    )


def equal_slowdown_ratio(plan: Plan, verification: Verification | None) -> float:
    """The slowdown that every rival of the plan is allowed too.

    The largest of the budget, the promised and the verified slowdown: rivals get as much time
    as the plan was allowed or in truth took, never less.
    """
    allowed = [plan.slowdown_ratio]
    if plan.request.max_slowdown_ratio is not None:
        allowed.append(1.0 + plan.request.max_slowdown_ratio)
    if verification is not None:
        allowed.append(verification.slowdown_ratio)
    return max(allowed)


def comparison_rows(inputs: ReportInputs) -> tuple[ComparisonRow, ...]:
    """Baseline, best single point, best pass-level plan, promised and verified plan.

    The rivals are the best within `equal_slowdown_ratio`, of the table that they are judged by
    (`ReportInputs.rivals`), else of the sweep; chosen from the numbers that they are
    judged by, they are flattered, the plan's verified row is not. Ratios are against the
    baseline of a row's own basis, for times shift between measuring runs; times and energies
    are these ratios of the plan's baseline, so that a table agrees with itself. Rows that
    nothing is known about are left out. The pass-level rival (`ReportInputs.best_pass`) changes
    clocks at the costs that the plan was made with; a single point changes none. Raises
    PlanError where plan and sweep do not fit.
    """
    plan, verification = inputs.plan, inputs.verification
    limit_ratio = equal_slowdown_ratio(plan, verification)
    sweep, basis = inputs.rivals or inputs.sweep, inputs.rivals_basis
    rows = [_baseline_row(plan)]
    statics = static_points(plan, sweep)
    best_static = _best_static_rows(plan, statics, limit_ratio, basis)
    point_count = len(statics if inputs.rivals is None else static_points(plan, inputs.sweep))
    rows += [replace(row, point_count=point_count) for row in best_static]
    if inputs.best_pass is not None:
        clocks = "one operating point per pass"
        rows.append(_rival_row(plan, Role.BEST_PASS, inputs.best_pass, clocks, basis))
    clocks = clocks_in_use(plan)
    rows.append(_promised_row(plan, clocks))
    if verification is not None:
        rows.append(_verified_row(plan, verification, clocks))
    return tuple(rows)


def kernel_savings(plan: Plan, sweep: Sweep) -> tuple[KernelSaving, ...]:
    """Saving by kernel per iteration, largest first. Raises PlanError as `CellReader`."""
    reader = CellReader.of(sweep)
    counts: dict[str, dict[OperatingPoint, int]] = defaultdict(dict)
    for (kernel, point), launch_count in launch_counts(plan.launches).items():
        counts[kernel][point] = launch_count
    savings = [
        _kernel_saving(reader, sweep.baseline, kernel, by_point)
        for kernel, by_point in counts.items()
    ]
    return tuple(sorted(savings, key=lambda saving: -saving.saved_energy_j))


def clocks_in_use(plan: Plan) -> str:
    """`SM 1680 MHz, memory auto` for one point, `16 operating points` for more.

    Where changes count, how many there are in an iteration: `6 operating points, 14 changes`.
    """
    used = points_in_use(plan.launches)
    if len(used) == 1:
        return setting(used[0])
    text = f"{len(used)} operating points"
    if plan.request.transition is None:
        return text
    return f"{text}, {counted(len(change_indices(plan)), 'change')}"


def _kernel_saving(
    reader: CellReader, baseline: OperatingPoint, kernel: str, counts: Mapping[OperatingPoint, int]
) -> KernelSaving:
    base_time_s, base_energy_j = reader.cell(kernel, baseline)
    cells = [(launch_count, reader.cell(kernel, point)) for point, launch_count in counts.items()]
    whole_count = sum(counts.values())
    return KernelSaving(
        kernel=kernel,
        launch_count=whole_count,
        points=tuple(counts),
        baseline_time_s=whole_count * base_time_s,
        baseline_energy_j=whole_count * base_energy_j,
        time_s=sum(launch_count * time_s for launch_count, (time_s, _) in cells),
        energy_j=sum(launch_count * energy_j for launch_count, (_, energy_j) in cells),
    )


def _baseline_row(plan: Plan) -> ComparisonRow:
    return ComparisonRow(
        role=Role.BASELINE,
        label="Baseline",
        clocks=setting(plan.baseline),
        basis="plan",
        time_s=plan.baseline_time_s,
        energy_j=plan.baseline_energy_j,
        slowdown_ratio=1.0,
        saving_ratio=0.0,
    )


def _best_static_rows(
    plan: Plan, statics: Sequence[StaticPoint], limit_ratio: float, basis: str
) -> tuple[ComparisonRow, ...]:
    within = [one for one in statics if one.slowdown_ratio <= limit_ratio + _ROUNDING_RATIO]
    if not within:
        return ()
    best = min(within, key=lambda one: (one.energy_j, one.time_s))
    return (_rival_row(plan, Role.BEST_STATIC, best, setting(best.point), basis),)


def _rival_row(
    plan: Plan, role: Role, rival: StaticPoint | FrontierPoint, clocks: str, basis: str
) -> ComparisonRow:
    return ComparisonRow(
        role=role,
        label=_RIVAL_LABELS[role],
        clocks=clocks,
        basis=basis,
        time_s=rival.slowdown_ratio * plan.baseline_time_s,
        energy_j=(1.0 - rival.saving_ratio) * plan.baseline_energy_j,
        slowdown_ratio=rival.slowdown_ratio,
        saving_ratio=rival.saving_ratio,
    )


def _promised_row(plan: Plan, clocks: str) -> ComparisonRow:
    return ComparisonRow(
        role=Role.PROMISED,
        label="Chosen plan, promised",
        clocks=clocks,
        basis="plan",
        time_s=plan.time_s,
        energy_j=plan.energy_j,
        slowdown_ratio=plan.slowdown_ratio,
        saving_ratio=plan.saving_ratio,
    )


def _verified_row(plan: Plan, verification: Verification, clocks: str) -> ComparisonRow:
    return ComparisonRow(
        role=Role.VERIFIED,
        label="Chosen plan, verified",
        clocks=clocks,
        basis=f"{len(verification.pairs)} fresh pairs",
        time_s=verification.slowdown_ratio * plan.baseline_time_s,
        energy_j=(1.0 - verification.saving_ratio) * plan.baseline_energy_j,
        slowdown_ratio=verification.slowdown_ratio,
        saving_ratio=verification.saving_ratio,
        slowdown_interval=verification.slowdown_interval,
        saving_interval=verification.saving_interval,
    )
