"""`joulewise finetune`: the GPU clock of fine-tuning jobs, most of all on embedded boards."""

from __future__ import annotations

import typer

from joulewise.cli.commands import finetune_sweep

app = typer.Typer(
    help="Choose the GPU clock of a fine-tuning job.", no_args_is_help=True, rich_markup_mode=None
)
app.command("sweep", short_help="Measure a training step at every GPU clock.")(finetune_sweep.sweep)
app.command("curves", short_help="Show what measured curves come to.")(finetune_sweep.curves)
