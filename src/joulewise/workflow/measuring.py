"""`measure`: a device, a workload, a sweep file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from joulewise.control.lease import hold
from joulewise.control.state import default_state_dir
from joulewise.domain.ports import Lease, Progress
from joulewise.domain.points import OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import Workload
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.sweep import measure_sweep
from joulewise.store.cells import CellJournal
from joulewise.store.sweeps import write_sweep_parquet
from joulewise.workflow.devices import open_session, points_to_measure
from joulewise.workflow.workloads import load_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureJob:
    """What `measure` was asked for."""

    device: str
    workload: str
    sm_clocks_mhz: Sequence[int | None] | None
    mem_clocks_mhz: Sequence[int | None] | None
    out: Path
    is_resumed: bool


def measure_to_file(job: MeasureJob, progress: Progress) -> Sweep:
    """Measure and write a sweep. Raises any JoulewiseError; what was measured stays on disk."""
    workload = load_workload(job.workload)
    session = open_session(job.device, workload)
    points = points_to_measure(session.gpu.clock_grid(), job.sm_clocks_mhz, job.mem_clocks_mhz)
    with hold(session.gpu, state_dir=default_state_dir()) as lease:
        return sweep_to_file(
            session, lease, workload, points, job.out, is_resumed=job.is_resumed, progress=progress
        )
