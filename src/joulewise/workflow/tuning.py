"""`tune`: measure, plan, re-measure, plan again, verify, report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.measurement import CellMeasurement
from joulewise.domain.plan import Granularity, Plan, PlanRequest, Verification
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import HardwareRunners, Lease, Progress, ReadBackGpu
from joulewise.domain.session import DeviceSession
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import Workload
from joulewise.measure.fresh import measure_fresh
from joulewise.measure.table import sweep_from_cells
from joulewise.measure.verify import verify_plan
from joulewise.plan.changes import change_costs
from joulewise.plan.make import plan_from_choice
from joulewise.plan.statics import best_pass_level, best_static
from joulewise.plan.table import plan_table
from joulewise.report.compare import ComparisonRow
from joulewise.store.atomic import require_place
from joulewise.store.cells import CellJournal
from joulewise.store.documents import plan_sha256, write_plan, write_verification
from joulewise.store.sweeps import sweep_sha256, write_sweep_parquet
from joulewise.workflow.baseline_state import baseline_doubts, with_baseline_doubts
from joulewise.workflow.devices import AskedPowerLimit, open_session, points_of_device
from joulewise.workflow.kept_workloads import keep_workload, require_place_of_copy
from joulewise.workflow.leasing import lease_on
from joulewise.workflow.measuring import SETTINGS, journal_header, sweep_to_file
from joulewise.workflow.mostly_gaps import with_gap_doubts
from joulewise.workflow.preparing import (
    Announce,
    announce_nothing,
    announce_sweep,
    refuse_without_rights,
)
from joulewise.workflow.promise import keep_promise
from joulewise.workflow.reporting import (
    PLAN_NAME,
    REMEASURED_NAME,
    REPORT_NAME,
    SWEEP_NAMES,
    VERIFICATION_NAME,
    write_report,
)
from joulewise.workflow.transitions import (
    load_optional_transition,
    named_transition,
    transition_file,
)
from joulewise.workflow.workloads import load_workload, source_files

REPORTING = "writing the report"
RIVAL_WINDOW_COUNT = 5
# Twice the usual shift between two visits of a sweep.
RIVAL_MARGIN_RATIO = 0.01
_WRITTEN_NAMES = (SWEEP_NAMES[0], REMEASURED_NAME, PLAN_NAME, VERIFICATION_NAME, REPORT_NAME)
_LONGEST_NAME_COUNT = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneJob:
    """What `tune` was asked for; `transition` as text, for the request."""

    device: str
    workload: str
    request: PlanRequest
    sm_clocks_mhz: Sequence[int | None] | None
    mem_clocks_mhz: Sequence[int | None] | None
    pair_count: int
    out: Path | None
    transition: str | None = None
    power_limits: Sequence[AskedPowerLimit | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """What `tune` found and where it put it."""

    plan: Plan
    verification: Verification
    comparison: tuple[ComparisonRow, ...]
    folder: Path
    report: Path


class FreshWindows:
    """Re-measures cells in one measuring run; no window ever comes twice."""

    def __init__(self, session: DeviceSession, lease: Lease, progress: Progress) -> None:
        """Remember how far the windows have been counted."""
        self._session = session
        self._lease = lease
        self._progress = progress
        self._next_window = 0
        self._round_count = 0
        self._cells: list[CellMeasurement] = []

    @property
    def cells(self) -> tuple[CellMeasurement, ...]:
        """Everything measured so far, call by call."""
        return tuple(self._cells)

    def __call__(
        self, cells: Sequence[tuple[str, OperatingPoint]], window_count: int
    ) -> tuple[CellMeasurement, ...]:
        """Fresh windows of these cells, interleaved."""
        self._round_count += 1
        round_name = f"round {self._round_count}"
        first, self._next_window = self._next_window, self._next_window + window_count
        measured = measure_fresh(
            self._session,
            self._lease,
            cells,
            window_count,
            settings=SETTINGS,
            first_window=first,
            progress=lambda what, done_count, total_count: self._progress(
                f"{what}, {round_name}", done_count, total_count
            ),
        )
        self._cells.extend(measured)
        return measured


def tune_to_folder(
    job: TuneJob,
    progress: Progress,
    *,
    hardware: HardwareRunners | None = None,
    announce: Announce = announce_nothing,
) -> TuneResult:
    """Find, prove and report clocks; everything lies in one run folder.

    A folder in which an earlier `tune` was interrupted is gone on with: the journal of the
    sweep stays, and with it the lock on the folder, until the report is written. Raises any
    JoulewiseError; what was measured stays on disk.
    """
    transition = load_optional_transition(job.transition)
    job = replace(job, request=replace(job.request, transition=transition))
    workload = load_workload(job.workload)
    session = open_session(job.device, workload, transition, hardware=hardware)
    # Held first: what limits there are shows once a dead holder's limit is put back.
    with lease_on(session.gpu) as lease:
        points = points_of_device(
            session.gpu, job.sm_clocks_mhz, job.mem_clocks_mhz, job.power_limits
        )
        with named_transition(job.transition):
            # A model that lacks a change would be of no use once all is measured.
            change_costs(points, transition)
        refuse_without_rights(session, lease, points)
        announce_sweep(
            session,
            workload.kernels,
            points,
            SETTINGS,
            announce,
            and_then="Measuring the choice again and verifying it comes on top.",
        )
        return _tune_points(session, lease, job, workload, points, progress)


def _tune_points(
    session: DeviceSession,
    lease: Lease,
    job: TuneJob,
    workload: Workload,
    points: Sequence[OperatingPoint],
    progress: Progress,
) -> TuneResult:
    """Measure these points and all that follows, in one run folder."""
    folder = _make_folder(job.out if job.out is not None else _dated_folder(workload))
    model_file = transition_file(job.transition)
    files = () if model_file is None else (model_file,)
    for name in _WRITTEN_NAMES:
        require_place(folder / name, sources=source_files(*files, workload=job.workload))
    require_place_of_copy(folder, job.workload)
    keep_workload(workload, job.workload, folder)
    out = folder / SWEEP_NAMES[0]
    header = journal_header(session, workload, points)
    with CellJournal.open_for(out, header, resume=True) as journal:
        sweep = sweep_to_file(session, lease, workload, points, out, journal, progress)
        plan = _kept_plan(session, lease, job, workload, sweep, folder, progress)
        doubts = _doubts_at_auto(session, lease)
        seen = verify_plan(
            session,
            lease,
            plan,
            pair_count=job.pair_count,
            settings=SETTINGS,
            plan_sha256=plan_sha256(plan),
            progress=progress,
        )
        seen = replace(seen, caveats=with_baseline_doubts(seen.caveats, doubts))
        write_verification(seen, folder / VERIFICATION_NAME)
        progress(REPORTING, 0, 1)
        written = write_report(folder)
        progress(REPORTING, 1, 1)
        journal.close(finished=True)
    return TuneResult(
        plan=plan,
        verification=seen,
        comparison=written.comparison,
        folder=folder,
        report=written.path,
    )


def _doubts_at_auto(session: DeviceSession, lease: Lease) -> tuple[Caveat, ...]:
    """Doubts about the baseline that is measured next: what the last point set is let go of."""
    if isinstance(session.gpu, ReadBackGpu):
        lease.apply(AUTO)
    return baseline_doubts(session.gpu)


def _kept_plan(  # noqa: PLR0913, PLR0917 - what, where, how, and whom to tell
    session: DeviceSession,
    lease: Lease,
    job: TuneJob,
    workload: Workload,
    sweep: Sweep,
    folder: Path,
    progress: Progress,
) -> Plan:
    """Plan, re-measure and plan again; write the plan and the cells that it stands on."""
    fresh = FreshWindows(session, lease, progress)
    kept = keep_promise(
        sweep, workload, job.request, fresh, pair_count=job.pair_count, progress=progress
    )
    drawn = plan_from_choice(
        kept.sweep,
        workload,
        kept.table,
        kept.solution,
        sweep_sha256=sweep_sha256(sweep),
        caveats=kept.caveats,
    )
    plan = replace(drawn, caveats=_without_selection_bias(drawn.caveats))
    plan = with_gap_doubts(plan, kept.sweep)
    fresh(rival_cells(sweep, workload, plan), RIVAL_WINDOW_COUNT)
    remeasured = sweep_from_cells(
        fresh.cells, sweep.kernels, sweep.points, sweep.source, caveats=sweep.caveats
    )
    plan = replace(plan, remeasured_sha256=sweep_sha256(remeasured))
    write_sweep_parquet(remeasured, folder / REMEASURED_NAME)
    write_plan(plan, folder / PLAN_NAME)
    return plan


def _without_selection_bias(caveats: tuple[Caveat, ...]) -> tuple[Caveat, ...]:
    """Cells measured afresh after they were chosen are not the lucky ones of many."""
    return tuple(one for one in caveats if one.kind is not CaveatKind.SELECTION_BIAS)


def rival_cells(
    sweep: Sweep, workload: Workload, plan: Plan
) -> tuple[tuple[str, OperatingPoint], ...]:
    """Cells of the best single points and pass-level plans around the plan's budget.

    What the plan is compared with is measured afresh beside it, in the same run: two visits of
    a sweep have no common shift, so numbers of the sweep would flatter one side or the other.
    A little below and above the budget too, for a rival that misses it by a hair, or only in
    the sweep, must not leave the field to the plan. Rivals change clocks at the plan's costs.
    """
    budget = plan.request.max_slowdown_ratio
    limit = budget if budget is not None else max(0.0, plan.slowdown_ratio - 1)
    table = plan_table(sweep, workload, Granularity.KERNEL, plan.request.transition)
    kernels = [launch.kernel for launch in workload.launches]
    cells: dict[tuple[str, OperatingPoint], None] = {}
    for margin in (-RIVAL_MARGIN_RATIO, 0.0, RIVAL_MARGIN_RATIO):
        for best in (best_static, best_pass_level):
            rival = best(table, limit + margin)
            if rival is not None:
                for kernel, own_class in dict.fromkeys(
                    zip(kernels, rival.launch_classes, strict=True)
                ):
                    cells[kernel, rival.points[own_class]] = None
    return tuple(cells)


def _dated_folder(workload: Workload) -> Path:
    stamp = datetime.now(tz=UTC).strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"[^A-Za-z0-9._-]", "-", workload.name.replace("=", ""))
    return Path("runs") / f"{stamp}-{name[:_LONGEST_NAME_COUNT]}"


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(
            f"the run folder cannot be made: {reason}",
            file=str(folder),
            field="out",
            hint="Name a folder that you may write to.",
        ) from error
    return folder
