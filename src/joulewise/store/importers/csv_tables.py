"""Any CSV with one row a measurement, its columns and units named by the user."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.store.columns import CLOCK as CLOCK_RULE
from joulewise.store.columns import (
    COUNT,
    POSITIVE,
    POWER_LIMIT,
    SCATTER,
    Field,
    Rule,
    check,
    names,
    numbers,
    numbers_or_auto,
)
from joulewise.store.delimited import TextTable, column, read_text_table
from joulewise.store.files import read_bytes
from joulewise.store.importers.repeats import merge_repeats
from joulewise.store.importers.units import (
    CLOCK,
    ENERGY,
    POWER,
    TIME,
    Measure,
    scaled_column,
)
from joulewise.store.sweep_rows import SweepRows, operating_points, sweep_from_rows

# Any positive number may be a clock until its unit has been applied.
_ANY_POSITIVE = Rule(bounds=(1e-15, 1e15), hint="Leave the field empty for auto.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mapping:
    """The columns named by the user, `COLUMN` or `COLUMN:UNIT`."""

    kernel: str
    time: str
    sm_clock: str | None
    mem_clock: str | None
    power_limit: str | None
    energy: str | None
    power: str | None
    time_std: str | None
    energy_std: str | None
    window_count: str | None


def import_csv(  # noqa: PLR0913 - one parameter a column, as on the command line
    path: Path,
    *,
    kernel: str,
    time: str,
    sm_clock: str | None = None,
    mem_clock: str | None = None,
    power_limit: str | None = None,
    energy: str | None = None,
    power: str | None = None,
    time_std: str | None = None,
    energy_std: str | None = None,
    window_count: str | None = None,
    device_name: str = "not named in the CSV file",
) -> Sweep:
    """Read a foreign CSV; each column is given as `COLUMN` or `COLUMN:UNIT`.

    Units: s ms us ns min h; W mW kW; J mJ uJ kJ Wh kWh; MHz kHz Hz GHz; the defaults are s,
    W, J and MHz. `kernel` may name several columns, separated by commas; their values are
    joined by `/`. Energy is power x time where there is no energy column. Clocks are rounded
    down to whole MHz, as drivers print them; an empty one is auto. At least one knob (SM clock,
    memory clock, power limit) must be named. Repeated rows of a cell give medians.

    Raises:
        InputError: anything wrong with the file or the columns named; names row and field.
    """
    table = read_text_table(read_bytes(path), str(path))
    mapping = _Mapping(
        kernel=kernel,
        time=time,
        sm_clock=sm_clock,
        mem_clock=mem_clock,
        power_limit=power_limit,
        energy=energy,
        power=power,
        time_std=time_std,
        energy_std=energy_std,
        window_count=window_count,
    )
    source = SweepSource(device="csv", device_name=device_name, tool="joulewise import csv")
    return sweep_from_rows(merge_repeats(_rows(table, mapping)), source)


def whole_clocks(values: Sequence[float | None]) -> list[float | None]:
    """Clocks in MHz rounded down, but not by the rounding error of a unit (1.005 GHz)."""
    return [None if value is None else math.floor(value + 1e-6) for value in values]


def _rows(table: TextTable, mapping: _Mapping) -> SweepRows:
    times = _values(table, mapping.time, TIME, POSITIVE)
    count = mapping.window_count
    return SweepRows(
        file=table.file,
        cells=list(zip(_kernels(table, mapping.kernel), _points(table, mapping), strict=True)),
        time_s=times,
        energy_j=_energies(table, mapping, times),
        time_std_s=_optional(table, mapping.time_std, TIME),
        energy_std_j=_optional(table, mapping.energy_std, ENERGY),
        window_count=None
        if count is None
        else [int(n) for n in numbers(column(table, count), COUNT, _field(table, count))],
    )


def _energies(table: TextTable, mapping: _Mapping, times: Sequence[float]) -> Sequence[float]:
    if mapping.energy is not None and mapping.power is not None:
        raise InputError(
            "energy and power are both named, and power x time is energy too",
            file=table.file,
            hint="Give the one that was measured.",
        )
    if mapping.energy is not None:
        return _values(table, mapping.energy, ENERGY, POSITIVE)
    if mapping.power is None:
        raise InputError(
            "neither an energy nor a power column is named",
            file=table.file,
            hint="Give --energy COLUMN, or --power COLUMN for energy = power x time.",
        )
    powers = _values(table, mapping.power, POWER, POSITIVE)
    energies = [power * time for power, time in zip(powers, times, strict=True)]
    check(
        energies, [f"{energy:g} J" for energy in energies], POSITIVE, _field(table, mapping.power)
    )
    return energies


def _kernels(table: TextTable, spec: str) -> list[str]:
    parts = [spec] if spec in table.columns else [part.strip() for part in spec.split(",")]
    columns = [names(column(table, part), _field(table, part)) for part in parts]
    return ["/".join(values) for values in zip(*columns, strict=True)]


def _points(table: TextTable, mapping: _Mapping) -> list[OperatingPoint]:
    knobs = (
        (mapping.sm_clock, CLOCK, CLOCK_RULE),
        (mapping.mem_clock, CLOCK, CLOCK_RULE),
        (mapping.power_limit, POWER, POWER_LIMIT),
    )
    if all(spec is None for spec, _, _ in knobs):
        raise InputError(
            "no column for a knob is named",
            file=table.file,
            hint="Give --sm-clock, --mem-clock or --power-limit.",
        )
    return operating_points(*(_knob(table, *knob) for knob in knobs))


def _knob(table: TextTable, spec: str | None, measure: Measure, rule: Rule) -> list[float | None]:
    if spec is None:
        return [None] * table.row_count
    scaled = scaled_column(spec, measure, tuple(table.columns), table.file)
    field = _field(table, scaled.name)
    raw = numbers_or_auto(column(table, scaled.name), _ANY_POSITIVE, field)
    values = [None if value is None else scaled.scale.apply([value])[0] for value in raw]
    if measure is CLOCK:
        values = whole_clocks(values)
    for row, value in enumerate(values, start=1):
        if value is not None and not rule.allows(value):
            raise InputError(
                f"{value:g} is beyond any device; is the unit right?",
                file=table.file,
                row=row,
                field=scaled.name,
                hint=f"Write the unit behind the column: {scaled.name}:{'|'.join(measure.units)}.",
            )
    return values


def _values(table: TextTable, spec: str, measure: Measure, rule: Rule) -> list[float]:
    scaled = scaled_column(spec, measure, tuple(table.columns), table.file)
    texts, field = column(table, scaled.name), _field(table, scaled.name)
    values = scaled.scale.apply(numbers(texts, rule, field))
    check(values, texts, rule, field)
    return values


def _optional(table: TextTable, spec: str | None, measure: Measure) -> list[float] | None:
    return None if spec is None else _values(table, spec, measure, SCATTER)


def _field(table: TextTable, name: str) -> Field:
    return Field(file=table.file, name=name)
