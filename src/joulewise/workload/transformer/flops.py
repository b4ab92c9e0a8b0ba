"""Closed formulas for the model FLOPs of an iteration: what its matrix products must take.

A product of m x k and k x n takes 2·m·n·k FLOPs, and backward two such products, one for the
gradient of each operand. Everything else (norms, activations, softmax, rotary positions) is left
out, and nothing counts twice: neither recomputed activations nor the scores that flash attention
computes again in backward. Attention counts every pair of tokens, masked or not, as
PaLM does (Chowdhery et al., arXiv 2204.02311, appendix B), Megatron (Narayanan et al.,
arXiv 2104.04473, formula 3 less its recomputation) and PyTorch's `FlopCounterMode`.
"""

from __future__ import annotations

from joulewise.workload.transformer.model import Head, TransformerModel
from joulewise.workload.transformer.setup import TrainingSetup


def closed_flop_count(model: TransformerModel, setup: TrainingSetup) -> float:
    """Model FLOPs of one iteration of the whole job: all stages, ranks and micro-batches.

    Forward once and, where `setup.has_backward`, backward twice that. With LoRA the frozen
    weights get no gradient, so that backward takes once what they take forward; adapters and
    attention take twice as always. The input gradient of the first layer counts, which a
    training run with all embeddings frozen may spare.
    """
    forward_count = forward_flop_count(model, setup)
    if not setup.has_backward:
        return forward_count
    if setup.lora_rank_count == 0:
        return 3 * forward_count
    attention_count = attention_forward_flop_count(model, setup)
    trained_count = attention_count + _adapter_forward_count(model, setup)
    return 2 * (forward_count - trained_count) + 3 * trained_count


def forward_flop_count(model: TransformerModel, setup: TrainingSetup) -> float:
    """Model FLOPs of the forward pass of the whole job."""
    matrix_count = model.layer_count * layer_matrix_count(model) + output_matrix_count(model)
    # The pooler sees the first token of each sequence alone.
    pooler_count = model.hidden_count**2 if model.has_pooler else 0
    return (
        2.0 * job_token_count(setup) * matrix_count
        + 2.0 * job_sequence_count(setup) * pooler_count
        + attention_forward_flop_count(model, setup)
        + _adapter_forward_count(model, setup)
    )


def attention_forward_flop_count(model: TransformerModel, setup: TrainingSetup) -> float:
    """The share of `forward_flop_count` that scores and weighted values take, over all layers."""
    query_count = model.head_count * model.head_width_count
    context_count = attention_context_count(model, setup)
    return 4.0 * model.layer_count * job_token_count(setup) * context_count * query_count


def job_sequence_count(setup: TrainingSetup) -> int:
    """Sequences of one iteration of the whole job, over ranks and micro-batches."""
    return setup.batch_count * setup.micro_batch_count * setup.data_parallel_count


def job_token_count(setup: TrainingSetup) -> int:
    """Tokens of one iteration of the whole job."""
    return job_sequence_count(setup) * setup.sequence_count


def layer_matrix_count(model: TransformerModel) -> int:
    """Matrix elements that each token is multiplied by in one layer, adapters left out.

    Of several experts these are the ones that the token is sent to, and the router.
    """
    query_count = model.head_count * model.head_width_count
    kv_count = model.kv_head_count * model.head_width_count
    product_count = 3 if model.is_gated else 2
    return model.hidden_count * (
        2 * query_count
        + 2 * kv_count
        + product_count * model.ffn_count * model.active_expert_count
        + (model.expert_count if model.expert_count > 1 else 0)
    )


def output_matrix_count(model: TransformerModel) -> int:
    """Matrix elements that each token is multiplied by after the last layer."""
    if model.head is Head.NONE:
        return 0
    dense_count = model.hidden_count if model.head is Head.MASKED_LANGUAGE_MODEL else 0
    return model.hidden_count * (model.vocabulary_count + dense_count)


def attention_context_count(model: TransformerModel, setup: TrainingSetup) -> int:
    """Tokens that each token's query is compared with: the sequence, or the window if shorter."""
    if model.window_count is None:
        return setup.sequence_count
    return min(setup.sequence_count, model.window_count)


def adapter_matrix_count(model: TransformerModel, rank_count: int) -> int:
    """Elements of the LoRA matrices of one layer: on the query and the value projection.

    Source: Hu et al., arXiv 2106.09685, section 7.1: these two do best at a given budget.
    """
    query_count = model.head_count * model.head_width_count
    value_count = model.kv_head_count * model.head_width_count
    return rank_count * (2 * model.hidden_count + query_count + value_count)


def _adapter_forward_count(model: TransformerModel, setup: TrainingSetup) -> float:
    elements_count = adapter_matrix_count(model, setup.lora_rank_count)
    return 2.0 * model.layer_count * job_token_count(setup) * elements_count
