"""Tables, sentences and JSON objects of `joulewise pipeline`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from joulewise.cli.outcome import Outcome
from joulewise.cli.render import counted, joules, percent, seconds, signed_percent
from joulewise.cli.verdicts import Render
from joulewise.domain.pipeline import (
    Instruction,
    KernelPlan,
    PipelinePlan,
    PipelinePoint,
    PipelineRequest,
    PlannedOperation,
)
from joulewise.domain.plan import Status
from joulewise.domain.points import OperatingPoint
from joulewise.report.pipeline_rows import (
    OperationRow,
    clock_span,
    setting_count,
    waiting_time_s,
)
from joulewise.report.pipeline_verdict import pipeline_verdict, shape_words, straggler_words
from joulewise.workflow.pipelines import PipelineFrontierResult, PipelineResult

OPERATION_COLUMNS = (
    "stage",
    "clocks (MHz)",
    "in use",
    "time",
    "baseline",
    "energy",
    "baseline",
    "saving",
)
_SHORT = {Instruction.FORWARD: "fwd", Instruction.BACKWARD: "bwd"}
_MOST_ROWS = 20


def operation_cells(plan: PipelinePlan, rows: Sequence[OperationRow]) -> Iterator[tuple[str, ...]]:
    """stage, clocks, how many, time, that of the baseline, energy, that of the baseline, saving.

    A stage's sums over its micro-batches, what waiting takes, and the sum of it all: stages x
    iteration time, and the energy of an iteration.
    """
    for row in rows:
        yield (
            f"{row.stage} {_SHORT[row.instruction]}",
            clock_span(row),
            str(setting_count(row)),
            *_amounts(row.time_s, row.baseline_time_s, row.energy_j, row.baseline_energy_j),
        )
    power_w, stage_count = plan.request.blocking_power_w, plan.request.shape.stage_count
    waiting_s = max(0.0, waiting_time_s(plan, plan.operations, plan.time_s))
    at_baseline_s = None
    if plan.baseline_operations:
        found_s = waiting_time_s(plan, plan.baseline_operations, plan.baseline_time_s)
        at_baseline_s = max(0.0, found_s)
    at_baseline_j = None if at_baseline_s is None else power_w * at_baseline_s
    yield (
        *("waiting", "", ""),
        *_amounts(waiting_s, at_baseline_s, power_w * waiting_s, at_baseline_j),
    )
    yield (
        *("all", "", ""),
        *_amounts(
            stage_count * plan.time_s,
            stage_count * plan.baseline_time_s,
            plan.energy_j,
            plan.baseline_energy_j,
        ),
    )


def operation_note(plan: PipelinePlan) -> str:
    """How the table's rows add up."""
    stages = counted(plan.request.shape.stage_count, "stage")
    return (
        "Time and energy are sums over micro-batches; all together they are those of "
        f"{stages} for {seconds(plan.time_s)}."
    )


def _amounts(
    time_s: float, baseline_time_s: float | None, energy_j: float, baseline_energy_j: float | None
) -> tuple[str, ...]:
    """Nothing where the baseline is not known; no saving where it takes no energy."""
    return (
        seconds(time_s),
        "" if baseline_time_s is None else seconds(baseline_time_s),
        joules(energy_j),
        "" if baseline_energy_j is None else joules(baseline_energy_j),
        percent(1 - energy_j / baseline_energy_j) if baseline_energy_j else "",
    )


def frontier_rows(points: Sequence[PipelinePoint]) -> Iterator[tuple[str, ...]]:
    """time, energy, bound, gap, slowdown, saving: so many, spread evenly, both ends among them."""
    last = len(points) - 1
    count = min(len(points), _MOST_ROWS)
    for index in sorted({round(i * last / max(count - 1, 1)) for i in range(count)}):
        point = points[index]
        yield (
            seconds(point.time_s),
            joules(point.energy_j),
            joules(point.bound_j),
            percent(max(0.0, 1 - point.bound_j / point.energy_j), 2),
            signed_percent(point.slowdown_ratio - 1),
            percent(point.saving_ratio),
        )


