"""`joulewise tune`: measure, plan, re-measure, verify and report in one go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.commands.plan import request_of
from joulewise.cli.options import (
    DEFAULT_DEVICE,
    DEFAULT_WORKLOAD,
    AsJson,
    Device,
    FailOn,
    MaxSlowdown,
    MemClocks,
    Pairs,
    SmClocks,
    Workload,
)
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import print_caveats, say, table
from joulewise.cli.sentences import comparison_rows, tune_sentence
from joulewise.cli.values import caveat_kinds, clock_list
from joulewise.domain.plan import Granularity, Objective, Scope
from joulewise.workflow.tuning import TuneJob, TuneResult, tune_to_folder


def tune(
    device: Device = DEFAULT_DEVICE,
    workload: Workload = DEFAULT_WORKLOAD,
    max_slowdown: MaxSlowdown = None,
    granularity: Annotated[
        Granularity,
        typer.Option(
            "--granularity", envvar="JOULEWISE_GRANULARITY", help="What shares one point."
        ),
    ] = Granularity.KERNEL,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", envvar="JOULEWISE_OUT", help="Run folder. Default: runs/ and a time stamp."
        ),
    ] = None,
    sm_clocks: SmClocks = None,
    mem_clocks: MemClocks = None,
    pairs: Pairs = 10,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Find, prove and report better clocks for a workload on a device."""
    wanted = caveat_kinds(fail_on)
    job = TuneJob(
        device=device,
        workload=workload,
        request=request_of(Objective.ENERGY, granularity, Scope.GLOBAL, max_slowdown),
        sm_clocks_mhz=clock_list(sm_clocks, field="sm-clocks"),
        mem_clocks_mhz=clock_list(mem_clocks, field="mem-clocks"),
        pair_count=pairs,
        out=out,
    )
    with progress_bars(is_shown=not as_json) as progress:
        result = tune_to_folder(job, progress)

    def render(console: Console) -> None:
        columns = ("setting", "time", "energy", "slowdown", "saving")
        console.print(table(None, columns, comparison_rows(result.comparison)))
        print_caveats(console, result.caveats)
        say(console, tune_sentence(result.plan, result.verification, result.comparison))
        console.print(f"Report: {result.report}", markup=False)

    finish(_outcome(result, render), as_json=as_json, fail_on=wanted)


def _outcome(result: TuneResult, render: Callable[[Console], None]) -> Outcome:
    """Verified figures where the plain names stand; the promise beside them."""
    seen = result.verification
    plan = result.plan
    return Outcome(
        status=plan.status,
        render=render,
        slowdown_ratio=seen.slowdown_ratio,
        saving_ratio=seen.saving_ratio,
        energy_j=plan.energy_j,
        time_s=plan.time_s,
        bound_gap_ratio=plan.bound_gap_ratio,
        caveats=result.caveats,
        extra={
            "promised_slowdown_ratio": plan.slowdown_ratio,
            "promised_saving_ratio": plan.saving_ratio,
            "slowdown_interval": seen.slowdown_interval,
            "saving_interval": seen.saving_interval,
            "is_within_budget": seen.is_within_budget,
            "guard_band_ratio": plan.guard_band_ratio,
            "run_dir": str(result.folder),
        },
    )
