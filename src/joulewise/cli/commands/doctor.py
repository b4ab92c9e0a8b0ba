"""`joulewise doctor`: what can be read and set here, what cannot and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson
from joulewise.cli.outcome import EXIT_ERROR, Outcome, error_document, print_json, stdout_console
from joulewise.cli.render import print_line, say, table
from joulewise.domain.errors import DeviceError
from joulewise.domain.plan import Status
from joulewise.workflow.doctor import examine
from joulewise.workflow.findings import Availability, Diagnosis, Finding

DoctorDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="One GPU, e.g. nvml:0 or jetson. Default: every GPU of the NVIDIA driver, and the "
        "board's own.",
    ),
]


def doctor(device: DoctorDevice = None, as_json: AsJson = False) -> None:
    """Say what can be read and set here, what cannot and why, and what to do.

    Nothing is set, and no rights are needed. Ends with 0 when a GPU can be read.
    """
    diagnosis = examine(device)
    if as_json:
        print_json(document(diagnosis))
    else:
        render(stdout_console(), diagnosis)
    if not diagnosis.can_read:
        raise typer.Exit(EXIT_ERROR)


def document(diagnosis: Diagnosis) -> dict[str, object]:
    """The one object that `--json` prints: a result, or an error where nothing can be read."""
    found: Mapping[str, object] = {
        "verdict": diagnosis.verdict,
        "can_read": diagnosis.can_read,
        "can_set": diagnosis.can_set,
        "machine": diagnosis.machine,
        "gpus": diagnosis.gpus,
    }
    if not diagnosis.can_read:
        return {**error_document(DeviceError(diagnosis.verdict, hint=diagnosis.hint)), **found}
    return Outcome(
        status=Status.FEASIBLE,
        render=lambda console: render(console, diagnosis),
        caveats=diagnosis.caveats,
        extra=found,
    ).document()


def render(console: Console, diagnosis: Diagnosis) -> None:
    """One table for the machine, one for each GPU, and the verdict."""
    if diagnosis.machine:
        _print_findings(console, "This machine", diagnosis.machine)
    for gpu in diagnosis.gpus:
        console.print()
        _print_findings(console, f"{gpu.name}, {gpu.device}", gpu.findings)
    say(console, diagnosis.verdict)
    print_line(console, diagnosis.hint)


def _print_findings(console: Console, title: str, findings: Iterable[Finding]) -> None:
    grid = table(title, ("what", "state", "found"), _rows(findings), left_count=3)
    for column in grid.columns[:2]:
        column.no_wrap = True
    console.print(grid)


def _rows(findings: Iterable[Finding]) -> Iterator[tuple[str, str, str]]:
    """Why and what to do stand below what was found, where something is amiss."""
    for finding in findings:
        yield finding.subject, finding.status.value, finding.seen
        if finding.status is not Availability.OK:
            said = " ".join(line for line in (finding.why, finding.helps) if line is not None)
            if said:
                yield "", "", said
