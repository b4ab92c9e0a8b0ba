"""An SQLite file from somebody else, opened so that nothing in it can run, write or hang."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.domain.ports import Progress, no_progress

Value = int | float | str | bytes | None

# No name or annotation is longer.
_LONGEST_VALUE_BYTES = 2**24
# A row takes at least a few bytes of the file and a few steps to read each of its columns; a
# query that takes more than this is not reading the file once.
_STEPS_PER_BYTE = 60
_FREE_STEPS = 2_000_000
_STEPS_PER_CHECK = 10_000
_HEAD_BYTES = 100
_BATCH_COUNT = 4_096
_WHAT = "reading"
# For the progress bar only: rows of kernels, calls and ranges are about this long.
_BYTES_PER_ROW = 80
# Assumed: launches have some calls and ranges each.
_MOST_ROWS_COUNT = 20_000_000
_EXPORT_AGAIN = "Export it again: nsys export --type sqlite FILE.nsys-rep"


# Differences of two times within these stay within 64 bits.
TIMES_NS = (-(2**62), 2**62 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A row of a table, for messages; rows count from 1."""

    file: str
    table: str
    row: int

    def error(self, column: str, message: str) -> InputError:
        """An error about a field of the row."""
        return InputError(
            message,
            file=self.file,
            row=self.row,
            field=f"{self.table}.{column}",
            hint=f"The file is damaged. {_EXPORT_AGAIN}",
        )

    def whole(self, value: Value, column: str, bounds: tuple[int, int]) -> int:
        """A value as a whole number within bounds, ends included.

        Raises:
            InputError: it is none.
        """
        if isinstance(value, int) and bounds[0] <= value <= bounds[1]:
            return value
        if not isinstance(value, int):
            shown = "nothing" if value is None else f"{value!r:.40}"
            raise self.error(column, f"{shown} stands where a whole number should")
        raise self.error(column, f"{value} is not a possible {column}")


def whole_columns(columns: Sequence[Sequence[Value]]) -> list[array[int]] | None:
    """Columns of nothing but whole numbers; `None` where a value is none."""
    try:
        return [array("q", column) for column in columns]  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return None


