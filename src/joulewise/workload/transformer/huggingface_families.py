"""What each family of Hugging Face models calls its sizes, and how its layers are made.

Names and defaults: `configuration_*.py` of the `transformers` library; what has no default there
that fits all published models must be said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from joulewise.workload.transformer.huggingface_fields import (
    MOST_LAYER_COUNT,
    MOST_TOKEN_COUNT,
    MOST_VOCABULARY_COUNT,
    MOST_WIDTH_COUNT,
    ConfigFields,
)
from joulewise.workload.transformer.model import Activation, Head, Norm, TransformerModel

_ACTIVATIONS = {
    "gelu": Activation.GELU,
    "gelu_fast": Activation.GELU,
    "gelu_new": Activation.GELU,
    "gelu_python": Activation.GELU,
    "gelu_pytorch_tanh": Activation.GELU,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "relu": Activation.RELU,
}
_UNLIKE_LAYERS = "the builder takes all layers as equal"


def _base(fields: ConfigFields, head_width_count: int) -> TransformerModel:
    """What most families say by the same names; RMS norms, rotary positions and a gate."""
    head_count = _width(fields, "num_attention_heads")
    return TransformerModel(
        name="",
        layer_count=_layers(fields, "num_hidden_layers"),
        hidden_count=_width(fields, "hidden_size"),
        head_count=head_count,
        kv_head_count=head_count,
        head_width_count=head_width_count,
        ffn_count=_width(fields, "intermediate_size"),
        vocabulary_count=_vocabulary(fields),
        norm=Norm.RMS,
        activation=_activation(fields, "hidden_act", "silu"),
        rotary_ratio=1.0,
        is_gated=True,
        is_tied=fields.flag("tie_word_embeddings", default=False),
    )


def _grouped(
    fields: ConfigFields, *, head_width_count: int | None = None, may_say_no_groups: bool = False
) -> TransformerModel:
    """The same with fewer heads of keys and values than of queries.

    Args:
        fields: What the config says.
        head_width_count: Width of a head where `head_dim` is absent; else an even share.
        may_say_no_groups: Whether `num_key_value_heads` may be absent, which is one per query.
    """
    if fields.has("head_dim"):
        head_width_count = _width(fields, "head_dim")
    model = _base(fields, head_width_count or _even_width(fields))
    kv_head_count = fields.whole(
        "num_key_value_heads",
        most=model.head_count,
        default=model.head_count if may_say_no_groups else None,
    )
    if model.head_count % kv_head_count:
        raise fields.error(
            "num_key_value_heads",
            f"{model.head_count} query heads cannot be shared out among {kv_head_count}",
        )
    return replace(model, kv_head_count=kv_head_count)


def _llama(fields: ConfigFields) -> TransformerModel:
    has_bias = fields.flag("attention_bias", default=False)
    return replace(
        _grouped(fields, may_say_no_groups=True),
        has_qkv_bias=has_bias,
        has_attention_output_bias=has_bias,
        has_ffn_bias=fields.flag("mlp_bias", default=False),
    )


def _mistral(fields: ConfigFields) -> TransformerModel:
    return replace(_grouped(fields), window_count=_window(fields))


def _mixtral(fields: ConfigFields) -> TransformerModel:
    return _with_experts(fields, _mistral(fields), "num_local_experts")


def _qwen2(fields: ConfigFields) -> TransformerModel:
    model = replace(_grouped(fields), has_qkv_bias=True)
    return replace(model, window_count=_qwen_window(fields, model.layer_count))


def _qwen3(fields: ConfigFields) -> TransformerModel:
    return _normed_heads(fields, _grouped(fields, head_width_count=128))


def _normed_heads(fields: ConfigFields, model: TransformerModel) -> TransformerModel:
    """Qwen3's attention, whose queries and keys are normalised."""
    has_bias = fields.flag("attention_bias", default=False)
    return replace(
        model,
        has_qk_norm=True,
        has_qkv_bias=has_bias,
        has_attention_output_bias=has_bias,
        window_count=_qwen_window(fields, model.layer_count),
    )


