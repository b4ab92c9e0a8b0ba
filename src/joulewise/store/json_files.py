"""JSON with one clear sentence where it is wrong."""

from __future__ import annotations

import json
import re
from typing import Annotated, TypeVar

import msgspec

from joulewise.domain.errors import InputError
from joulewise.store.wire import LARGEST_INTEGER, LEAST_INTEGER

SCHEMA_VERSION = 1

Document = TypeVar("Document")

_PATH = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_STEP = re.compile(r"[^.\[\]]+|\[[^\]]*\]")
_BYTE = re.compile(r"\(byte (\d+)\)$")
_BACKQUOTED = re.compile(r"`([^`]*)`")
_EXPECTED = re.compile(r"^Expected `([^`]*)`(?:, got `([^`]*)`)?(.*)$")
_NO_VALUE = "Invalid enum value"
_SEE = "See the page on file formats."
_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "text",
}


class _Version(msgspec.Struct):
    schema_version: (
        Annotated[int, msgspec.Meta(ge=LEAST_INTEGER, le=LARGEST_INTEGER)] | msgspec.UnsetType
    ) = msgspec.UNSET


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
        raise InputError("the file is empty", file=file, hint=_SEE)
    try:
        return msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"), type=shape)
    except msgspec.ValidationError as error:
        raise shape_error(error, file, shape) from error
    except msgspec.DecodeError as error:
        raise _malformed(error, raw, file) from error
    except RecursionError as error:
        raise InputError("the JSON is nested too deeply", file=file, hint=_SEE) from error


def refuse_second_keys(raw: bytes, file: str) -> None:
    """Refuse an object that gives one field twice, of which a decoder keeps but one.

    Raises:
        InputError: names the field.
    """

    def once(pairs: list[tuple[str, object]]) -> None:
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError(
                    "the field is given twice in one object",
                    file=file,
                    field=key,
                    hint="Keep one of the two.",
                )
            seen.add(key)

    json.loads(raw.removeprefix(b"\xef\xbb\xbf"), object_pairs_hook=once)


def shape_error(
    error: msgspec.ValidationError,
    file: str,
    shape: type[object] | None = None,
    *,
    within: str = "",
) -> InputError:
    """Say which field is wrong and how, and where `shape` is given which values it takes.

    `within` is where what was looked at stands in the file.
    """
    text = str(error)
    place = _PATH.search(text)
    path = _joined(within, place[1]) if place else within
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
        return InputError(
            "the field is missing", file=file, field=_joined(path, name[1]), hint=_SEE
        )
    allowed = _values(shape, path) if problem.startswith(_NO_VALUE) else ()
    hint = f"Write one of {', '.join(map(str, allowed))}." if allowed else _SEE
    return InputError(_in_words(problem), file=file, field=path or None, hint=hint)


def _values(shape: type[object] | None, path: str) -> tuple[object, ...]:
    """The values that the field at this path may have; empty where it is no enumeration."""
    infos = [] if shape is None else [msgspec.inspect.type_info(shape)]
    for step in ["", *_STEP.findall(path)]:
        infos = [part for info in infos for part in _inside(info, step)]
    values: list[object] = []
    for info in infos:
        if isinstance(info, msgspec.inspect.EnumType):
            values += [member.value for member in info.cls]
        elif isinstance(info, msgspec.inspect.LiteralType):
            values += info.values
    return tuple(values)


def _inside(info: msgspec.inspect.Type, step: str) -> list[msgspec.inspect.Type]:
    """Types of a field or of the items of a list; a step of no name takes unions apart."""
    found = [info]
    if isinstance(info, msgspec.inspect.StructType):
        found = (
            [field.type for field in info.fields if field.encode_name == step] if step else found
        )
    elif isinstance(info, msgspec.inspect.VarTupleType):
        found = [info.item_type]
    if any(isinstance(one, msgspec.inspect.UnionType) for one in found):
        found = [
            part
            for one in found
            for part in (one.types if isinstance(one, msgspec.inspect.UnionType) else (one,))
        ]
    return found


def _in_words(problem: str) -> str:
    """Types as people who write JSON by hand call them."""
    if problem.startswith(_NO_VALUE):
        return f"this cannot be {problem.removeprefix(_NO_VALUE).strip()}"
    expected = _EXPECTED.match(problem)
    if expected is None:
        plain = _BACKQUOTED.sub(r"\1", problem)
        return f"{plain[:1].lower()}{plain[1:]}"
    wanted, got, bound = expected.groups()
    wants = " or ".join(_WORDS.get(word, word) for word in wanted.split(" | "))
    instead = f", not {_WORDS.get(got, got)}" if got else ""
    return f"this must be {wants}{bound}{instead}"


def _malformed(error: msgspec.DecodeError, raw: bytes, file: str) -> InputError:
    text = str(error)
    place = _BYTE.search(text)
    if place:
        row = raw[: int(place[1])].count(b"\n") + 1
        return InputError(
            "the line is not JSON", file=file, row=row, hint="Look for a stray comma or quote."
        )
    try:
        raw.decode()
    except UnicodeDecodeError as decode_error:
        row = raw[: decode_error.start].count(b"\n") + 1
        return InputError(
            "the line is not UTF-8 text", file=file, row=row, hint="Save the file as UTF-8."
        )
    return InputError(
        "the JSON ends before it is complete",
        file=file,
        row=raw.rstrip().count(b"\n") + 1,
        hint="Look for a missing bracket or quote.",
    )


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
