"""`joulewise report`: one self-contained page from a run folder."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.pipeline_render import pipeline_outcome
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import print_line, print_wrapped, say
from joulewise.cli.sentences import with_origin
from joulewise.cli.values import caveat_kinds
from joulewise.cli.verdicts import plan_outcome
from joulewise.report.efficiency import efficiency_line
from joulewise.report.pipeline_verdict import pipeline_verdict
from joulewise.report.verdict import headline
from joulewise.workflow.pipeline_reporting import has_pipeline, write_pipeline_report
from joulewise.workflow.reporting import write_report
from joulewise.workflow.tuning import REPORTING


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
    of_what = _of_pipeline if has_pipeline(run_dir) else _of_plan
    outcome = of_what(run_dir, as_json=as_json)
    finish(outcome, as_json=as_json, fail_on=wanted)


@contextmanager
def _progress(*, as_json: bool) -> Generator[None]:
    """One bar while a page is written, which takes seconds where every launch has a point."""
    with progress_bars(is_shown=not as_json, after_s=1.0) as progress:
        progress(REPORTING, 0, 1)
        yield
        progress(REPORTING, 1, 1)


def _of_plan(run_dir: Path, *, as_json: bool) -> Outcome:
    with _progress(as_json=as_json):
        written = write_report(run_dir)
    plan, seen = written.plan, written.verification

    def render(console: Console) -> None:
        sentence = headline(
            plan, seen, written.comparison, is_table_simulated=written.is_table_simulated
        )
        say(console, sentence)
        print_wrapped(console, efficiency_line(plan, seen))
        print_line(console, f"Report: {written.path}")

    extra: dict[str, object] = {"report": str(written.path)}
    if seen is None:
        extra["is_simulated"] = written.is_table_simulated
    return plan_outcome(plan, seen, render, extra)


def _of_pipeline(run_dir: Path, *, as_json: bool) -> Outcome:
    with _progress(as_json=as_json):
        written = write_pipeline_report(run_dir)
    plan = written.plan

    def render(console: Console) -> None:
        say(console, with_origin(pipeline_verdict(plan), plan.caveats))
        print_line(console, f"Report: {written.path}")

    return pipeline_outcome(plan, render, {"report": str(written.path)})
