"""Text from the command line turned into values, or one clear sentence."""

from __future__ import annotations

import math
import re

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError
from joulewise.workflow.devices import AskedPowerLimit


def slowdown_budget(text: str) -> float:
    """`0.006` and `0.6%` both mean 0.6 % more time than the baseline.

    Raises InputError for what is no number, and for values above 1 without a percent sign.
    """
    body = text.strip()
    is_percent = body.endswith("%")
    try:
        value = float(body.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not body.isascii() or "_" in body:  # float() takes 1_0 and other scripts' digits
        value = math.nan
    if not math.isfinite(value):
        raise InputError(
            f"{text!r} is not a slowdown", field="max-slowdown", hint="Write 0.6% or 0.006."
        )
    ratio = value / 100 if is_percent else value
    if not is_percent and value > 1:
        raise InputError(
            f"{text!r} would be {value:.0%} more time; values above 1 need a percent sign",
            field="max-slowdown",
            hint=f"Write {text.strip()}% if that is meant.",
        )
    if ratio <= -1:
        raise InputError(f"{text!r} leaves no time at all", field="max-slowdown")
    return ratio


def power_w(text: str, *, field: str) -> float:
    """`80`, `80W` and `80 W` in W, from 0 up. Raises InputError naming the field."""
    match = re.fullmatch(r"((\d+\.?\d*|\.\d+)(e[-+]?\d+)?)\s*w?", text.strip().lower(), re.ASCII)
    value = math.inf if match is None else float(match[1])
    if not math.isfinite(value):
        raise InputError(
            f"{text!r} is no power", field=field, hint="Write 80 or 80W, from 0 up, in W."
        )
    return value


def clock_list(text: str | None, *, field: str) -> tuple[int | None, ...] | None:
    """`auto,1680,1890` in MHz; `None` stands for auto. Raises InputError naming the field."""
    if text is None:
        return None
    clocks: list[int | None] = []
    for part in (piece.strip() for piece in text.split(",")):
        if part == "auto":
            clocks.append(None)
        elif part.isascii() and part.isdecimal() and int(part[:9]) > 0 and len(part) < 9:  # noqa: PLR2004
            clocks.append(int(part))
        else:
            hint = "Write auto,1680,1890."
            if re.fullmatch(r"\d+\s*(-|\.\.|:)\s*\d+([-:.]+\d+)?", part):
                hint = f"Ranges are not supported; name the clocks: --{field} auto,1680,1890."
            raise InputError(f"{part!r} is not a clock in MHz", field=field, hint=hint)
    return tuple(dict.fromkeys(clocks))


def power_limit_list(text: str | None) -> tuple[AskedPowerLimit | None, ...] | None:
    """`auto,250,250W,80%`; percent are of the limit found, `None` stands for auto.

    Raises InputError for what is no power limit.
    """
    if text is None:
        return None
    parts = [piece.strip() for piece in text.split(",")]
    return tuple(dict.fromkeys(None if part == "auto" else _power_limit(part) for part in parts))


def _power_limit(text: str) -> AskedPowerLimit:
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(w|%|)", text.lower(), re.ASCII)
    value = 0.0 if match is None else float(match[1])
    if match is None or not 0 < value < math.inf:
        raise InputError(
            f"{text!r} is no power limit",
            field="power-limits",
            hint="Write auto,250,80%: watts, or percent of the limit that the device has now.",
        )
    if match[2] == "%":
        return AskedPowerLimit(found_ratio=value / 100)
    return AskedPowerLimit(limit_w=value)


def caveat_kinds(text: str | None) -> frozenset[CaveatKind]:
    """`PowerCapped,Uncalibrated`; raises InputError naming the known ones."""
    names = [piece.strip() for piece in (text or "").split(",") if piece.strip()]
    known = {kind.value: kind for kind in CaveatKind}
    for name in names:
        if name not in known:
            raise InputError(
                f"{name!r} is not a caveat", field="fail-on", hint=f"Known: {', '.join(known)}."
            )
    return frozenset(known[name] for name in names)
