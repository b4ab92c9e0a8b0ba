"""How a transformer is trained: batch, precision, optimizer, and how it is split over GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.workload import Dtype


class Optimizer(StrEnum):
    """What updates the weights."""

    ADAMW = "adamw"
    SGD = "sgd"
    NONE = "none"


class Recompute(StrEnum):
    """Which activations backward computes again: none, those of attention, or whole layers.

    Source: Korthikanti et al., arXiv 2205.05198.
    """

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Attention(StrEnum):
    """Whether scores are written to memory (`eager`) or stay on the chip (`flash`)."""

    FLASH = "flash"
    EAGER = "eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """One training iteration on one of the job's GPUs.

    `batch_count` is sequences in one micro-batch of one data-parallel rank. The job has
    `data_parallel_count x tensor_parallel_count x pipeline_parallel_count` GPUs. `zero_stage`
    0 keeps everything on every rank; 1, 2 and 3 split optimizer states, gradients and weights
    over the data-parallel ranks (3 is FSDP). `stage` is the pipeline stage that is built, from
    0. `lora_rank_count` 0 trains all weights. `has_backward` false is a forward pass alone.
    `gap_s` is time per iteration in which the GPU waits for its host.
    `link_bytes_per_s` is what one GPU sends, in one direction, in a collective.
    `node_gpu_count` is how many of the job's GPUs share one node, `None` where nobody said; it
    changes figures per node and no kernel.
    """

    batch_count: int = 1
    sequence_count: int = 1024
    dtype: Dtype = Dtype.BF16
    optimizer: Optimizer = Optimizer.ADAMW
    recompute: Recompute = Recompute.NONE
    attention: Attention = Attention.FLASH
    lora_rank_count: int = 0
    zero_stage: int = 0
    data_parallel_count: int = 1
    tensor_parallel_count: int = 1
    pipeline_parallel_count: int = 1
    stage: int = 0
    micro_batch_count: int = 1
    has_backward: bool = True
    gap_s: float = 0.0
    link_bytes_per_s: float | None = None
    node_gpu_count: int | None = None
