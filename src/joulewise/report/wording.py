"""Numbers and names as people read them."""

from __future__ import annotations

import html
import math
import unicodedata

from joulewise.domain.points import OperatingPoint

_MINUS = "\N{MINUS SIGN}"
_THIN = "\N{NARROW NO-BREAK SPACE}"
_UNSHOWABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_TIME_STEPS = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (0.0, "µs", 1e6))
_ENERGY_STEPS = ((1e6, "MJ", 1e-6), (1e4, "kJ", 1e-3), (1.0, "J", 1.0), (0.0, "mJ", 1e3))


def decimal(value: float, digit_count: int, *, plus: str = "") -> str:
    """A number with so many decimals, behind the one minus sign that is used everywhere.

    `plus` stands before what is not negative. Zero is never negative: that reads like a claim.
    """
    text = f"{abs(value):.{digit_count}f}"
    return f"{_MINUS if value < 0 and float(text) != 0 else plus}{text}"


def percent(ratio: float, *, digit_count: int = 2) -> str:
    """`0.146` as `14.60 %`."""
    return f"{decimal(100 * ratio, digit_count)}{_THIN}%"


def change(ratio: float, *, digit_count: int = 2) -> str:
    """`1.006`, a ratio to the baseline, as `+0.60 %`."""
    return f"{decimal(100 * (ratio - 1.0), digit_count, plus='+')}{_THIN}%"


def points(ratio: float) -> str:
    """A difference of two shares, `0.053`, as `5.3 percentage points`."""
    return f"{decimal(100 * ratio, 1)} percentage points"


def duration(time_s: float) -> str:
    """Seconds with four digits and a fitting unit."""
    return _scaled(time_s, _TIME_STEPS)


def energy(energy_j: float) -> str:
    """Joules with four digits and a fitting unit."""
    return _scaled(energy_j, _ENERGY_STEPS)


def count(number: int) -> str:
    """An integer with thin spaces between thousands."""
    return f"{number:,}".replace(",", _THIN)


def counted(number: int, noun: str) -> str:
    """`1 launch`, `897 launches`."""
    if number == 1:
        return f"1 {noun}"
    return f"{count(number)} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"


def setting(point: OperatingPoint) -> str:
    """An operating point in words: `SM 1680, memory auto`."""
    sm = "auto" if point.sm_clock_mhz is None else f"{point.sm_clock_mhz} MHz"
    mem = "auto" if point.mem_clock_mhz is None else f"{point.mem_clock_mhz} MHz"
    limit = "" if point.power_limit_w is None else f", limit {point.power_limit_w:g} W"
    return f"SM {sm}, memory {mem}{limit}"


def plain(name: str) -> str:
    """A name from a file, with what cannot be shown or would reorder the line replaced."""
    return "".join("\ufffd" if unicodedata.category(c) in _UNSHOWABLE else c for c in name)


def shortened(name: str, length_count: int) -> str:
    """A name of at most `length_count` characters; both ends of kernel names tell most."""
    if len(name) <= length_count:
        return name
    head = length_count // 2
    return f"{name[:head]}…{name[len(name) - (length_count - 1 - head) :]}"


def figure_text(name: str, length_count: int = 80) -> str:
    """A name for labels of a figure; plotly reads some HTML there, so that it is escaped."""
    return html.escape(shortened(plain(name), length_count), quote=False)


def _scaled(value: float, steps: tuple[tuple[float, str, float], ...]) -> str:
    """Pick the first unit whose threshold the magnitude reaches."""
    magnitude = abs(value)
    unit, factor = next((unit, factor) for least, unit, factor in steps if magnitude >= least)
    shown = magnitude * factor
    digit_count = max(3 - int(math.log10(max(shown, 1.0))), 0)  # four digits
    sign = _MINUS if value < 0 else ""
    return f"{sign}{shown:,.{digit_count}f}{_THIN}{unit}".replace(",", _THIN)
