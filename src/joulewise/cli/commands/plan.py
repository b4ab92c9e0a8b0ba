"""`joulewise plan`: clocks from a sweep, within a time budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson, FailOn, MaxSlowdown, OptionalWorkload, SweepFile
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.render import print_caveats, say, table
from joulewise.cli.sentences import comparison_rows, plan_sentence
from joulewise.cli.values import caveat_kinds, slowdown_budget
from joulewise.domain.plan import Granularity, Objective, PlanRequest, Scope
from joulewise.workflow.planning import PlanJob, plan_to_file


def request_of(
    objective: Objective, granularity: Granularity, scope: Scope, max_slowdown: str | None
) -> PlanRequest:
    """`energy` has the budget 0 by default, the other objectives none."""
    if max_slowdown is not None:
        budget: float | None = slowdown_budget(max_slowdown)
    else:
        budget = 0.0 if objective is Objective.ENERGY else None
    return PlanRequest(
        objective=objective, granularity=granularity, scope=scope, max_slowdown_ratio=budget
    )


def plan(
    sweep: SweepFile,
    workload: OptionalWorkload = None,
    objective: Annotated[
        Objective, typer.Option("--objective", envvar="JOULEWISE_OBJECTIVE", help="What to min.")
    ] = Objective.ENERGY,
    max_slowdown: MaxSlowdown = None,
    granularity: Annotated[
        Granularity,
        typer.Option(
            "--granularity", envvar="JOULEWISE_GRANULARITY", help="What shares one point."
        ),
    ] = Granularity.KERNEL,
    scope: Annotated[
        Scope,
        typer.Option(
            "--scope", envvar="JOULEWISE_SCOPE", help="Bound the sum, or every kernel alone."
        ),
    ] = Scope.GLOBAL,
    no_guard: Annotated[
        bool,
        typer.Option(
            "--no-guard",
            envvar="JOULEWISE_NO_GUARD",
            help="Plan on the table as it stands: no shrinkage, no guard band.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", envvar="JOULEWISE_OUT", help="Write plan.json here.")
    ] = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Choose operating points from a sweep."""
    wanted = caveat_kinds(fail_on)
    job = PlanJob(
        sweep=sweep,
        workload=workload,
        request=request_of(objective, granularity, scope, max_slowdown),
        is_guarded=not no_guard,
        out=out,
    )
    result = plan_to_file(job)
    made = result.plan

    def render(console: Console) -> None:
        columns = ("setting", "time", "energy", "slowdown", "saving")
        console.print(table(None, columns, comparison_rows(result.comparison)))
        print_caveats(console, made.caveats)
        say(console, plan_sentence(made, out))

    outcome = Outcome(
        status=made.status,
        render=render,
        slowdown_ratio=made.slowdown_ratio,
        saving_ratio=made.saving_ratio,
        energy_j=made.energy_j,
        time_s=made.time_s,
        bound_gap_ratio=made.bound_gap_ratio,
        caveats=made.caveats,
        extra={
            "guard_band_ratio": made.guard_band_ratio,
            "baseline_time_s": made.baseline_time_s,
            "baseline_energy_j": made.baseline_energy_j,
            "points": result.points,
            "plan": None if out is None else str(out),
        },
    )
    finish(outcome, as_json=as_json, fail_on=wanted)
