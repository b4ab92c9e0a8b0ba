"""`joulewise verify`: paired fresh runs of the baseline and the plan."""

from __future__ import annotations

from rich.console import Console

from joulewise.cli.notes import announcer
from joulewise.cli.options import (
    AsJson,
    FailOn,
    Pairs,
    PlanDevice,
    PlanFile,
    PlanWorkload,
    VerificationOut,
)
from joulewise.cli.outcome import finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import print_caveats, print_line, print_wrapped, say, table
from joulewise.cli.sentences import replay_line, verification_rows, verified_sentence
from joulewise.cli.values import caveat_kinds
from joulewise.cli.verdicts import plan_caveats, plan_outcome
from joulewise.integrations.torch_runner import TorchRunners
from joulewise.report.efficiency import efficiency_line
from joulewise.workflow.verifying import VerifyJob, verify_to_file


def verify(
    plan: PlanFile,
    device: PlanDevice = None,
    pairs: Pairs = 10,
    workload: PlanWorkload = None,
    out: VerificationOut = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Run the baseline and the plan afresh, side by side, and compare."""
    wanted = caveat_kinds(fail_on)
    job = VerifyJob(plan=plan, device=device, workload=workload, pair_count=pairs, out=out)
    with progress_bars(is_shown=not as_json) as progress:
        result = verify_to_file(
            job, progress, hardware=TorchRunners(), announce=announcer(as_json=as_json)
        )
    seen = result.verification

    def render(console: Console) -> None:
        columns = ("", "promised", "verified", "95 % interval")
        console.print(table(None, columns, verification_rows(seen)))
        print_caveats(console, plan_caveats(result.plan, seen))
        say(console, verified_sentence(result.plan, seen, ()))
        print_wrapped(console, efficiency_line(result.plan, seen))
        print_line(console, replay_line(result.plan, plan, device=device, workload=workload))

    finish(plan_outcome(result.plan, seen, render, {}), as_json=as_json, fail_on=wanted)
