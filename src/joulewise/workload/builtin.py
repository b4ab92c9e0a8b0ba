"""Built-in workloads by name, with options: `gpt3-xl,batch=8,tp=2`, `llama3-8b,seq=4096`."""

from __future__ import annotations

from joulewise.domain.errors import InputError
from joulewise.domain.workload import Workload
from joulewise.workload.gpt3_xl import DEFAULT_BATCH_COUNT, gpt3_xl
from joulewise.workload.transformer.model import Head, TransformerModel
from joulewise.workload.transformer.options import workload_of_text
from joulewise.workload.transformer.parameters import parameter_count
from joulewise.workload.transformer.presets import (
    default_sequence_count,
    preset_model,
    preset_names,
)

_GPT3_XL = "gpt3-xl"
_GPT3_XL_DESCRIPTION = (
    "one training iteration of GPT-3 XL (1.3 B) in llm.c: 46 kernels, 897 launches; "
    "options batch=40, tp=1, node_gpus="
)
_GPT3_XL_OPTIONS = ("batch", "tp", "node_gpus")
_UNITS = ((1e9, "B"), (1e6, "M"))


def builtin_names() -> tuple[str, ...]:
    """Names that `--workload` takes besides files."""
    return (_GPT3_XL, *preset_names())


def describe_builtin(name: str) -> str:
    """One line on what the workload is."""
    if name == _GPT3_XL:
        return _GPT3_XL_DESCRIPTION
    model = preset_model(name)
    return (
        f"{_parameters(model)} {_kind(model)}: {model.layer_count} layers, "
        f"hidden {model.hidden_count}; seq={default_sequence_count(name)}"
    )


def is_builtin(text: str) -> bool:
    """Whether the text names a built-in workload, whatever its options."""
    return text.split(",", 1)[0] in builtin_names()


def builtin_workload(text: str) -> Workload:
    """Build `NAME[,option=value...]`. Raises InputError naming what is known."""
    name, _, options = text.partition(",")
    if name not in builtin_names():
        raise InputError(
            f"{name!r} is neither a built-in workload nor a file",
            field="workload",
            hint=f"Built in: {_names_by_family()}. A workload file is JSON.",
        )
    if text.endswith(","):
        raise InputError(
            f"'' is not an option of {name}",
            field="workload",
            hint="Nothing follows the last comma; leave it out.",
        )
    if name == _GPT3_XL:
        return _gpt3_xl_workload(options)
    tokens = default_sequence_count(name)
    return workload_of_text(preset_model(name), options, sequence_count=tokens)


def _gpt3_xl_workload(options: str) -> Workload:
    values = {"batch": DEFAULT_BATCH_COUNT, "tp": 1}
    for option in options.split(",") if options else ():
        key, separator, value = option.partition("=")
        if not separator or key not in _GPT3_XL_OPTIONS:
            raise InputError(
                f"{option!r} is not an option of {_GPT3_XL}",
                field="workload",
                hint=f"Options: {', '.join(f'{known}=N' for known in _GPT3_XL_OPTIONS)}.",
            )
        if not (value.isascii() and value.isdecimal() and len(value) < 7):  # noqa: PLR2004
            raise InputError(f"{key} must be a whole number, got {value!r}", field="workload")
        values[key] = int(value)
    return gpt3_xl(values["batch"], values["tp"], values.get("node_gpus"))


def _kind(model: TransformerModel) -> str:
    kind = "decoder" if model.is_causal else "encoder"
    if model.expert_count > 1:
        kind += f" of {model.expert_count} experts"
    return kind if model.head is not Head.NONE else f"{kind} without a head"


def _parameters(model: TransformerModel) -> str:
    count = parameter_count(model)
    scale, unit = next((pair for pair in _UNITS if count >= pair[0]), _UNITS[-1])
    return f"{count / scale:.3g} {unit}"


def _names_by_family() -> str:
    """As in `bert-base|large`: the sizes of a family behind its name."""
    sizes: dict[str, list[str]] = {}
    for name in builtin_names():
        family, _, size = name.partition("-")
        sizes.setdefault(family, []).append(size)
    return ", ".join(_sizes_of_family(family, known) for family, known in sizes.items())


def _sizes_of_family(family: str, sizes: list[str]) -> str:
    named = "|".join(filter(None, sizes))
    if not named:
        return family
    return f"{family}-{named}" if all(sizes) else f"{family}, {family}-{named}"
