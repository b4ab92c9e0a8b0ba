"""`joulewise plan`: clocks from a sweep, within a time budget."""

from __future__ import annotations

from rich.console import Console

from joulewise.cli.options import (
    AsJson,
    FailOn,
    Granularities,
    MaxRegions,
    NoGuard,
    Objectives,
    OptionalWorkload,
    PlanMaxSlowdown,
    PlanOut,
    Scopes,
    SweepFile,
    Transition,
)
from joulewise.cli.outcome import finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import print_caveats, print_wrapped, say, table
from joulewise.cli.sentences import comparison_rows, plan_sentence
from joulewise.cli.values import caveat_kinds, slowdown_budget
from joulewise.cli.verdicts import plan_outcome, regions_document, requests_document
from joulewise.domain.errors import InputError
from joulewise.domain.plan import Granularity, Objective, PlanRequest, Scope
from joulewise.report.efficiency import efficiency_line
from joulewise.workflow.planning import PlanJob, plan_to_file


def request_of(
    objective: Objective,
    granularity: Granularity,
    scope: Scope,
    max_slowdown: str | None,
    max_regions: int | None,
) -> PlanRequest:
    """`energy` has the budget 0 by default, the other objectives none.

    Raises InputError for a bound on regions at another granularity than theirs.
    """
    if max_regions is not None and granularity is not Granularity.REGION:
        raise InputError(
            f"a plan at {granularity} granularity is not made of regions",
            field="max-regions",
            hint="Add --granularity region.",
        )
    if max_slowdown is not None:
        budget: float | None = slowdown_budget(max_slowdown)
    else:
        budget = 0.0 if objective is Objective.ENERGY else None
    return PlanRequest(
        objective=objective,
        granularity=granularity,
        scope=scope,
        max_slowdown_ratio=budget,
        max_region_count=max_regions,
    )


def plan(
    sweep: SweepFile,
    workload: OptionalWorkload = None,
    objective: Objectives = Objective.ENERGY,
    max_slowdown: PlanMaxSlowdown = None,
    granularity: Granularities = Granularity.KERNEL,
    transition: Transition = None,
    max_regions: MaxRegions = None,
    scope: Scopes = Scope.GLOBAL,
    no_guard: NoGuard = False,
    out: PlanOut = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Choose operating points from a sweep."""
    wanted = caveat_kinds(fail_on)
    job = PlanJob(
        sweep=sweep,
        workload=workload,
        request=request_of(objective, granularity, scope, max_slowdown, max_regions),
        is_guarded=not no_guard,
        out=out,
        transition=transition,
    )
    # Seconds where every launch has a point of its own, milliseconds where kernels have.
    with progress_bars(is_shown=not as_json, after_s=1.0) as progress:
        result = plan_to_file(job, progress)
    made = result.plan

    def render(console: Console) -> None:
        columns = ("setting", "time", "energy", "slowdown", "saving")
        console.print(table(None, columns, comparison_rows(result.comparison)))
        print_caveats(console, made.caveats)
        sentence = plan_sentence(
            made, result.comparison, out, is_table_simulated=result.is_table_simulated
        )
        say(console, sentence)
        print_wrapped(console, efficiency_line(made, None))

    extra = {
        **regions_document(made),
        "requests": requests_document(made),
        "points": result.points,
        "plan": None if out is None else str(out),
        "is_simulated": result.is_table_simulated,
    }
    finish(plan_outcome(made, None, render, extra), as_json=as_json, fail_on=wanted)
