"""`joulewise import csv|kernel-tuner|perseus`: sweeps that others measured; and of profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.commands.importing_tegrastats import import_tegrastats
from joulewise.cli.commands.importing_traces import import_ncu, import_timeline
from joulewise.cli.options import (
    DEFAULT_SWEEP,
    AsJson,
    EnergyColumn,
    EnergyStdColumn,
    FailOn,
    KernelColumn,
    MemClockColumn,
    PowerColumn,
    PowerLimitColumn,
    SmClockColumn,
    SweepOut,
    TimeColumn,
    TimeStdColumn,
    WindowCountColumn,
)
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.render import counted, print_caveats, say, seconds
from joulewise.cli.values import caveat_kinds
from joulewise.domain.plan import Status
from joulewise.domain.sweep import Sweep
from joulewise.store.importers.traces.file_kinds import Profiler
from joulewise.workflow.importing import (
    CsvColumns,
    import_csv_to_file,
    import_kernel_tuner_to_file,
    import_perseus_to_file,
)

app = typer.Typer(
    help="Turn a table that others measured into a sweep, or a profile into a workload.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("kineto")(
    import_timeline(Profiler.KINETO, "a trace of PyTorch's profiler (.json, .json.gz)")
)
app.command("nsys")(
    import_timeline(Profiler.NSYS, "an Nsight Systems export (SQLite, or CSV of its stats)")
)
app.command("ncu")(import_ncu)
app.command("tegrastats")(import_tegrastats)


def _span(sweep: Sweep) -> str:
    """Least and greatest time: a wrong unit shows here."""
    times = sweep.time_s[sweep.is_present]
    return f"{seconds(float(times.min()))} to {seconds(float(times.max()))}"


def _finish(sweep: Sweep, out: Path, *, as_json: bool, fail_on: str | None) -> None:
    wanted = caveat_kinds(fail_on)

    def render(console: Console) -> None:
        print_caveats(console, sweep.caveats)
        say(
            console,
            f"Imported {counted(len(sweep.kernels), 'kernel')} at "
            f"{counted(len(sweep.points), 'operating point')}; times {_span(sweep)} per launch; "
            f"written to {out}.",
        )

    outcome = Outcome(
        status=Status.FEASIBLE,
        render=render,
        caveats=sweep.caveats,
        extra={
            "sweep": str(out),
            "kernel_count": len(sweep.kernels),
            "point_count": len(sweep.points),
        },
    )
    finish(outcome, as_json=as_json, fail_on=wanted)


@app.command("csv")
def import_csv(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    kernel: KernelColumn,
    time: TimeColumn,
    sm_clock: SmClockColumn = None,
    mem_clock: MemClockColumn = None,
    power_limit: PowerLimitColumn = None,
    energy: EnergyColumn = None,
    power: PowerColumn = None,
    time_std: TimeStdColumn = None,
    energy_std: EnergyStdColumn = None,
    window_count: WindowCountColumn = None,
    out: SweepOut = DEFAULT_SWEEP,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Import any CSV by naming its columns, with units after a colon: --time run_time:ms."""
    columns = CsvColumns(
        kernel=kernel,
        time=time,
        sm_clock=sm_clock,
        mem_clock=mem_clock,
        power_limit=power_limit,
        energy=energy,
        power=power,
        time_std=time_std,
        energy_std=energy_std,
        window_count=window_count,
    )
    _finish(import_csv_to_file(file, columns, out), out, as_json=as_json, fail_on=fail_on)


@app.command("kernel-tuner")
def import_kernel_tuner(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", show_default=False)],
    out: SweepOut = DEFAULT_SWEEP,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Import Kernel Tuner caches, also unclosed ones."""
    _finish(import_kernel_tuner_to_file(files, out), out, as_json=as_json, fail_on=fail_on)


@app.command("perseus")
def import_perseus(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    out: SweepOut = DEFAULT_SWEEP,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Import a Perseus profile: stage,instruction,frequency,time,energy."""
    _finish(import_perseus_to_file(file, out), out, as_json=as_json, fail_on=fail_on)
