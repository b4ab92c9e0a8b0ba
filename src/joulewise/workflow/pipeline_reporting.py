"""`report` of a pipeline: a page from the `pipeline.json` of a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from joulewise import __version__
from joulewise.domain.errors import InputError
from joulewise.domain.pipeline import PipelinePlan
from joulewise.report.inputs import Provenance
from joulewise.report.pipeline_page import render_pipeline_report
from joulewise.store.atomic import write_atomically
from joulewise.store.pipeline_files import read_pipeline
from joulewise.workflow.reporting import PLAN_NAME, REPORT_NAME

PIPELINE_NAME = "pipeline.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPipelineReport:
    """A pipeline's report and the plan that it shows."""

    path: Path
    plan: PipelinePlan


def has_pipeline(folder: Path) -> bool:
    """Whether the report of this folder is that of a pipeline.

    Raises InputError where it could be another plan's as well.
    """
    if not (folder / PIPELINE_NAME).exists():
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
    provenance = Provenance(
        joulewise_version=__version__, written_on=datetime.now(tz=UTC).date().isoformat()
    )
    path = folder / REPORT_NAME
    write_atomically(path, render_pipeline_report(plan, provenance).encode())
    return WrittenPipelineReport(path=path, plan=plan)
