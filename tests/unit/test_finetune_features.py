"""What is known of a job before it runs, from the config of its model."""

from __future__ import annotations

import pytest

from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import JobFeatures, ModelType
from joulewise.finetune.features import FEATURE_NAMES, feature_value, features_of_config
from joulewise.finetune.jobs import job

BERT = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
# https://huggingface.co/microsoft/deberta-v2-xlarge, its sizes alone.
DEBERTA = {"model_type": "deberta-v2", "num_hidden_layers": 24, "hidden_size": 1536}


def read(config: dict[str, object], length: float = 48, busy: float | None = None) -> JobFeatures:
    return features_of_config(
        config, file="config.json", mean_sequence_count=length, gpu_busy_ratio=busy
    )


def test_a_classifier_of_bert_is_an_encoder_with_the_parameters_of_its_body() -> None:
    found = read(BERT, busy=0.9)

    assert ModelType.ENCODER is found.model_type
    assert (12, 768, 48, 0.9) == (
        found.layer_count,
        found.hidden_count,
        found.mean_sequence_count,
        found.gpu_busy_ratio,
    )
    # 109.48 M with the pooler, as the paper of BERT rounds to 110 M.
    assert found.parameter_count == pytest.approx(109e6, rel=0.01)


def test_a_built_in_job_and_its_config_are_known_by_the_same_sizes() -> None:
    built_in, read_back = job("bert-base/qnli").features, read(BERT, 51)

    for name in FEATURE_NAMES:
        assert feature_value(built_in, name) == feature_value(read_back, name)


@pytest.mark.parametrize(
    ("config", "model_type"),
    [
        (DEBERTA, ModelType.ENCODER),
        ({**DEBERTA, "model_type": "new", "is_decoder": True}, ModelType.DECODER),
        ({**DEBERTA, "model_type": "new", "architectures": ["NewForCausalLM"]}, ModelType.DECODER),
        ({**DEBERTA, "model_type": "new", "architectures": ["NewForMaskedLM"]}, ModelType.ENCODER),
        ({"model_type": "distilbert", "n_layers": 24, "dim": 1536}, ModelType.ENCODER),
    ],
)
def test_families_that_cannot_be_built_still_say_their_sizes(
    config: dict[str, object], model_type: ModelType
) -> None:
    found = read(config)

    assert (model_type, 24, 1536, None) == (
        found.model_type,
        found.layer_count,
        found.hidden_count,
        found.parameter_count,
    )


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "model_type"),
        ({"model_type": "deberta-v2"}, "num_hidden_layers"),
        ({**DEBERTA, "num_hidden_layers": "many"}, "num_hidden_layers"),
        ({**DEBERTA, "num_hidden_layers": 0}, "num_hidden_layers"),
        ({**DEBERTA, "hidden_size": 10**30}, "hidden_size"),
        ({**DEBERTA, "model_type": "new"}, "model_type"),
        ({**BERT, "hidden_size": True}, "hidden_size"),
        ({**BERT, "is_decoder": "no"}, "is_decoder"),
    ],
)
def test_what_is_wrong_with_a_config_names_its_field(config: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        read(config)

    assert ("config.json", field) == (caught.value.file, caught.value.field)
    assert caught.value.hint


@pytest.mark.parametrize("length", [0.5, 0, -3, float("nan"), float("inf")])
def test_lengths_that_cannot_be_are_refused(length: float) -> None:
    with pytest.raises(InputError, match="tokens"):
        read(BERT, length)


@pytest.mark.parametrize("busy", [-0.1, 1.1, float("nan")])
def test_utilisations_that_cannot_be_are_refused(busy: float) -> None:
    with pytest.raises(InputError, match="busy"):
        read(BERT, busy=busy)


def test_what_policies_do_not_ask_for_may_be_missing_or_strange() -> None:
    strange = {"model_type": "bert", "num_hidden_layers": 12, "hidden_size": 768, "vocab_size": -1}

    found = read(strange)

    assert (12, 768, None) == (found.layer_count, found.hidden_count, found.parameter_count)


def test_a_feature_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="shoe_size"):
        feature_value(read(BERT), "shoe_size")


def test_strange_fields_beside_the_sizes_change_nothing() -> None:
    assert read(DEBERTA) == read({**DEBERTA, "attention_probs_dropout_prob": [None, {}], "": 3})
