"""How many parameters one GPU holds, and how many of them it trains.

Tensor parallelism splits matrices and the biases of split columns; norms, the biases of split
rows, routers and the narrow half of adapters are held whole by every GPU. Over the stages of a
job without tensor parallelism the counts add up to `parameter_count`, but for an embedding that
the head of another stage shares: both stages hold it.
"""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.workload.transformer.model import Head, Norm
from joulewise.workload.transformer.parallel import Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Parameters of one GPU, before ZeRO splits them; `adapter_count` is of one layer."""

    layer_count: int
    embedding_count: int
    one_layer_count: int
    head_count: int
    adapter_count: int

    @property
    def base_count(self) -> int:
        """Parameters of the model itself."""
        return self.embedding_count + self.layer_count * self.one_layer_count + self.head_count

    @property
    def total_count(self) -> int:
        """All parameters, adapters among them."""
        return self.base_count + self.layer_count * self.adapter_count

    @property
    def trained_count(self) -> int:
        """Parameters that get gradients: adapters alone where there are any."""
        return self.layer_count * self.adapter_count if self.adapter_count else self.base_count

    @property
    def trained_layer_count(self) -> int:
        """Those of one layer."""
        return self.adapter_count or self.one_layer_count


def weights_of(share: Share) -> Weights:
    """Parameters that one GPU of the share's stage holds."""
    return Weights(
        layer_count=share.layer_count,
        embedding_count=_embedding_count(share) if share.is_first_stage else 0,
        one_layer_count=_attention_count(share) + _ffn_count(share) + 2 * _norm_count(share),
        head_count=_head_count(share) if share.is_last_stage else 0,
        adapter_count=share.setup.lora_rank_count
        * (2 * share.model.hidden_count + share.query_count + share.key_count),
    )


def shared_embedding_count(share: Share) -> int:
    """Entries that the first and the last stage both hold, elements; 0 where one has both."""
    is_apart = share.is_first_stage != share.is_last_stage
    is_shared = share.model.is_tied and share.model.head is not Head.NONE
    return _vocabulary_matrix_count(share) if is_apart and is_shared else 0


def _vocabulary_matrix_count(share: Share) -> int:
    return share.vocabulary_count * share.model.hidden_count


def _norm_count(share: Share) -> int:
    return share.model.hidden_count * (2 if share.model.norm is Norm.LAYER else 1)


def _attention_count(share: Share) -> int:
    model = share.model
    qkv = share.query_count + 2 * share.key_count
    biases = (qkv if model.has_qkv_bias else 0) + (
        model.hidden_count if model.has_attention_output_bias else 0
    )
    qk_norms = 2 * model.head_width_count if model.has_qk_norm else 0
    return model.hidden_count * (qkv + share.query_count) + biases + qk_norms


def _ffn_count(share: Share) -> int:
    model = share.model
    up = share.ffn_count * (2 if model.is_gated else 1)
    biases = up + model.hidden_count if model.has_ffn_bias else 0
    router = model.hidden_count * model.expert_count if model.expert_count > 1 else 0
    return model.expert_count * (model.hidden_count * (up + share.ffn_count) + biases) + router


def _embedding_count(share: Share) -> int:
    model = share.model
    rows = model.position_count + model.token_type_count
    norm = _norm_count(share) if model.has_embedding_norm else 0
    return _vocabulary_matrix_count(share) + rows * model.hidden_count + norm


def _head_count(share: Share) -> int:
    model = share.model
    dense = model.hidden_count * (model.hidden_count + 1)
    count = _norm_count(share) if model.has_final_norm else 0
    count += dense if model.has_pooler else 0
    if model.head is Head.NONE:
        return count
    if not (model.is_tied and share.is_first_stage):
        count += _vocabulary_matrix_count(share)
    count += share.vocabulary_count if model.has_head_bias else 0
    if model.head is Head.MASKED_LANGUAGE_MODEL:
        count += dense + _norm_count(share)
    return count
