"""Bytes of a JSON file, packed or not, block by block."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from joulewise.domain.errors import InputError
from joulewise.domain.ports import Progress
from joulewise.store.files import file_error

_GZIP_MAGIC = b"\x1f\x8b"
# Profiles shrink 10- to 60-fold. What grows more than this, and to more than that, is no profile.
_MOST_GROWTH = 200
_FREE_BYTE_COUNT = 64 * 2**20
_WHAT = "reading"
_PACK_ANEW = "Copy the file again, or unpack it with gunzip to see what is left of it."


class JsonSource:
    """Gives a file's bytes once, in order; gzip is known by its first bytes, not by its name."""

    def __init__(self, file: BinaryIO, path: Path, progress: Progress) -> None:
        self.file = str(path)
        self._path = path
        self._packed = file
        self._progress = progress
        self._byte_count = file.seek(0, io.SEEK_END)
        file.seek(0)
        self._is_packed = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        self._plain: BinaryIO | gzip.GzipFile = (
            gzip.GzipFile(fileobj=file, mode="rb") if (self._is_packed) else file
        )
        self._given_byte_count = 0

    def read(self, byte_count: int) -> bytes:
        """The next bytes, fewer than asked only at the end, none after it.

        Raises:
            InputError: the disk fails, or what is packed is damaged or a bomb.
        """
        try:
            block = self._plain.read(byte_count)
        except EOFError as error:
            raise InputError(
                "the packed file is cut off", file=self.file, hint=_PACK_ANEW
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InputError(
                "the packed file is damaged", file=self.file, hint=_PACK_ANEW
            ) from error
        except OSError as error:
            raise file_error(error, self._path, doing="read") from error
        self._given_byte_count += len(block)
        self._refuse_bomb()
        self._progress(_WHAT, min(self._packed.tell(), self._byte_count), self._byte_count)
        return block

    def _refuse_bomb(self) -> None:
        most = max(_FREE_BYTE_COUNT, _MOST_GROWTH * self._byte_count)
        if self._is_packed and self._given_byte_count > most:
            raise InputError(
                f"the packed file grows more than {_MOST_GROWTH}-fold, as no profile does",
                file=self.file,
                hint="Unpack it with gunzip first if it is meant.",
            )


@contextmanager
def opened_source(path: Path, progress: Progress) -> Generator[JsonSource]:
    """Open a file for one reading.

    Raises:
        InputError: it is missing, a folder or a pipe, or may not be read.
    """
    if path.is_fifo():
        # Opening one may wait forever for somebody who writes.
        raise InputError(
            "this is a pipe, not a file", file=str(path), hint="Write it to a file first."
        )
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise file_error(error, path, doing="read") from error
    with file:
        try:
            source = JsonSource(file, path, progress)
        except OSError as error:  # a pipe or a device, which cannot be measured
            raise file_error(error, path, doing="read") from error
        yield source