class NsysDatabase:
    """Tables of one export by name; views, virtual tables and computed columns are not seen."""

    def __init__(self, connection: sqlite3.Connection, path: Path, progress: Progress) -> None:
        """Take over an open connection; see `opened_database`."""
        self.file = str(path)
        self._connection = connection
        self._most_steps = _FREE_STEPS + _STEPS_PER_BYTE * path.stat().st_size
        self._step_count = 0
        self._progress = progress
        self._row_count = 0
        self._likely_row_count = 1 + path.stat().st_size // _BYTES_PER_ROW
        connection.set_progress_handler(self._has_run_away, _STEPS_PER_CHECK)
        self._columns: dict[str, tuple[str, ...]] = {}
        for kind, name, sql in self._all("SELECT type, name, sql FROM sqlite_master"):
            if not isinstance(name, str):
                continue
            is_table = kind == "table" and not str(sql).upper().startswith("CREATE VIRTUAL")
            self._columns[name] = self._columns_of(name) if is_table else ()

    def columns(self, table: str) -> tuple[str, ...]:
        """Columns of a table; none where there is no such table.

        Raises:
            InputError: what goes by this name is a view, an index or a virtual table.
        """
        columns = self._columns.get(table)
        if columns == ():
            raise InputError(
                f"{table} is not a plain table here",
                file=self.file,
                field=table,
                hint=_EXPORT_AGAIN,
            )
        return columns or ()

    def rows(self, table: str, wanted: Sequence[str]) -> Iterator[tuple[Value, ...]]:
        """The rows of `batches`, one by one. Raises InputError."""
        for batch in self.batches(table, wanted):
            yield from batch

    def batches(self, table: str, wanted: Sequence[str]) -> Iterator[list[tuple[Value, ...]]]:
        """The wanted columns of every row, in the order of the table; `None` where one is missing.

        Raises:
            InputError: the file is damaged, or has more rows than any profile of use.
        """
        present = self.columns(table)
        selected = ", ".join(f'"{name}"' if name in present else "NULL" for name in wanted)
        query = f'SELECT {selected} FROM "{table}"'  # noqa: S608 - names are ours
        count = 0
        for batch in self._batches(query):
            count += len(batch)
            if count > _MOST_ROWS_COUNT:
                raise InputError(
                    f"the table holds more than {_MOST_ROWS_COUNT} rows",
                    file=self.file,
                    field=table,
                    hint="Profile a few iterations only.",
                )
            self._row_count += len(batch)
            self._progress(
                _WHAT, min(self._row_count, self._likely_row_count), self._likely_row_count
            )
            yield batch

    def texts(self, ids: set[int]) -> Mapping[int, str]:
        """Texts of StringIds by their numbers; those that it lacks are left out."""
        if not ids or not self.columns("StringIds"):
            return {}
        return {
            number: text
            for number, text in self.rows("StringIds", ("id", "value"))
            if isinstance(number, int) and isinstance(text, str) and number in ids
        }

    def _columns_of(self, table: str) -> tuple[str, ...]:
        quoted = table.replace('"', '""')
        return tuple(str(row[1]) for row in self._all(f'PRAGMA table_info("{quoted}")'))

    def _all(self, query: str) -> list[tuple[Value, ...]]:
        return [row for batch in self._batches(query) for row in batch]

    def _batches(self, query: str) -> Iterator[list[tuple[Value, ...]]]:
        self._step_count = 0
        try:
            cursor = self._connection.execute(query)
            while batch := cursor.fetchmany(_BATCH_COUNT):
                yield batch
        except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:
            if self._step_count > self._most_steps:
                message = "reading it takes longer than any file of this size can"
            else:
                reason = "a name in it is damaged" if isinstance(error, ValueError) else error
                message = f"the database cannot be read ({reason})"
            raise InputError(message, file=self.file, hint=_EXPORT_AGAIN) from error

    def _has_run_away(self) -> bool:
        self._step_count += _STEPS_PER_CHECK
        return self._step_count > self._most_steps


@contextmanager
def opened_database(path: Path, progress: Progress = no_progress) -> Iterator[NsysDatabase]:
    """An export, for reading only.

    Raises:
        InputError: it is no SQLite file, cut off or damaged, or not all of it is in the file.
    """
    _require_whole(path)
    _refuse_unmerged(path)
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None
        )
    except sqlite3.Error as error:
        raise InputError(
            f"the database cannot be opened ({error})", file=str(path), hint=_EXPORT_AGAIN
        ) from error
    with closing(connection):
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA cell_size_check = ON")
        except sqlite3.Error as error:
            raise InputError(
                f"the database cannot be read ({error})", file=str(path), hint=_EXPORT_AGAIN
            ) from error
        yield NsysDatabase(connection, path, progress)


def _require_whole(path: Path) -> None:
    """SQLite reads zeros behind the end of a page that is cut off."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    byte_count = path.stat().st_size
    # Offsets: "Database File Format" of the SQLite documentation, section 1.3.
    page_bytes = int.from_bytes(head[16:18], "big")
    page_bytes = 2**16 if page_bytes == 1 else page_bytes
    page_count = int.from_bytes(head[28:32], "big")
    is_counted = head[24:28] == head[92:96]
    is_cut_off = len(head) < _HEAD_BYTES or not page_bytes or byte_count % page_bytes
    if is_cut_off or (is_counted and byte_count < page_bytes * page_count):
        raise InputError("the database is cut off or damaged", file=str(path), hint=_EXPORT_AGAIN)


def _refuse_unmerged(path: Path) -> None:
    """Rows may still lie in a log beside the file, which is not read: that would write to it."""
    for ending in ("-wal", "-journal"):
        log = path.with_name(path.name + ending)
        if log.is_file() and log.stat().st_size:
            raise InputError(
                f"not all of the database is in this file: {log.name} beside it is not empty",
                file=str(path),
                hint=f'Close what writes it, then run: sqlite3 {path.name} "PRAGMA wal_checkpoint"',
            )
