"""What is known of a fine-tuning job before it runs, from the config of its model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import JobFeatures, ModelType
from joulewise.workload.transformer.huggingface import known_model_types, model_of_config
from joulewise.workload.transformer.huggingface_fields import (
    MOST_LAYER_COUNT,
    MOST_WIDTH_COUNT,
    ConfigFields,
)
from joulewise.workload.transformer.model import Head
from joulewise.workload.transformer.parameters import parameter_count

MODEL_TYPE = "model_type"
LAYERS = "layer_count"
HIDDEN = "hidden_count"
SEQUENCE = "mean_sequence_count"
BUSY = "gpu_busy_ratio"
FEATURE_NAMES = (MODEL_TYPE, LAYERS, HIDDEN, SEQUENCE, BUSY)
"""What policies may ask for: the five features of arXiv 2607.05933, by the record's names."""

# What is in none of the two is taken by `is_decoder` and by the class that the config is for.
_ENCODERS = frozenset(
    {"albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "ernie"}
    | {"mobilebert", "modernbert", "mpnet", "roberta", "xlm-roberta", "xlnet"}
)
_DECODERS = frozenset(known_model_types()) - _ENCODERS
# How families call the same two sizes: `configuration_*.py` of the transformers library.
_LAYER_FIELDS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HIDDEN_FIELDS = ("hidden_size", "n_embd", "d_model", "dim")

# No model reads more at once (assumed: GLUE's examples have tens of tokens).
_MOST_MEAN_COUNT = 1e6


def feature_value(features: JobFeatures, name: str) -> float | None:
    """One feature as a number; encoders are 0 and decoders 1. `None` where it is not known.

    Raises ValueError for a name that is none of `FEATURE_NAMES`.
    """
    if name == MODEL_TYPE:
        return float(features.model_type is ModelType.DECODER)
    values = {
        LAYERS: float(features.layer_count),
        HIDDEN: float(features.hidden_count),
        SEQUENCE: features.mean_sequence_count,
        BUSY: features.gpu_busy_ratio,
    }
    if name not in values:
        raise ValueError(f"no feature is called {name!r}")
    return values[name]


def features_of_config(
    config: Mapping[str, object],
    *,
    file: str,
    mean_sequence_count: float,
    gpu_busy_ratio: float | None = None,
) -> JobFeatures:
    """Features of a job from the `config.json` of its model.

    Parameters are counted without a head, where joulewise can build the model: a classifier's head
    is small, and a language model's does not run in one.

    Args:
        config: The object in `config.json`.
        file: Its name, for errors.
        mean_sequence_count: Mean tokens of a training example, without padding.
        gpu_busy_ratio: Share of time in which the GPU runs anything, under its governor.

    Raises:
        InputError: a size is missing or senseless, or nothing says whether the model is an
            encoder or a decoder; names the field.
    """
    _check_numbers(mean_sequence_count, gpu_busy_ratio)
    fields = ConfigFields(config, file=file)
    inner = fields.inner("text_config")
    if inner is not None and not fields.has("hidden_size"):
        fields = inner
    return JobFeatures(
        model_type=_model_type(fields),
        layer_count=_size(fields, _LAYER_FIELDS, most=MOST_LAYER_COUNT),
        hidden_count=_size(fields, _HIDDEN_FIELDS, most=MOST_WIDTH_COUNT),
        mean_sequence_count=mean_sequence_count,
        gpu_busy_ratio=gpu_busy_ratio,
        parameter_count=_parameter_count(config, file),
    )


def _parameter_count(config: Mapping[str, object], file: str) -> int | None:
    """Parameters of the model without a head; `None` where it cannot be built."""
    # The class behind the body decides neither depth nor width.
    bare = {name: value for name, value in config.items() if name != "architectures"}
    try:
        return parameter_count(replace(model_of_config(bare, file=file), head=Head.NONE))
    except InputError:
        return None


def _check_numbers(mean_sequence_count: float, gpu_busy_ratio: float | None) -> None:
    if not (math.isfinite(mean_sequence_count) and 1 <= mean_sequence_count <= _MOST_MEAN_COUNT):
        raise InputError(
            f"training examples of {mean_sequence_count:g} tokens on average cannot be",
            field="avg-seq-len",
            hint="Give the mean number of tokens without padding, such as 48; a million is the "
            "most.",
        )
    if gpu_busy_ratio is not None and not 0 <= gpu_busy_ratio <= 1:
        raise InputError(
            f"the GPU cannot be busy for {gpu_busy_ratio:g} of the time",
            field="utilisation",
            hint="Give a share between 0 and 1, such as 0.9, or 90%.",
        )


def _size(fields: ConfigFields, names: tuple[str, ...], *, most: int) -> int:
    """The first of these fields that is there; the first one is named where none is."""
    name = next((one for one in names if fields.has(one)), names[0])
    return fields.whole(name, most=most)


def _model_type(fields: ConfigFields) -> ModelType:
    """By `is_decoder`, by the family, or by the class that the config is for."""
    family = fields.text("model_type")
    if family in _DECODERS or fields.flag("is_decoder", default=False):
        return ModelType.DECODER
    if family in _ENCODERS:
        return ModelType.ENCODER
    architectures = fields.texts("architectures")
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in architectures):
        return ModelType.DECODER
    if any(name.endswith("ForMaskedLM") for name in architectures):
        return ModelType.ENCODER
    raise fields.error(
        "model_type",
        f"whether {family[:40]!r} is an encoder or a decoder is not known",
        hint='Write "is_decoder": true for a decoder, or "architectures": ["BertForMaskedLM"] '
        "for an encoder.",
    )
