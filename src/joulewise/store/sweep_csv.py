"""The native sweep CSV: what people write by hand."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from joulewise.domain.errors import InputError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.store.columns import (
    CLOCK,
    COUNT,
    POSITIVE,
    POWER_LIMIT,
    SCATTER,
    Field,
    Rule,
    all_or_none,
    names,
    numbers,
    numbers_or_auto,
)
from joulewise.store.delimited import TextTable, column, read_text_table
from joulewise.store.sweep_rows import (
    SweepRows,
    assumed_baseline,
    operating_points,
    refuse_duplicates,
    sweep_from_rows,
)

SCHEMA_VERSION = 1
REQUIRED_COLUMNS = ("kernel", "sm_clock_mhz", "time_s", "energy_j")
OPTIONAL_COLUMNS = (
    "mem_clock_mhz",
    "power_limit_w",
    "time_std_s",
    "energy_std_j",
    "window_count",
    "schema_version",
)


def sweep_from_csv(raw: bytes, file: str) -> Sweep:
    """Read a native sweep CSV.

    Columns `kernel, sm_clock_mhz, mem_clock_mhz, time_s, energy_j` and optional
    `power_limit_w, time_std_s, energy_std_j, window_count, schema_version`; an empty clock or
    limit is auto. Time and energy are per launch.

    Raises:
        InputError: anything wrong with the file, with row and field.
    """
    table = read_text_table(raw, file)
    _check_columns(table)
    _check_version(table)
    counts = _optional(table, "window_count", COUNT)
    rows = SweepRows(
        file=table.file,
        cells=_cells(table),
        time_s=numbers(column(table, "time_s"), POSITIVE, _field(table, "time_s")),
        energy_j=numbers(column(table, "energy_j"), POSITIVE, _field(table, "energy_j")),
        time_std_s=_optional(table, "time_std_s", SCATTER),
        energy_std_j=_optional(table, "energy_std_j", SCATTER),
        window_count=None if counts is None else [int(count) for count in counts],
    )
    refuse_duplicates(rows)
    source = SweepSource(device="csv", device_name="not named in a CSV file", tool="native CSV")
    return sweep_from_rows(rows, source)


def sweep_csv(sweep: Sweep) -> str:
    """Write the measured cells as native CSV, kernel by kernel.

    CSV carries neither source nor caveats nor the energy above idle; Parquet does.

    Raises:
        InputError: the baseline is not the one that a reader of the CSV would take.
    """
    measured = [point for p, point in enumerate(sweep.points) if bool(sweep.is_present[:, p].any())]
    if not measured or assumed_baseline(measured) != sweep.baseline:
        raise InputError(
            f"CSV cannot say that {sweep.baseline.label} is the baseline",
            hint="Write Parquet, which can.",
        )
    has_limit = any(point.power_limit_w is not None for point in measured)
    tables = {
        name: table
        for name, table in (
            ("time_s", sweep.time_s),
            ("energy_j", sweep.energy_j),
            ("time_std_s", sweep.time_std_s),
            ("energy_std_j", sweep.energy_std_j),
            ("window_count", sweep.window_count),
        )
        if table is not None
    }
    limit_column = ("power_limit_w",) if has_limit else ()
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("kernel", "sm_clock_mhz", "mem_clock_mhz", *limit_column, *tables, "schema_version")
    )
    for k, kernel in enumerate(sweep.kernels):
        for p, point in enumerate(sweep.points):
            if sweep.is_present[k, p]:
                limit = (point.power_limit_w,) if has_limit else ()
                values = (table[k, p].item() for table in tables.values())
                clocks = (point.sm_clock_mhz, point.mem_clock_mhz)
                writer.writerow((kernel, *clocks, *limit, *values, SCHEMA_VERSION))
    return text.getvalue()


def _cells(table: TextTable) -> list[tuple[str, OperatingPoint]]:
    nothing = [""] * table.row_count
    kernels = names(column(table, "kernel"), _field(table, "kernel"))
    knobs = [
        numbers_or_auto(table.columns.get(name, nothing), rule, _field(table, name))
        for name, rule in (
            ("sm_clock_mhz", CLOCK),
            ("mem_clock_mhz", CLOCK),
            ("power_limit_w", POWER_LIMIT),
        )
    ]
    return list(zip(kernels, operating_points(*knobs), strict=True))


def _optional(table: TextTable, name: str, rule: Rule) -> Sequence[float] | None:
    texts = table.columns.get(name)
    if texts is None or not all_or_none(texts, _field(table, name)):
        return None
    return numbers(texts, rule, _field(table, name))


def _check_columns(table: TextTable) -> None:
    for name in REQUIRED_COLUMNS:
        column(table, name, hint=_missing_hint(table, name))
    known = (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
    for name in table.columns:
        if name not in known:
            raise InputError(
                f"the column {name!r} is not known",
                file=table.file,
                field=name,
                hint=f"The format knows {', '.join(known)}; `joulewise import csv` maps others.",
            )


def _missing_hint(table: TextTable, name: str) -> str | None:
    """A column of the same quantity in another unit is the likeliest cause."""
    quantity, _, unit = name.rpartition("_")
    for other in table.columns:
        if quantity and (other == quantity or other.startswith(f"{quantity}_")):
            return (
                f"The format wants {quantity} in {unit}; if {other!r} is in another unit, "
                "use `joulewise import csv` and name it."
            )
    return None


def _check_version(table: TextTable) -> None:
    texts = table.columns.get("schema_version", ())
    for row, text in enumerate(texts, start=1):
        if text.strip() != str(SCHEMA_VERSION):
            raise InputError(
                f"schema version {text.strip() or 'nothing'} is not known; "
                f"this joulewise reads version {SCHEMA_VERSION}",
                file=table.file,
                row=row,
                field="schema_version",
                hint="Use a newer joulewise, or write the file anew.",
            )


def _field(table: TextTable, name: str) -> Field:
    return Field(file=table.file, name=name)
