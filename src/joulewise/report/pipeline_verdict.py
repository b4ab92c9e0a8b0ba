"""One sentence that says what a pipeline plan promises and how near it is to the best."""

from __future__ import annotations

from joulewise.domain.pipeline import PipelinePlan, PipelineRequest, PipelineSchedule
from joulewise.domain.plan import Status
from joulewise.report import verdict
from joulewise.report.wording import change, counted, percent

_SCHEDULES = {
    PipelineSchedule.ONE_F_ONE_B: "1F1B",
    PipelineSchedule.GPIPE: "GPipe",
    PipelineSchedule.INTERLEAVED: "interleaved 1F1B",
}


def pipeline_verdict(plan: PipelinePlan) -> str:
    """The sentence under which a pipeline's report stands."""
    if plan.status is Status.NO_GAIN:
        return "Leave the clocks alone: no plan within the budget saves energy."
    allowed = plan.max_time_s / plan.baseline_time_s
    return (
        f"Promised, not verified: {percent(plan.saving_ratio, digit_count=1)} less energy at "
        f"{change(plan.slowdown_ratio)} time (allowed: {change(allowed)}), {proof(plan)}."
    )


def proof(plan: PipelinePlan) -> str:
    """How far the plan can lie above the least energy possible."""
    return verdict.proof(plan.status, plan.bound_gap_ratio)


def shape_words(request: PipelineRequest) -> str:
    """`8 stages x 12 micro-batches, 1F1B`."""
    shape = request.shape
    chunks = f" of {shape.chunk_count} chunks" if shape.chunk_count > 1 else ""
    return (
        f"{counted(shape.stage_count, 'stage')}{chunks} \N{MULTIPLICATION SIGN} "
        f"{shape.micro_batch_count} micro-batch{'' if shape.micro_batch_count == 1 else 'es'}, "
        f"{_SCHEDULES[shape.schedule]}"
    )


def straggler_words(request: PipelineRequest) -> str | None:
    """`stage 3 takes +10.00 %`; `None` where no stage straggles."""
    parts = [
        f"stage {straggler.stage} takes {change(straggler.slowdown_ratio)} time"
        for straggler in request.stragglers
    ]
    return ", ".join(parts) or None
