"""`report` of a pipeline: a page from the `pipeline.json` of a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from joulewise import __version__
from joulewise.domain.errors import InputError, PlanError
from joulewise.domain.pipeline import PipelinePlan, PlannedOperation
from joulewise.plan.pipeline.graph import Operation
from joulewise.plan.pipeline.schedules import schedule_graph
from joulewise.report.inputs import Provenance
from joulewise.report.pipeline_page import render_pipeline_report
from joulewise.store.atomic import write_atomically
from joulewise.store.pipeline_files import read_pipeline
from joulewise.workflow.reporting import PLAN_NAME, REPORT_NAME

PIPELINE_NAME = "pipeline.json"
# Starts and ends are sums over thousands of operations.
_ROUNDING_RATIO = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPipelineReport:
    """A pipeline's report and the plan that it shows."""

    path: Path
    plan: PipelinePlan


def has_pipeline(folder: Path) -> bool:
    """Whether the report of this folder is that of a pipeline.

    Raises InputError where it could be another plan's as well.
    """
    path = folder / PIPELINE_NAME
    if not (path.exists() or path.is_symlink()):
        return False
    if (folder / PLAN_NAME).exists():
        raise InputError(
            f"{PIPELINE_NAME} and {PLAN_NAME} lie in one folder, and both make {REPORT_NAME}",
            file=str(folder),
            hint="Move one of them to a folder of its own.",
        )
    return True


def write_pipeline_report(folder: Path) -> WrittenPipelineReport:
    """Write `report.html` from `pipeline.json`. Raises InputError."""
    plan = read_pipeline(folder / PIPELINE_NAME)
    _refuse_other_order(plan, str(folder / PIPELINE_NAME))
    provenance = Provenance(
        joulewise_version=__version__, written_on=datetime.now(tz=UTC).date().isoformat()
    )
    path = folder / REPORT_NAME
    write_atomically(path, render_pipeline_report(plan, provenance).encode())
    return WrittenPipelineReport(path=path, plan=plan)


def _refuse_other_order(plan: PipelinePlan, file: str) -> None:
    """No operation starts before those that it waits for in its schedule end."""
    try:
        graph = schedule_graph(plan.request.shape)
    except PlanError as error:
        raise InputError(error.message, file=file, field="request.shape") from error
    for field, operations in (
        ("operations", plan.operations),
        ("baseline_operations", plan.baseline_operations),
    ):
        if not operations:
            continue
        places = {_operation(one): place for place, one in enumerate(operations)}
        for before, after in graph.edges.tolist():
            first, second = graph.operations[before], graph.operations[after]
            end_s = operations[places[first]].start_s + operations[places[first]].time_s
            if operations[places[second]].start_s < end_s * (1.0 - _ROUNDING_RATIO):
                raise InputError(
                    f"the {second.label} starts before the {first.label} ends, which it waits for",
                    file=file,
                    field=f"{field}[{places[second]}].start_s",
                    hint="Use the file as joulewise wrote it, or make it anew.",
                )


def _operation(one: PlannedOperation) -> Operation:
    return Operation(
        stage=one.stage,
        instruction=one.instruction,
        micro_batch=one.micro_batch,
        chunk=one.chunk,
    )
