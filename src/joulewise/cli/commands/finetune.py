"""`joulewise finetune`: the GPU clock of fine-tuning jobs, most of all on embedded boards."""

from __future__ import annotations

import typer

from joulewise.cli.beside import OWN_ARGUMENTS
from joulewise.cli.commands import (
    finetune_advise,
    finetune_evaluate,
    finetune_policy,
    finetune_run,
    finetune_sweep,
)

app = typer.Typer(
    help="Choose the GPU clock of a fine-tuning job.", no_args_is_help=True, rich_markup_mode=None
)
app.command(
    "sweep",
    short_help="Measure a training step at every GPU clock.",
    context_settings=OWN_ARGUMENTS,
)(finetune_sweep.sweep)
app.command("curves", short_help="Show what measured curves come to.")(finetune_sweep.curves)
app.command(
    "run",
    short_help="Train at the clock that suits, and prove it.",
    context_settings=OWN_ARGUMENTS,
)(finetune_run.finetune_run)
app.command("advise", short_help="Say which clock a job should run at.")(finetune_advise.advise)
app.command("train-policy", short_help="Learn rules for clocks from curves.")(
    finetune_policy.train_policy
)
app.command("evaluate", short_help="Compare policies on jobs they never saw.")(
    finetune_evaluate.evaluate
)
