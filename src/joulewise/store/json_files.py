"""JSON with one clear sentence where it is wrong."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from joulewise.domain.errors import InputError

SCHEMA_VERSION = 1

Document = TypeVar("Document")

_PATH = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_BYTE = re.compile(r"\(byte (\d+)\)$")
_BACKQUOTED = re.compile(r"`([^`]*)`")


class _Version(msgspec.Struct):
    schema_version: int | msgspec.UnsetType = msgspec.UNSET


def require_version(raw: bytes, file: str, known: int = SCHEMA_VERSION) -> None:
    """Refuse a file of another version before its fields are looked at.

    Raises:
        InputError: not JSON, no version, or an unknown one.
    """
    found = decode_document(raw, _Version, file).schema_version
    if found is msgspec.UNSET:
        raise InputError(
            "the file does not say its schema version",
            file=file,
            field="schema_version",
            hint=f'Add "schema_version": {known}.',
        )
    if found != known:
        raise InputError(
            f"schema version {found} is not known; this joulewise reads version {known}",
            file=file,
            field="schema_version",
            hint="Use a newer joulewise, or write the file anew.",
        )


def decode_document(raw: bytes, shape: type[Document], file: str) -> Document:
    """Decode JSON of a known shape.

    Raises:
        InputError: not JSON (`row` is the line), or a field that is unknown, missing or of
            the wrong type (`field` is its path).
    """
    if not raw.strip():
        raise InputError("the file is empty", file=file)
    try:
        return msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"), type=shape)
    except msgspec.ValidationError as error:
        raise shape_error(error, file) from error
    except msgspec.DecodeError as error:
        raise _malformed(error, raw, file) from error
    except RecursionError as error:
        raise InputError("the JSON is nested too deeply", file=file) from error


def shape_error(error: msgspec.ValidationError, file: str) -> InputError:
    """Say which field is wrong and how."""
    text = str(error)
    place = _PATH.search(text)
    path = place[1] if place else ""
    problem = text[: place.start()] if place else text
    name = _BACKQUOTED.search(problem)
    if name and problem.startswith("Object contains unknown field"):
        return InputError(
            "the field is not known",
            file=file,
            field=_joined(path, name[1]),
            hint="Check its spelling, or leave it out.",
        )
    if name and problem.startswith("Object missing required field"):
        return InputError("the field is missing", file=file, field=_joined(path, name[1]))
    plain = _BACKQUOTED.sub(r"\1", problem)
    return InputError(
        f"{plain[:1].lower()}{plain[1:]}",
        file=file,
        field=path or None,
        hint="See the file formats in the documentation.",
    )


def _malformed(error: msgspec.DecodeError, raw: bytes, file: str) -> InputError:
    text = str(error)
    place = _BYTE.search(text)
    if place:
        row = raw[: int(place[1])].count(b"\n") + 1
        return InputError("the line is not JSON", file=file, row=row)
    try:
        raw.decode()
    except UnicodeDecodeError as decode_error:
        row = raw[: decode_error.start].count(b"\n") + 1
        return InputError("the line is not UTF-8 text", file=file, row=row)
    return InputError(
        "the JSON ends before it is complete",
        file=file,
        row=raw.rstrip().count(b"\n") + 1,
        hint="Look for a missing bracket or quote.",
    )


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