def _qwen3_moe(fields: ConfigFields) -> TransformerModel:
    fields.required("decoder_sparse_step", 1, default=1, why=_UNLIKE_LAYERS)
    fields.required("mlp_only_layers", [], default=[], why=_UNLIKE_LAYERS)
    model = _normed_heads(fields, _grouped(fields))
    model = replace(model, ffn_count=_width(fields, "moe_intermediate_size"))
    # Transformers 5 writes the name that Mixtral has.
    name = "num_local_experts" if fields.has("num_local_experts") else "num_experts"
    return _with_experts(fields, model, name)


def _gemma(fields: ConfigFields) -> TransformerModel:
    has_bias = fields.flag("attention_bias", default=False)
    return replace(
        _grouped(fields, head_width_count=256),
        # Gemma's own field came after configs that say `hidden_act` and were computed so anyway.
        activation=_activation(fields, "hidden_activation", "gelu_pytorch_tanh"),
        is_tied=fields.flag("tie_word_embeddings", default=True),
        has_qkv_bias=has_bias,
        has_attention_output_bias=has_bias,
    )


def _phi3(fields: ConfigFields) -> TransformerModel:
    return replace(
        _grouped(fields, may_say_no_groups=True),
        rotary_ratio=_rotary_ratio(fields, "partial_rotary_factor", 1.0),
        window_count=_window(fields),
    )


def _gpt_neox(fields: ConfigFields) -> TransformerModel:
    has_bias = fields.flag("attention_bias", default=True)
    return replace(
        _base(fields, _even_width(fields)),
        norm=Norm.LAYER,
        activation=_activation(fields, "hidden_act", "gelu"),
        rotary_ratio=_rotary_ratio(fields, "rotary_pct", 0.25),
        is_gated=False,
        is_parallel_block=fields.flag("use_parallel_residual", default=True),
        has_qkv_bias=has_bias,
        has_attention_output_bias=has_bias,
        has_ffn_bias=True,
    )


def _gpt2(fields: ConfigFields) -> TransformerModel:
    hidden = _width(fields, "n_embd")
    head_count = _width(fields, "n_head")
    return TransformerModel(
        name="",
        layer_count=_layers(fields, "n_layer"),
        hidden_count=hidden,
        head_count=head_count,
        kv_head_count=head_count,
        head_width_count=_even_width(fields, "n_embd", "n_head"),
        ffn_count=fields.whole("n_inner", most=MOST_WIDTH_COUNT, default=4 * hidden),
        vocabulary_count=_vocabulary(fields),
        norm=Norm.LAYER,
        activation=_activation(fields, "activation_function", "gelu_new"),
        position_count=_positions(fields, "n_positions"),
        is_tied=fields.flag("tie_word_embeddings", default=True),
        has_qkv_bias=True,
        has_attention_output_bias=True,
        has_ffn_bias=True,
    )


def _opt(fields: ConfigFields) -> TransformerModel:
    hidden = _width(fields, "hidden_size")
    head_count = _width(fields, "num_attention_heads")
    fields.required("word_embed_proj_dim", hidden, default=hidden, why="it is the hidden size")
    fields.required("do_layer_norm_before", wanted=True, default=True, why="norms come first")
    fields.required(
        "_remove_final_layer_norm", wanted=False, default=False, why="a norm comes last"
    )
    fields.required("layer_norm_elementwise_affine", wanted=True, default=True, why="norms scale")
    has_bias = fields.flag("enable_bias", default=True)
    return TransformerModel(
        name="",
        layer_count=_layers(fields, "num_hidden_layers"),
        hidden_count=hidden,
        head_count=head_count,
        kv_head_count=head_count,
        head_width_count=_even_width(fields),
        ffn_count=_width(fields, "ffn_dim"),
        vocabulary_count=_vocabulary(fields),
        norm=Norm.LAYER,
        activation=_activation(fields, "activation_function", "relu"),
        # Two rows are kept for padding: OPTLearnedPositionalEmbedding.
        position_count=_positions(fields, "max_position_embeddings") + 2,
        is_tied=fields.flag("tie_word_embeddings", default=True),
        has_qkv_bias=has_bias,
        has_attention_output_bias=has_bias,
        has_ffn_bias=has_bias,
    )