def pipeline_sentence(result: PipelineResult, out: Path | None) -> str:
    """What the plan promises, of which pipeline, and where it lies."""
    plan = result.plan
    figures = (
        f"{shape_words(plan.request)}: {seconds(plan.time_s)} and {joules(plan.energy_j)} an "
        f"iteration instead of {seconds(plan.baseline_time_s)} and "
        f"{joules(plan.baseline_energy_j)}"
    )
    parts = [figures, *_straggling(plan.request)]
    known_count = result.stages_in_profile_count
    if known_count > plan.request.shape.stage_count:
        parts.append(f"the profile has {known_count} stages, of which these are the first")
    if result.left_out_launch_count:
        parts.append("launches of the optimizer are in no operation and left out")
    if out is not None:
        parts.append(f"written to {out}")
    return f"{pipeline_verdict(plan)} {'; '.join(parts)}."


def frontier_sentence(result: PipelineFrontierResult) -> str:
    """How much there is to gain at either end."""
    fastest, cheapest = result.points[0], result.points[-1]
    figures = (
        f"{shape_words(result.request)}: {percent(fastest.saving_ratio)} saved at "
        f"{signed_percent(fastest.slowdown_ratio - 1)} time, {percent(cheapest.saving_ratio)} at "
        f"{signed_percent(cheapest.slowdown_ratio - 1)}"
    )
    listed = f"{len(result.points)} points, all of them with --json"
    return "; ".join((figures, *_straggling(result.request), listed)) + "."


def pipeline_outcome(plan: PipelinePlan, render: Render, extra: Mapping[str, object]) -> Outcome:
    """The plan for machines: what it promises, and every operation on its time line."""
    return Outcome(
        status=plan.status,
        render=render,
        slowdown_ratio=plan.slowdown_ratio,
        saving_ratio=plan.saving_ratio,
        energy_j=plan.energy_j,
        time_s=plan.time_s,
        bound_gap_ratio=plan.bound_gap_ratio,
        caveats=plan.caveats,
        extra={
            **_frame(plan.request, plan.profile_name),
            "max_time_s": plan.max_time_s,
            "bound_j": plan.bound_j,
            "baseline_time_s": plan.baseline_time_s,
            "baseline_energy_j": plan.baseline_energy_j,
            "operations": [_operation(one) for one in plan.operations],
            "kernel_plans": [_kernel_plan(one) for one in plan.kernel_plans],
            **extra,
        },
    )


def frontier_outcome(result: PipelineFrontierResult, render: Render) -> Outcome:
    """The frontier for machines."""
    return Outcome(
        status=Status.FEASIBLE,
        render=render,
        caveats=result.caveats,
        extra={
            **_frame(result.request, result.profile_name),
            "baseline_time_s": result.baseline_time_s,
            "baseline_energy_j": result.baseline_energy_j,
            "frontier": result.points,
        },
    )


def _frame(request: PipelineRequest, profile_name: str) -> dict[str, object]:
    """What the figures are of."""
    return {
        "profile": profile_name,
        "schedule": request.shape.schedule,
        "stage_count": request.shape.stage_count,
        "chunk_count": request.shape.chunk_count,
        "micro_batch_count": request.shape.micro_batch_count,
        "blocking_power_w": request.blocking_power_w,
        "stragglers": request.stragglers,
    }


def _operation(one: PlannedOperation) -> dict[str, object]:
    return {
        "stage": one.stage,
        "chunk": one.chunk,
        "micro_batch": one.micro_batch,
        "instruction": one.instruction,
        **_knobs(one.point),
        "kernel_plan": one.launches_index,
        "start_s": one.start_s,
        "time_s": one.time_s,
        "energy_j": one.energy_j,
    }


def _kernel_plan(one: KernelPlan) -> dict[str, object]:
    counts = Counter((launch.kernel, launch.point) for launch in one.launches)
    return {
        "stage": one.stage,
        "instruction": one.instruction,
        "time_s": one.time_s,
        "energy_j": one.energy_j,
        "points": [
            {"kernel": kernel, **_knobs(point), "launch_count": count}
            for (kernel, point), count in counts.items()
        ],
    }


def _knobs(point: OperatingPoint | None) -> dict[str, object]:
    """The three knobs; all of them null where a kernel-level plan sets them."""
    return {
        "sm_clock_mhz": None if point is None else point.sm_clock_mhz,
        "mem_clock_mhz": None if point is None else point.mem_clock_mhz,
        "power_limit_w": None if point is None else point.power_limit_w,
    }


def _straggling(request: PipelineRequest) -> list[str]:
    words = straggler_words(request)
    return [] if words is None else [words]
