"""CSV as NVIDIA's command line profilers print it, read row by row.

Messages stand above the table and rows of messages below it, units stand in the header or in a
row of their own, and numbers have separators between thousands.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TextIO

from joulewise.domain.errors import InputError
from joulewise.store.files import file_error
from joulewise.store.importers.traces.launch_totals import LONGEST_LAUNCH_NS

_LONGEST_LINE_COUNT = 2**20
_MOST_LINES_COUNT = 20_000_000
_MOST_HEAD_LINES_COUNT = 10_000
_LONGEST_HEADING_COUNT = 300
_LONGEST_NUMBER_COUNT = 60
# Both profilers begin a line that is no row of the table so: ==PROF==, ==WARNING==.
_MESSAGE = "=="
_NUMBER = re.compile(
    r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?"
)
# What somebody meant as a number: other locales, other digits.
_LIKE_NUMBER = re.compile(r"[+-]?[\d.,'\u2019\s]*\d[\d.,'\u2019\s]*")
# The Greek letter looks like the sign for micro.
_MICRO, _GREEK_MU = "\u00b5", "\u03bc"
_HEADING = re.compile(r"(?P<name>.*?)\s*(?:\((?P<unit>[^()]*)\)|\[(?P<bracket>[^\[\]]*)\])?")
_LOCALE_HINT = "Export the table again with LC_ALL=C: commas may part thousands only."
_NS_PER_UNIT = {
    **dict.fromkeys(("ns", "nsec", "nsecond", "nanosecond"), 1),
    **dict.fromkeys(
        ("us", "usec", "usecond", "microsecond", f"{_MICRO}s", f"{_MICRO}second"), 10**3
    ),
    **dict.fromkeys(("ms", "msec", "msecond", "millisecond"), 10**6),
    **dict.fromkeys(("s", "sec", "second"), 10**9),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One field of a table and where it stands; `row` counts data rows from 1."""

    text: str
    file: str
    row: int
    field: str

    def error(self, message: str, *, hint: str) -> InputError:
        """An error about this field."""
        return InputError(message, file=self.file, row=self.row, field=self.field, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One row of a table; `None` for a column or field that it lacks."""

    file: str
    row: int
    cells: Sequence[str]
    places: dict[str, int]

    def text(self, name: str) -> str:
        """The field without blanks around it; empty where there is none."""
        place = self.places.get(name)
        return "" if place is None or place >= len(self.cells) else self.cells[place].strip()

    def cell(self, name: str) -> Cell:
        """The field with its place."""
        return Cell(text=self.text(name), file=self.file, row=self.row, field=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A table whose columns go by `names`, lower-case and without units; rows come one by one.

    `units` holds what stands in brackets behind a column's name. Rows raise InputError where
    one has fewer than `fewest_count` fields or more than the header, or cannot be read.
    """

    file: str
    names: tuple[str, ...]
    units: dict[str, str]
    rows: Iterator[ReportRow]


def open_text(path: Path) -> TextIO:
    """A text file that is UTF-8 with or without a byte order mark.

    Raises:
        InputError: it is missing, a folder or not readable.
    """
    try:
        return path.open(encoding="utf-8-sig", newline="")
    except (OSError, ValueError) as error:
        raise file_error(error, path, doing="read") from error


def read_report(
    text: TextIO,
    file: str,
    is_header: Callable[[Sequence[str]], bool],
    *,
    may_end_after: str | None = None,
) -> Report | None:
    """The first table whose header, as lower-case names, is the one meant; `None`: there is none.

    Rows may end after the column `may_end_after`, where the table has it; else they are whole.

    Raises:
        InputError: the file is not UTF-8, or a line is far too long.
    """
    lines = _lines(text, file)
    for _, line in zip(range(_MOST_HEAD_LINES_COUNT), lines, strict=False):
        headings = [_heading(cell) for cell in _cells(line)]
        names = tuple(name for name, _ in headings)
        if not is_header(names):
            continue
        is_short = may_end_after in names
        fewest_count = names.index(str(may_end_after)) + 1 if is_short else len(names)
        places = {name: place for place, name in reversed(list(enumerate(names))) if name}
        return Report(
            file=file,
            names=names,
            units=dict(reversed(headings)),
            rows=_rows(lines, file, places, (fewest_count, len(names))),
        )
    return None


def number(text: str) -> Decimal | None:
    """A number, `1,234.5` too; `None` for what is none, `n/a` and `nan` among it.

    Commas part thousands only: `600,5` is no number.
    """
    text = text.strip()
    if len(text) > _LONGEST_NUMBER_COUNT or not _NUMBER.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))


