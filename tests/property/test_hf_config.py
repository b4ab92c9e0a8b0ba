"""No `config.json`, however wrong, does more than be read or be refused in one sentence."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from joulewise.domain.errors import InputError
from joulewise.store.hf_config import read_hf_config
from joulewise.workload.transformer.huggingface import known_model_types, model_of_config
from joulewise.workload.transformer.model import TransformerModel
from joulewise.workload.transformer.parameters import active_parameter_count, parameter_count

FIELDS: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "ffn_dim": 64,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "layer_types": None,
    "max_position_embeddings": 128,
    "max_window_layers": 0,
    "mlp_only_layers": [],
    "moe_intermediate_size": 16,
    "n_embd": 32,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 128,
    "num_attention_heads": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "rope_parameters": {"partial_rotary_factor": 0.5},
    "rotary_pct": 0.25,
    "sliding_window": 64,
    "text_config": None,
    "tie_word_embeddings": True,
    "type_vocab_size": 2,
    "use_sliding_window": True,
    "vocab_size": 100,
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FIELDS]), inner, max_size=3)
    ),
    max_leaves=6,
)
SIZES = st.integers(1, 64)


@settings(deadline=None, max_examples=200)
@given(
    model_type=st.sampled_from(known_model_types()),
    changed=st.dictionaries(st.sampled_from([*FIELDS]), JSON_VALUES | SIZES, max_size=4),
    left_out=st.sets(st.sampled_from([*FIELDS]), max_size=2),
)
def test_a_config_gives_a_consistent_model_or_names_a_field(
    model_type: str, changed: dict[str, object], left_out: set[str]
) -> None:
    fields = {**FIELDS, "model_type": model_type, **changed}
    config = {name: value for name, value in fields.items() if name not in left_out}
    model = outcome(lambda: model_of_config(config, file="config.json"))
    if isinstance(model, InputError):
        assert model.file == "config.json"
        assert model.field
        assert model.hint
        assert "\n" not in str(model)
        assert len(str(model)) < 300
        return

    assert 0 == model.head_count % model.kv_head_count
    assert 1 <= model.active_expert_count <= model.expert_count
    assert 0 <= model.rotary_ratio <= 1
    assert 0 < active_parameter_count(model) <= parameter_count(model)


@settings(deadline=None, max_examples=60)
@given(layers=SIZES, heads=SIZES, groups=SIZES, width=SIZES, hidden=SIZES, ffn=SIZES, entries=SIZES)
def test_the_sizes_of_a_config_are_those_of_its_model(  # noqa: PLR0913, PLR0917 - one for each size
    layers: int, heads: int, groups: int, width: int, hidden: int, ffn: int, entries: int
) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "num_attention_heads": heads * groups,
        "num_key_value_heads": groups,
        "head_dim": width,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "vocab_size": entries,
    }
    queries, keys = heads * groups * width, groups * width

    layer_count = 2 * hidden * (queries + keys) + 3 * hidden * ffn + 2 * hidden

    assert 2 * entries * hidden + layers * layer_count + hidden == parameter_count(
        model_of_config(config, file="config.json")
    )


TEXT = json.dumps({**FIELDS, "model_type": "llama"}).encode()


@settings(deadline=None, max_examples=100)
@given(start=st.integers(0, len(TEXT)), length=st.integers(0, 40), put_in=st.binary(max_size=6))
@example(start=len(TEXT) // 2, length=len(TEXT), put_in=b"")
@example(start=0, length=len(TEXT), put_in=b"\xff\xfe")
@example(start=1, length=0, put_in=b'"\\ud800": 1, ')
def test_a_damaged_config_is_read_or_refused(start: int, length: int, put_in: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_bytes(TEXT[:start] + put_in + TEXT[start + length :])
        found = outcome(lambda: model_of_config(read_hf_config(path), file=str(path)))

    if isinstance(found, InputError):
        assert str(path) == found.file
        # Half a surrogate pair in it could not be printed.
        assert str(found).encode()


def outcome(read: Callable[[], TransformerModel]) -> TransformerModel | InputError:
    """What was read, or why it was refused."""
    try:
        return read()
    except InputError as error:
        return error
