"""What is told about a command of the user's: beside its own output, never in between.

Its standard output belongs to it alone, so tables, notes and the JSON object go to standard
error, where the object is the last line; a file gets the object by itself.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from joulewise.cli.outcome import (
    EXIT_ERROR,
    Outcome,
    error_document,
    notes_of,
    print_json,
    stderr_console,
)
from joulewise.cli.render import visible
from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import JoulewiseError
from joulewise.store.atomic import require_place, write_atomically

OWN_ARGUMENTS = {"allow_interspersed_args": False}
"""Options end where the user's command begins, with two dashes before it or without."""

UserCommand = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- COMMAND…", help="The command and its arguments.", show_default=False
    ),
]
JsonAtEnd = Annotated[
    bool,
    typer.Option(
        "--json",
        envvar="JOULEWISE_JSON",
        help="End standard error with one JSON object, in place of the summary.",
    ),
]
ResultOut = Annotated[
    Path | None,
    typer.Option("--out", help="Write the result as a JSON object to this file, too."),
]


def require_out(out: Path | None) -> None:
    """See that the result can be written before the command runs. Raises InputError."""
    if out is not None:
        require_place(out)


def notice(caveat: Caveat) -> None:
    """Tell at once, while the command runs, what is not as asked."""
    line = f"joulewise: {caveat.kind.value}: {caveat.seen}. {caveat.helps}"
    stderr_console().print(visible(line), markup=False)


def end(
    outcome: Outcome,
    code: int,
    *,
    trouble: JoulewiseError | None,
    as_json: bool,
    out: Path | None,
) -> None:
    """Tell what came of a command, and end with its exit code.

    Where something of ours went wrong after it had begun, that is told as well, and the exit
    code is 1 where its own is 0.
    """
    document = outcome.document()
    if trouble is not None:
        document = {**document, **error_document(trouble)}
    if as_json:
        print_json(document, sys.stderr)
    else:
        console = stderr_console()
        console.soft_wrap = False
        outcome.render(console)
        if trouble is not None:
            print_error(trouble)
    if out is not None:
        write_atomically(out, msgspec.json.encode(document) + b"\n")
    raise typer.Exit(code or (EXIT_ERROR if trouble is not None else 0))


def print_error(error: JoulewiseError) -> None:
    """One sentence, its hint and its notes on standard error."""
    console = stderr_console()
    console.print(visible(f"error: {error}"), markup=False)
    if error.hint:
        console.print(visible(f"hint: {error.hint}"), markup=False)
    for note in notes_of(error):
        console.print(visible(f"note: {note}"), markup=False)


def command_text(arguments: Sequence[str]) -> str:
    """As people would type it, and short."""
    text = shlex.join(arguments)
    return text if len(text) <= _LONGEST_COUNT else f"{text[: _LONGEST_COUNT - 1]}…"


_LONGEST_COUNT = 60
