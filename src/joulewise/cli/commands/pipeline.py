"""`joulewise pipeline`: clocks for the operations of a pipeline."""

from __future__ import annotations

import typer
from rich.console import Console

from joulewise.cli.options import AsJson, FailOn, MaxSlowdown
from joulewise.cli.outcome import finish
from joulewise.cli.pipeline_options import (
    BlockingPower,
    Chunks,
    FrontierPoints,
    MicroBatches,
    PipelineOut,
    PlanPoints,
    PlanWorkload,
    Profiles,
    Schedules,
    Stages,
    Stragglers,
    TimeBudget,
    chunk_count,
    frontier_point_count,
    power_while_waiting,
    stragglers,
    time_budget,
)
from joulewise.cli.pipeline_render import (
    OPERATION_COLUMNS,
    frontier_outcome,
    frontier_rows,
    frontier_sentence,
    operation_cells,
    operation_note,
    pipeline_outcome,
    pipeline_sentence,
)
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import print_caveats, print_line, say, table
from joulewise.cli.sentences import with_origin
from joulewise.cli.values import caveat_kinds
from joulewise.domain.pipeline import PipelineSchedule
from joulewise.workflow.pipelines import (
    PipelineJob,
    frontier_of_pipeline,
    plan_pipeline_to_file,
)

_QUIET_S = 2.0

app = typer.Typer(
    help="Choose clocks for the operations of a pipeline of stages.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("plan")
def plan(
    profiles: Profiles,
    microbatches: MicroBatches,
    blocking_power: BlockingPower,
    stages: Stages = None,
    schedule: Schedules = PipelineSchedule.ONE_F_ONE_B,
    chunks: Chunks = None,
    time: TimeBudget = None,
    max_slowdown: MaxSlowdown = None,
    straggler: Stragglers = None,
    workload: PlanWorkload = None,
    points: PlanPoints = 40,
    out: PipelineOut = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Choose clocks for every operation, within a time budget for the iteration."""
    wanted = caveat_kinds(fail_on)
    max_time_s, max_slowdown_ratio = time_budget(time, max_slowdown)
    job = PipelineJob(
        profiles=tuple(profiles),
        workload=workload,
        stage_count=stages,
        micro_batch_count=microbatches,
        schedule=schedule,
        chunk_count=chunk_count(chunks, schedule),
        blocking_power_w=power_while_waiting(blocking_power),
        max_time_s=max_time_s,
        max_slowdown_ratio=max_slowdown_ratio,
        stragglers=stragglers(straggler or ()),
        frontier_point_count=frontier_point_count(points, is_optional=True),
        out=out,
    )
    with progress_bars(is_shown=not as_json, after_s=_QUIET_S) as progress:
        result = plan_pipeline_to_file(job, progress)

    def render(console: Console) -> None:
        cells = operation_cells(result.plan, result.rows)
        console.print(table(None, OPERATION_COLUMNS, cells, left_count=2))
        print_line(console, operation_note(result.plan))
        print_caveats(console, result.plan.caveats)
        say(console, with_origin(pipeline_sentence(result, out), result.plan.caveats))

    extra = {"pipeline": None if out is None else str(out)}
    finish(pipeline_outcome(result.plan, render, extra), as_json=as_json, fail_on=wanted)


@app.command("frontier")
def frontier(
    profiles: Profiles,
    microbatches: MicroBatches,
    blocking_power: BlockingPower,
    stages: Stages = None,
    schedule: Schedules = PipelineSchedule.ONE_F_ONE_B,
    chunks: Chunks = None,
    straggler: Stragglers = None,
    workload: PlanWorkload = None,
    points: FrontierPoints = 100,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Show the energy-time frontier of a pipeline."""
    wanted = caveat_kinds(fail_on)
    job = PipelineJob(
        profiles=tuple(profiles),
        workload=workload,
        stage_count=stages,
        micro_batch_count=microbatches,
        schedule=schedule,
        chunk_count=chunk_count(chunks, schedule),
        blocking_power_w=power_while_waiting(blocking_power),
        stragglers=stragglers(straggler or ()),
        frontier_point_count=frontier_point_count(points),
    )
    with progress_bars(is_shown=not as_json, after_s=_QUIET_S) as progress:
        result = frontier_of_pipeline(job, progress)

    def render(console: Console) -> None:
        columns = ("time", "energy", "bound", "gap", "slowdown", "saving")
        console.print(table(None, columns, frontier_rows(result.points), left_count=0))
        print_caveats(console, result.caveats)
        say(console, with_origin(frontier_sentence(result), result.caveats))

    finish(frontier_outcome(result, render), as_json=as_json, fail_on=wanted)
