"""`joulewise report`: one self-contained page from a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import finish
from joulewise.cli.render import print_caveats, say, table
from joulewise.cli.sentences import comparison_rows
from joulewise.cli.values import caveat_kinds
from joulewise.cli.verdicts import plan_caveats, plan_outcome
from joulewise.report.verdict import verdict
from joulewise.workflow.reporting import write_report


def report(
    run_dir: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR",
            help="Folder with sweep.parquet (or sweep.csv), plan.json, maybe verification.json.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Write report.html into a run folder."""
    wanted = caveat_kinds(fail_on)
    written = write_report(run_dir)
    plan, seen = written.plan, written.verification

    def render(console: Console) -> None:
        columns = ("setting", "time", "energy", "slowdown", "saving")
        console.print(table(None, columns, comparison_rows(written.comparison)))
        print_caveats(console, plan_caveats(plan, seen))
        say(console, verdict(plan, seen, written.comparison))
        say(console, f"Report written to {written.path}.")

    outcome = plan_outcome(plan, seen, render, {"report": str(written.path)})
    finish(outcome, as_json=as_json, fail_on=wanted)
