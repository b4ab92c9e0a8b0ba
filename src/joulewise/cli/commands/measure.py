"""`joulewise measure`: a sweep, kernel by kernel and point by point."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.notes import announcer, note_default_device
from joulewise.cli.options import (
    DEFAULT_DEVICE,
    DEFAULT_SWEEP,
    DEFAULT_WORKLOAD,
    AsJson,
    Device,
    FailOn,
    MemClocks,
    PowerLimits,
    SmClocks,
    SweepOut,
    Workload,
)
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import print_caveats, say
from joulewise.cli.sentences import sweep_sentence
from joulewise.cli.values import caveat_kinds, clock_list, power_limit_list
from joulewise.cli.verdicts import point_document
from joulewise.domain.plan import Status
from joulewise.domain.sweep import Sweep
from joulewise.integrations.torch_runner import TorchRunners
from joulewise.workflow.measuring import MeasureJob, doubts_of_cells, measure_to_file


def measure(
    context: typer.Context,
    device: Device = DEFAULT_DEVICE,
    workload: Workload = DEFAULT_WORKLOAD,
    out: SweepOut = DEFAULT_SWEEP,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a sweep that was interrupted.")
    ] = False,
    sm_clocks: SmClocks = None,
    mem_clocks: MemClocks = None,
    power_limits: PowerLimits = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Measure time and energy of each kernel at each operating point."""
    wanted = caveat_kinds(fail_on)
    note_default_device(context, device, as_json=as_json)
    job = MeasureJob(
        device=device,
        workload=workload,
        sm_clocks_mhz=clock_list(sm_clocks, field="sm-clocks"),
        mem_clocks_mhz=clock_list(mem_clocks, field="mem-clocks"),
        power_limits=power_limit_list(power_limits),
        out=out,
        is_resumed=resume,
    )
    with progress_bars(is_shown=not as_json) as progress:
        sweep = measure_to_file(
            job, progress, hardware=TorchRunners(), announce=announcer(as_json=as_json)
        )
    caveats = doubts_of_cells(sweep)

    def render(console: Console) -> None:
        print_caveats(console, caveats)
        say(console, sweep_sentence(sweep, out))

    outcome = Outcome(
        status=Status.FEASIBLE,
        render=render,
        caveats=caveats,
        extra={"sweep": str(out), **_document(sweep)},
    )
    finish(outcome, as_json=as_json, fail_on=wanted)


def _document(sweep: Sweep) -> dict[str, object]:
    """What was measured, and on what."""
    source = sweep.source
    return {
        "device": source.device,
        "device_name": source.device_name,
        "is_simulated": source.is_simulated,
        "workload": source.workload,
        "kernel_count": len(sweep.kernels),
        "point_count": len(sweep.points),
        "points": [point_document(point) for point in sweep.points],
        "window_count": None if sweep.window_count is None else int(sweep.window_count.sum()),
    }
