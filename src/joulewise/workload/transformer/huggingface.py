"""The shape of a transformer from the `config.json` that Hugging Face models come with.

Fields and their defaults are those of the `transformers` library; the number of parameters that
follows is that of its own models, which `tests/integrations` hold against it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from joulewise.workload.transformer.huggingface_families import FAMILIES
from joulewise.workload.transformer.huggingface_fields import ConfigFields
from joulewise.workload.transformer.model import Head, TransformerModel

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)


def known_model_types() -> tuple[str, ...]:
    """Values of `model_type` that are understood."""
    return tuple(FAMILIES)


def model_of_config(config: Mapping[str, object], *, file: str) -> TransformerModel:
    """The transformer that a config describes.

    Of a model that sees or hears too, the language model in its `text_config` is taken alone.

    Args:
        config: The object in `config.json`.
        file: Its name, for errors.

    Raises:
        InputError: the model type is not known, a field is missing or senseless, or the model
            is of a form that cannot be expressed; names the field.
    """
    fields = ConfigFields(config, file=file)
    inner = fields.inner("text_config")
    if inner is not None and fields.text("model_type", default="") not in FAMILIES:
        fields = inner
    model_type = fields.text("model_type")
    if model_type not in FAMILIES:
        raise fields.error(
            "model_type",
            f"the model type {model_type[:40]!r} is not known",
            hint=f"Known: {', '.join(FAMILIES)}. For another model take the nearest built-in "
            "one and change its shape: layers, hidden, heads, kv_heads, ffn, vocab.",
        )
    model = FAMILIES[model_type](fields)
    return replace(model, name=_name(fields, model), head=_head(fields, model.head))


def _name(fields: ConfigFields, model: TransformerModel) -> str:
    """The last part of where the config is from, or the family and its size."""
    given = fields.text("_name_or_path", default="").rpartition("/")[2]
    if _NAME.fullmatch(given):
        return given
    return f"{fields.text('model_type')}-{model.layer_count}x{model.hidden_count}"


def _head(fields: ConfigFields, usual: Head) -> Head:
    """What the class that the config is for puts behind the last layer."""
    architectures = fields.texts("architectures")
    if not architectures:
        return usual
    name = architectures[0]
    if name.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM")):
        is_masked = name.endswith("ForMaskedLM")
        if is_masked == (usual is Head.MASKED_LANGUAGE_MODEL):
            return usual
    elif re.fullmatch(r"[A-Za-z0-9]+Model", name) and "Heads" not in name:
        return Head.NONE
    raise fields.error(
        "architectures",
        f"the head of {name[:60]!r} cannot be built",
        hint="Write the class without a head (LlamaModel, BertModel): what it adds is small.",
    )
