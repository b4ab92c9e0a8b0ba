"""Shapes, parameters and FLOPs against the models of `transformers` as PyTorch counts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import pytest

from joulewise.workload.transformer.build import matrix_flops
from joulewise.workload.transformer.flops import (
    attention_forward_flop_count,
    closed_flop_count,
    forward_flop_count,
)
from joulewise.workload.transformer.huggingface import known_model_types, model_of_config
from joulewise.workload.transformer.model import Head, TransformerModel
from joulewise.workload.transformer.parameters import parameter_count
from joulewise.workload.transformer.presets import preset_model, preset_names
from joulewise.workload.transformer.setup import Attention, TrainingSetup

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.integration

BATCH_COUNT = 2
SEQUENCE_COUNT = 32
SETUP = TrainingSetup(batch_count=BATCH_COUNT, sequence_count=SEQUENCE_COUNT)
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
COMMON: dict[str, object] = {
    "vocab_size": 101,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    **TOKENS,
}
GROUPED = {**COMMON, "num_key_value_heads": 2}
WIDE = {**GROUPED, "head_dim": 16}
ENCODER = {**COMMON, "max_position_embeddings": 64, "type_vocab_size": 2}
OPT = {
    **{name: value for name, value in COMMON.items() if name != "intermediate_size"},
    "ffn_dim": 80,
    "max_position_embeddings": 64,
    "word_embed_proj_dim": 48,
}
GPT2: dict[str, object] = {
    "vocab_size": 101,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    **TOKENS,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
CONFIGS: dict[str, dict[str, object]] = {
    "bert": ENCODER,
    "gemma": WIDE,
    "gpt2": GPT2,
    "gpt_neox": COMMON,
    "llama": {**GROUPED, "attention_bias": True, "mlp_bias": True},
    "mistral": WIDE,
    "mixtral": {**GROUPED, **EXPERTS},
    "opt": OPT,
    "phi3": GROUPED,
    "qwen2": GROUPED,
    "qwen3": {**WIDE, "attention_bias": True, "tie_word_embeddings": True},
    "qwen3_moe": {**WIDE, **EXPERTS, "num_experts": 4, "moe_intermediate_size": 32},
    "roberta": ENCODER,
    "xlm-roberta": ENCODER,
}
FAMILIES = sorted(CONFIGS)
DENSE = [name for name in FAMILIES if "num_experts_per_tok" not in CONFIGS[name]]


@pytest.fixture(autouse=True)
def transformers_is_there() -> None:
    """Imported in tests alone, as it takes seconds."""
    pytest.importorskip("transformers")


class Config(Protocol):
    """What is used of a config of transformers."""

    model_type: str

    def to_dict(self) -> dict[str, object]: ...


def config_of(model_type: str, **changed: object) -> Config:
    return configured(model_type, {**CONFIGS[model_type], **changed})


def configured(model_type: str, fields: dict[str, object]) -> Config:
    import transformers

    config: Config = transformers.AutoConfig.for_model(model_type, **fields)
    return config


def network(config: Config, *, has_head: bool = True, attention: str = "eager") -> torch.nn.Module:
    """The network of a config; experts one by one, as the counter knows no grouped products."""
    import transformers

    is_encoder = config.model_type in {"bert", "roberta", "xlm-roberta"}
    auto = transformers.AutoModel
    if has_head:
        auto = (
            transformers.AutoModelForMaskedLM if is_encoder else transformers.AutoModelForCausalLM
        )
    is_mixture = config.model_type in {"mixtral", "qwen3_moe"}
    experts = {"experts_implementation": "eager"} if is_mixture else {}
    found: torch.nn.Module = auto.from_config(config, attn_implementation=attention, **experts)
    return found


def shape_of(config: Config, module: torch.nn.Module) -> TransformerModel:
    fields = {**config.to_dict(), "architectures": [type(module).__name__]}
    return model_of_config(fields, file="config.json")


def counted(module: torch.nn.Module) -> int:
    return sum(one.numel() for one in module.parameters())


def counted_flops(module: torch.nn.Module) -> tuple[int, int]:
    """FLOPs forward and backward on random tokens."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    tokens = torch.randint(3, 100, (BATCH_COUNT, SEQUENCE_COUNT))
    with FlopCounterMode(display=False) as forward:
        output = module(input_ids=tokens)
    loss = output[0].square().mean()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.fixture
