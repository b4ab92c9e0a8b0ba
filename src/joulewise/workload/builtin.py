"""Built-in workloads by name, with options: `gpt3-xl,batch=8,tp=2`."""

from __future__ import annotations

from joulewise.domain.errors import InputError
from joulewise.domain.workload import Workload
from joulewise.workload.gpt3_xl import DEFAULT_BATCH_COUNT, gpt3_xl

_DESCRIPTIONS = {
    "gpt3-xl": (
        "one training iteration of GPT-3 XL (1.3 B) in llm.c: 46 kernels, 897 launches; "
        "options batch=40, tp=1"
    ),
}
_OPTIONS = ("batch", "tp")


def builtin_names() -> tuple[str, ...]:
    """Names that `--workload` takes besides files."""
    return tuple(_DESCRIPTIONS)


def describe_builtin(name: str) -> str:
    """One line on what the workload is."""
    return _DESCRIPTIONS[name]


def is_builtin(text: str) -> bool:
    """Whether the text names a built-in workload, whatever its options."""
    return text.split(",", 1)[0] in _DESCRIPTIONS


def builtin_workload(text: str) -> Workload:
    """Build `NAME[,option=value...]`. Raises InputError naming what is known."""
    name, *options = text.split(",")
    if name not in _DESCRIPTIONS:
        raise InputError(
            f"{name!r} is neither a built-in workload nor a file",
            field="workload",
            hint=f"Built in: {', '.join(_DESCRIPTIONS)}. A workload file is JSON.",
        )
    values = {"batch": DEFAULT_BATCH_COUNT, "tp": 1}
    for option in options:
        key, separator, value = option.partition("=")
        if not separator or key not in _OPTIONS:
            raise InputError(
                f"{option!r} is not an option of {name}",
                field="workload",
                hint=f"Options: {', '.join(f'{known}=N' for known in _OPTIONS)}.",
            )
        if not (value.isascii() and value.isdecimal() and len(value) < 7):  # noqa: PLR2004
            raise InputError(f"{key} must be a whole number, got {value!r}", field="workload")
        values[key] = int(value)
    return gpt3_xl(values["batch"], values["tp"])
