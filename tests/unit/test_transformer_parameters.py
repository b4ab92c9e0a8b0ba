"""Parameters, tensor by tensor."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inline_snapshot import snapshot

from joulewise.workload.transformer.model import Activation, Head, Norm, TransformerModel
from joulewise.workload.transformer.parameters import (
    ParameterParts,
    active_parameter_count,
    parameter_count,
    parameter_parts,
)
from joulewise.workload.transformer.presets import preset_model

PLAIN = TransformerModel(
    name="plain",
    layer_count=2,
    hidden_count=12,
    head_count=3,
    kv_head_count=3,
    head_width_count=4,
    ffn_count=20,
    vocabulary_count=50,
    norm=Norm.RMS,
    activation=Activation.SILU,
)


# From `named_parameters()` of BertForMaskedLM, Qwen3ForCausalLM and GPT2LMHeadModel.
def test_bert_base_is_its_tensors() -> None:
    layer = {
        "query, key, value, output weights": 4 * 768 * 768,
        "their biases": 4 * 768,
        "norm behind attention": 2 * 768,
        "intermediate": 768 * 3072 + 3072,
        "output": 3072 * 768 + 768,
        "norm behind it": 2 * 768,
    }
    embeddings = (30_522 + 512 + 2) * 768 + 2 * 768
    head = 768 * 768 + 768 + 2 * 768 + 30_522

    assert embeddings + 12 * sum(layer.values()) + head == 109_514_298
    assert 109_514_298 == parameter_count(preset_model("bert-base"))


def test_llama_3_8b_is_its_tensors() -> None:
    layer = {
        "q": 4096 * 4096,
        "k, v": 2 * 4096 * 1024,
        "o": 4096 * 4096,
        "gate, up, down": 3 * 4096 * 14_336,
        "norms": 2 * 4096,
    }

    assert 2 * 128_256 * 4096 + 32 * sum(layer.values()) + 4096 == 8_030_261_248
    assert 8_030_261_248 == parameter_count(preset_model("llama3-8b"))


def test_gpt2_is_its_tensors() -> None:
    layer = 4 * 768 + 768 * 2304 + 2304 + 768 * 768 + 768 + 2 * 768 * 3072 + 3072 + 768

    assert (50_257 + 1024) * 768 + 12 * layer + 2 * 768 == 124_439_808
    assert 124_439_808 == parameter_count(preset_model("gpt2"))


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({"is_tied": True}, -50 * 12),
        ({"position_count": 7}, 7 * 12),
        ({"token_type_count": 2}, 2 * 12),
        ({"has_embedding_norm": True}, 12),
        ({"has_final_norm": False}, -12),
        ({"norm": Norm.LAYER}, 5 * 12),
        ({"has_qkv_bias": True}, 2 * 36),
        ({"has_attention_output_bias": True}, 2 * 12),
        ({"has_ffn_bias": True}, 2 * (20 + 12)),
        ({"is_gated": True}, 2 * 12 * 20),
        ({"is_gated": True, "has_ffn_bias": True}, 2 * (12 * 20 + 2 * 20 + 12)),
        ({"has_qk_norm": True}, 2 * 2 * 4),
        ({"kv_head_count": 1}, -2 * 2 * 2 * 4 * 12),
        ({"head_width_count": 8}, 2 * 4 * 12 * 12),
        ({"has_head_bias": True}, 50),
        ({"has_pooler": True}, 12 * 13),
        ({"head": Head.NONE}, -50 * 12),
        ({"head": Head.MASKED_LANGUAGE_MODEL}, 12 * 12 + 12 + 12),
        ({"expert_count": 4, "active_expert_count": 2}, 2 * (3 * 2 * 12 * 20 + 4 * 12)),
        ({"window_count": 8, "is_causal": False, "is_post_norm": True}, 0),
        ({"is_parallel_block": True, "rotary_ratio": 0.5}, 0),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_each_part_adds_its_tensors(changed: dict[str, object], more: int) -> None:
    model = replace(PLAIN, **changed)  # type: ignore[arg-type]

    assert more == parameter_count(model) - parameter_count(PLAIN)


def test_parts_are_shown_one_by_one() -> None:
    assert snapshot(
        ParameterParts(
            embedding_count=39383808,
            layer_count=12,
            layer_attention_count=2362368,
            layer_ffn_count=4722432,
            layer_norm_count=3072,
            final_norm_count=1536,
            pooler_count=0,
            output_count=0,
        )
    ) == parameter_parts(preset_model("gpt2"))


def test_all_parameters_of_a_dense_model_are_active() -> None:
    mixture = replace(PLAIN, expert_count=4, active_expert_count=1)

    assert parameter_count(PLAIN) == active_parameter_count(PLAIN)
    assert parameter_count(PLAIN) + 2 * 4 * 12 == active_parameter_count(mixture)
