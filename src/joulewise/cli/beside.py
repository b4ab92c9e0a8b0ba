"""What is told about a command of the user's: beside its own output, never in between.

Its standard output belongs to it alone, so tables, notes and the JSON object go to standard
error, where the object is the last line; a file gets the object by itself.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

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
    tell(f"{caveat.kind.value}: {caveat.seen}. {caveat.helps}")


def tell(sentence: str) -> None:
    """Tell at once, while the command runs; where nobody can be told, it goes on all the same."""
    line = visible(f"joulewise: {sentence}")
    with suppress(OSError, SystemExit):
        stderr_console().print(line, markup=False)


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
    code is 1 where its own is 0. The file comes first, so that it is there even where nothing
    can be said.
    """
    troubles = [] if trouble is None else [trouble]
    document = _with_trouble(outcome, troubles)
    if out is not None:
        try:
            write_atomically(out, _line(document))
        except JoulewiseError as error:
            troubles.append(error)
            document = _with_trouble(outcome, troubles)
    is_told = _as_far_as_it_goes(lambda: _tell_all(outcome, document, troubles, as_json=as_json))
    is_fine = is_told and not troubles
    raise typer.Exit(code or (0 if is_fine else EXIT_ERROR))


def _with_trouble(outcome: Outcome, troubles: Sequence[JoulewiseError]) -> dict[str, object]:
    """The result with the first of what went wrong; the others are notes of it."""
    document = outcome.document()
    if not troubles:
        return document
    first, *others = troubles
    said = error_document(first)
    said["notes"] = [*notes_of(first), *(str(other) for other in others)]
    return {**document, **said}


def _line(document: dict[str, object]) -> bytes:
    """One line of JSON; words of a command that are not Unicode get escapes."""
    line = io.StringIO()
    print_json(document, line)
    return line.getvalue().encode()


def _tell_all(
    outcome: Outcome,
    document: dict[str, object],
    troubles: Sequence[JoulewiseError],
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json(document, sys.stderr)
        sys.stderr.flush()
        return
    console = stderr_console()
    console.soft_wrap = False
    outcome.render(console)
    for trouble in troubles:
        print_error(trouble)


def _as_far_as_it_goes(say: Callable[[], None]) -> bool:
    """Say something on standard error; whether that worked: it may be full, or nobody reads it.

    What is left in its buffer then goes nowhere, for it would spoil the exit code.
    """
    try:
        say()
    except (OSError, SystemExit):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        return False
    return True


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
