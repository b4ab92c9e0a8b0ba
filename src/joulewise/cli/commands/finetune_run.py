"""`joulewise finetune run`: a training program at the clock that suits it, proven while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joulewise.cli.beside import JsonAtEnd, ResultOut, UserCommand, end, require_out, tell
from joulewise.cli.finetune_run_render import document, render, shown
from joulewise.cli.options import FailOn
from joulewise.cli.outcome import EXIT_CAVEAT, Outcome
from joulewise.cli.values import caveat_kinds, slowdown_budget
from joulewise.domain.plan import Status
from joulewise.finetune.live import DEFAULT_PAIR_COUNT, FEWEST_PAIR_COUNT
from joulewise.workflow.command import Command
from joulewise.workflow.finetune_running import finetune_while
from joulewise.workflow.finetune_running_advice import AskedGovernor, governor_for, only_gpu

RunDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="The board or GPU that the command trains on: jetson, or nvml:0. Default: the only "
        "one that is here.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="The model's config.json, or its folder, to advise by."),
]
MeanLength = Annotated[
    float | None,
    typer.Option(
        "--avg-seq-len", metavar="TOKENS", min=1, help="Mean tokens of a training example."
    ),
]
Policy = Annotated[
    str | None,
    typer.Option("--policy", help="Who advises: a policy's name or file. Default: our own."),
]
Probe = Annotated[
    bool,
    typer.Option(
        "--probe/--no-probe", help="Whether some training steps at three clocks mend the advice."
    ),
]
RunMaxSlowdown = Annotated[
    str | None,
    typer.Option(
        "--max-slowdown",
        envvar="JOULEWISE_MAX_SLOWDOWN",
        help="Most time that may be lost against the governor: 0.05 and 5% both mean 5 % more "
        "time. Default: any, as long as energy is saved.",
    ),
]
VerifyPairs = Annotated[
    int,
    typer.Option(
        "--verify-pairs",
        min=FEWEST_PAIR_COUNT,
        max=1000,
        help="Pairs of blocks, governor and choice, that tell what the choice saves. As many "
        "again are run where these show nothing and the job has room for them.",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        min=1,
        help="Training steps that the command takes, where it does not say so itself. A job that "
        "lasts too short to learn from takes the advice as it is; without a number all is tried.",
    ),
]


def finetune_run(
    command: UserCommand = None,
    device: RunDevice = None,
    config: Config = None,
    mean_length: MeanLength = None,
    policy: Policy = None,
    is_probing: Probe = True,
    max_slowdown: RunMaxSlowdown = None,
    verify_pairs: VerifyPairs = DEFAULT_PAIR_COUNT,
    steps: Steps = None,
    out: ResultOut = None,
    as_json: JsonAtEnd = False,
    fail_on: FailOn = None,
) -> None:
    """Run a training program at the clock that suits it, and prove on its own steps that it saves.

    It begins at the advised clock. A few steps at three clocks mend the advice; pairs of blocks
    of steps, governor and choice, tell what it saves. Where they do not show that, the governor
    has the clock. The command marks its steps: see JoulewiseCallback and StepMarker. It has its
    own input, output and exit code; the result goes to standard error. Clocks are given back
    whatever comes.

    A block lasts ten steps, and 1.6 s at least, for the power sensor; so training has to last
    some 65 s to be probed and 50 s to be checked, and longer where a step takes over 0.1 s.

    In the JSON object slowdown_ratio is time over that of the governor: 1.05 is 5 % more, which
    --max-slowdown calls 0.05.
    """
    own, wanted = Command(command or ()), caveat_kinds(fail_on)
    require_out(out)
    asked = AskedGovernor(
        config=config,
        mean_sequence_count=mean_length,
        policy=policy,
        is_probing=is_probing,
        max_slowdown_ratio=None if max_slowdown is None else slowdown_budget(max_slowdown),
        pair_count=verify_pairs,
        step_count=steps,
    )
    gpu = only_gpu(device)
    result = finetune_while(gpu, governor_for(gpu, asked), own, tell)
    saving = shown(result.steered)
    outcome = Outcome(
        status=Status.FEASIBLE,
        render=lambda console: render(console, result, own.arguments),
        slowdown_ratio=None if saving is None else saving.time_ratio,
        saving_ratio=None if saving is None else 1.0 - saving.energy_ratio,
        energy_j=result.steered.energy_j,
        time_s=result.time_s,
        caveats=result.caveats,
        extra=document(result, own.arguments),
    )
    # The command's own exit code goes first.
    is_doubted = any(caveat.kind in wanted for caveat in outcome.caveats)
    code = result.code or (EXIT_CAVEAT if is_doubted and result.trouble is None else 0)
    end(outcome, code, trouble=result.trouble, as_json=as_json, out=out)
