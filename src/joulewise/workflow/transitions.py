"""Transition models by preset, by text or by file."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.errors import InputError, PlanError
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.domain.transition_presets import (
    STALL_POWER_W,
    transition_preset,
    transition_preset_names,
)
from joulewise.store.transition_files import LONGEST_S, MOST_J, read_transition

FIELD = "transition"
_EXAMPLE = "stall=1ms,power=60"
_NUMBER = r"(\d+\.?\d*|\.\d+)(e[-+]?\d+)?"
_SCALES = {
    "s": {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "\N{MICRO SIGN}s": 1e-6},
    "W": {"": 1.0, "w": 1.0},
    "J": {"": 1.0, "j": 1.0},
}
MOST_STALL_W = MOST_J / LONGEST_S
_MOST = {"s": LONGEST_S, "W": MOST_STALL_W, "J": MOST_J}
_KEYS = {"stall": "s", "power": "W", "energy": "J", "lag": "s", "dwell": "s"}
_UNIT_TEXTS = {"s": "us, ms or s", "W": "W", "J": "J"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionLine:
    """One preset, with what each change costs in it."""

    transition: str
    stall_s: float
    lag_s: float
    energy_j: float
    dwell_s: float
    source: str


def transition_lines() -> tuple[TransitionLine, ...]:
    """Every preset, the fastest first; in each all changes cost the same."""
    models = [transition_preset(name) for name in transition_preset_names()]
    return tuple(
        TransitionLine(
            transition=model.name,
            stall_s=max(cost.stall_s for cost in model.costs),
            lag_s=max(cost.lag_s for cost in model.costs),
            energy_j=max(cost.energy_j for cost in model.costs),
            dwell_s=model.dwell_s,
            source=model.source,
        )
        for model in models
        if model is not None
    )


def load_transition(text: str) -> TransitionModel:
    """A preset (`ascend`), costs in words (`stall=1ms,power=60`), or a file.

    The keys are `stall`, `lag` and `dwell` (us, ms or s; a number alone is seconds), `power` in
    W during the stall (60 by default) and `energy` in J of every change besides; all changes
    then cost the same. A name that a preset has is the preset.

    Raises:
        InputError: none of the three, or something wrong with it; one sentence.
    """
    asked = text.strip()
    named = transition_preset(asked)
    if named is not None:
        return named
    path = transition_file(asked)
    if path is not None:
        return read_transition(path)
    if "=" in asked:
        return _from_words(asked)
    raise InputError(
        f"{text!r} is neither a transition preset nor a file",
        field=FIELD,
        hint=f"Presets: {', '.join(transition_preset_names())}; or write {_EXAMPLE}.",
    )


def load_optional_transition(text: str | None) -> TransitionModel | None:
    """`None` leaves transitions out of the account."""
    return None if text is None else load_transition(text)


def transition_file(text: str | None) -> Path | None:
    """The file that a model is read from; `None` for a preset, for words, and for none."""
    if text is None or transition_preset(text.strip()) is not None:
        return None
    path = Path(text.strip())
    try:
        is_file = path.suffix == ".json" or path.is_file()
    except (OSError, ValueError):
        is_file = False
    return path if is_file else None


@contextmanager
def named_transition(text: str | None) -> Generator[None]:
    """Name the file of the model in an error that planning with it raises about the model."""
    path = transition_file(text)
    try:
        yield
    except PlanError as error:
        if path is not None and error.field == FIELD and error.file is None:
            error.file = str(path)
        raise


def parse_duration(text: str, field: str) -> float:
    """`10us`, `1ms`, `0.1s` or `0` in seconds. Raises InputError naming the field."""
    value = _amount(text, "s")
    if value is None:
        raise InputError(
            f"{text.strip()!r} is not a time of at most {LONGEST_S:g} s",
            field=field,
            hint="Write 10us, 1ms, 0.1s or 0.",
        )
    return value


def _from_words(text: str) -> TransitionModel:
    values = _values(text)
    stall_s = values.get("stall", 0.0)
    if "power" in values and "stall" not in values:
        raise InputError(
            "power is what the GPU draws during a stall, and no stall is given",
            field=FIELD,
            hint=f"Write {_EXAMPLE}, or energy=0.1J for what a change takes without a stall.",
        )
    power_w = values.get("power", STALL_POWER_W)
    assumed = " (assumed)" if "power" not in values and stall_s else ""
    source = f"as asked for: {text}"
    if stall_s:
        source += f"; {power_w:g} W during a stall{assumed}"
    return uniform_transition(
        text,
        source,
        stall_s=stall_s,
        lag_s=values.get("lag", 0.0),
        energy_j=power_w * stall_s + values.get("energy", 0.0),
        dwell_s=values.get("dwell", 0.0),
    )


def _values(text: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for part in text.split(","):
        key, equals, amount = (piece.strip() for piece in part.partition("="))
        if key not in _KEYS or not equals:
            raise InputError(
                f"{part.strip()!r} is not a part of a transition model",
                field=FIELD,
                hint=f"The parts are {', '.join(f'{known}=' for known in _KEYS)} as in {_EXAMPLE}.",
            )
        if key in values:
            raise InputError(f"{key!r} is given twice", field=FIELD, hint="Keep one of the two.")
        value = _amount(amount, _KEYS[key])
        if value is None:
            raise InputError(
                f"{amount!r} is no value for {key!r}",
                field=FIELD,
                hint=f"Write a number from 0 up in {_UNIT_TEXTS[_KEYS[key]]}, at most "
                f"{_MOST[_KEYS[key]]:g} {_KEYS[key]}, as in {_EXAMPLE}.",
            )
        values[key] = value
    return values


def _amount(text: str, unit: str) -> float | None:
    """A number from 0 up with its unit, in SI; `None` for what is none or far too large."""
    scales = _SCALES[unit]
    units = "|".join(sorted(scales, key=len, reverse=True))
    match = re.fullmatch(rf"({_NUMBER})\s*({units})", text.strip().lower(), re.ASCII)
    if match is None:
        return None
    # 10 us is 1e-05, not the float next to it.
    value = float(f"{float(match[1]) * scales[match[4]]:.15g}")
    return value if value <= _MOST[unit] else None
