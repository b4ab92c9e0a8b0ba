"""Published transformers by name."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from joulewise.domain.errors import InputError
from joulewise.workload.transformer.model import Head
from joulewise.workload.transformer.parameters import active_parameter_count, parameter_count
from joulewise.workload.transformer.presets import (
    default_sequence_count,
    preset,
    preset_model,
    preset_names,
)

# Sizes as the authors round them: GPT-3 in table D.1, others in the presets' sources.
PUBLISHED_BILLIONS = {
    "gpt3-125m": 0.125,
    "gpt3-350m": 0.356,
    "gpt3-760m": 0.760,
    "gpt3-1.3b": 1.32,
    "gpt3-2.7b": 2.65,
    "gpt3-6.7b": 6.66,
    "gpt3-13b": 12.85,
    "gpt3-175b": 174.6,
    "llama3-8b": 8.03,
    "llama3-70b": 70.6,
    "llama3.1-405b": 405.0,
    "llama3.2-1b": 1.23,
    "llama3.2-3b": 3.21,
    "qwen3-0.6b": 0.6,
    "qwen3-1.7b": 1.7,
    "qwen3-4b": 4.0,
    "qwen3-8b": 8.2,
    "qwen3-14b": 14.8,
    "qwen3-32b": 32.8,
    "qwen3-30b-a3b": 30.5,
    "mistral-7b": 7.24,
    "mixtral-8x7b": 46.7,
    "bert-base": 0.110,
    "bert-large": 0.335,
}
# Biderman et al., arXiv 2304.01373, table 1: without embeddings and head.
PYTHIA_INNER_COUNTS = {
    "pythia-70m": 18_915_328,
    "pythia-160m": 85_056_000,
    "pythia-410m": 302_311_424,
    "pythia-1b": 805_736_448,
    "pythia-1.4b": 1_208_602_624,
    "pythia-2.8b": 2_517_652_480,
    "pythia-6.9b": 6_444_163_072,
    "pythia-12b": 11_327_027_200,
}


def test_the_names_are_those_of_the_models() -> None:
    assert preset_names() == tuple(preset_model(name).name for name in preset_names())
    assert {*PUBLISHED_BILLIONS, *PYTHIA_INNER_COUNTS} == {
        name for name in preset_names() if not name.startswith("gpt2")
    }


@pytest.mark.parametrize("name", PUBLISHED_BILLIONS)
def test_models_are_as_large_as_their_authors_say(name: str) -> None:
    count = parameter_count(preset_model(name))

    assert PUBLISHED_BILLIONS[name] == pytest.approx(count / 1e9, rel=0.015)


@pytest.mark.parametrize("name", PYTHIA_INNER_COUNTS)
def test_pythia_has_as_many_parameters_inside_as_its_table_says(name: str) -> None:
    model = preset_model(name)
    outer_count = 2 * model.vocabulary_count * model.hidden_count

    assert PYTHIA_INNER_COUNTS[name] == parameter_count(model) - outer_count


def test_mixtures_use_few_of_their_parameters_for_each_token() -> None:
    assert 3.3 == pytest.approx(active_parameter_count(preset_model("qwen3-30b-a3b")) / 1e9, 0.02)
    assert 12.9 == pytest.approx(active_parameter_count(preset_model("mixtral-8x7b")) / 1e9, 0.01)


def test_presets_are_consistent_and_say_where_they_are_from() -> None:
    for name in preset_names():
        one = preset(name)
        model = one.model
        assert "arXiv" in one.source or "20" in one.source
        assert 0 == model.head_count % model.kv_head_count
        assert one.sequence_count == default_sequence_count(name)
        assert model.position_count in {0, one.sequence_count}
        assert (model.position_count == 0) == (model.rotary_ratio > 0)
        assert model.is_causal == (model.head is Head.LANGUAGE_MODEL)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        preset_model("llama9-1b")

    assert snapshot("field 'workload': no transformer is called 'llama9-1b'") == str(caught.value)
    assert "llama3-8b" in str(caught.value.hint)
