"""Options of a built workload as text: `batch=1,seq=4096,recompute=full,dp=8,zero=3`.

Options beyond those of training change the model's shape: `layers=2,hidden=256,heads=4`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from joulewise.domain.errors import InputError
from joulewise.domain.workload import Dtype, Workload
from joulewise.workload.transformer.build import transformer_workload
from joulewise.workload.transformer.model import TransformerModel
from joulewise.workload.transformer.setup import Attention, Optimizer, Recompute, TrainingSetup

DEFAULT_SEQUENCE_COUNT = 1024

# In this order they are listed and named.
OPTIONS: Mapping[str, str] = {
    "batch": "sequences in a micro-batch of one data-parallel rank",
    "seq": "tokens in a sequence",
    "dtype": "bf16, fp16, fp32, tf32 or fp8",
    "mode": "train, or forward for a forward pass alone",
    "optimizer": "adamw, sgd or none",
    "recompute": "activations that backward computes again: none, selective or full",
    "attention": "flash, or eager to write scores to memory",
    "lora": "rank of adapters on queries and values, 0 to train all weights",
    "zero": "stage of ZeRO, 0 to 3 (3 is FSDP)",
    "dp": "data-parallel degree",
    "tp": "tensor-parallel degree, with sequence parallelism",
    "pp": "pipeline-parallel degree",
    "stage": "the pipeline stage to build, from 0",
    "micro": "micro-batches in an iteration",
    "gap_ms": "milliseconds per iteration in which the GPU waits for its host",
    "link_gb_per_s": "GB/s that one GPU sends to others, in one direction",
    "node_gpus": "GPUs of the job that share one node, for figures per node",
    "layers": "layers of the model",
    "hidden": "hidden size",
    "heads": "attention heads",
    "kv_heads": "heads of keys and values",
    "ffn": "inner width of the feed-forward part",
    "vocab": "entries of the vocabulary",
}
_SHAPE_OPTIONS = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
_NUMBER = re.compile(r"\d+\.?\d*(?:e[-+]?\d{1,2})?|\.\d+", re.IGNORECASE | re.ASCII)
_LONGEST_NUMBER = 20
_LONGEST_OPTION = 60
# Far beyond what anybody runs, and near enough for exact arithmetic.
_HIGHEST_COUNT = 9_999_999
_HIGHEST_LAYER_COUNT = 9_999
_BYTES_PER_GB = 1e9
_MS_PER_S = 1000.0


class Mode(StrEnum):
    """Whether an iteration trains or ends with the forward pass."""

    TRAIN = "train"
    FORWARD = "forward"


# Kinds of arithmetic that options take: FP64 trains no transformer.
_DTYPES = (Dtype.BF16, Dtype.FP16, Dtype.FP32, Dtype.TF32, Dtype.FP8)
_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildChoice:
    """What shall be built."""

    model: TransformerModel
    setup: TrainingSetup


def workload_of_text(
    model: TransformerModel,
    text: str,
    *,
    name: str | None = None,
    sequence_count: int | None = None,
) -> Workload:
    """Build a model with the options of a text; the workload is named for both.

    Args:
        model: What the options apply to.
        text: `option=value` with commas between; may be empty.
        name: What the workload's name begins with; that of the model where `None`.
        sequence_count: Tokens in a sequence where the text does not say; 1024 where `None`, or
            all positions of a model with fewer.

    Raises:
        InputError: an option that is not known or does not fit; names it.
    """
    default = default_setup(model, sequence_count)
    choice = choice_of_text(model, text, default)
    full_name = ",".join((name or model.name, *option_texts(choice, model, default)))
    return transformer_workload(choice.model, choice.setup, name=full_name)


def default_setup(model: TransformerModel, sequence_count: int | None = None) -> TrainingSetup:
    """One sequence on one GPU."""
    tokens = DEFAULT_SEQUENCE_COUNT if sequence_count is None else sequence_count
    if model.position_count:
        tokens = min(tokens, model.position_count)
    return TrainingSetup(sequence_count=tokens)


def choice_of_text(
    model: TransformerModel, text: str, default: TrainingSetup | None = None
) -> BuildChoice:
    """Apply the options of a text. Raises InputError naming the option."""
    values = _values(text)
    shape = {name: value for name, value in values.items() if name in _SHAPE_OPTIONS}
    changed = _with_shape(model, {name: _count(name, value) for name, value in shape.items()})
    setup = default_setup(model) if default is None else default
    for name, value in values.items():
        if name in _SETTERS:
            setup = _SETTERS[name](setup, value)
    return BuildChoice(model=changed, setup=setup)


def option_texts(
    choice: BuildChoice, model: TransformerModel, default: TrainingSetup
) -> tuple[str, ...]:
    """Options that lead from a model and a setup to the choice, in their fixed order."""
    wanted = {**_setup_texts(choice.setup), **_shape_texts(choice.model)}
    given = {**_setup_texts(default), **_shape_texts(model)}
    # Heads of keys follow those of queries where they are as many.
    if model.kv_head_count == model.head_count:
        given["kv_heads"] = wanted["heads"]
    return tuple(f"{name}={wanted[name]}" for name in OPTIONS if wanted[name] != given[name])


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for option in text.split(",") if text else ():
        name, separator, value = option.partition("=")
        if not separator or name not in OPTIONS:
            raise InputError(
                f"{option[:_LONGEST_OPTION]!r} is not an option of a transformer",
                field="workload",
                hint=f"Options: {', '.join(f'{known}=' for known in OPTIONS)}.",
            )
        if name in values:
            raise InputError(f"{name} is given twice", field="workload", hint="Keep one.")
        values[name] = value
    return values


def _count(name: str, value: str, highest: int = _HIGHEST_COUNT, lowest: int = 1) -> int:
    if not (value.isascii() and value.isdecimal()):
        raise InputError(
            f"{name} must be a whole number, got {value[:_LONGEST_NUMBER]!r}",
            field="workload",
            hint=f"{name}: {OPTIONS[name]}.",
        )
    if name == "layers":
        highest = _HIGHEST_LAYER_COUNT
    number = int(value) if len(value) <= _LONGEST_NUMBER else math.inf
    if not lowest <= number <= highest:
        raise InputError(
            f"{name} must be between {lowest} and {highest}, got {value[:_LONGEST_NUMBER]}",
            field="workload",
            hint=f"{name}: {OPTIONS[name]}.",
        )
    return int(number)


def _amount(name: str, value: str) -> float:
    if len(value) > _LONGEST_NUMBER or not _NUMBER.fullmatch(value):
        raise InputError(
            f"{name} must be a number, got {value[:_LONGEST_NUMBER]!r}",
            field="workload",
            hint=f"{name}: {OPTIONS[name]}.",
        )
    return float(value)


def _chosen(name: str, value: str, choices: tuple[_Choice, ...]) -> _Choice:
    for choice in choices:
        if choice.value == value:
            return choice
    raise InputError(
        f"{name} cannot be {value[:_LONGEST_NUMBER]!r}",
        field="workload",
        hint=f"Use {', '.join(choice.value for choice in choices)}.",
    )


_SETTERS: Mapping[str, Callable[[TrainingSetup, str], TrainingSetup]] = {
    "batch": lambda s, v: replace(s, batch_count=_count("batch", v)),
    "seq": lambda s, v: replace(s, sequence_count=_count("seq", v)),
    "dtype": lambda s, v: replace(s, dtype=_chosen("dtype", v, _DTYPES)),
    "mode": lambda s, v: replace(s, has_backward=_chosen("mode", v, tuple(Mode)) is Mode.TRAIN),
    "optimizer": lambda s, v: replace(s, optimizer=_chosen("optimizer", v, tuple(Optimizer))),
    "recompute": lambda s, v: replace(s, recompute=_chosen("recompute", v, tuple(Recompute))),
    "attention": lambda s, v: replace(s, attention=_chosen("attention", v, tuple(Attention))),
    "lora": lambda s, v: replace(s, lora_rank_count=_count("lora", v, lowest=0)),
    "zero": lambda s, v: replace(s, zero_stage=_count("zero", v, highest=3, lowest=0)),
    "dp": lambda s, v: replace(s, data_parallel_count=_count("dp", v)),
    "tp": lambda s, v: replace(s, tensor_parallel_count=_count("tp", v)),
    "pp": lambda s, v: replace(s, pipeline_parallel_count=_count("pp", v)),
    "stage": lambda s, v: replace(s, stage=_count("stage", v, lowest=0)),
    "micro": lambda s, v: replace(s, micro_batch_count=_count("micro", v)),
    "gap_ms": lambda s, v: replace(s, gap_s=_amount("gap_ms", v) / _MS_PER_S),
    "link_gb_per_s": lambda s, v: replace(
        s, link_bytes_per_s=_amount("link_gb_per_s", v) * _BYTES_PER_GB
    ),
    "node_gpus": lambda s, v: replace(s, node_gpu_count=_count("node_gpus", v)),
}


def _setup_texts(setup: TrainingSetup) -> dict[str, str]:
    link = setup.link_bytes_per_s
    return {
        "batch": str(setup.batch_count),
        "seq": str(setup.sequence_count),
        "dtype": setup.dtype.value,
        "mode": (Mode.TRAIN if setup.has_backward else Mode.FORWARD).value,
        "optimizer": setup.optimizer.value,
        "recompute": setup.recompute.value,
        "attention": setup.attention.value,
        "lora": str(setup.lora_rank_count),
        "zero": str(setup.zero_stage),
        "dp": str(setup.data_parallel_count),
        "tp": str(setup.tensor_parallel_count),
        "pp": str(setup.pipeline_parallel_count),
        "stage": str(setup.stage),
        "micro": str(setup.micro_batch_count),
        "gap_ms": f"{setup.gap_s * _MS_PER_S:.12g}",
        "link_gb_per_s": "" if link is None else f"{link / _BYTES_PER_GB:.12g}",
        "node_gpus": "" if setup.node_gpu_count is None else str(setup.node_gpu_count),
    }


def _shape_texts(model: TransformerModel) -> dict[str, str]:
    return {
        "layers": str(model.layer_count),
        "hidden": str(model.hidden_count),
        "heads": str(model.head_count),
        "kv_heads": str(model.kv_head_count),
        "ffn": str(model.ffn_count),
        "vocab": str(model.vocabulary_count),
    }


def _with_shape(model: TransformerModel, counts: Mapping[str, int]) -> TransformerModel:
    """The model with another shape.

    Heads fill the hidden size if they did before; keys and values have as many heads as queries
    if they had before.
    """
    if not counts:
        return model
    hidden = counts.get("hidden", model.hidden_count)
    heads = counts.get("heads", model.head_count)
    is_plain = model.kv_head_count == model.head_count
    kv_heads = counts.get("kv_heads", heads if is_plain else model.kv_head_count)
    if heads % kv_heads:
        raise InputError(
            f"{kv_heads} heads of keys and values do not divide {heads} heads",
            field="kv_heads",
            hint="Give both heads and kv_heads.",
        )
    width = model.head_width_count
    if width * model.head_count == model.hidden_count:
        if hidden % heads:
            raise InputError(
                f"{heads} heads do not divide a hidden size of {hidden}",
                field="heads",
                hint="Give both hidden and heads.",
            )
        width = hidden // heads
    return replace(
        model,
        layer_count=counts.get("layers", model.layer_count),
        hidden_count=hidden,
        head_count=heads,
        kv_head_count=kv_heads,
        head_width_count=width,
        ffn_count=counts.get("ffn", model.ffn_count),
        vocabulary_count=counts.get("vocab", model.vocabulary_count),
    )
