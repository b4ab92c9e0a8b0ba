"""`joulewise transfer`: a plan's clocks on other batch sizes and tensor-parallel degrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson, FailOn, PlanDevice, PlanFile
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import percent, print_caveats, say, seconds, signed_percent, table
from joulewise.cli.sentences import with_origin
from joulewise.cli.values import caveat_kinds
from joulewise.domain.plan import Status
from joulewise.integrations.torch_runner import TorchRunners
from joulewise.workflow.transfer import TransferJob, TransferResult, TransferRow, transfer_plan

Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        envvar="JOULEWISE_TO",
        metavar="WORKLOAD",
        help="Workload to carry the plan over to; give it once for each. Default: the batch "
        "sizes and tensor-parallel degrees of the published study.",
    ),
]
TargetPairs = Annotated[
    int,
    typer.Option(
        "--pairs", envvar="JOULEWISE_PAIRS", min=2, max=1000, help="Paired runs per target."
    ),
]
Replan = Annotated[
    bool,
    typer.Option(
        "--replan",
        envvar="JOULEWISE_REPLAN",
        help="Show beside it what a plan made for the target itself comes to (virtual devices).",
    ),
]


def transfer(
    plan: PlanFile,
    device: PlanDevice = None,
    to: Targets = None,
    pairs: TargetPairs = 3,
    replan: Replan = False,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Carry a plan's clocks over to other batch sizes and degrees, and see how they fare."""
    wanted = caveat_kinds(fail_on)
    job = TransferJob(
        plan=plan, device=device, targets=tuple(to or ()), pair_count=pairs, is_replanned=replan
    )
    with progress_bars(is_shown=not as_json) as progress:
        result = transfer_plan(job, progress, hardware=TorchRunners())

    def render(console: Console) -> None:
        columns = ["workload", "baseline", "slowdown", "saving"]
        if result.study is not None:
            columns += ["published", "saving"]
        if replan:
            columns += ["re-planned", "saving"]
        console.print(table(None, columns, _rows(result)))
        print_caveats(console, result.caveats)
        say(console, with_origin(transfer_sentence(result), result.caveats))

    outcome = Outcome(
        status=Status.FEASIBLE,
        render=render,
        caveats=result.caveats,
        extra={
            "workload": result.plan.workload,
            "device_name": result.plan.device_name,
            "max_slowdown_ratio": result.plan.request.max_slowdown_ratio,
            "is_truth": result.is_truth,
            "pair_count": None if result.is_truth else pairs,
            "targets": [_document(row) for row in result.rows],
            "published_source": None if result.study is None else result.study.source,
        },
    )
    finish(outcome, as_json=as_json, fail_on=wanted)


def transfer_sentence(result: TransferResult) -> str:
    """How the targets keep the budget, and what was published of another plan."""
    parts = [f"Carried over from {result.plan.workload}: {_ranges(result.rows)}"]
    budget = result.plan.request.max_slowdown_ratio
    if budget is not None:
        parts.append(_kept(result, budget))
    sentence = "; ".join(parts) + "."
    if result.study is None:
        return sentence
    published = [row.published for row in result.rows if row.published is not None]
    slow = [row.slowdown.mean_ratio - 1 for row in published]
    saved = [row.saving.mean_ratio for row in published]
    return (
        f"{sentence} Published ({result.study.source}; another plan, on an "
        f"{result.study.device_name}; means of {result.study.pair_count} pairs): "
        f"{_span(slow, signed=True)} time, {_span(saved, signed=False)} saved."
    )


def _kept(result: TransferResult, budget: float) -> str:
    """Fresh pairs show that a budget is kept, or that it is not, or neither."""
    kept = [row.is_within_budget for row in result.rows]
    shown = "keep" if result.is_truth else "are shown to keep"
    text = f"{kept.count(True)} of {len(kept)} {shown} the plan's budget of "
    text += signed_percent(budget)
    if None in kept:
        text += f", {kept.count(None)} neither to keep nor to break it"
    return text


def _ranges(rows: tuple[TransferRow, ...]) -> str:
    slow = [row.carried.slowdown_ratio - 1 for row in rows]
    saved = [row.carried.saving_ratio for row in rows]
    return f"{_span(slow, signed=True)} time, {_span(saved, signed=False)} saved"


def _span(ratios: list[float], *, signed: bool) -> str:
    low, high = (
        signed_percent(ratio) if signed else percent(ratio) for ratio in (min(ratios), max(ratios))
    )
    return low if low == high else f"{low} to {high}"


def _rows(result: TransferResult) -> Iterator[tuple[str, ...]]:
    for row in result.rows:
        cells = [
            row.label,
            seconds(row.carried.baseline_time_s),
            signed_percent(row.carried.slowdown_ratio - 1),
            percent(row.carried.saving_ratio),
        ]
        if result.study is not None:
            cells += _published(row)
        if row.replanned is not None:
            cells += [
                signed_percent(row.replanned.slowdown_ratio - 1),
                percent(row.replanned.saving_ratio),
            ]
        yield tuple(cells)


def _published(row: TransferRow) -> tuple[str, str]:
    """Means; the spread of the pairs is in the object for machines."""
    if row.published is None:
        return "", ""
    slow, saved = row.published.slowdown, row.published.saving
    return signed_percent(slow.mean_ratio - 1), percent(saved.mean_ratio)


def _document(row: TransferRow) -> dict[str, object]:
    return {
        "workload": row.workload,
        "is_own": row.is_own,
        **asdict(row.carried),
        "is_within_budget": row.is_within_budget,
        "published": None if row.published is None else asdict(row.published),
        "replanned": None if row.replanned is None else asdict(row.replanned),
    }
