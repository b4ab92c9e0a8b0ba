"""`joulewise transition-cost`: saving against the latency of a change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import (
    AsJson,
    FailOn,
    FigureOut,
    MaxSlowdown,
    OptionalWorkload,
    SweepFile,
)
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import percent, print_caveats, say, signed_percent, table
from joulewise.cli.sentences import with_origin
from joulewise.cli.values import caveat_kinds, power_w, slowdown_budget
from joulewise.domain.plan import Status
from joulewise.domain.transition_presets import STALL_POWER_W
from joulewise.report.transition_cost import (
    TransitionCosts,
    latency_text,
    transition_cost_sentence,
)
from joulewise.workflow.transition_cost import (
    DEFAULT_LATENCIES,
    LatencyModel,
    TransitionCostJob,
    transition_costs,
)

Latencies = Annotated[
    str,
    typer.Option(
        "--latencies",
        envvar="JOULEWISE_LATENCIES",
        metavar="TIME,…",
        help="What one change may take.",
    ),
]
Power = Annotated[
    str,
    typer.Option(
        "--power", envvar="JOULEWISE_POWER", metavar="W", help="What a stalled GPU draws."
    ),
]
Model = Annotated[
    LatencyModel,
    typer.Option(
        "--model",
        envvar="JOULEWISE_MODEL",
        help="Whether the GPU waits (stall), or the new point comes late (lag).",
    ),
]
_COLUMNS = (
    "latency",
    "saving",
    "slowdown",
    "changes",
    "not counted: saving",
    "slowdown",
)
_TOLD_GAP_RATIO = 0.001


def transition_cost(
    sweep: SweepFile,
    workload: OptionalWorkload = None,
    max_slowdown: MaxSlowdown = None,
    latencies: Latencies = DEFAULT_LATENCIES,
    power: Power = f"{STALL_POWER_W:g}",
    model: Model = LatencyModel.STALL,
    out: FigureOut = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Show what of a kernel plan's saving is left at each latency of a change."""
    wanted = caveat_kinds(fail_on)
    job = TransitionCostJob(
        sweep=sweep,
        workload=workload,
        max_slowdown_ratio=0.0 if max_slowdown is None else slowdown_budget(max_slowdown),
        latencies=latencies,
        stall_power_w=power_w(power, field="power"),
        model=model,
        out=out,
    )
    with progress_bars(is_shown=not as_json) as progress:
        costs = transition_costs(job, progress)

    def render(console: Console) -> None:
        console.print(table(None, _COLUMNS, _rows(costs)))
        print_caveats(console, costs.caveats)
        text = " ".join((transition_cost_sentence(costs), *_notes(costs)))
        say(console, with_origin(text, costs.caveats))
        if out is not None:
            console.print(f"Figure: {out}", markup=False)

    outcome = Outcome(
        status=Status.FEASIBLE,
        render=render,
        caveats=costs.caveats,
        extra={**_extra(costs), "figure": None if out is None else str(out)},
    )
    finish(outcome, as_json=as_json, fail_on=wanted)


def _extra(costs: TransitionCosts) -> dict[str, object]:
    return {
        "workload": costs.workload,
        "device_name": costs.device_name,
        "model": costs.model,
        "stall_power_w": costs.stall_power_w,
        "max_slowdown_ratio": costs.max_slowdown_ratio,
        "baseline_time_s": costs.baseline_time_s,
        "baseline_energy_j": costs.baseline_energy_j,
        "static_point": costs.static_point,
        "rows": costs.rows,
    }


def _rows(costs: TransitionCosts) -> Iterator[tuple[str, ...]]:
    for row in costs.rows:
        yield (
            latency_text(row.latency_s),
            _share(row.saving_ratio),
            _time(row.slowdown_ratio),
            "" if row.change_count is None else str(row.change_count),
            _share(row.naive_saving_ratio),
            _time(row.naive_slowdown_ratio),
        )


def _notes(costs: TransitionCosts) -> Iterator[str]:
    """What is alike in all rows, and how good the plans are where that is not plain."""
    row = costs.rows[0]
    if costs.static_point is None:
        yield "No single point keeps the budget."
    else:
        yield (
            f"The best single point, {costs.static_point.label}, saves "
            f"{_share(row.static_saving_ratio)} energy at {_time(row.static_slowdown_ratio)} time "
            "whatever a change takes."
        )
    gaps = [one.bound_gap_ratio for one in costs.rows if one.energy_j is not None]
    if any(gap is None for gap in gaps):
        yield "Some plans are good, but nothing was proven of how good."
    worst = max((gap for gap in gaps if gap is not None), default=0.0)
    if worst > _TOLD_GAP_RATIO:
        yield f"The plans lie at most {percent(worst, 2)} above the least possible."


def _share(ratio: float | None) -> str:
    return "none" if ratio is None else percent(ratio, 2)


def _time(ratio: float | None) -> str:
    return "none" if ratio is None else signed_percent(ratio - 1)
