"""An estimate of the memory that training takes on one GPU: to see what fits, not to refuse.

Weights, gradients and optimizer states follow from counts of parameters, and ZeRO splits them
(Rajbhandari et al., arXiv 1910.02054, section 3.1). Activations are what backward reads again,
each tensor once, without dropout; allocators, workspaces and fragments come on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.workload.transformer.attention import score_count
from joulewise.workload.transformer.feedforward import routed_row_count
from joulewise.workload.transformer.model import Head, TransformerModel
from joulewise.workload.transformer.optimizer import state_bytes_per_parameter
from joulewise.workload.transformer.parallel import Share, check_setup
from joulewise.workload.transformer.parallel_weights import weights_of
from joulewise.workload.transformer.setup import Attention, Recompute, TrainingSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryParts:
    """Bytes on one GPU by what they hold; the optimizer's include FP32 master weights."""

    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    activation_bytes: float

    @property
    def total_bytes(self) -> float:
        """All of them."""
        return (
            self.weight_bytes + self.gradient_bytes + self.optimizer_bytes + self.activation_bytes
        )


def memory_bytes(model: TransformerModel, setup: TrainingSetup) -> float:
    """Estimated memory of one GPU of the setup's stage; raises as `memory_parts` does."""
    return memory_parts(model, setup).total_bytes


def memory_parts(model: TransformerModel, setup: TrainingSetup) -> MemoryParts:
    """Estimated memory of one GPU of the setup's stage, by what it holds.

    Raises InputError for a setup that does not fit the model.
    """
    check_setup(model, setup)
    share = Share(model=model, setup=setup)
    element_bytes = share.formats.element_bytes
    weights = weights_of(share)
    trained = weights.trained_count if setup.has_backward else 0
    split = [setup.data_parallel_count if setup.zero_stage >= stage else 1 for stage in (1, 2, 3)]
    return MemoryParts(
        weight_bytes=weights.total_count * element_bytes / split[2],
        gradient_bytes=trained * element_bytes / split[1],
        optimizer_bytes=trained * state_bytes_per_parameter(share) / split[0],
        activation_bytes=activation_count(share) * element_bytes,
    )


def activation_count(share: Share) -> float:
    """Elements that are kept until backward, of all micro-batches on their way.

    A stage of 1F1B holds as many micro-batches as there are stages from it to the last
    (Narayanan et al., arXiv 2104.04473, section 2.2.1). Layers computed again keep their input,
    and one of them all it has. A forward pass alone keeps the widest layer.
    """
    setup = share.setup
    logits = 0.0
    if share.is_last_stage and share.model.head is not Head.NONE:
        logits = float(share.token_count) * share.vocabulary_count
    whole_layer = _layer_count_of_elements(share)
    if not setup.has_backward:
        return whole_layer + logits
    on_way = min(setup.micro_batch_count, setup.pipeline_parallel_count - setup.stage)
    if setup.recompute is Recompute.FULL:
        return on_way * share.layer_count * share.hidden_element_count + whole_layer + logits
    return on_way * share.layer_count * whole_layer + logits


def _layer_count_of_elements(share: Share) -> float:
    """Elements of one layer that backward reads."""
    hidden = share.hidden_element_count
    heads = float(share.token_count) * (2 * share.query_count + 2 * share.key_count)
    inner = routed_row_count(share) * share.ffn_count * (3 if share.model.is_gated else 2)
    is_eager = share.setup.attention is Attention.EAGER
    keeps_scores = is_eager and share.setup.recompute is Recompute.NONE
    scores = score_count(share) if keeps_scores else 0.0
    # Inputs of both norms and of both first products.
    return 4 * hidden + heads + inner + scores
