"""Units that foreign columns come in, converted once, here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joulewise.domain.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Multiply, then divide: one rounding, where a factor like 1e-3 would add its own."""

    multiplier_ratio: float
    divisor_ratio: float

    def apply(self, values: Sequence[float]) -> list[float]:
        """The values in our unit."""
        return [value * self.multiplier_ratio / self.divisor_ratio for value in values]


def _up(multiplier: float) -> Scale:
    return Scale(multiplier_ratio=multiplier, divisor_ratio=1.0)


def _down(divisor: float) -> Scale:
    return Scale(multiplier_ratio=1.0, divisor_ratio=divisor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A quantity with the units it may come in; the first is the default and ours."""

    name: str
    units: Mapping[str, Scale]

    @property
    def default(self) -> str:
        """The unit meant where none is given."""
        return next(iter(self.units))


TIME = Measure(
    name="time",
    units={
        "s": _up(1),
        "ms": _down(1e3),
        "us": _down(1e6),
        "µs": _down(1e6),
        "ns": _down(1e9),
        "min": _up(60),
        "h": _up(3600),
    },
)
POWER = Measure(name="power", units={"W": _up(1), "mW": _down(1e3), "kW": _up(1e3)})
ENERGY = Measure(
    name="energy",
    units={
        "J": _up(1),
        "mJ": _down(1e3),
        "uJ": _down(1e6),
        "µJ": _down(1e6),
        "kJ": _up(1e3),
        "Wh": _up(3600),
        "kWh": _up(3.6e6),
    },
)
CLOCK = Measure(
    name="a clock",
    units={"MHz": _up(1), "kHz": _down(1e3), "Hz": _down(1e6), "GHz": _up(1e3)},
)
_ALL = (TIME, POWER, ENERGY, CLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledColumn:
    """A column of a foreign table and how to bring it to our unit."""

    name: str
    scale: Scale


def scaled_column(spec: str, measure: Measure, header: Sequence[str], file: str) -> ScaledColumn:
    """Understand `COLUMN` or `COLUMN:UNIT`; a column whose name holds a colon goes first.

    Without a unit the last word of the name may be one (`run_time_ms`, `Power [mW]`); else
    seconds, watts, joules and MHz are meant.

    Raises:
        InputError: there is no such column, the unit is not known, or it measures another
            quantity.
    """
    spec = spec.strip()
    if spec in header:
        return ScaledColumn(name=spec, scale=measure.units[_unit_in(spec, measure)])
    name, colon, unit = spec.rpartition(":")
    if not colon:
        raise _no_column(spec, header, file)
    # The Greek letter mu looks like the micro sign and is not.
    scale = measure.units.get(unit.strip().replace("\N{GREEK SMALL LETTER MU}", "µ"))
    if scale is None:
        raise _bad_unit(unit.strip(), measure, name, file)
    if name.strip() not in header:
        raise _no_column(name.strip(), header, file)
    return ScaledColumn(name=name.strip(), scale=scale)


def _unit_in(name: str, measure: Measure) -> str:
    words = [word for word in re.split(r"[^A-Za-zµ]+", name) if word]
    return words[-1] if words and words[-1] in measure.units else measure.default


def _no_column(name: str, header: Sequence[str], file: str) -> InputError:
    return InputError(
        f"the column {name!r} is missing",
        file=file,
        field=name,
        hint=f"The columns are: {', '.join(header)}.",
    )


def _bad_unit(unit: str, measure: Measure, name: str, file: str) -> InputError:
    other = next((other.name for other in _ALL if unit in other.units), None)
    message = (
        f"the unit {unit!r} is not known"
        if other is None
        else (f"the unit {unit!r} measures {other}, not {measure.name}")
    )
    return InputError(
        message,
        file=file,
        field=name,
        hint=f"Write one of: {', '.join(measure.units)}.",
    )
