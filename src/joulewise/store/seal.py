"""A checksum inside a Parquet file, over all of it.

Parquet readers trust offsets: a damaged file may end the process instead of raising. So every
file written here carries, in its metadata, the SHA-256 of the file with that entry zeroed, and
nothing is parsed before it matches.
"""

from __future__ import annotations

import hashlib
import re

from joulewise.domain.errors import InputError

SEAL_KEY = "joulewise_seal"
BLANK = "0" * 64
_MAGIC = b"PAR1"
# Thrift's compact protocol puts a field header and a length between key and value.
_SEAL = re.compile(re.escape(SEAL_KEY.encode()) + rb"[\x00-\xff]{2}([0-9a-f]{64})")


def seal(blank: bytes) -> bytes:
    """Fill in the checksum of a Parquet file written with the metadata `SEAL_KEY: BLANK`."""
    start, end = _seal_place(blank)
    return blank[:start] + hashlib.sha256(blank).hexdigest().encode() + blank[end:]


def require_seal(sealed: bytes, file: str) -> None:
    """Check the checksum before anything is parsed.

    Raises:
        InputError: not Parquet, cut off, not written by joulewise, or damaged.
    """
    if not sealed:
        raise InputError("the file is empty", file=file, hint="Repeat what wrote it.")
    if not sealed.startswith(_MAGIC):
        raise InputError(
            "the file is not Parquet",
            file=file,
            hint="Name a native sweep CSV with a suffix other than .parquet.",
        )
    if len(sealed) < 2 * len(_MAGIC) or not sealed.endswith(_MAGIC):
        raise InputError(
            "the Parquet file is cut off",
            file=file,
            hint="Copy it again, or repeat what wrote it.",
        )
    place = _SEAL.search(sealed)
    if place is None:
        raise InputError(
            "the Parquet file was not written by joulewise: it carries no schema version",
            file=file,
            hint="Write a native sweep CSV, or use `joulewise import csv`.",
        )
    start, end = place.span(1)
    blank = sealed[:start] + BLANK.encode() + sealed[end:]
    if hashlib.sha256(blank).hexdigest().encode() != place[1]:
        raise InputError(
            "the Parquet file is damaged: its checksum does not match",
            file=file,
            hint="Copy it again, or repeat what wrote it.",
        )


def _seal_place(blank: bytes) -> tuple[int, int]:
    place = _SEAL.search(blank)
    if place is None or place[1] != BLANK.encode():
        raise ValueError(f"the file lacks the metadata {SEAL_KEY}: {BLANK}")
    return place.span(1)
