"""CSV as text columns with row numbers, before anything is made of them."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joulewise.domain.errors import InputError
from joulewise.store.files import decode_text

# 4600 kernels at 762 points fit; what is larger is some other table, and would fill the memory.
MOST_ROWS_COUNT = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """Named columns of text; entry i of each is data row i + 1."""

    file: str
    columns: Mapping[str, Sequence[str]]
    row_count: int


def read_text_table(raw: bytes, file: str) -> TextTable:
    """Read CSV: commas, double quotes, UTF-8, any line ends; blank lines do not count.

    Column names are stripped; a column without a name (pandas writes its index so) is dropped.

    Raises:
        InputError: the file is not UTF-8, is empty, has no data rows, names a column twice,
            quotes wrongly, or has a row with too few or too many fields.
    """
    rows = _rows(decode_text(raw, file), file)
    if not rows:
        raise InputError("the file is empty", file=file, hint="It needs a header and rows.")
    header = [name.strip() for name in rows.pop(0)]
    if not rows:
        raise InputError(
            "the file has a header but no data rows",
            file=file,
            hint="Write one row for each kernel and operating point.",
        )
    _check_header(header, file)
    for row, cells in enumerate(rows, start=1):
        if len(cells) != len(header):
            raise InputError(
                f"the row has {len(cells)} fields where the header has {len(header)}",
                file=file,
                row=row,
                hint="Quote fields that hold commas.",
            )
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    columns.pop("", None)
    return TextTable(file=file, columns=columns, row_count=len(rows))


def column(table: TextTable, name: str, *, hint: str | None = None) -> Sequence[str]:
    """The named column.

    Raises:
        InputError: there is none.
    """
    if name not in table.columns:
        raise InputError(
            f"the column {name!r} is missing",
            file=table.file,
            field=name,
            hint=hint or f"The columns are: {', '.join(table.columns)}.",
        )
    return table.columns[name]


def _rows(text: str, file: str) -> list[list[str]]:
    rows: list[list[str]] = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    filled = (cells for cells in reader if len(cells) > 1 or (cells and cells[0].strip()))
    try:
        rows.extend(itertools.islice(filled, MOST_ROWS_COUNT + 1))
    except csv.Error as error:
        raise InputError(
            f"the row cannot be read as CSV ({error})",
            file=file,
            row=len(rows) or None,
            hint="Look for an unclosed or stray quote.",
        ) from error
    if len(rows) > MOST_ROWS_COUNT:
        raise InputError(
            f"the table has more than {MOST_ROWS_COUNT} rows",
            file=file,
            hint="Keep one row for each kernel and operating point.",
        )
    return rows


def _check_header(header: Sequence[str], file: str) -> None:
    if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
        raise InputError(
            "the columns are not separated by commas", file=file, hint="Save it with commas."
        )
    for index, name in enumerate(header):
        if name and name in header[:index]:
            raise InputError(
                f"the column {name!r} appears twice",
                file=file,
                field=name,
                hint="Rename or remove one of them.",
            )
