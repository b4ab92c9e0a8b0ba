"""The journal of finished cells beside a sweep that is being measured.

JSON lines, each handed to the operating system before the next cell begins: a sweep killed at
any moment and resumed loses at most the cell it was in. Against power failure the journal is
also flushed to disk, after every cell on hardware; where cells come faster than
`FLUSH_PERIOD_S`, as on virtual devices, once in that time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from joulewise.domain.errors import BusyError, InputError
from joulewise.domain.measurement import CellMeasurement
from joulewise.domain.points import OperatingPoint
from joulewise.store.atomic import require_place, sync_folder
from joulewise.store.columns import POSITIVE
from joulewise.store.files import file_error
from joulewise.store.json_files import decode_document, require_version
from joulewise.store.lock import lock_exclusively
from joulewise.store.wire import from_wire, to_builtins, wire_type

SCHEMA_VERSION = 1
FLUSH_PERIOD_S = 0.5
_FEWEST_LINES_COUNT = 2  # the header and one cell: less is nothing to go on with
Header = Mapping[str, object]
CellKey = tuple[str, OperatingPoint]


class _HeaderLine(msgspec.Struct, forbid_unknown_fields=True):
    schema_version: int
    header: dict[str, object]


def journal_path(out: Path) -> Path:
    """Where the journal of the sweep file `out` lies."""
    return out.with_name(f"{out.name}.cells")


class CellJournal:
    """Finished cells of one sweep, under an exclusive lock.

    Use it as a context manager: leaving the block keeps the journal for a later resume;
    `close(finished=True)` removes it once the sweep itself is written. A journal without any
    finished cell keeps nothing: it is removed too, and one left by a kill is written over.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over an open and locked file; see `open_for`."""
        self._path = path
        self._descriptor = descriptor
        self._end = 0
        self._flushed_at_s = -FLUSH_PERIOD_S
        self._cells: dict[CellKey, CellMeasurement] = {}
        self._is_empty = False  # known only once it has been read or begun

    @classmethod
    def open_for(cls, out: Path, header: Header, *, resume: bool = False) -> CellJournal:
        """Begin the journal beside the sweep file `out`, or take up the one that is there.

        `header` holds what must be the same on resume (device, kernels, points, settings),
        as what JSON is made of. With `resume` and no journal a new one is begun.

        Raises:
            BusyError: another process measures into `out`.
            InputError: there is a journal and `resume` is not set; it was begun with another
                header (says what differs); it is damaged; the folder cannot be written to;
                `out` itself could not be written once the measurement is done.
        """
        require_place(out)
        path = journal_path(out)
        try:
            journal = cls(path, _open_locked(path))
            try:
                journal._begin(header, resume=resume)
            except BaseException:
                journal.close()
                raise
        except (OSError, ValueError) as error:
            raise file_error(error, path, doing="written") from error
        return journal

    def finished(self) -> Mapping[CellKey, CellMeasurement]:
        """Cells that need not be measured again."""
        return dict(self._cells)

    def append(self, cell: CellMeasurement) -> None:
        """Keep a finished cell; once this returns it outlives the process.

        Raises:
            InputError: it cannot be written (disk full); the journal is left as it was.
        """
        self._write({"cell": to_builtins(cell)})
        self._cells[cell.kernel, cell.point] = cell
        self._is_empty = False

    def close(self, *, finished: bool = False) -> None:
        """Give the lock back; remove the journal if the sweep is written. Harmless repeated."""
        if self._descriptor < 0:
            return
        finished = finished or self._is_empty
        if finished and os.name == "posix":
            self._path.unlink(missing_ok=True)  # still locked: nobody else's journal goes
        elif not finished:
            os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        if finished and os.name != "posix":
            self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self, header: Header, *, resume: bool) -> None:
        file = str(self._path)
        lines, torn = _whole_lines(self._descriptor)
        if not lines and not _may_begin(torn):
            raise _damaged(file, row=None)
        begun_with = _read_header(lines[0], file) if lines else None
        if begun_with is None or len(lines) < _FEWEST_LINES_COUNT:
            os.ftruncate(self._descriptor, 0)
            self._is_empty = True
            self._write({"schema_version": SCHEMA_VERSION, "header": header})
            sync_folder(self._path.parent)
            return
        if not resume:
            raise InputError(
                "an unfinished measurement lies here",
                file=file,
                hint="Go on with --resume, or delete the file to begin anew.",
            )
        _require_same(begun_with, header, file)
        for row, line in enumerate(lines[1:], start=1):
            cell = _read_cell(line, file, row)
            self._cells[cell.kernel, cell.point] = cell
        self._end = sum(len(line) + 1 for line in lines)
        os.ftruncate(self._descriptor, self._end)

    def _write(self, line: Header) -> None:
        content = msgspec.json.encode(line) + b"\n"
        try:
            os.lseek(self._descriptor, self._end, os.SEEK_SET)
            _write_all(self._descriptor, content)
            self._flush()
        except OSError as error:
            os.ftruncate(self._descriptor, self._end)
            raise file_error(error, self._path, doing="written") from error
        self._end += len(content)

    def _flush(self) -> None:
        now_s = time.monotonic()
        if now_s - self._flushed_at_s >= FLUSH_PERIOD_S:
            os.fsync(self._descriptor)
            self._flushed_at_s = now_s


def _open_locked(path: Path) -> int:
    """Open and lock; again if the file was removed in between by who had the lock."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, flags, 0o666)
        if not lock_exclusively(descriptor):
            os.close(descriptor)
            raise BusyError(
                "another `joulewise measure` writes this sweep",
                file=str(path),
                hint="Wait for it, end it, or choose another --out.",
            )
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _whole_lines(descriptor: int) -> tuple[list[bytes], bytes]:
    """Lines that end, and what follows the last of them: torn by a kill."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        *lines, torn = file.read().split(b"\n")
    return lines, torn


def _may_begin(torn: bytes) -> bool:
    """Whether a file without any whole line is ours to write over."""
    beginning = b'{"schema_version":'
    return torn.startswith(beginning[: len(torn)])


def _damaged(file: str, *, row: int | None) -> InputError:
    return InputError(
        "the journal is damaged", file=file, row=row, hint="Delete it and measure anew."
    )


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _read_header(line: bytes, file: str) -> Header:
    require_version(line, file, SCHEMA_VERSION)
    return decode_document(line, _HeaderLine, file).header


def _read_cell(line: bytes, file: str, row: int) -> CellMeasurement:
    try:
        wire = msgspec.json.decode(line, type=dict[str, wire_type(CellMeasurement)])  # type: ignore[misc]
        cell = from_wire(wire["cell"], CellMeasurement)
    except (msgspec.MsgspecError, KeyError) as error:
        raise _damaged(file, row=row) from error
    amounts = [amount for window in cell.windows for amount in (window.time_s, window.energy_j)]
    if not amounts or not all(POSITIVE.allows(amount) for amount in amounts):
        raise _damaged(file, row=row)
    return cell


def _require_same(found: Header, wanted: Header, file: str) -> None:
    old = _leaves(found)
    new = _leaves(msgspec.json.decode(msgspec.json.encode(wanted)))
    differing = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if differing:
        first = differing[0]
        others = f"; {', '.join(differing[1:])} differ too" if differing[1:] else ""
        raise InputError(
            f"the measurement was begun with {first} = {_shown(old.get(first))}, "
            f"now it is {_shown(new.get(first))}{others}",
            file=file,
            field=first,
            hint="Resume with the same settings, or delete the file to begin anew.",
        )


def _leaves(value: object, name: str = "") -> dict[str, object]:
    """Nested settings by dotted name."""
    if not isinstance(value, Mapping):
        return {name: value}
    leaves: dict[str, object] = {}
    for key, inner in value.items():
        leaves.update(_leaves(inner, f"{name}.{key}" if name else str(key)))
    return leaves


def _shown(value: object) -> str:
    longest = 60
    text = "nothing" if value is None else str(value)
    return text if len(text) <= longest else f"{text[:longest]}…"