def require_plain_number(cell: Cell) -> None:
    """Let through what is a number, and what is not meant as one, such as `n/a`.

    Raises:
        InputError: it is a number of another locale, such as `600,5`.
    """
    if number(cell.text) is None and _LIKE_NUMBER.fullmatch(cell.text[:_LONGEST_NUMBER_COUNT]):
        raise cell.error(f"{cell.text[:40]!r} is not a number here", hint=_LOCALE_HINT)


def whole_ns(cell: Cell, unit: str, *, longest_ns: int = LONGEST_LAUNCH_NS) -> int:
    """A time in whole nanoseconds.

    Raises:
        InputError: it is no number, negative, longer than `longest_ns`, or its unit is not known.
    """
    ratio = _NS_PER_UNIT.get(unit.strip().replace(_GREEK_MU, _MICRO).lower())
    if ratio is None:
        raise cell.error(
            f"the unit {unit.strip()!r} of a time is not known", hint="Write ns, us, ms or s."
        )
    value = number(cell.text)
    if value is None:
        raise cell.error(f"{cell.text[:40]!r} is not a number", hint=_LOCALE_HINT)
    if value < 0:
        raise cell.error(f"the time {cell.text[:40]} is negative", hint="Export the table again.")
    if value * ratio > longest_ns:
        raise cell.error(
            f"{cell.text[:40]} {unit} is longer than any kernel runs", hint="Is the unit right?"
        )
    return round(value * ratio)


def whole_number(cell: Cell, *, most: int) -> int:
    """A whole number from 0 to `most`.

    Raises:
        InputError: it is none.
    """
    text = cell.text
    # The usual case first: there may be millions.
    is_plain = len(text) <= _LONGEST_NUMBER_COUNT and text.isascii() and text.isdigit()
    value = int(text) if is_plain else number(text)
    if value is None or value != int(value) or not 0 <= value <= most:
        raise cell.error(
            f"{cell.text[:40]!r} is not a whole number from 0 to {most}",
            hint=_LOCALE_HINT,
        )
    return int(value)


def _heading(cell: str) -> tuple[str, str]:
    """A column's name and unit: `Total Time (ns)`."""
    match = _HEADING.fullmatch(cell.strip()[:_LONGEST_HEADING_COUNT])
    if match is None:
        return "", ""
    unit = match["unit"] if match["unit"] is not None else match["bracket"]
    return match["name"].lower(), unit or ""


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def _lines(text: TextIO, file: str) -> Iterator[str]:
    count = 0
    try:
        while line := text.readline(_LONGEST_LINE_COUNT + 1):
            count += 1
            if len(line) > _LONGEST_LINE_COUNT or count > _MOST_LINES_COUNT:
                raise InputError(
                    f"line {count} is longer than {_LONGEST_LINE_COUNT} characters"
                    if len(line) > _LONGEST_LINE_COUNT
                    else f"the file has more than {_MOST_LINES_COUNT} lines",
                    file=file,
                    hint="Check that this is the file that was meant.",
                )
            yield line
    except UnicodeDecodeError as error:
        raise InputError(
            "the file is not UTF-8 text", file=file, hint="Save it as UTF-8."
        ) from error
    except OSError as error:
        raise file_error(error, Path(file), doing="read") from error


def _rows(
    lines: Iterator[str], file: str, places: dict[str, int], bounds: tuple[int, int]
) -> Iterator[ReportRow]:
    fewest_count, most_count = bounds
    reader, row, is_after_blank = csv.reader(lines, strict=True), 0, False
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise _bad_row(f"the row cannot be read as CSV ({error})", file, row + 1) from error
        if cells is None:
            return
        if not any(cell.strip() for cell in cells):
            is_after_blank = True
            continue
        if cells[0].startswith(_MESSAGE):
            continue
        if not fewest_count <= len(cells) <= most_count:
            if is_after_blank:
                return  # `nsys stats` prints several tables, blank lines between them
            message = f"the row has {len(cells)} fields where the header has {most_count}"
            raise _bad_row(message, file, row + 1)
        row += 1
        yield ReportRow(file=file, row=row, cells=cells, places=places)


def _bad_row(message: str, file: str, row: int) -> InputError:
    return InputError(message, file=file, row=row, hint="The file is cut off or was edited.")
