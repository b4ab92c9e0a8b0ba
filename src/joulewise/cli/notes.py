"""Notes on stderr that people should read before something takes long."""

from __future__ import annotations

import typer

from joulewise.cli.outcome import stderr_console
from joulewise.cli.render import visible
from joulewise.workflow.passed_over import passed_over
from joulewise.workflow.preparing import Announce, announce_nothing


def note_default_device(context: typer.Context, device: str, *, as_json: bool) -> None:
    """Say once that a GPU is here, where a virtual one is taken because none was named."""
    source = context.get_parameter_source("device")
    if as_json or source is None or source.name != "DEFAULT":
        return
    gpu = passed_over()
    if gpu is not None:
        selector, _, name = gpu.partition(" ")
        _note(
            f"no --device was given, so {device} is simulated, although {name} is here: "
            f"--device {selector}"
        )


def announcer(*, as_json: bool) -> Announce:
    """Prints what a stage has to say before it begins; programs are told nothing."""
    return announce_nothing if as_json else _note


def _note(sentence: str) -> None:
    stderr_console().print(visible(f"note: {sentence}"), markup=False)
