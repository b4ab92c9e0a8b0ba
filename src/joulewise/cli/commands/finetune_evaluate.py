"""`joulewise finetune evaluate`: what policies that pick clocks save, and what they miss."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from joulewise.cli.commands.finetune_advise import SlowdownBudget
from joulewise.cli.commands.finetune_policy import OptionalCurves
from joulewise.cli.finetune_render import UNSMOOTHED, print_evaluation
from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.values import caveat_kinds, slowdown_budget
from joulewise.domain.plan import Status
from joulewise.workflow.finetune_evaluating import (
    DEFAULT_DEVICE,
    EvaluateJob,
    NoiseLevelName,
    evaluate_policies,
)

EvaluateDevice = Annotated[
    str | None,
    typer.Option("--device", help=f"A virtual board to take as the truth; else {DEFAULT_DEVICE}."),
]
Seeds = Annotated[
    int,
    typer.Option("--seeds", min=1, max=10_000, help="How often the curves are measured anew."),
]
Noise = Annotated[
    NoiseLevelName,
    typer.Option(
        "--noise",
        help="usual: 2 % from run to run, 1 % from block to block; hard: 2 % for blocks, too; "
        "none.",
    ),
]


def evaluate(
    curves: OptionalCurves = None,
    device: EvaluateDevice = None,
    seeds: Seeds = 10,
    noise: Noise = NoiseLevelName.USUAL,
    max_slowdown: SlowdownBudget = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Compare policies on jobs that they were not shown: saving, regret and time."""
    wanted = caveat_kinds(fail_on)
    job = EvaluateJob(
        curves=curves,
        device=device,
        seed_count=seeds,
        noise=noise,
        max_slowdown_ratio=None if max_slowdown is None else slowdown_budget(max_slowdown),
    )
    with progress_bars(is_shown=not as_json) as progress:
        found = evaluate_policies(job, progress)
    outcome = Outcome(
        status=Status.FEASIBLE,
        render=lambda console: print_evaluation(console, found),
        caveats=found.caveats,
        extra={
            "device": found.device,
            "device_name": found.device_name,
            "is_simulated": found.is_simulated,
            "noise": noise.value,
            "judged_by": UNSMOOTHED,
            "seed_count": seeds,
            "max_slowdown_ratio": job.max_slowdown_ratio,
            "scores": msgspec.to_builtins(found.scores),
        },
    )
    finish(outcome, as_json=as_json, fail_on=wanted)
