"""One training step of a job as one kernel: what the virtual boards run.

A step is hundreds of kernels and the host that dispatches them. Seen from outside, which is all
that a clock policy can see, it is one operation: FLOPs of its matrix products, traffic of all of
its kernels, and the host's time, which no clock of the GPU shortens. FLOPs, bytes and launches
are those of the transformer builder; see docs/calibration.md for what is fitted.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.finetune.jobs import TrainingJob
from joulewise.workload.transformer.build import transformer_workload
from joulewise.workload.transformer.setup import Attention, TrainingSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAmounts:
    """What one step computes, moves and launches, before any device is known."""

    flop_count: float
    traffic_bytes: float
    launch_count: int
    token_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRule:
    """How the amounts of a step become the work of a kernel; see docs/calibration.md.

    Matrices of few rows fill the GPU badly: `half_token_count` tokens reach half of
    `compute_efficiency_ratio`. What is idle switches less: activity falls with it.
    """

    compute_efficiency_ratio: float
    half_token_count: float
    memory_efficiency_ratio: float
    core_activity_ratio: float
    memory_activity_ratio: float
    dispatch_s: float
    encoder_launch_ratio: float
    decoder_launch_ratio: float
    example_host_s: float


RULE = StepRule(
    compute_efficiency_ratio=0.7,
    half_token_count=200.0,
    memory_efficiency_ratio=0.7,
    core_activity_ratio=1.0,
    memory_activity_ratio=1.0,
    dispatch_s=30e-6,
    encoder_launch_ratio=2.0,
    decoder_launch_ratio=3.0,
    example_host_s=50e-6,
)


def step_work(job: TrainingJob) -> KernelWork:
    """One training step of the job as the work of one kernel, named like the job."""
    return work_of_amounts(job, step_amounts(job), RULE)


def work_of_amounts(job: TrainingJob, amounts: StepAmounts, rule: StepRule) -> KernelWork:
    """The work that a rule makes of what a step computes, moves and launches."""
    occupancy = amounts.token_count / (amounts.token_count + rule.half_token_count)
    is_decoder = job.model.is_causal
    launches = amounts.launch_count * (
        rule.decoder_launch_ratio if is_decoder else rule.encoder_launch_ratio
    )
    return KernelWork(
        kernel=job.name,
        kind=KernelKind.OTHER,
        dtype=Dtype.FP32,
        flop_count=amounts.flop_count,
        traffic_bytes=amounts.traffic_bytes,
        compute_efficiency_ratio=rule.compute_efficiency_ratio * occupancy,
        memory_efficiency_ratio=rule.memory_efficiency_ratio,
        core_activity_ratio=rule.core_activity_ratio * occupancy,
        memory_activity_ratio=rule.memory_activity_ratio,
        wait_s=launches * rule.dispatch_s + job.batch_count * rule.example_host_s,
    )


@functools.cache
def step_amounts(job: TrainingJob) -> StepAmounts:
    """FLOPs, bytes and launches of one step: FP32, eager attention, AdamW, padded batches."""
    setup = TrainingSetup(
        batch_count=job.batch_count,
        sequence_count=job.padded_sequence_count,
        dtype=Dtype.FP32,
        attention=Attention.EAGER,
    )
    workload = transformer_workload(job.model, setup)
    works = {work.kernel: work for work in workload.works}
    counts = workload.launch_counts()
    return StepAmounts(
        flop_count=sum(n * works[kernel].flop_count for kernel, n in counts.items()),
        traffic_bytes=sum(n * works[kernel].traffic_bytes for kernel, n in counts.items()),
        launch_count=len(workload.launches),
        token_count=job.batch_count * job.padded_sequence_count,
    )
