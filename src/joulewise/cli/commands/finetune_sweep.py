"""`joulewise finetune sweep` and `curves`: energy and time of training steps against the clock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from joulewise.cli.beside import UserCommand, end, tell
from joulewise.cli.finetune_sweep_render import sweep_outcome
from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import EXIT_CAVEAT, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.values import caveat_kinds, clock_list
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.ports import Progress
from joulewise.workflow.finetune_reporting import (
    GridSweep,
    JobsAsked,
    ProgramSweep,
    report_file,
    sweep_grid,
    sweep_program,
)
from joulewise.workflow.finetune_sweeping_command import CommandSweepSettings

DEFAULT_SWEEP_DEVICE = "virtual:agx-orin"
DEFAULT_CURVES = Path("curves.json")
MOST_COUNT = 100_000

SweepDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="Device string. Built-in jobs run on virtual devices, by default virtual:agx-orin; a "
        "command on hardware, as in jetson, by default the only GPU here.",
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
        help="GPU clocks to pin. Default: all that the device lists. The governor and the highest "
        "clock are always measured, too.",
    ),
]
SweepMemClock = Annotated[
    str | None,
    typer.Option(
        "--mem-clock", metavar="MHZ", help="Memory clock to lock meanwhile. Default: the driver's."
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        metavar="N",
        help="How often every clock is measured. Default: once, and 3 times with a command.",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        metavar="N",
        help="Training steps of the command in one block, 10 by default; with --whole-runs in "
        "one run, 100 by default.",
    ),
]
WholeRuns = Annotated[
    bool,
    typer.Option(
        "--whole-runs", help="Start the command anew at every clock, instead of taking turns."
    ),
]
JobName = Annotated[
    str | None,
    typer.Option("--name", help="Name of the command's job. Default: that of its program."),
]
JobConfig = Annotated[
    Path | None,
    typer.Option(
        "--config", help="config.json of the model that the command trains; policies go by it."
    ),
]
AvgSeqLen = Annotated[
    float | None,
    typer.Option(
        "--avg-seq-len", metavar="TOKENS", help="Mean tokens of a training example, unpadded."
    ),
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
    command: UserCommand = None,
    device: SweepDevice = None,
    jobs: Jobs = None,
    models: Models = None,
    tasks: Tasks = None,
    sm_clocks: SweepSmClocks = None,
    mem_clock: SweepMemClock = None,
    rounds: Rounds = None,
    window: Window = None,
    steps: Steps = None,
    whole_runs: WholeRuns = False,
    name: JobName = None,
    config: JobConfig = None,
    avg_seq_len: AvgSeqLen = None,
    out: CurvesOut = DEFAULT_CURVES,
    html: PageOut = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Measure time and energy of a training step at every GPU clock and under the governor.

    Without a command built-in jobs run on a virtual device. A command has to mark its steps; its
    output stays its own, and what is told goes to standard error.
    """
    wanted = caveat_kinds(fail_on)
    clocks = pinned_clocks(sm_clocks, "sm-clocks")
    if command:
        of_grid = {"jobs": jobs, "models": models, "tasks": tasks, "mem-clock": mem_clock}
        _refuse({**of_grid, "window": window}, "it is about built-in jobs, not about a command")
        program = ProgramSweep(
            device=device,
            arguments=command,
            settings=_settings(clocks, rounds, steps, is_whole_runs=whole_runs),
            name=name,
            config=config,
            mean_sequence_count=avg_seq_len,
            out=out,
            page=html,
        )
        _sweep_program(program, wanted, as_json=as_json)
        return
    of_command = {"steps": steps, "whole-runs": whole_runs or None, "name": name, "config": config}
    _refuse({**of_command, "avg-seq-len": avg_seq_len}, "it is about a command; none was given")
    grid = GridSweep(
        device=device or DEFAULT_SWEEP_DEVICE,
        jobs=_jobs(jobs, models, tasks),
        sm_clocks_mhz=clocks,
        mem_clock_mhz=one_clock(mem_clock, "mem-clock"),
        round_count=1 if rounds is None else rounds,
        window_s=None if window is None else span_s(window, "window"),
        out=out,
        page=html,
    )
    _sweep_grid(grid, wanted, as_json=as_json)


def _jobs(jobs: str | None, models: str | None, tasks: str | None) -> JobsAsked:
    return JobsAsked(
        names=names(jobs, "jobs"), models=names(models, "models"), tasks=names(tasks, "tasks")
    )


def _sweep_grid(grid: GridSweep, wanted: frozenset[CaveatKind], *, as_json: bool) -> None:
    with progress_bars(is_shown=not as_json) as progress:
        report = sweep_grid(grid, progress)
    finish(sweep_outcome(report, grid.out, grid.page), as_json=as_json, fail_on=wanted)


def _sweep_program(program: ProgramSweep, wanted: frozenset[CaveatKind], *, as_json: bool) -> None:
    """Sweep a command, tell what came of it beside its output, and end with its exit code."""
    report, code = sweep_program(program, tell, _told_in_tenths())
    if not code and any(caveat.kind in wanted for caveat in report.caveats):
        code = EXIT_CAVEAT
    outcome = sweep_outcome(report, program.out, program.page)
    end(outcome, code, trouble=None, as_json=as_json, out=None)


def _told_in_tenths() -> Progress:
    """Lines beside the output of a command, which a bar would break."""
    told: set[int] = set()

    def report(what: str, done_count: int, total_count: int) -> None:
        tenth = 10 * done_count // max(total_count, 1)
        if tenth not in told:
            told.add(tenth)
            tell(f"{what}: {done_count} of {total_count}")

    return report


def _settings(
    clocks: tuple[int, ...] | None, rounds: int | None, steps: int | None, *, is_whole_runs: bool
) -> CommandSweepSettings:
    """As asked, and as usual where nothing was."""
    usual = CommandSweepSettings(sm_clocks_mhz=clocks, is_whole_runs=is_whole_runs)
    for count, field in ((rounds, "rounds"), (steps, "steps")):
        if count is not None and not 1 <= count <= MOST_COUNT:
            raise InputError(
                f"{count} {field} cannot be measured",
                field=field,
                hint=f"Write a whole number from 1 to {MOST_COUNT}.",
            )
    if is_whole_runs:
        if rounds is not None:
            raise InputError(
                "whole runs are one a clock, and have no rounds",
                field="rounds",
                hint="Leave --rounds out, or --whole-runs.",
            )
        return usual if steps is None else replace(usual, run_step_count=steps)
    return replace(
        usual,
        round_count=usual.round_count if rounds is None else rounds,
        block_step_count=usual.block_step_count if steps is None else steps,
    )


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse options that go with the other kind of sweep. Raises InputError."""
    given = next((name for name, value in options.items() if value is not None), None)
    if given is not None:
        raise InputError(
            f"--{given} does not fit here: {why}",
            field=given,
            hint="Built-in jobs take no command; a command stands behind --: -- python train.py",
        )


def curves(
    file: CurvesFile,
    html: PageOut = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Show what measured curves come to: best clock, saving, and the clocks that do as well."""
    wanted = caveat_kinds(fail_on)
    finish(sweep_outcome(report_file(file, html), file, html), as_json=as_json, fail_on=wanted)


def names(text: str | None, field: str) -> tuple[str, ...]:
    """`a, b` as ("a", "b"); nothing for `None`. Raises InputError for text without a name."""
    if text is None:
        return ()
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise InputError("there is no name in it", field=field, hint="Write names between commas.")
    return found


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
