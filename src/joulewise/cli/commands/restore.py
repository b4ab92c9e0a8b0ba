"""`joulewise restore`: give back what dead holders left set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson
from joulewise.cli.outcome import EXIT_ERROR, Outcome, error_document, print_json, stdout_console
from joulewise.cli.render import print_line, say
from joulewise.control.restoring import Outcome as End
from joulewise.control.restoring import Restored
from joulewise.domain.errors import DeviceError
from joulewise.domain.plan import Status
from joulewise.workflow.lease_findings import knob_names
from joulewise.workflow.restoring import restore as give_back
from joulewise.workflow.restoring import where

RestoreDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="One GPU, as in nvml:0. Default: every GPU that a dead holder left set.",
    ),
]


def restore(device: RestoreDevice = None, as_json: AsJson = False) -> None:
    """Give back clocks and power limits that dead holders left set.

    What a living process holds is named and left alone; what a guard process is giving back is
    waited for, for some seconds. Doing it again changes nothing. It needs the rights that setting
    needs; without them nothing changes, and the journals stay. A journal that cannot be read has
    the clocks given back, and what it leaves open is told once.
    """
    done = give_back(device)
    failed = [one for one in done if one.outcome in {End.NOT_GIVEN_BACK, End.UNSEEN}]
    if as_json:
        print_json(_document(done, failed))
    else:
        render(stdout_console(), done)
    if failed:
        raise typer.Exit(EXIT_ERROR)


def render(console: Console, done: Sequence[Restored]) -> None:
    """One line for each GPU that had a journal, what to do where it failed, and one sentence."""
    for one in done:
        print_line(console, _line(one))
        print_line(console, one.hint)
    say(console, sentence(done))


def sentence(done: Sequence[Restored]) -> str:
    """How much was given back, and where was looked."""
    of_journals = [one for one in done if one.outcome is not End.LEFT_OPEN]
    if not of_journals:
        what = "Nothing" if not done else "No clock"
        return f"{what} was left set, as {where()} says."
    given_back_count = sum(one.outcome is End.GIVEN_BACK for one in of_journals)
    counted = f"{given_back_count} of {len(of_journals)}"
    return f"Given back on {counted} GPU(s) with a journal in {where()}."


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


def _document(done: Sequence[Restored], failed: Sequence[Restored]) -> dict[str, object]:
    found: dict[str, object] = {"restored": [_fields(one) for one in done]}
    if failed:
        first = DeviceError(_line(failed[0]), hint=failed[0].hint)
        return {**error_document(first), **found}
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
