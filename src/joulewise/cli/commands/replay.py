"""`joulewise replay`: whole iterations with the plan's changes of clocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson, FailOn, PlanDevice, PlanFile, PlanWorkload
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import (
    counted,
    joules,
    percent,
    print_caveats,
    say,
    seconds,
    signed_percent,
    table,
)
from joulewise.cli.values import caveat_kinds
from joulewise.domain.caveats import is_simulated
from joulewise.domain.plan import Status
from joulewise.integrations.torch_runner import TorchRunners
from joulewise.report.regions import change_indices
from joulewise.report.verdict import ran_on
from joulewise.workflow.replaying import (
    PREDICTION_TOLERANCE_RATIO,
    ReplayJob,
    ReplayResult,
    replay_to_result,
)


def replay(
    plan: PlanFile,
    device: PlanDevice = None,
    workload: PlanWorkload = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            "--iterations",
            envvar="JOULEWISE_ITERATIONS",
            min=1,
            max=100_000,
            help="Iterations to measure, at least; more run until the energy counter moves. "
            "Without it, as many as fill 5 s and 50 of the counter's steps.",
        ),
    ] = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Play whole iterations as the plan says, and compare with what it predicts."""
    wanted = caveat_kinds(fail_on)
    job = ReplayJob(plan=plan, device=device, workload=workload, iteration_count=iterations)
    with progress_bars(is_shown=not as_json) as progress:
        result = replay_to_result(job, progress, hardware=TorchRunners())

    def render(console: Console) -> None:
        columns = ("per iteration", "planned", "replayed", "difference")
        console.print(table(None, columns, _rows(result)))
        print_caveats(console, result.caveats)
        say(console, _sentence(result))

    outcome = Outcome(
        status=Status.FEASIBLE,
        render=render,
        time_s=result.window.time_s,
        energy_j=result.window.energy_j,
        caveats=result.caveats,
        extra=_extra(result),
    )
    finish(outcome, as_json=as_json, fail_on=wanted)


def _extra(result: ReplayResult) -> dict[str, object]:
    window = result.window
    return {
        "workload": result.plan.workload,
        "device": result.device,
        "device_name": result.device_name,
        "is_simulated": is_simulated(result.caveats),
        "transition": None if result.transition is None else result.transition.name,
        "predicted_time_s": result.predicted_time_s,
        "predicted_energy_j": result.predicted_energy_j,
        "time_difference_ratio": result.time_difference_ratio,
        "energy_difference_ratio": result.energy_difference_ratio,
        "is_as_planned": result.is_as_planned,
        "baseline_time_s": result.baseline.time_s,
        "baseline_energy_j": result.baseline.energy_j,
        "slowdown_ratio": result.slowdown_ratio,
        "saving_ratio": result.saving_ratio,
        "is_within_budget": result.is_within_budget,
        "iteration_count": window.iteration_count,
        "change_count": len(change_indices(result.plan)),
        "requests_per_iteration": window.request_count,
        "late_per_iteration": window.late_count,
        "skipped_per_iteration": window.skipped_count,
        "max_late_s": window.max_late_s,
        "early_per_iteration": window.early_count,
        "max_early_s": window.max_early_s,
    }


def _rows(result: ReplayResult) -> Iterator[tuple[str, ...]]:
    window = result.window
    yield (
        "time",
        seconds(result.predicted_time_s),
        seconds(window.time_s),
        signed_percent(result.time_difference_ratio),
    )
    yield (
        "energy",
        joules(result.predicted_energy_j),
        joules(window.energy_j),
        signed_percent(result.energy_difference_ratio),
    )
    yield ("changes", str(len(change_indices(result.plan))), f"{window.request_count:g}", "")


def _sentence(result: ReplayResult) -> str:
    """How far the plan's arithmetic holds, what is really saved, what came late."""
    window, budget = result.window, result.plan.request.max_slowdown_ratio
    held = (
        "as planned"
        if result.is_as_planned
        else f"NOT as planned: more than {percent(PREDICTION_TOLERANCE_RATIO)} apart"
    )
    kept = ""
    if budget is not None:
        word = "keeps" if result.is_within_budget else "does NOT keep"
        kept = f", which {word} the budget of {signed_percent(budget)}"
    where = ran_on(result.device_name, result.device, result.caveats)
    return (
        f"{where} Over {counted(window.iteration_count, 'iteration')} of {result.plan.workload} "
        f"the plan took {signed_percent(result.time_difference_ratio)} time "
        f"and {signed_percent(result.energy_difference_ratio)} energy against its prediction, "
        f"{held}. Against the replayed baseline it saves {percent(result.saving_ratio)} energy at "
        f"{signed_percent(result.slowdown_ratio - 1.0)} time{kept}. {_in_time(result)}"
    )


def _in_time(result: ReplayResult) -> str:
    """What became of the changes, per iteration."""
    window, change_count = result.window, len(change_indices(result.plan))
    if not change_count:
        return "It changes no clocks."
    parts = []
    if window.late_count:
        parts.append(
            f"{window.late_count:.3g} of {change_count} changes came into force up to "
            f"{seconds(window.max_late_s)} after their launch began"
        )
    if window.early_count:
        parts.append(
            f"{window.early_count:.3g} of {change_count} changes came into force up to "
            f"{seconds(window.max_early_s)} before their launch began"
        )
    if window.skipped_count:
        parts.append(f"{window.skipped_count:.3g} of {change_count} fell away")
    if not parts:
        return "Every change was in force in time."
    return f"Per iteration {', '.join(parts[:-1])}{' and ' * (len(parts) > 1)}{parts[-1]}."
