"""`measure`: a device, a workload, a sweep file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from joulewise.device.nvml_string import is_nvml
from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import HardwareRunners, Lease, Progress, ReadBackGpu
from joulewise.domain.session import DeviceSession
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import KernelKind, Workload
from joulewise.measure.memory_lock import check_memory_lock
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.sweep import measure_sweep
from joulewise.store.atomic import require_place
from joulewise.store.cells import CellJournal
from joulewise.store.sweeps import replace_sweep
from joulewise.workflow.baseline_state import baseline_doubts, with_baseline_doubts
from joulewise.workflow.devices import AskedPowerLimit, open_session, points_of_device
from joulewise.workflow.leasing import lease_on
from joulewise.workflow.memory_fit import memory_exceeded
from joulewise.workflow.preparing import (
    Announce,
    announce_nothing,
    announce_sweep,
    refuse_without_rights,
)
from joulewise.workflow.traced_elsewhere import traced_elsewhere_than
from joulewise.workflow.workloads import load_workload, source_files

SETTINGS = MeasureSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureJob:
    """What `measure` was asked for."""

    device: str
    workload: str
    sm_clocks_mhz: Sequence[int | None] | None
    mem_clocks_mhz: Sequence[int | None] | None
    out: Path
    is_resumed: bool
    power_limits: Sequence[AskedPowerLimit | None] | None = None


def measure_to_file(
    job: MeasureJob,
    progress: Progress,
    *,
    hardware: HardwareRunners | None = None,
    announce: Announce = announce_nothing,
) -> Sweep:
    """Measure and write a sweep.

    Raises any JoulewiseError; what was measured stays on disk, and where the sweep was complete
    by then a note of the error says so.
    """
    workload = load_workload(job.workload)
    require_place(job.out, sources=source_files(workload=job.workload))
    session = open_session(job.device, workload, hardware=hardware)
    sweep: Sweep | None = None
    try:
        # Held first: what limits there are shows once a dead holder's limit is put back.
        with lease_on(session.gpu) as lease:
            points = points_of_device(
                session.gpu, job.sm_clocks_mhz, job.mem_clocks_mhz, job.power_limits
            )
            header = journal_header(session, workload, points)
            with CellJournal.open_for(job.out, header, resume=job.is_resumed) as journal:
                refuse_without_rights(session, lease, points)
                finished_count = len(journal.finished())
                announce_sweep(
                    session,
                    workload.kernels,
                    points,
                    SETTINGS,
                    announce,
                    finished_count=finished_count,
                )
                sweep = sweep_to_file(session, lease, workload, points, job.out, journal, progress)
                journal.close(finished=True)
    except JoulewiseError as error:
        if sweep is not None:
            error.add_note(f"The sweep is complete; it was written to {job.out}.")
        raise
    return sweep


def doubts_of_cells(sweep: Sweep) -> tuple[Caveat, ...]:
    """Caveats of the sweep and, counted by kind, of its cells."""
    counts = Counter(
        kind
        for caveats in sweep.cell_caveats.values()
        for kind in {caveat.kind for caveat in caveats}
    )
    cell_count = int(sweep.is_present.sum())
    counted = (
        Caveat(kind=kind, seen=f"{counts[kind]} of {cell_count} cells.") for kind in sorted(counts)
    )
    return (*sweep.caveats, *counted)


def journal_header(
    session: DeviceSession, workload: Workload, points: Sequence[OperatingPoint]
) -> Mapping[str, object]:
    """What must be the same for a sweep to be resumed; on a board also how that is set."""
    gpu = session.gpu
    board = {"board": asdict(gpu.board_state())} if isinstance(gpu, ReadBackGpu) else {}
    return {
        **board,
        "device": session.gpu.identity.spec,
        "device_name": session.gpu.identity.name,
        "workload": workload.name,
        "kernels": list(workload.kernels),
        "works": [asdict(work) for work in workload.works],
        "points": [point.label for point in points],
        "settings": asdict(SETTINGS),
    }


def sweep_to_file(  # noqa: PLR0913, PLR0917 - what, where, how, and whom to tell
    session: DeviceSession,
    lease: Lease,
    workload: Workload,
    points: Sequence[OperatingPoint],
    out: Path,
    journal: CellJournal,
    progress: Progress,
) -> Sweep:
    """Measure a sweep and write it; its journal may go once nothing more hangs on it.

    Where it locks the memory clock of an NVIDIA GPU, what such a lock costs is seen to first, and
    whether the baseline is the stock state of a board.
    Doubts about the workload are doubts about the sweep.
    """
    at_baseline = baseline_doubts(session.gpu)
    doubts = _doubts_of_memory_lock(session, lease, workload, points)
    sweep = measure_sweep(
        session,
        lease,
        workload.kernels,
        points,
        settings=SETTINGS,
        journal=journal,
        progress=progress,
        workload=workload.name,
    )
    doubts = (
        *doubts,
        *workload.caveats,
        *memory_exceeded(workload, sweep.source.device_name),
        *traced_elsewhere_than(workload, sweep),
    )
    caveats = with_baseline_doubts(sweep.caveats, at_baseline)
    sweep = replace(sweep, caveats=(*caveats, *doubts))
    replace_sweep(sweep, out)
    return sweep


def _doubts_of_memory_lock(
    session: DeviceSession, lease: Lease, workload: Workload, points: Sequence[OperatingPoint]
) -> tuple[Caveat, ...]:
    """MemoryLockSlows where it does, on an NVIDIA GPU whose memory clock the sweep locks."""
    is_locked = any(point.mem_clock_mhz is not None for point in points)
    if not is_locked or not is_nvml(session.gpu.identity.spec):
        return ()
    return check_memory_lock(session, lease, _most_traffic(workload), SETTINGS)


def _most_traffic(workload: Workload) -> str:
    """The kernel that moves most, but for those that computing, a link or the host limits."""
    works = [work for work in workload.works if work.kind is KernelKind.OTHER]
    if not works:
        return workload.kernels[0]
    return max(works, key=lambda work: work.traffic_bytes).kernel
