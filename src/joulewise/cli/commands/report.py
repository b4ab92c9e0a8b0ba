"""`joulewise report`: one self-contained page from a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.pipeline_render import OPERATION_COLUMNS, operation_cells, pipeline_outcome
from joulewise.cli.render import print_caveats, say, table
from joulewise.cli.sentences import comparison_rows
from joulewise.cli.values import caveat_kinds
from joulewise.cli.verdicts import plan_caveats, plan_outcome
from joulewise.report.pipeline_rows import operation_rows
from joulewise.report.pipeline_verdict import pipeline_verdict
from joulewise.report.verdict import verdict
from joulewise.workflow.pipeline_reporting import has_pipeline, write_pipeline_report
from joulewise.workflow.reporting import write_report


def report(
    run_dir: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR",
            help="Folder with sweep.parquet (or sweep.csv), plan.json, maybe verification.json; or "
            "with pipeline.json.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Write report.html into a run folder."""
    wanted = caveat_kinds(fail_on)
    outcome = _of_pipeline(run_dir) if has_pipeline(run_dir) else _of_plan(run_dir)
    finish(outcome, as_json=as_json, fail_on=wanted)


def _of_plan(run_dir: Path) -> Outcome:
    written = write_report(run_dir)
    plan, seen = written.plan, written.verification

    def render(console: Console) -> None:
        columns = ("setting", "time", "energy", "slowdown", "saving")
        console.print(table(None, columns, comparison_rows(written.comparison)))
        print_caveats(console, plan_caveats(plan, seen))
        say(console, verdict(plan, seen, written.comparison))
        say(console, f"Report written to {written.path}.")

    return plan_outcome(plan, seen, render, {"report": str(written.path)})


def _of_pipeline(run_dir: Path) -> Outcome:
    written = write_pipeline_report(run_dir)
    plan = written.plan

    def render(console: Console) -> None:
        cells = operation_cells(operation_rows(plan))
        console.print(table(None, OPERATION_COLUMNS, cells, left_count=2))
        print_caveats(console, plan.caveats)
        say(console, pipeline_verdict(plan))
        say(console, f"Report written to {written.path}.")

    return pipeline_outcome(plan, render, {"report": str(written.path)})
