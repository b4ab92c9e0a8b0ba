"""`joulewise restore`: give back what dead holders left set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson
from joulewise.cli.outcome import EXIT_ERROR, Outcome, error_document, print_json, stdout_console
from joulewise.cli.render import counted, print_line, say
from joulewise.control.restoring import Outcome as End
from joulewise.control.restoring import Restored
from joulewise.domain.errors import DeviceError, NotPermitted
from joulewise.domain.plan import Status
from joulewise.workflow.lease_findings import knob_names
from joulewise.workflow.restoring import hidden_state_dir, where
from joulewise.workflow.restoring import restore as give_back

RestoreDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="One GPU, as in nvml:0 or jetson. Default: every GPU that a dead holder left set.",
    ),
]


def restore(device: RestoreDevice = None, as_json: AsJson = False) -> None:
    """Give back clocks and power limits that dead holders left set.

    What a living process holds is named and left alone; what a guard process is giving back is
    waited for, for some seconds. Doing it again changes nothing. It needs the rights that setting
    needs; without them nothing changes, and the journals stay. A journal that cannot be read has
    the clocks given back, and what it leaves open is told once. Ends with 1 where something is
    not given back, or this account cannot see what root or joulewised left.
    """
    done = give_back(device)
    hidden = hidden_state_dir()
    failed = [one for one in done if one.outcome in {End.NOT_GIVEN_BACK, End.UNSEEN}]
    if as_json:
        print_json(_document(done, failed, hidden))
    else:
        render(stdout_console(), done, hidden)
    if failed or hidden is not None:
        raise typer.Exit(EXIT_ERROR)


def render(console: Console, done: Sequence[Restored], hidden: Path | None = None) -> None:
    """One line for each GPU that had a journal, what to do where it failed, and one sentence.

    `hidden` is a folder of journals into which this account may not look.
    """
    for one in done:
        print_line(console, _line(one))
        print_line(console, one.hint)
    say(console, sentence(done, hidden))


def sentence(done: Sequence[Restored], hidden: Path | None = None) -> str:
    """How much was given back, what was left alone, and where was looked."""
    held_count = sum(one.outcome is End.BUSY for one in done)
    left = [one for one in done if one.outcome not in {End.LEFT_OPEN, End.BUSY}]
    given_back_count = sum(one.outcome is End.GIVEN_BACK for one in left)
    if left:
        gpus = counted(len(left), "GPU")
        said = f"Given back on {given_back_count} of {gpus} left set, as {where()} says."
    else:
        of_whom = "" if hidden is None else " of this account"
        what = "No clock" if any(one.outcome is End.LEFT_OPEN for one in done) else "Nothing"
        said = f"{what}{of_whom} was left set, as {where()} says."
    if held_count:
        are = "is" if held_count == 1 else "are"
        said += f" {counted(held_count, 'GPU')} {are} held, and left alone."
    return said if hidden is None else f"{said} {_unseen(hidden)} {_AS_ROOT}"


def _unseen(hidden: Path) -> str:
    return f"What root or joulewised left cannot be seen by this account ({hidden})."


_AS_ROOT = "As root: sudo joulewise restore."


def _line(one: Restored) -> str:
    name = one.uuid if one.entry is None else f"{one.entry.device_name} ({one.uuid})"
    touched = "clocks" if one.entry is None else knob_names(one.entry.touched) or "nothing"
    holder = "an earlier process" if one.entry is None else one.entry.holder
    if one.outcome is End.LEFT_OPEN:
        return f"{name}: {one.why}"
    if one.outcome is End.GIVEN_BACK:
        damaged = "" if one.why is None else f". {one.why}"
        return f"{name}: {touched} given back, left set by {holder}{damaged}"
    why = "" if one.why is None else f": {one.why}"
    alone = {End.BUSY: "left alone", End.UNSEEN: "not looked at"}
    what = alone.get(one.outcome, f"{touched} not given back")
    return f"{name}: {what}{why}"


def _document(
    done: Sequence[Restored], failed: Sequence[Restored], hidden: Path | None
) -> dict[str, object]:
    found: dict[str, object] = {"restored": [_fields(one) for one in done]}
    if failed:
        first = DeviceError(_line(failed[0]), hint=failed[0].hint)
        return {**error_document(first), **found}
    if hidden is not None:
        unseen = NotPermitted(_unseen(hidden).removesuffix("."), hint=_AS_ROOT)
        return {**error_document(unseen), **found}
    return Outcome(
        status=Status.FEASIBLE, render=lambda console: render(console, done), extra=found
    ).document()


def _fields(one: Restored) -> dict[str, object]:
    return {
        "gpu": one.uuid,
        "journal": str(one.journal),
        "outcome": one.outcome.value,
        "holder": None if one.entry is None else one.entry.holder,
        "touched": () if one.entry is None else one.entry.touched,
        "why": one.why,
        "hint": one.hint,
    }
