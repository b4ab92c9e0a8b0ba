"""`joulewise tune`: measure, plan, re-measure, verify and report in one go."""

from __future__ import annotations

import typer
from rich.console import Console

from joulewise.cli.commands.plan import request_of
from joulewise.cli.notes import announcer, note_default_device
from joulewise.cli.options import (
    DEFAULT_DEVICE,
    DEFAULT_WORKLOAD,
    AsJson,
    Device,
    FailOn,
    Granularities,
    MaxRegions,
    MaxSlowdown,
    MemClocks,
    Pairs,
    PowerLimits,
    RunFolder,
    SmClocks,
    Transition,
    Workload,
)
from joulewise.cli.outcome import finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import print_caveats, print_line, print_wrapped, say, table
from joulewise.cli.sentences import comparison_rows, replay_line, tune_sentence
from joulewise.cli.values import caveat_kinds, clock_list, power_limit_list
from joulewise.cli.verdicts import plan_caveats, plan_outcome
from joulewise.domain.plan import Granularity, Objective, Scope
from joulewise.integrations.torch_runner import TorchRunners
from joulewise.report.efficiency import efficiency_line
from joulewise.workflow.reporting import PLAN_NAME
from joulewise.workflow.tuning import TuneJob, tune_to_folder


def tune(
    context: typer.Context,
    device: Device = DEFAULT_DEVICE,
    workload: Workload = DEFAULT_WORKLOAD,
    max_slowdown: MaxSlowdown = None,
    granularity: Granularities = Granularity.KERNEL,
    transition: Transition = None,
    max_regions: MaxRegions = None,
    out: RunFolder = None,
    sm_clocks: SmClocks = None,
    mem_clocks: MemClocks = None,
    power_limits: PowerLimits = None,
    pairs: Pairs = 10,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Find, prove and report better clocks for a workload on a device."""
    wanted = caveat_kinds(fail_on)
    note_default_device(context, device, as_json=as_json)
    job = TuneJob(
        device=device,
        workload=workload,
        request=request_of(Objective.ENERGY, granularity, Scope.GLOBAL, max_slowdown, max_regions),
        sm_clocks_mhz=clock_list(sm_clocks, field="sm-clocks"),
        mem_clocks_mhz=clock_list(mem_clocks, field="mem-clocks"),
        power_limits=power_limit_list(power_limits),
        pair_count=pairs,
        out=out,
        transition=transition,
    )
    with progress_bars(is_shown=not as_json) as progress:
        result = tune_to_folder(
            job, progress, hardware=TorchRunners(), announce=announcer(as_json=as_json)
        )

    def render(console: Console) -> None:
        columns = ("setting", "time", "energy", "slowdown", "saving")
        console.print(table(None, columns, comparison_rows(result.comparison)))
        print_caveats(console, plan_caveats(result.plan, result.verification))
        say(console, tune_sentence(result.plan, result.verification, result.comparison))
        print_wrapped(console, efficiency_line(result.plan, result.verification))
        print_line(console, replay_line(result.plan, result.folder / PLAN_NAME))
        print_line(console, f"Report: {result.report}")

    outcome = plan_outcome(
        result.plan, result.verification, render, {"run_dir": str(result.folder)}
    )
    finish(outcome, as_json=as_json, fail_on=wanted)
