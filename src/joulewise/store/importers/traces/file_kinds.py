"""Whose file it is, by its first bytes."""

from __future__ import annotations

import re
import zlib
from enum import StrEnum
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.store.files import file_error, refuse_pipe

SQLITE_MAGIC = b"SQLite format 3\0"
_GZIP_MAGIC = b"\x1f\x8b"
_MARK = b"\xef\xbb\xbf"
_HEAD_BYTES = 65_536
# Headers of Nsight Compute's pages and of its summary; programs may print above them.
_NCU_HEADER = re.compile(
    rb'^(?:\xef\xbb\xbf)?"?(?:ID"?,[^\n]{0,300}Kernel Name|Kernel Name"?,"?Invocations)',
    re.MULTILINE,
)


class Profiler(StrEnum):
    """Whose file is read; `joulewise import` has a command of each name."""

    KINETO = "kineto"
    NSYS = "nsys"
    NCU = "ncu"


_FILES = {
    Profiler.KINETO: "a trace of PyTorch's profiler",
    Profiler.NSYS: "a file of Nsight Systems",
    Profiler.NCU: "a file of Nsight Compute",
}
_EXPORTS = {
    Profiler.NSYS: "nsys export --type sqlite",
    Profiler.NCU: "ncu --csv --page raw --import",
}


def refuse_other_profiler(path: Path, profiler: Profiler) -> bool:
    """Refuse what is plainly not a file of this profiler; whether the file is a database.

    Raises:
        InputError: it is missing, a folder, a pipe, empty, a binary file, packed, or another
            profiler's: the hint then names the command that reads it.
    """
    raw = _head(path)
    head, is_packed = _unpacked(raw), raw.startswith(_GZIP_MAGIC)
    if not raw and profiler in _EXPORTS:
        raise InputError("the file is empty", file=str(path), hint="Export it again.")
    found = _profiler_of(head)
    if found not in (None, profiler):
        raise InputError(
            f"this looks like {_FILES[found]}, not like {_FILES[profiler]}",
            file=str(path),
            hint=f"Use `joulewise import {found.value} {path}`.",
        )
    if profiler in _EXPORTS:
        _refuse_packed_and_binary(path, raw, _EXPORTS[profiler], is_packed=is_packed)
    return raw.startswith(SQLITE_MAGIC)


def _refuse_packed_and_binary(path: Path, raw: bytes, export: str, *, is_packed: bool) -> None:
    if is_packed:
        raise InputError(
            "this file is packed", file=str(path), hint=f"Unpack it: gunzip {path.name}"
        )
    if not raw.startswith(SQLITE_MAGIC) and b"\0" in raw:
        raise InputError(
            "this is not an export but a binary file",
            file=str(path),
            hint=f"Export it: {export} {path.name}",
        )


def _head(path: Path) -> bytes:
    refuse_pipe(path)
    try:
        with path.open("rb") as opened:
            return opened.read(_HEAD_BYTES)
    except (OSError, ValueError) as error:
        raise file_error(error, path, doing="read") from error


def _unpacked(raw: bytes) -> bytes:
    if not raw.startswith(_GZIP_MAGIC):
        return raw
    try:
        return zlib.decompressobj(wbits=31).decompress(raw, _HEAD_BYTES)
    except zlib.error:
        return b""


def _profiler_of(head: bytes) -> Profiler | None:
    """Whose file begins like this; `None` where it is not plain."""
    if head.startswith(SQLITE_MAGIC):
        return Profiler.NSYS
    if _NCU_HEADER.search(head):
        return Profiler.NCU
    if head.removeprefix(_MARK).lstrip().startswith((b"{", b"[")):
        return Profiler.KINETO
    if b"Instances" in head or b"CorrId" in head:
        return Profiler.NSYS
    return None
