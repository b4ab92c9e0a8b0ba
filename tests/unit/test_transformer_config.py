"""Reading `config.json`: what is taken, and what people read when it is wrong."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from joulewise.domain.errors import InputError
from joulewise.store.hf_config import read_hf_config
from joulewise.workload.transformer.huggingface import known_model_types, model_of_config
from joulewise.workload.transformer.model import Head, TransformerModel
from joulewise.workload.transformer.presets import preset_model

DOCS = Path(__file__).resolve().parents[2] / "docs"

LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
QWEN: dict[str, object] = {
    **LLAMA,
    "model_type": "qwen2",
    "sliding_window": 4096,
    "use_sliding_window": True,
}
BERT: dict[str, object] = {
    "architectures": ["BertForMaskedLM"],
    "hidden_act": "gelu",
    "hidden_size": 768,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}


def read(config: dict[str, object], **changed: object) -> TransformerModel:
    return model_of_config({**config, **changed}, file="config.json")


def complaint(config: dict[str, object], **changed: object) -> str:
    with pytest.raises(InputError) as caught:
        read(config, **changed)
    assert caught.value.hint
    return str(caught.value).removeprefix("config.json, ")


def named(model: TransformerModel, name: str) -> bool:
    return replace(model, name=name) == preset_model(name)


def test_published_configs_are_the_presets() -> None:
    assert named(read(LLAMA), "llama3-8b")
    assert named(read(BERT), "bert-base")


def test_a_model_is_called_after_where_it_is_from_or_its_size() -> None:
    assert "llama-32x4096" == read(LLAMA).name
    assert "Meta-Llama-3-8B" == read(LLAMA, _name_or_path="meta-llama/Meta-Llama-3-8B").name
    assert "llama-32x4096" == read(LLAMA, _name_or_path="a,b=\n").name


def test_the_class_says_what_comes_last() -> None:
    assert Head.LANGUAGE_MODEL is read(LLAMA, architectures=None).head
    assert Head.NONE is read(LLAMA, architectures=["LlamaModel"]).head
    bare = read(BERT, architectures=["BertModel"])
    assert Head.NONE is bare.head
    assert bare.has_pooler
    assert not bare.has_head_bias
    assert not read(BERT).has_pooler


def test_of_a_model_that_sees_the_language_model_is_taken() -> None:
    seeing: dict[str, object] = {
        "model_type": "llava",
        "vision_config": {"hidden_size": 1},
        "text_config": LLAMA,
    }

    assert read(LLAMA) == read(seeing)
    assert "field 'text_config.vocab_size': the field is missing" == complaint(
        {**seeing, "text_config": {**LLAMA, "vocab_size": None}}
    )


def test_a_window_counts_where_it_is_switched_on_for_all_layers() -> None:
    mistral = {**LLAMA, "model_type": "mistral", "sliding_window": 4096}
    assert 4096 == read(mistral).window_count
    assert read(mistral, sliding_window=None).window_count is None
    assert read(LLAMA, sliding_window=4096).window_count is None
    assert read(QWEN).window_count is None
    assert 4096 == read(QWEN, max_window_layers=0).window_count
    assert read(QWEN, max_window_layers=0, use_sliding_window=False).window_count is None
    assert 4096 == read(QWEN, layer_types=["sliding_attention"] * 32).window_count
    assert read(QWEN, layer_types=["full_attention"] * 32, max_window_layers=3).window_count is None
    assert "field 'max_window_layers'" in complaint(QWEN, max_window_layers=3)
    assert "field 'layer_types'" in complaint(
        QWEN, layer_types=["full_attention", "sliding_attention"]
    )


def test_the_rotated_share_is_found_where_each_version_keeps_it() -> None:
    neox = {**LLAMA, "model_type": "gpt_neox"}
    assert 0.25 == read(neox).rotary_ratio
    assert 0.5 == read(neox, rotary_pct=0.5).rotary_ratio
    assert 1.0 == read(neox, rope_parameters={"partial_rotary_factor": 1}).rotary_ratio
    assert "field 'rope_parameters.partial_rotary_factor'" in complaint(
        neox, rope_parameters={"partial_rotary_factor": "half"}
    )


@pytest.mark.parametrize(
    "name",
    [
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "vocab_size",
        "model_type",
    ],
)
def test_a_missing_field_is_named(name: str) -> None:
    fields = {key: value for key, value in LLAMA.items() if key != name}

    assert f"field {name!r}: the field is missing" == complaint(fields)


@pytest.mark.parametrize("value", ["4096", -1, 0, 4096.0, True, math.nan, 10**80, [], {}, 2**40])
def test_a_senseless_size_is_refused_with_its_field(value: object) -> None:
    said = complaint(LLAMA, hidden_size=value)

    assert said.startswith("field 'hidden_size': this must be ")
    assert len(said) < 150


def test_what_is_wrong_is_said_in_one_sentence() -> None:
    moe = {**QWEN, "model_type": "qwen3_moe", "moe_intermediate_size": 64, "num_experts": 4}
    opt = {**LLAMA, "model_type": "opt", "ffn_dim": 64, "word_embed_proj_dim": 512}
    found = {
        "text": complaint(LLAMA, num_hidden_layers="32"),
        "negative": complaint(LLAMA, num_hidden_layers=-3),
        "truth": complaint(LLAMA, vocab_size=True),
        "heads": complaint(LLAMA, num_attention_heads=33),
        "groups": complaint(LLAMA, num_key_value_heads=5),
        "more groups": complaint(LLAMA, num_key_value_heads=64),
        "no groups": complaint(QWEN, num_key_value_heads=None),
        "bias": complaint(LLAMA, attention_bias="no"),
        "activation": complaint(LLAMA, hidden_act="relu6"),
        "activation number": complaint(LLAMA, hidden_act=3),
        "type": complaint(LLAMA, model_type="mamba"),
        "type number": complaint(LLAMA, model_type=7),
        "head": complaint(LLAMA, architectures=["LlamaForSequenceClassification"]),
        "other head": complaint(LLAMA, architectures=["LlamaForMaskedLM"]),
        "no list": complaint(LLAMA, architectures="LlamaForCausalLM"),
        "no text": complaint(LLAMA, architectures=[None]),
        "window": complaint(QWEN, max_window_layers=0, sliding_window=-1),
        "experts": complaint(moe, num_experts_per_tok=5),
        "layers": complaint(moe, num_experts_per_tok=2, decoder_sparse_step=2),
        "dense layers": complaint(moe, num_experts_per_tok=2, mlp_only_layers=[0]),
        "projection": complaint(opt),
        "decoder": complaint(BERT, is_decoder=True),
        "rotary": complaint({**LLAMA, "model_type": "gpt_neox"}, rotary_pct=1.5),
    }

    assert found == snapshot(
        {
            "text": "field 'num_hidden_layers': this must be a whole number, not '32'",
            "negative": "field 'num_hidden_layers': this must be between 1 and 10,000, not -3",
            "truth": "field 'vocab_size': this must be a whole number, not true",
            "heads": "field 'num_attention_heads': 33 heads do not divide the hidden size 4096",
            "groups": "field 'num_key_value_heads': 32 query heads cannot be shared out among 5",
            "more groups": "field 'num_key_value_heads': this must be between 1 and 32, not 64",
            "no groups": "field 'num_key_value_heads': the field is missing",
            "bias": "field 'attention_bias': this must be true or false, not 'no'",
            "activation": "field 'hidden_act': the activation 'relu6' is not known",
            "activation number": "field 'hidden_act': this must be a text, not 3",
            "type": "field 'model_type': the model type 'mamba' is not known",
            "type number": "field 'model_type': this must be a text, not 7",
            "head": "field 'architectures': the head of 'LlamaForSequenceClassification' cannot be built",
            "other head": "field 'architectures': the head of 'LlamaForMaskedLM' cannot be built",
            "no list": "field 'architectures': this must be a list of texts, not 'LlamaForCausalLM'",
            "no text": "field 'architectures': this must hold texts alone, not null",
            "window": "field 'sliding_window': this must be between 1 and 1,073,741,824, not -1",
            "experts": "field 'num_experts_per_tok': this must be between 1 and 4, not 5",
            "layers": "field 'decoder_sparse_step': only 1 can be built, not 2: the builder takes all layers as equal",
            "dense layers": "field 'mlp_only_layers': only an empty list can be built, not a list: the builder takes all layers as equal",
            "projection": "field 'word_embed_proj_dim': only 4096 can be built, not 512: it is the hidden size",
            "decoder": "field 'is_decoder': only false can be built, not true: it is an encoder",
            "rotary": "field 'rotary_pct': this must be above 0 and at most 1, not 1.5",
        }
    )


def test_an_unknown_type_names_the_known_ones_and_another_way() -> None:
    with pytest.raises(InputError) as caught:
        read(LLAMA, model_type="mamba")

    hint = str(caught.value.hint)
    assert all(name in hint for name in known_model_types())
    assert "kv_heads" in hint


def test_the_page_on_workloads_lists_every_known_type() -> None:
    page = (DOCS / "workloads.md").read_text(encoding="utf-8")
    listed = page.partition("may have the `model_type` ")[2].partition(".\n")[0]

    assert ", ".join(f"`{name}`" for name in known_model_types()) == listed


def test_a_file_and_its_folder_read_the_same(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA), encoding="utf-8-sig")

    assert LLAMA == read_hf_config(file) == read_hf_config(tmp_path)


def test_what_is_no_config_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    folder = tmp_path / "empty"
    folder.mkdir()
    contents = {
        "empty": b"",
        "cut": b'{"model_type": "llama",\n "vocab_size": 1',
        "list": b"[1, 2]",
        "number": b"7",
        "not a number": b'{"vocab_size": NaN}',
        "comment": b'{"vocab_size": 1} // small',
        "twice": b'{"a": 1, "text_config": {"vocab_size": 1, "vocab_size": 2}}',
        "deep": b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        "long number": b'{"a": ' + b"1" * 10_000 + b"}",
        "bytes": b'{"a": "\xff"}',
        "weights": b" " * (16 * 2**20) + b"{}",
    }
    found = {}
    for name, content in contents.items():
        file.write_bytes(content)
        found[name] = refusal(file)
    found["folder"] = refusal(folder)
    found["absent"] = refusal(tmp_path / "none.json")

    assert found == snapshot(
        {
            "empty": "config.json: the file is empty",
            "cut": "config.json, row 2: the JSON ends before it is complete",
            "list": "config.json: this must be an object, not a list",
            "number": "config.json: this must be an object, not a whole number",
            "not a number": "config.json, row 1: the line is not JSON",
            "comment": "config.json, row 1: the line is not JSON",
            "twice": "config.json, field 'vocab_size': the field is given twice in one object",
            "deep": "config.json: the JSON is nested too deeply",
            "long number": "config.json, field '[...]': integer value out of range",
            "bytes": "config.json, row 1: the line is not UTF-8 text",
            "weights": "config.json: the file is larger than 16 MiB, which no config is",
            "folder": "config.json/config.json: there is no such file",
            "absent": "config.json: there is no such file",
        }
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_that_nobody_writes_to_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")

    for path in (tmp_path / "config.json", tmp_path):
        assert "this is a pipe, not a file" in refusal(path)


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_hf_config(path)
    assert caught.value.hint
    return str(caught.value).replace(f"{path}", "config.json")
