"""`joulewise frontier`: the whole trade of time for energy."""

from __future__ import annotations

from rich.console import Console

from joulewise.cli.options import (
    AsJson,
    FailOn,
    Granularities,
    OptionalWorkload,
    SweepFile,
    Transition,
)
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import print_caveats, say, table
from joulewise.cli.sentences import frontier_rows
from joulewise.cli.values import caveat_kinds
from joulewise.domain.plan import Granularity, Status
from joulewise.workflow.planning import FrontierJob, frontier_of


def frontier(
    sweep: SweepFile,
    workload: OptionalWorkload = None,
    granularity: Granularities = Granularity.KERNEL,
    transition: Transition = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Show the energy-time frontier of a sweep."""
    wanted = caveat_kinds(fail_on)
    job = FrontierJob(
        sweep=sweep, workload=workload, granularity=granularity, transition=transition
    )
    is_long = transition is not None or granularity is Granularity.REGION
    with progress_bars(is_shown=is_long and not as_json) as progress:
        result = frontier_of(job, progress)
    counted = (
        "" if result.transition is None else f", changes counted as {result.transition!r} says"
    )

    def render(console: Console) -> None:
        columns = ("time", "energy", "slowdown", "saving")
        console.print(table(None, columns, frontier_rows(result.points), left_count=0))
        print_caveats(console, result.caveats)
        say(
            console,
            f"The best of {len(result.points)} points within each of a row of budgets, for "
            f"{result.workload} at {granularity} granularity{counted}; --json has every point.",
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
