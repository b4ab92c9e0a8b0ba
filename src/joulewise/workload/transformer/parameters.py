"""How many parameters a transformer has, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.workload.transformer.model import Head, Norm, TransformerModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterParts:
    """Parameters by where they sit; those of a layer are of one layer.

    `embedding_count` holds tokens, learned positions, token types and the norm behind them.
    `output_count` is the language-model head without a matrix that it shares with the embedding.
    """

    embedding_count: int
    layer_count: int
    layer_attention_count: int
    layer_ffn_count: int
    layer_norm_count: int
    final_norm_count: int
    pooler_count: int
    output_count: int

    @property
    def layer_total_count(self) -> int:
        """Parameters of one layer."""
        return self.layer_attention_count + self.layer_ffn_count + self.layer_norm_count

    @property
    def total_count(self) -> int:
        """Parameters of the model."""
        return (
            self.embedding_count
            + self.layer_count * self.layer_total_count
            + self.final_norm_count
            + self.pooler_count
            + self.output_count
        )


def parameter_count(model: TransformerModel) -> int:
    """Parameters of the model as PyTorch counts them: each tensor once, tied ones too."""
    return parameter_parts(model).total_count


def active_parameter_count(model: TransformerModel) -> int:
    """Parameters that one token meets: all but those of experts that it is not sent to."""
    idle_count = model.expert_count - model.active_expert_count
    return parameter_count(model) - model.layer_count * idle_count * expert_parameter_count(model)


def parameter_parts(model: TransformerModel) -> ParameterParts:
    """Parameters of the model by where they sit."""
    norm_count = _norm_count(model)
    entry_count = model.vocabulary_count + model.position_count + model.token_type_count
    return ParameterParts(
        embedding_count=entry_count * model.hidden_count
        + (norm_count if model.has_embedding_norm else 0),
        layer_count=model.layer_count,
        layer_attention_count=_attention_count(model),
        layer_ffn_count=_ffn_count(model),
        # Blocks with both parts side by side (GPT-NeoX) have a norm before each of them too.
        layer_norm_count=2 * norm_count,
        final_norm_count=norm_count if model.has_final_norm else 0,
        pooler_count=model.hidden_count * (model.hidden_count + 1) if model.has_pooler else 0,
        output_count=_output_count(model),
    )


def expert_parameter_count(model: TransformerModel) -> int:
    """Parameters of the feed-forward part of one layer; of one expert, where there are several."""
    inner_count = (2 if model.is_gated else 1) * model.ffn_count
    bias_count = inner_count + model.hidden_count if model.has_ffn_bias else 0
    return model.hidden_count * (inner_count + model.ffn_count) + bias_count


def _attention_count(model: TransformerModel) -> int:
    query_count = model.head_count * model.head_width_count
    qkv_count = query_count + 2 * model.kv_head_count * model.head_width_count
    matrix_count = model.hidden_count * (qkv_count + query_count)
    bias_count = (qkv_count if model.has_qkv_bias else 0) + (
        model.hidden_count if model.has_attention_output_bias else 0
    )
    # One weight per place in a head, shared by all heads: Qwen3, arXiv 2505.09388, section 2.
    qk_norm_count = 2 * model.head_width_count if model.has_qk_norm else 0
    return matrix_count + bias_count + qk_norm_count


def _ffn_count(model: TransformerModel) -> int:
    router_count = model.hidden_count * model.expert_count if model.expert_count > 1 else 0
    return model.expert_count * expert_parameter_count(model) + router_count


def _norm_count(model: TransformerModel) -> int:
    return model.hidden_count * (2 if model.norm is Norm.LAYER else 1)


def _output_count(model: TransformerModel) -> int:
    if model.head is Head.NONE:
        return 0
    count = 0 if model.is_tied else model.vocabulary_count * model.hidden_count
    if model.has_head_bias:
        count += model.vocabulary_count
    if model.head is Head.MASKED_LANGUAGE_MODEL:
        count += model.hidden_count * (model.hidden_count + 1) + _norm_count(model)
    return count
