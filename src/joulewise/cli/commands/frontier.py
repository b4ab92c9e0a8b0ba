"""`joulewise frontier`: the whole trade of time for energy."""

from __future__ import annotations

from rich.console import Console

from joulewise.cli.commands.plan import request_of
from joulewise.cli.options import (
    AsJson,
    FailOn,
    Granularities,
    MaxRegions,
    OptionalWorkload,
    SweepFile,
    Transition,
)
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import counted, print_caveats, say, table
from joulewise.cli.sentences import frontier_rows, with_origin
from joulewise.cli.values import caveat_kinds
from joulewise.domain.plan import Granularity, Objective, Scope, Status
from joulewise.workflow.planning import FrontierJob, frontier_of


def frontier(
    sweep: SweepFile,
    workload: OptionalWorkload = None,
    granularity: Granularities = Granularity.KERNEL,
    transition: Transition = None,
    max_regions: MaxRegions = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Show the energy-time frontier of a sweep."""
    wanted = caveat_kinds(fail_on)
    request = request_of(Objective.ENERGY, granularity, Scope.GLOBAL, None, max_regions)
    job = FrontierJob(
        sweep=sweep,
        workload=workload,
        granularity=granularity,
        transition=transition,
        max_region_count=request.max_region_count,
    )
    with progress_bars(is_shown=not as_json, after_s=1.0) as progress:
        result = frontier_of(job, progress)
    changes = (
        "" if result.transition is None else f", changes counted as {result.transition!r} says"
    )
    regions = "" if max_regions is None else f" in at most {counted(max_regions, 'region')}"

    def render(console: Console) -> None:
        columns = ("time", "energy", "slowdown", "saving")
        console.print(table(None, columns, frontier_rows(result.points), left_count=0))
        print_caveats(console, result.caveats)
        say(
            console,
            with_origin(
                f"The frontier of {result.workload} at {granularity} granularity{regions} has "
                f"{counted(len(result.points), 'point')}{changes}; the table shows the best "
                "within some budgets, --json all of them.",
                result.caveats,
            ),
        )

    outcome = Outcome(
        status=Status.FEASIBLE,
        render=render,
        caveats=result.caveats,
        extra={
            "workload": result.workload,
            "transition": result.transition,
            "frontier": result.points,
        },
    )
    finish(outcome, as_json=as_json, fail_on=wanted)
