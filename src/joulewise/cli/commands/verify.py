"""`joulewise verify`: paired fresh runs of the baseline and the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import DEFAULT_DEVICE, AsJson, Device, FailOn, Pairs
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import print_caveats, say, table
from joulewise.cli.sentences import verification_rows, verification_sentence
from joulewise.cli.values import caveat_kinds
from joulewise.domain.plan import Status
from joulewise.workflow.verifying import VerifyJob, verify_to_file


def verify(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json.", show_default=False)],
    device: Device = DEFAULT_DEVICE,
    pairs: Pairs = 10,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            envvar="JOULEWISE_WORKLOAD",
            help="Where the kernels come from. Default: the workload that the plan names.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", envvar="JOULEWISE_OUT", help="Write verification.json here."),
    ] = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Run the baseline and the plan afresh, side by side, and compare."""
    wanted = caveat_kinds(fail_on)
    job = VerifyJob(plan=plan, device=device, workload=workload, pair_count=pairs, out=out)
    with progress_bars(is_shown=not as_json) as progress:
        seen = verify_to_file(job, progress)

    def render(console: Console) -> None:
        columns = ("", "promised", "verified", "95 % interval")
        console.print(table(None, columns, verification_rows(seen)))
        print_caveats(console, seen.caveats)
        say(console, verification_sentence(seen))

    time_s = sum(pair.plan_time_s for pair in seen.pairs) / len(seen.pairs)
    energy_j = sum(pair.plan_energy_j for pair in seen.pairs) / len(seen.pairs)
    outcome = Outcome(
        status=Status.FEASIBLE if seen.saving_interval.low_ratio > 0 else Status.NO_GAIN,
        render=render,
        slowdown_ratio=seen.slowdown_ratio,
        saving_ratio=seen.saving_ratio,
        energy_j=energy_j,
        time_s=time_s,
        caveats=seen.caveats,
        extra={
            "slowdown_interval": seen.slowdown_interval,
            "saving_interval": seen.saving_interval,
            "is_within_budget": seen.is_within_budget,
            "pair_count": len(seen.pairs),
        },
    )
    finish(outcome, as_json=as_json, fail_on=wanted)
