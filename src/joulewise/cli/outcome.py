"""What a command has to say, as one JSON object or as text, and its exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TextIO

import msgspec
import typer
from rich.console import Console

from joulewise.domain.caveats import Caveat, CaveatKind, by_gravity
from joulewise.domain.errors import InfeasibleBudget, JoulewiseError
from joulewise.domain.plan import Status

SCHEMA_VERSION = 1
EXIT_DONE, EXIT_ERROR, EXIT_CAVEAT = 0, 1, 2

# Written straight to the stream at hand, so that a test's or a pipe's stdout is honoured.
_WIDTH_WHEN_PIPED_COUNT = 100


def stdout_console() -> Console:
    """Tables and verdicts go here; plain text when piped."""
    return Console(
        file=sys.stdout,
        highlight=False,
        width=None if sys.stdout.isatty() or _is_width_given() else _WIDTH_WHEN_PIPED_COUNT,
    )


def _is_width_given() -> bool:
    """Whether COLUMNS says how wide output shall be; rich goes by it."""
    return os.environ.get("COLUMNS", "").isdecimal()


def stderr_console() -> Console:
    """Progress, notes and errors go here."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one command: the fields every `--json` object has, and how it reads."""

    status: Status
    render: Callable[[Console], None]
    slowdown_ratio: float | None = None
    saving_ratio: float | None = None
    energy_j: float | None = None
    time_s: float | None = None
    bound_gap_ratio: float | None = None
    caveats: tuple[Caveat, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """The one object that `--json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "slowdown_ratio": self.slowdown_ratio,
            "saving_ratio": self.saving_ratio,
            "energy_j": self.energy_j,
            "time_s": self.time_s,
            "bound_gap_ratio": self.bound_gap_ratio,
            "caveats": [caveat_document(caveat) for caveat in by_gravity(self.caveats)],
            **self.extra,
        }


def caveat_document(caveat: Caveat) -> dict[str, str]:
    """A caveat as machines read it."""
    return {
        "kind": caveat.kind.value,
        "seen": caveat.seen,
        "why": caveat.why,
        "helps": caveat.helps,
    }


def error_document(error: JoulewiseError) -> dict[str, object]:
    """The one object that `--json` prints when nothing came out."""
    document: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "status": Status.ERROR,
        "message": error.message,
        "file": error.file,
        "row": error.row,
        "field": error.field,
        "hint": error.hint,
        "notes": list(notes_of(error)),
    }
    if isinstance(error, InfeasibleBudget):
        document["status"] = Status.INFEASIBLE
        document["least_slowdown_ratio"] = error.least_slowdown_ratio
    return document


def notes_of(error: BaseException) -> tuple[str, ...]:
    """What was added to an error on its way: sentences on what it left behind."""
    return tuple(getattr(error, "__notes__", ()))


def print_json(document: Mapping[str, object], stream: TextIO | None = None) -> None:
    """Write one line of JSON and nothing else to stdout, or to another stream.

    Names that are not Unicode (files on Unix) and terminals that do not take UTF-8 get the
    escapes that JSON has for them.
    """
    stream = sys.stdout if stream is None else stream
    try:
        text = msgspec.json.encode(document).decode()
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(document))
    stream.write(text + "\n")


def finish(outcome: Outcome, *, as_json: bool, fail_on: frozenset[CaveatKind]) -> None:
    """Print the outcome and end: with 2 only for a caveat that was asked for."""
    if as_json:
        print_json(outcome.document())
    else:
        outcome.render(stdout_console())
    if any(caveat.kind in fail_on for caveat in outcome.caveats):
        raise typer.Exit(EXIT_CAVEAT)
