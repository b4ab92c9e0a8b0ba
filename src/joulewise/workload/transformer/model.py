"""The shape of a transformer: everything that its kernels and parameters follow from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Norm(StrEnum):
    """How rows are normalised: layer norm has weight and bias, RMS norm a weight."""

    LAYER = "layer"
    RMS = "rms"


class Activation(StrEnum):
    """The nonlinearity of the feed-forward part."""

    GELU = "gelu"
    SILU = "silu"
    RELU = "relu"


class Head(StrEnum):
    """What comes after the last layer.

    `LANGUAGE_MODEL` multiplies by the vocabulary; `MASKED_LANGUAGE_MODEL` (BERT) has a dense
    layer, an activation and a norm before that; `NONE` ends with the hidden states.
    """

    LANGUAGE_MODEL = "language-model"
    MASKED_LANGUAGE_MODEL = "masked-language-model"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerModel:
    """A decoder or encoder of equal layers, without any batch, device or parallelism.

    `head_width_count` is the width of one attention head; `kv_head_count` below `head_count`
    is grouped-query attention. `ffn_count` is the inner width of the feed-forward part (of one
    expert, where there are several). `position_count` is the number of learned positions (0 for
    rotary ones), `rotary_ratio` the share of each head that is rotated. `is_post_norm` puts
    norms behind the residual sum (BERT); `is_parallel_block` feeds attention and feed-forward
    part from the same input (GPT-NeoX). `expert_count` is 1 for a dense model.
    """

    name: str
    layer_count: int
    hidden_count: int
    head_count: int
    kv_head_count: int
    head_width_count: int
    ffn_count: int
    vocabulary_count: int
    norm: Norm
    activation: Activation
    head: Head = Head.LANGUAGE_MODEL
    position_count: int = 0
    token_type_count: int = 0
    rotary_ratio: float = 0.0
    is_gated: bool = False
    is_causal: bool = True
    is_tied: bool = False
    is_post_norm: bool = False
    is_parallel_block: bool = False
    has_embedding_norm: bool = False
    has_final_norm: bool = True
    has_qkv_bias: bool = False
    has_attention_output_bias: bool = False
    has_ffn_bias: bool = False
    has_head_bias: bool = False
    has_qk_norm: bool = False
    has_pooler: bool = False
    expert_count: int = 1
    active_expert_count: int = 1
    window_count: int | None = None
    """Tokens that attention looks back on, where fewer than the sequence."""
