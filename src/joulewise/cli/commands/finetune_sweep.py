"""`joulewise finetune sweep` and `curves`: energy and time of training steps against the clock."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from joulewise.cli.finetune_sweep_render import sweep_outcome
from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.values import caveat_kinds, clock_list
from joulewise.domain.errors import InputError
from joulewise.workflow.finetune_reporting import GridSweep, JobsAsked, report_file, sweep_grid

DEFAULT_SWEEP_DEVICE = "virtual:agx-orin"
DEFAULT_CURVES = Path("curves.json")

SweepDevice = Annotated[
    str,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="Device string. The built-in jobs run on virtual devices; hardware, as in jetson, "
        "needs a training command.",
    ),
]
Jobs = Annotated[
    str | None,
    typer.Option(
        "--jobs",
        metavar="MODEL/TASK,…",
        help="Built-in jobs, as in bert-base/sst2, or training (27), unseen (54), all. "
        "Default: training.",
    ),
]
Models = Annotated[
    str | None, typer.Option("--models", metavar="MODEL,…", help="Every task on these models.")
]
Tasks = Annotated[
    str | None, typer.Option("--tasks", metavar="TASK,…", help="Every model on these tasks.")
]
SweepSmClocks = Annotated[
    str | None,
    typer.Option(
        "--sm-clocks",
        metavar="MHZ,…",
        help="GPU clocks to pin. Default: all that the device lists. The governor is always "
        "measured, too.",
    ),
]
SweepMemClock = Annotated[
    str | None,
    typer.Option(
        "--mem-clock", metavar="MHZ", help="Memory clock to lock meanwhile. Default: the driver's."
    ),
]
Rounds = Annotated[
    int, typer.Option("--rounds", metavar="N", help="How often every clock is measured.")
]
Window = Annotated[
    str | None,
    typer.Option("--window", metavar="S", help="Seconds of one window, three of which make a run."),
]
CurvesOut = Annotated[
    Path, typer.Option("--out", envvar="JOULEWISE_CURVES", help="Where the curves are written.")
]
PageOut = Annotated[
    Path | None, typer.Option("--html", help="Write the figure, an HTML page, here.")
]
CurvesFile = Annotated[
    Path, typer.Argument(metavar="CURVES", help="A curves.json.", show_default=False)
]


def sweep(
    device: SweepDevice = DEFAULT_SWEEP_DEVICE,
    jobs: Jobs = None,
    models: Models = None,
    tasks: Tasks = None,
    sm_clocks: SweepSmClocks = None,
    mem_clock: SweepMemClock = None,
    rounds: Rounds = 1,
    window: Window = None,
    out: CurvesOut = DEFAULT_CURVES,
    html: PageOut = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Measure time and energy of a training step at every GPU clock and under the governor."""
    wanted = caveat_kinds(fail_on)
    asked = GridSweep(
        device=device,
        jobs=JobsAsked(names=names(jobs), models=names(models), tasks=names(tasks)),
        sm_clocks_mhz=pinned_clocks(sm_clocks, "sm-clocks"),
        mem_clock_mhz=one_clock(mem_clock, "mem-clock"),
        round_count=rounds,
        window_s=None if window is None else span_s(window, "window"),
        out=out,
        page=html,
    )
    with progress_bars(is_shown=not as_json) as progress:
        report = sweep_grid(asked, progress)
    finish(sweep_outcome(report, out, html), as_json=as_json, fail_on=wanted)


def curves(
    file: CurvesFile,
    html: PageOut = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Show what measured curves come to: best clock, saving, and the clocks that do as well."""
    wanted = caveat_kinds(fail_on)
    finish(sweep_outcome(report_file(file, html), file, html), as_json=as_json, fail_on=wanted)


def names(text: str | None) -> tuple[str, ...]:
    """`a, b` as ("a", "b"); nothing for `None`."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def pinned_clocks(text: str | None, field: str) -> tuple[int, ...] | None:
    """`510,612` in MHz. Raises InputError for what is no clock, or auto."""
    clocks = clock_list(text, field=field)
    if clocks is None:
        return None
    known = tuple(clock for clock in clocks if clock is not None)
    if len(known) < len(clocks):
        raise InputError(
            "auto is no clock that can be pinned; the governor is always measured, too",
            field=field,
            hint="Name clocks alone, as in 510,612,714.",
        )
    return known


def one_clock(text: str | None, field: str) -> int | None:
    """`2133` in MHz. Raises InputError for what is no clock, or more than one."""
    clocks = pinned_clocks(text, field)
    if clocks is None:
        return None
    if len(clocks) != 1:
        raise InputError(f"{text!r} is more than one clock", field=field, hint="Write one of them.")
    return clocks[0]


def span_s(text: str, field: str) -> float:
    """`5` or `5s` in seconds, above 0. Raises InputError."""
    body = text.strip().removesuffix("s").strip()
    try:
        value = float(body)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf or "_" in body:
        raise InputError(f"{text!r} is no time in seconds", field=field, hint="Write 5 or 2.5.")
    return value