def _bert(fields: ConfigFields) -> TransformerModel:
    """BERT, and RoBERTa, which differs in numbers and training alone."""
    fields.required("is_decoder", wanted=False, default=False, why="it is an encoder")
    architectures = fields.texts("architectures")
    has_head = not architectures or architectures[0].endswith("ForMaskedLM")
    return replace(
        _base(fields, _even_width(fields)),
        norm=Norm.LAYER,
        activation=_activation(fields, "hidden_act", "gelu"),
        head=Head.MASKED_LANGUAGE_MODEL,
        position_count=_positions(fields, "max_position_embeddings"),
        token_type_count=fields.whole("type_vocab_size", most=MOST_WIDTH_COUNT),
        rotary_ratio=0.0,
        is_gated=False,
        is_causal=False,
        is_tied=fields.flag("tie_word_embeddings", default=True),
        is_post_norm=True,
        has_embedding_norm=True,
        has_final_norm=False,
        has_qkv_bias=True,
        has_attention_output_bias=True,
        has_ffn_bias=True,
        has_head_bias=has_head,
        has_pooler=not has_head,
    )


def _with_experts(fields: ConfigFields, model: TransformerModel, name: str) -> TransformerModel:
    expert_count = fields.whole(name, most=MOST_WIDTH_COUNT)
    active_count = fields.whole("num_experts_per_tok", most=expert_count)
    return replace(model, expert_count=expert_count, active_expert_count=active_count)


def _layers(fields: ConfigFields, name: str) -> int:
    return fields.whole(name, most=MOST_LAYER_COUNT)


def _width(fields: ConfigFields, name: str) -> int:
    return fields.whole(name, most=MOST_WIDTH_COUNT)


def _vocabulary(fields: ConfigFields) -> int:
    return fields.whole("vocab_size", most=MOST_VOCABULARY_COUNT)


def _positions(fields: ConfigFields, name: str) -> int:
    return fields.whole(name, most=MOST_TOKEN_COUNT)


def _even_width(
    fields: ConfigFields, hidden: str = "hidden_size", heads: str = "num_attention_heads"
) -> int:
    """The width of a head where the heads share out the hidden size."""
    hidden_count = _width(fields, hidden)
    head_count = _width(fields, heads)
    if hidden_count % head_count:
        raise fields.error(
            heads, f"{head_count} heads do not divide the hidden size {hidden_count}"
        )
    return hidden_count // head_count


def _activation(fields: ConfigFields, name: str, default: str) -> Activation:
    text = fields.text(name, default=default)
    if text not in _ACTIVATIONS:
        raise fields.error(
            name,
            f"the activation {text[:40]!r} is not known",
            hint=f"Known: {', '.join(_ACTIVATIONS)}.",
        )
    return _ACTIVATIONS[text]


def _rotary_ratio(fields: ConfigFields, name: str, default: float) -> float:
    """The rotated share of a head, which transformers 5 keeps among other rotary parameters."""
    rope = fields.inner("rope_parameters")
    if rope is not None and rope.has("partial_rotary_factor"):
        return rope.ratio("partial_rotary_factor", default=default)
    return fields.ratio(name, default=default)


def _window(fields: ConfigFields) -> int | None:
    """How far attention looks back; null, as absence, is without limit."""
    if not fields.has("sliding_window"):
        return None
    return fields.whole("sliding_window", most=MOST_TOKEN_COUNT)


def _qwen_window(fields: ConfigFields, layer_count: int) -> int | None:
    """Qwen's window holds only where it is switched on, and from one layer on."""
    if not fields.flag("use_sliding_window", default=False):
        return None
    first = fields.whole("max_window_layers", least=0, most=MOST_LAYER_COUNT, default=layer_count)
    kinds = set(fields.texts("layer_types"))
    is_mixed = len(kinds) > 1 if kinds else 0 < first < layer_count
    if is_mixed:
        raise fields.error(
            "layer_types" if kinds else "max_window_layers",
            f"some layers alone have a window, and {_UNLIKE_LAYERS}",
        )
    has_window = "sliding_attention" in kinds if kinds else first == 0
    return _window(fields) if has_window else None


FAMILIES: Mapping[str, Callable[[ConfigFields], TransformerModel]] = {
    "bert": _bert,
    "gemma": _gemma,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "opt": _opt,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "roberta": _bert,
    "xlm-roberta": _bert,
}
