"""Closed FLOP formulas against those of the literature and against counting products."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.workload.transformer.flops import (
    attention_context_count,
    attention_forward_flop_count,
    closed_flop_count,
    forward_flop_count,
    job_token_count,
    layer_matrix_count,
    output_matrix_count,
)
from joulewise.workload.transformer.model import TransformerModel
from joulewise.workload.transformer.parameters import active_parameter_count
from joulewise.workload.transformer.presets import preset_model, preset_names
from joulewise.workload.transformer.setup import Attention, Recompute, TrainingSetup

SETUPS = st.builds(
    TrainingSetup,
    batch_count=st.integers(1, 64),
    sequence_count=st.sampled_from([1, 128, 1024, 4096, 131_072]),
    micro_batch_count=st.integers(1, 16),
    data_parallel_count=st.integers(1, 64),
    lora_rank_count=st.sampled_from([0, 0, 8, 64]),
    has_backward=st.booleans(),
)
MODELS = st.sampled_from(preset_names()).map(preset_model)


@pytest.mark.parametrize("name", ["gpt3-1.3b", "gpt3-13b", "gpt3-175b"])
def test_gpt_takes_what_the_formula_of_megatron_says(name: str) -> None:
    """Narayanan et al., arXiv 2104.04473, formula 3, which recomputes: a third pass forward."""
    model = preset_model(name)
    setup = TrainingSetup(batch_count=8, sequence_count=2048)
    b, s, h = setup.batch_count, setup.sequence_count, model.hidden_count
    n, v = model.layer_count, model.vocabulary_count

    plain = 72 * b * s * n * h**2 * (1 + s / (6 * h) + v / (12 * n * h))
    recomputed = 96 * b * s * n * h**2 * (1 + s / (6 * h) + v / (16 * n * h))

    assert plain == pytest.approx(closed_flop_count(model, setup), rel=1e-12)
    # Megatron recomputes layers alone, so that its head counts three times and not four.
    head_count = 2.0 * b * s * h * v
    assert recomputed == pytest.approx(
        plain + forward_flop_count(model, setup) - head_count, rel=1e-12
    )


@pytest.mark.parametrize("name", ["gpt3-13b", "llama3-8b", "llama3-70b", "qwen3-30b-a3b"])
def test_models_take_six_flops_per_parameter_and_token_and_attention(name: str) -> None:
    """PaLM, arXiv 2204.02311, appendix B: 6N + 12LHQT per token.

    N are here the parameters that multiply: no look-up of an untied embedding, no norm.
    """
    model = preset_model(name)
    setup = TrainingSetup(batch_count=4, sequence_count=4096)
    looked_up_count = 0 if model.is_tied else model.vocabulary_count * model.hidden_count
    count = active_parameter_count(model) - looked_up_count
    attention_width_count = model.layer_count * model.head_count * model.head_width_count

    per_token = 6 * count + 12 * attention_width_count * setup.sequence_count

    tokens_count = job_token_count(setup)
    assert per_token == pytest.approx(closed_flop_count(model, setup) / tokens_count, rel=2e-3)


def products_of_one_sequence(model: TransformerModel, s: int) -> list[tuple[int, int, int]]:
    """Rows, columns and depth of every product of one forward pass of a plain model."""
    h, d = model.hidden_count, model.head_width_count
    found = []
    for _ in range(model.layer_count):
        found += [(s, model.head_count * d, h), (s, h, model.head_count * d)]
        found += 2 * [(s, model.kv_head_count * d, h)]
        found += model.head_count * [(s, s, d), (s, d, s)]
        found += (2 if model.is_gated else 1) * [(s, model.ffn_count, h)]
        found += [(s, h, model.ffn_count)]
    return [*found, (s, model.vocabulary_count, h)]


@pytest.mark.parametrize("name", ["gpt2", "llama3.2-1b", "qwen3-0.6b", "pythia-160m"])
def test_forward_is_the_sum_of_its_products(name: str) -> None:
    model = preset_model(name)
    setup = TrainingSetup(batch_count=3, sequence_count=100)

    products = products_of_one_sequence(model, 100)

    assert 3 * sum(2 * m * n * k for m, n, k in products) == forward_flop_count(model, setup)


@settings(deadline=None, max_examples=60)
@given(model=MODELS, setup=SETUPS)
def test_flops_grow_with_the_job_and_not_with_how_it_is_split(
    model: TransformerModel, setup: TrainingSetup
) -> None:
    count = closed_flop_count(model, setup)
    split = replace(
        setup,
        tensor_parallel_count=8,
        pipeline_parallel_count=4,
        stage=2,
        zero_stage=3,
        recompute=Recompute.FULL,
        attention=Attention.EAGER,
    )

    assert 0 < attention_forward_flop_count(model, setup) < count
    assert count == closed_flop_count(model, split)
    for name in ("batch_count", "micro_batch_count", "data_parallel_count"):
        twice = replace(setup, **{name: 2 * getattr(setup, name)})
        assert 2 * count == pytest.approx(closed_flop_count(model, twice), rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(model=MODELS, setup=SETUPS)
def test_frozen_weights_spare_a_third_at_most(
    model: TransformerModel, setup: TrainingSetup
) -> None:
    full = replace(setup, lora_rank_count=0, has_backward=True)
    tuned = replace(full, lora_rank_count=1)
    full_count, tuned_count = closed_flop_count(model, full), closed_flop_count(model, tuned)

    assert 2 / 3 * full_count < tuned_count < full_count
    assert full_count == 3 * forward_flop_count(model, full)


def test_a_window_bounds_what_attention_takes() -> None:
    model = preset_model("mistral-7b")
    short, long = (TrainingSetup(sequence_count=count) for count in (4096, 16_384))

    assert 4096 == attention_context_count(model, short) == attention_context_count(model, long)
    assert 4 * attention_forward_flop_count(model, short) == attention_forward_flop_count(
        model, long
    )
    unbounded = replace(model, window_count=None)
    assert 4 * attention_forward_flop_count(model, long) == attention_forward_flop_count(
        unbounded, long
    )


def test_a_token_meets_the_router_and_its_own_experts() -> None:
    model = preset_model("mixtral-8x7b")
    one = replace(model, active_expert_count=1)

    assert 3 * 4096 * 14_336 == layer_matrix_count(model) - layer_matrix_count(one)
    dense = replace(one, expert_count=1)
    assert 4096 * 8 == layer_matrix_count(one) - layer_matrix_count(dense)


def test_the_head_of_bert_has_a_dense_layer_of_its_own() -> None:
    assert 768 * (768 + 30_522) == output_matrix_count(preset_model("bert-base"))
