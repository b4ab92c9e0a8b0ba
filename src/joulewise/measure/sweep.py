"""The sweep: every kernel at every operating point, resumable cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from joulewise.domain.errors import InputError
from joulewise.domain.measurement import CellMeasurement
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import Gpu, Lease, Progress, no_progress
from joulewise.domain.session import DeviceSession
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.measure.cell import CellVisit, measure_visit
from joulewise.measure.order import shuffled
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.steady import measure_idle_power_w
from joulewise.measure.table import CellKey, sweep_from_cells

TOOL = "joulewise"


class CellJournalPort(Protocol):
    """Where finished cells are kept, so that a killed sweep can go on."""

    def finished(self) -> Mapping[tuple[str, OperatingPoint], CellMeasurement]:
        """Cells that need no measuring any more."""
        ...

    def append(self, cell: CellMeasurement) -> None:
        """Keep a finished cell for good before the next one begins."""
        ...


class MemoryJournal:
    """A journal that lasts as long as the process."""

    def __init__(self) -> None:
        self._cells: dict[CellKey, CellMeasurement] = {}

    def finished(self) -> Mapping[CellKey, CellMeasurement]:
        """Cells kept so far."""
        return dict(self._cells)

    def append(self, cell: CellMeasurement) -> None:
        """Keep a cell."""
        self._cells[cell.kernel, cell.point] = cell


def sweep_run_label(point: OperatingPoint) -> str:
    """Label of the measuring run that visits this point in a sweep."""
    return f"sweep/{point.label}"


def measure_sweep(  # noqa: PLR0913 - what, where, how, and whom to tell
    session: DeviceSession,
    lease: Lease,
    kernels: Sequence[str],
    points: Sequence[OperatingPoint],
    *,
    settings: MeasureSettings,
    journal: CellJournalPort | None = None,
    progress: Progress = no_progress,
    workload: str | None = None,
) -> Sweep:
    """Measure every kernel at every point and at the baseline.

    Points come in random order, and at each point its kernels; each visit to a point is one
    measuring run (`sweep_run_label`). Orders depend on the seed of the settings only, so a
    sweep that was killed and goes on measures the cells that an undisturbed one would have.

    Args:
        session: The device and what runs on it.
        lease: The right to set its clocks.
        kernels: Rows of the table.
        points: Columns; the baseline (auto, auto) is put first where it is missing.
        settings: Windows, warm-up and patience.
        journal: Cells finished earlier, and where to keep new ones; `None` keeps none.
        progress: Told after every cell.
        workload: Name of the workload, for the table's source.

    Raises:
        InputError: no kernels, or one that the device cannot run.
        MeasurementError: no trustworthy number came out of a cell.
        DeviceError: the device refused a point, has no energy counter, or was lost.
    """
    kernels = tuple(dict.fromkeys(kernels))
    points = tuple(dict.fromkeys(points))
    points = points if AUTO in points else (AUTO, *points)
    _check_kernels(session, kernels)
    journal = MemoryJournal() if journal is None else journal
    wanted = {(kernel, point) for point in points for kernel in kernels}
    cells = {key: cell for key, cell in journal.finished().items() if key in wanted}
    progress("measuring", len(cells), len(wanted))
    for point in shuffled(points, seed=settings.seed, label="points"):
        for cell in _visit_point(session, lease, point, kernels, cells, settings):
            journal.append(cell)
            cells[cell.kernel, cell.point] = cell
            progress("measuring", len(cells), len(wanted))
    return sweep_from_cells(
        cells.values(),
        kernels,
        points,
        sweep_source(session.gpu, workload),
        caveats=session.gpu.identity.caveats,
    )


def sweep_source(gpu: Gpu, workload: str | None = None) -> SweepSource:
    """Where cells of this device come from."""
    identity = gpu.identity
    return SweepSource(
        device=identity.spec,
        device_name=identity.name,
        tool=TOOL,
        workload=workload,
        is_simulated=identity.is_simulated,
    )


def _visit_point(
    session: DeviceSession,
    lease: Lease,
    point: OperatingPoint,
    kernels: Sequence[str],
    cells: Mapping[CellKey, CellMeasurement],
    settings: MeasureSettings,
) -> Iterator[CellMeasurement]:
    """Set a point once and measure the kernels that it lacks."""
    label = sweep_run_label(point)
    done = [cells[kernel, point] for kernel in kernels if (kernel, point) in cells]
    if len(done) == len(kernels):
        return
    lease.apply(point)
    # Within one visit idle power is one number, also for cells measured after a restart.
    idle_power_w = done[0].idle_power_w if done else measure_idle_power_w(session.gpu, settings)
    for kernel in shuffled(kernels, seed=settings.seed, label=label):
        if (kernel, point) in cells:
            continue
        visit = CellVisit(kernel=kernel, point=point, run=label, window_count=settings.window_count)
        yield measure_visit(session, visit, settings, idle_power_w=idle_power_w)


def _check_kernels(session: DeviceSession, kernels: Sequence[str]) -> None:
    if not kernels:
        raise InputError("there are no kernels to measure", field="kernel")
    unknown = [kernel for kernel in kernels if kernel not in session.runner.kernels]
    if unknown:
        raise InputError(
            f"the device cannot run the kernel {unknown[0]!r}",
            field="kernel",
            hint=f"It can run {', '.join(session.runner.kernels[:5])} …",
        )
