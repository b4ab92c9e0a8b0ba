"""`tune`: measure, plan, re-measure, plan again, verify, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from joulewise.control.lease import hold
from joulewise.control.state import default_state_dir
from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InputError
from joulewise.domain.measurement import CellMeasurement
from joulewise.domain.plan import Plan, PlanRequest, Verification
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Lease, Progress
from joulewise.domain.session import DeviceSession
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import Workload
from joulewise.measure.fresh import measure_fresh
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.verify import verify_plan
from joulewise.report.compare import ComparisonRow
from joulewise.store.cells import has_journal
from joulewise.store.documents import plan_sha256, write_plan, write_verification
from joulewise.store.sweeps import sweep_sha256, write_sweep_parquet
from joulewise.workflow.devices import open_session, points_to_measure
from joulewise.workflow.measuring import sweep_to_file
from joulewise.workflow.promise import PromiseResult, keep_promise, plan_of_promise
from joulewise.workflow.reporting import write_report
from joulewise.workflow.workloads import load_workload

REMEASURED_RUN = "remeasure"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneJob:
    """What `tune` was asked for."""

    device: str
    workload: str
    request: PlanRequest
    sm_clocks_mhz: Sequence[int | None] | None
    mem_clocks_mhz: Sequence[int | None] | None
    pair_count: int
    out: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """What `tune` found and where it put it."""

    plan: Plan
    verification: Verification
    comparison: tuple[ComparisonRow, ...]
    caveats: tuple[Caveat, ...]
    folder: Path
    report: Path
