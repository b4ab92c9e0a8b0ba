"""`joulewise report`: one self-contained page from a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.render import say
from joulewise.cli.values import caveat_kinds
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
    plan = written.plan

    def render(console: Console) -> None:
        say(console, f"Report written to {written.path}.")

    outcome = Outcome(
        status=plan.status,
        render=render,
        slowdown_ratio=plan.slowdown_ratio,
        saving_ratio=plan.saving_ratio,
        energy_j=plan.energy_j,
        time_s=plan.time_s,
        bound_gap_ratio=plan.bound_gap_ratio,
        caveats=plan.caveats,
        extra={"report": str(written.path)},
    )
    finish(outcome, as_json=as_json, fail_on=wanted)
