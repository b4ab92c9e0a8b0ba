"""`report`: a page from a run folder."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from joulewise import __version__
from joulewise.domain.errors import InputError
from joulewise.domain.plan import FrontierPoint, Granularity, Plan, Verification
from joulewise.domain.sweep import Sweep
from joulewise.plan.frontier import frontier
from joulewise.plan.statics import StaticPlan, best_pass_level
from joulewise.plan.table import plan_table
from joulewise.report.compare import ComparisonRow, comparison_rows, equal_slowdown_ratio
from joulewise.report.inputs import Provenance, ReportInputs
from joulewise.report.page import render_report
from joulewise.store.atomic import write_atomically
from joulewise.store.documents import plan_sha256, read_plan, read_verification
from joulewise.store.sweeps import read_sweep, sweep_sha256
from joulewise.workflow.kept_workloads import WORKLOAD_NAME
from joulewise.workflow.promise import calmed_sweep
from joulewise.workflow.workloads import workload_of_plan

SWEEP_NAMES = ("sweep.parquet", "sweep.csv")
REMEASURED_NAME = "remeasured.parquet"
PLAN_NAME = "plan.json"
VERIFICATION_NAME = "verification.json"
REPORT_NAME = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReport:
    """A report and what it says first."""

    path: Path
    plan: Plan
    verification: Verification | None
    comparison: tuple[ComparisonRow, ...]
    is_table_simulated: bool


def write_report(folder: Path) -> WrittenReport:
    """Write `report.html` from the sweep, the plan and, if there is one, the verification.

    Raises InputError for a folder that lacks one of them, or holds a plan that was made from
    another sweep or a verification of another plan.
    """
    inputs = read_inputs(folder)
    path = folder / REPORT_NAME
    write_atomically(path, render_report(inputs).encode())
    return WrittenReport(
        path=path,
        plan=inputs.plan,
        verification=inputs.verification,
        comparison=comparison_rows(inputs),
        is_table_simulated=inputs.sweep.source.is_simulated,
    )


def read_inputs(folder: Path) -> ReportInputs:
    """Everything that a report is made from."""
    if not folder.is_dir():
        raise InputError(
            "there is no such run folder",
            file=str(folder),
            hint="Name a folder that joulewise tune wrote, such as runs/demo, or one with a "
            "sweep.parquet and a plan.json.",
        )
    plan_file = folder / PLAN_NAME
    if not plan_file.exists():
        raise InputError(
            "there is no plan in this folder",
            file=str(plan_file),
            hint=f"Make one: {_plan_command(folder, folder / SWEEP_NAMES[0])}",
        )
    plan = read_plan(plan_file)
    sweep = _read_matching_sweep(folder, plan)
    _require_cells(plan, sweep, plan_file)
    verification_file = folder / VERIFICATION_NAME
    verification = read_verification(verification_file) if verification_file.exists() else None
    if verification is not None and verification.plan_sha256 != plan_sha256(plan):
        raise InputError(
            "this verification is of another plan",
            file=str(verification_file),
            field="plan_sha256",
            hint="Verify this one: "
            + shlex.join(("joulewise", "verify", str(plan_file), "--out", str(verification_file))),
        )
    rivals, basis = _read_remeasured(folder, plan), "measured again beside the plan"
    if rivals is None and plan.guard_band_ratio > 0:
        rivals, basis = calmed_sweep(sweep), "the sweep, its noise smoothed by the model"
    return report_inputs(plan, sweep, verification, rivals=rivals, rivals_basis=basis)


def _plan_command(folder: Path, sweep: Path) -> str:
    """How to plan anew in a run folder, with the workload that lies there."""
    command = ["joulewise", "plan", str(sweep), "--out", str(folder / PLAN_NAME)]
    kept = folder / WORKLOAD_NAME
    return shlex.join([*command, "--workload", str(kept)] if kept.exists() else command)


def _read_remeasured(folder: Path, plan: Plan) -> Sweep | None:
    """The cells that the plan says it stands on; others that lie there are none of its."""
    if plan.remeasured_sha256 is None:
        return None
    path = folder / REMEASURED_NAME
    remeasured = read_sweep(path)
    if sweep_sha256(remeasured) != plan.remeasured_sha256:
        raise InputError(
            "these cells were measured afresh for another plan",
            file=str(path),
            field="remeasured_sha256",
            hint="Repeat `joulewise tune` in this folder, or plan anew.",
        )
    return remeasured


def _require_cells(plan: Plan, sweep: Sweep, file: Path) -> None:
    """Every cell that the plan runs, and its baseline, was measured."""
    rows = {kernel: row for row, kernel in enumerate(sweep.kernels)}
    columns = {point: column for column, point in enumerate(sweep.points)}
    for number, launch in enumerate(plan.launches):
        row = rows.get(launch.kernel)
        for point in (launch.point, plan.baseline):
            column = columns.get(point)
            if row is None or column is None or not sweep.is_present[row, column]:
                raise InputError(
                    f"the sweep has no cell of kernel {launch.kernel!r} at {point.label}",
                    file=str(file),
                    field=f"launches[{number}]",
                    hint="Use the plan as joulewise wrote it, or plan anew.",
                )


def report_inputs(
    plan: Plan,
    sweep: Sweep,
    verification: Verification | None = None,
    *,
    rivals: Sweep | None = None,
    rivals_basis: str = "sweep",
    is_drawn: bool = True,
) -> ReportInputs:
    """The records of a report with the frontiers that belong beside them.

    All of them change clocks at the costs that the plan was made with. Where nothing will be
    drawn, only compared, the frontiers are left out. The pass-level rival is no point of its
    frontier, which samples it, but the best there is.
    """
    workload, transition = workload_of_plan(plan), plan.request.transition
    passes = plan_table(sweep, workload, Granularity.PASS, transition)
    judged = plan_table(rivals, workload, Granularity.PASS, transition) if rivals else passes
    limit_ratio = equal_slowdown_ratio(plan, verification)
    return ReportInputs(
        plan=plan,
        sweep=sweep,
        verification=verification,
        kernel_frontier=(
            frontier(plan_table(sweep, workload, Granularity.KERNEL, transition))
            if is_drawn
            else ()
        ),
        pass_frontier=frontier(passes) if is_drawn else (),
        rivals=rivals,
        best_pass=_as_point(best_pass_level(judged, limit_ratio - 1.0)),
        rivals_basis=rivals_basis if rivals else "sweep",
        provenance=Provenance(
            joulewise_version=__version__, written_on=datetime.now(tz=UTC).date().isoformat()
        ),
    )


def _as_point(best: StaticPlan | None) -> FrontierPoint | None:
    if best is None:
        return None
    return FrontierPoint(
        time_s=best.time_s,
        energy_j=best.energy_j,
        slowdown_ratio=best.slowdown_ratio,
        saving_ratio=best.saving_ratio,
    )


def _read_matching_sweep(folder: Path, plan: Plan) -> Sweep:
    """The sweep that the plan names by its hash."""
    present = [folder / name for name in SWEEP_NAMES if (folder / name).exists()]
    if not present:
        raise InputError(f"there is no {' or '.join(SWEEP_NAMES)} in this folder", file=str(folder))
    for path in present:
        sweep = read_sweep(path)
        if sweep_sha256(sweep) == plan.sweep_sha256:
            return sweep
    raise InputError(
        "the plan was made from another sweep",
        file=str(folder / PLAN_NAME),
        field="sweep_sha256",
        hint=f"Plan anew: {_plan_command(folder, present[0])}",
    )