def math_attention() -> Iterator[None]:
    """Attention of PyTorch as plain products, as the counter knows not the fused one of CPUs."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        yield


def test_every_family_is_tried() -> None:
    assert FAMILIES == sorted(known_model_types())


@pytest.mark.parametrize("has_head", [True, False], ids=["head", "headless"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_parameters_are_those_of_the_network_with_and_without_its_head(
    model_type: str, *, has_head: bool
) -> None:
    import torch

    config = config_of(model_type)
    with torch.device("meta"):
        module = network(config, has_head=has_head)
    shape = shape_of(config, module)

    assert (shape.head is not Head.NONE) == has_head
    assert counted(module) == parameter_count(shape)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_defaults_of_a_family_are_those_of_transformers(model_type: str) -> None:
    """Fields that are left out of a small config mean what its class says."""
    import torch

    config = config_of(model_type)
    with torch.device("meta"):
        module = network(config)

    assert parameter_count(shape_of(config, module)) == parameter_count(
        model_of_config({**CONFIGS[model_type], "model_type": model_type}, file="config.json")
    )


@pytest.mark.parametrize("model_type", ["gemma", "llama", "mistral", "qwen3", "qwen3_moe"])
def test_heads_of_no_stated_width_are_as_wide_as_in_the_network(model_type: str) -> None:
    import torch

    fields = {name: value for name, value in CONFIGS[model_type].items() if name != "head_dim"}
    config = configured(model_type, fields)
    with torch.device("meta"):
        module = network(config)
    shape = model_of_config({**fields, "model_type": model_type}, file="config.json")

    assert counted(module) == parameter_count(shape)


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "gpt_neox"])
def test_tied_weights_count_once_and_untied_ones_twice(model_type: str) -> None:
    import torch

    counts = []
    for is_tied in (False, True):
        config = config_of(model_type, tie_word_embeddings=is_tied)
        with torch.device("meta"):
            module = network(config)
        assert counted(module) == parameter_count(shape_of(config, module))
        counts.append(counted(module))

    assert 101 * 48 == counts[0] - counts[1]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_flops_forward_and_backward_are_those_that_pytorch_counts(model_type: str) -> None:
    config = config_of(model_type)
    module = network(config)
    shape = shape_of(config, module)

    forward_count, backward_count = counted_flops(module)

    assert forward_flop_count(shape, SETUP) == forward_count
    assert closed_flop_count(shape, SETUP) == forward_count + backward_count
    assert closed_flop_count(shape, replace(SETUP, has_backward=False)) == forward_count


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_kernels_that_are_built_take_what_pytorch_counts(model_type: str) -> None:
    config = config_of(model_type)
    module = network(config)
    shape = shape_of(config, module)
    eager = replace(SETUP, attention=Attention.EAGER)

    forward_count, backward_count = counted_flops(module)

    assert matrix_flops(shape, eager).run_count == forward_count + backward_count
    assert matrix_flops(shape, SETUP).model_count == forward_count + backward_count
    forward_only = replace(eager, has_backward=False)
    assert matrix_flops(shape, forward_only).run_count == forward_count


@pytest.mark.usefixtures("math_attention")
@pytest.mark.parametrize("model_type", DENSE)
def test_flops_are_the_same_with_the_attention_of_pytorch(model_type: str) -> None:
    config = config_of(model_type)
    module = network(config, attention="sdpa")

    assert closed_flop_count(shape_of(config, module), SETUP) == sum(counted_flops(module))


def test_what_the_counter_misses_of_fused_attention_on_a_cpu_is_attention() -> None:
    config = config_of("llama")
    module = network(config, attention="sdpa")
    shape = shape_of(config, module)

    missed_count = closed_flop_count(shape, SETUP) - sum(counted_flops(module))

    assert 3 * attention_forward_flop_count(shape, SETUP) == missed_count


def test_a_pooler_takes_one_token_of_each_sequence() -> None:
    config = config_of("bert")
    module = network(config, has_head=False)

    forward_count, _ = counted_flops(module)

    assert forward_flop_count(shape_of(config, module), SETUP) == forward_count


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "mistral"])
@pytest.mark.parametrize("rank_count", [2, 16])
def test_adapters_spare_the_weight_gradients_of_what_is_frozen(
    model_type: str, rank_count: int
) -> None:
    import torch

    class Adapted(torch.nn.Module):  # type: ignore[misc]
        """A frozen projection with a trained detour of low rank."""

        def __init__(self, frozen: torch.nn.Linear) -> None:
            super().__init__()
            self.frozen = frozen
            self.down = torch.nn.Linear(frozen.in_features, rank_count, bias=False)
            self.up = torch.nn.Linear(rank_count, frozen.out_features, bias=False)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.frozen(rows) + self.up(self.down(rows))

    config = config_of(model_type)
    module = network(config)
    for weight in module.parameters():
        weight.requires_grad_(requires_grad=False)
    for layer in module.model.layers:
        layer.self_attn.q_proj = Adapted(layer.self_attn.q_proj)
        layer.self_attn.v_proj = Adapted(layer.self_attn.v_proj)
    # As Transformers does for checkpointing: the first layer's input gets a gradient then.
    module.enable_input_require_grads()
    setup = replace(SETUP, lora_rank_count=rank_count)

    assert closed_flop_count(shape_of(config, module), setup) == sum(counted_flops(module))


@pytest.mark.parametrize("name", preset_names())
def test_parameters_of_every_preset_are_those_of_the_network(name: str) -> None:
    import torch

    shape = preset_model(name)
    config = configured(family_of(name), published_fields(name, shape))
    with torch.device("meta"):
        module = network(config)

    assert counted(module) == parameter_count(shape)
    read = shape_of(config, module)
    assert replace(shape, name="") == replace(read, name="")


def family_of(name: str) -> str:
    families = {
        "bert": "bert",
        "gpt": "gpt2",
        "llama": "llama",
        "mistral": "mistral",
        "mixtral": "mixtral",
        "pythia": "gpt_neox",
        "qwen3-30b": "qwen3_moe",
        "qwen3": "qwen3",
    }
    return next(family for start, family in families.items() if name.startswith(start))


def published_fields(name: str, shape: TransformerModel) -> dict[str, object]:
    """The size of a preset in the words of its family; all else is left to transformers."""
    if family_of(name) == "gpt2":
        return {
            "n_embd": shape.hidden_count,
            "n_layer": shape.layer_count,
            "n_head": shape.head_count,
            "n_positions": shape.position_count,
        }
    fields: dict[str, object] = {
        "vocab_size": shape.vocabulary_count,
        "hidden_size": shape.hidden_count,
        "num_hidden_layers": shape.layer_count,
        "num_attention_heads": shape.head_count,
        "intermediate_size": shape.ffn_count,
        "tie_word_embeddings": shape.is_tied,
    }
    if family_of(name) not in {"bert", "gpt_neox"}:
        fields["num_key_value_heads"] = shape.kv_head_count
    if family_of(name) == "qwen3_moe":
        fields["head_dim"] = shape.head_width_count
        fields["moe_intermediate_size"] = shape.ffn_count
    return fields
