"""One training step of a job as one kernel: what the virtual boards run.

A step is hundreds of kernels and the host that dispatches them. Seen from outside, which is all
that a clock policy can see, it is one operation: FLOPs of its matrix products, traffic of all of
its kernels, and the host's time, which no clock of the GPU shortens. FLOPs, bytes and launches
are those of the transformer builder, the rest is one rule for all jobs, fitted to the published
energies of three of them (docs/calibration.md).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources

import msgspec

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
    """How the amounts of a step become the work of a kernel.

    Matrices of few rows fill a GPU badly: `half_token_count` tokens in a batch reach half of
    `compute_efficiency_ratio`. What is idle switches less, so that activity falls with that share
    to the power of `activity_exponent_ratio`. The host takes `dispatch_s` for each launch, of
    which eager PyTorch makes `encoder_launch_ratio` or `decoder_launch_ratio` times as many as
    the builder's fused kernels, and `example_host_s` to tokenise and pad each example.
    """

    source: str
    compute_efficiency_ratio: float
    half_token_count: float
    activity_exponent_ratio: float
    memory_efficiency_ratio: float
    dispatch_s: float
    encoder_launch_ratio: float
    decoder_launch_ratio: float
    example_host_s: float


def step_work(job: TrainingJob) -> KernelWork:
    """One training step of the job as the work of one kernel, named like the job."""
    return ruled_work(job, step_amounts(job), shipped_rule())


def ruled_work(job: TrainingJob, amounts: StepAmounts, rule: StepRule) -> KernelWork:
    """The work that a rule makes of what a step computes, moves and launches."""
    occupancy_ratio = amounts.token_count / (amounts.token_count + rule.half_token_count)
    eager_ratio = rule.decoder_launch_ratio if job.model.is_causal else rule.encoder_launch_ratio
    dispatch_s = rule.dispatch_s * eager_ratio * amounts.launch_count
    return KernelWork(
        kernel=job.name,
        kind=KernelKind.OTHER,
        dtype=Dtype.FP32,
        flop_count=amounts.flop_count,
        traffic_bytes=amounts.traffic_bytes,
        compute_efficiency_ratio=rule.compute_efficiency_ratio * occupancy_ratio,
        memory_efficiency_ratio=rule.memory_efficiency_ratio,
        core_activity_ratio=occupancy_ratio**rule.activity_exponent_ratio,
        memory_activity_ratio=1.0,
        wait_s=dispatch_s + rule.example_host_s * job.batch_count,
    )


@functools.cache
def shipped_rule() -> StepRule:
    """The rule that `calibration/orin.py` wrote."""
    data = resources.files("joulewise.finetune").joinpath("data", "step_rule.json")
    return msgspec.json.decode(data.read_bytes(), type=StepRule)


@functools.cache
def step_amounts(job: TrainingJob) -> StepAmounts:
    """FLOPs, bytes and launches of one step: FP32, eager attention, AdamW, padded batches.

    Attention of a decoder is counted in full, for an eager one computes what it then masks.
    """
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
