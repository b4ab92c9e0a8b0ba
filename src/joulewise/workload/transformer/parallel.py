"""One GPU's share of a model and its batch: what tensor, pipeline and data parallelism split.

Tensor parallelism splits heads, the feed-forward width (of every expert) and the vocabulary,
and sequence parallelism the rows of norms and residuals (Korthikanti et al., arXiv 2205.05198,
section 4.2). Pipeline parallelism gives each stage as many layers. There is no expert
parallelism: every data-parallel rank holds all experts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from joulewise.domain.errors import InputError
from joulewise.workload.job_nodes import check_node_gpus
from joulewise.workload.transformer.bounds import check_gap
from joulewise.workload.transformer.model import TransformerModel
from joulewise.workload.transformer.setup import TrainingSetup
from joulewise.workload.transformer.shapes import Formats, formats_of

HIGHEST_ZERO_STAGE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one GPU of the stage `setup.stage` holds. Counts are per GPU and micro-batch."""

    model: TransformerModel
    setup: TrainingSetup

    @property
    def formats(self) -> Formats:
        """Number formats of the kernels."""
        return formats_of(self.setup.dtype)

    @property
    def token_count(self) -> int:
        """Tokens of one micro-batch."""
        return self.setup.batch_count * self.setup.sequence_count

    @property
    def row_count(self) -> float:
        """Tokens of one GPU where sequence parallelism splits them."""
        return self.token_count / self.setup.tensor_parallel_count

    @property
    def hidden_element_count(self) -> float:
        """Elements of the hidden states of the rows that this GPU normalises."""
        return self.row_count * self.model.hidden_count

    @property
    def head_count(self) -> int:
        """Attention heads."""
        return self.model.head_count // self.setup.tensor_parallel_count

    @property
    def kv_head_count(self) -> int:
        """Heads of keys and values."""
        return self.model.kv_head_count // self.setup.tensor_parallel_count

    @property
    def query_count(self) -> int:
        """Width of the queries, and of attention's output."""
        return self.head_count * self.model.head_width_count

    @property
    def key_count(self) -> int:
        """Width of the keys, and of the values."""
        return self.kv_head_count * self.model.head_width_count

    @property
    def ffn_count(self) -> int:
        """Inner width of the feed-forward part, of one expert."""
        return self.model.ffn_count // self.setup.tensor_parallel_count

    @property
    def vocabulary_count(self) -> int:
        """Entries of the vocabulary; what does not divide is padded, as Megatron-LM does."""
        return math.ceil(self.model.vocabulary_count / self.setup.tensor_parallel_count)

    @property
    def layer_count(self) -> int:
        """Layers of the stage."""
        return self.model.layer_count // self.setup.pipeline_parallel_count

    @property
    def is_first_stage(self) -> bool:
        """Whether the embeddings are here."""
        return self.setup.stage == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether the final norm and the head are here."""
        return self.setup.stage == self.setup.pipeline_parallel_count - 1

    @property
    def is_fully_trained(self) -> bool:
        """Whether all weights are trained, and not adapters alone."""
        return self.setup.lora_rank_count == 0

    @property
    def is_accumulating(self) -> bool:
        """Whether gradients add up over micro-batches."""
        return self.setup.micro_batch_count > 1


def job_gpu_count(setup: TrainingSetup) -> int:
    """GPUs of the whole job."""
    return setup.data_parallel_count * setup.tensor_parallel_count * setup.pipeline_parallel_count


def check_setup(model: TransformerModel, setup: TrainingSetup) -> None:
    """Raise InputError naming the option that does not fit the model or the others."""
    _check_counts(setup)
    _check_adapters(model, setup)
    _check_degrees(model, setup)
    _check_sequence(model, setup)
    check_node_gpus(setup.node_gpu_count, job_gpu_count(setup))
    if not 0 <= setup.zero_stage <= HIGHEST_ZERO_STAGE:
        raise InputError(
            f"ZeRO has the stages 0 to 3, not {setup.zero_stage}",
            field="zero",
            hint="0 splits nothing, 3 weights too (FSDP).",
        )
    if not 0 <= setup.stage < setup.pipeline_parallel_count:
        raise InputError(
            f"there is no pipeline stage {setup.stage} of {setup.pipeline_parallel_count}",
            field="stage",
            hint="Stages count from 0; pp says how many there are.",
        )


def _check_counts(setup: TrainingSetup) -> None:
    counts = {
        "batch": setup.batch_count,
        "seq": setup.sequence_count,
        "dp": setup.data_parallel_count,
        "tp": setup.tensor_parallel_count,
        "pp": setup.pipeline_parallel_count,
        "micro": setup.micro_batch_count,
    }
    for option, count in counts.items():
        if count < 1:
            raise InputError(
                f"this must be at least 1, got {count}",
                field=option,
                hint="One sequence on one GPU is batch=1 with degrees of 1.",
            )
    if not (math.isfinite(setup.gap_s) and setup.gap_s >= 0):
        raise InputError(
            f"a gap cannot last {setup.gap_s:g} s",
            field="gap_ms",
            hint="Give the time per iteration in which no kernel runs, or 0.",
        )
    check_gap(setup.gap_s)
    link = setup.link_bytes_per_s
    if link is not None and not (math.isfinite(link) and link > 0):
        raise InputError(
            f"a link cannot carry {link:g} bytes/s",
            field="link_gb_per_s",
            hint="Give what one GPU sends in one direction: 300 for NVLink of an A100.",
        )


def _check_adapters(model: TransformerModel, setup: TrainingSetup) -> None:
    rank = setup.lora_rank_count
    if rank < 0:
        raise InputError(
            f"the rank of adapters cannot be {rank}",
            field="lora",
            hint="Leave it out, or give 0, to train all weights.",
        )
    if rank > model.hidden_count:
        raise InputError(
            f"adapters of rank {rank} are larger than the matrices of {model.name}, whose hidden "
            f"size is {model.hidden_count}",
            field="lora",
            hint="Ranks of 4 to 64 are common; 0 trains all weights.",
        )


def _check_degrees(model: TransformerModel, setup: TrainingSetup) -> None:
    degree = setup.tensor_parallel_count
    split = {
        "attention heads": model.head_count,
        "key-value heads": model.kv_head_count,
        "feed-forward columns": model.ffn_count,
    }
    for what, count in split.items():
        if count % degree:
            raise InputError(
                f"{degree} does not divide the {count} {what} of {model.name}",
                field="tp",
                hint=f"Use a divisor of {math.gcd(*split.values())}.",
            )
    if model.layer_count % setup.pipeline_parallel_count:
        raise InputError(
            f"{setup.pipeline_parallel_count} does not divide the {model.layer_count} layers "
            f"of {model.name}",
            field="pp",
            hint="Each stage holds as many layers; use a divisor.",
        )


def _check_sequence(model: TransformerModel, setup: TrainingSetup) -> None:
    if 0 < model.position_count < setup.sequence_count:
        raise InputError(
            f"{model.name} has {model.position_count} positions, fewer than a sequence of "
            f"{setup.sequence_count} tokens",
            field="seq",
            hint=f"Use at most {model.position_count}.",
        )
    if setup.sequence_count % setup.tensor_parallel_count:
        raise InputError(
            f"sequence parallelism cannot split {setup.sequence_count} tokens over "
            f"{setup.tensor_parallel_count} GPUs",
            field="seq",
            hint=f"Use a multiple of {setup.tensor_parallel_count}.",
        )
