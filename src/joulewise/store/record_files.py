"""Files that hold one record each, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from joulewise.domain.errors import InputError
from joulewise.store.document_kinds import refuse_other_kind
from joulewise.store.files import read_bytes
from joulewise.store.json_files import (
    SCHEMA_VERSION,
    decode_document,
    refuse_second_keys,
    require_version,
    shape_error,
)
from joulewise.store.wire import document_type, from_wire, to_builtins

Record = TypeVar("Record")

# A sweep's largest number times the most launches, and more: ratios of such stay finite.
LARGEST_AMOUNT = 1e30


def read_record(path: Path, record: type[Record]) -> Record:
    """Read a file that holds one record.

    Raises:
        InputError: anything wrong with its form; names file, line or field.
    """
    return record_of(read_wire(path, record), record, str(path))


def read_wire(path: Path, record: type[object]) -> msgspec.Struct:
    """Read a file that holds one record, as its wire type.

    Raises:
        InputError: another of joulewise's documents, or not of the record's shape; names file,
            line or field.
    """
    raw, file = read_bytes(path), str(path)
    refuse_other_kind(raw, record.__name__, file)
    require_version(raw, file)
    wire = decode_document(raw, document_type(record, SCHEMA_VERSION), file)
    refuse_second_keys(raw, file)
    return wire


def record_of(wire: object, record: type[Record], file: str) -> Record:
    """The record that a decoded value stands for.

    Raises:
        InputError: a value that the record refuses.
    """
    try:
        return from_wire(wire, record)
    except msgspec.ValidationError as error:
        raise shape_error(error, file) from error


def record_document(record: object) -> bytes:
    """A record with the schema version, as it is written.

    Raises:
        msgspec.ValidationError: a value that could not be read back.
    """
    fields = to_builtins(record)
    text = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **fields})
    # JSON has no NaN: msgspec writes null, which a number field would not read back.
    msgspec.json.decode(text, type=document_type(type(record), SCHEMA_VERSION))
    return msgspec.json.format(text, indent=2) + b"\n"


def builtins_of(record: object, field: str, file: str) -> dict[str, object]:
    """A part of a document as what JSON is made of; `field` is where it stands.

    Raises:
        InputError: a value that could not be read back; names its field.
    """
    try:
        return to_builtins(record)
    except msgspec.ValidationError as error:
        raise shape_error(error, file, within=field) from error


def require_positive(record: object, names: Iterable[str], where: str, file: str) -> None:
    """Refuse amounts of 0, and those that nothing measured ever comes near."""
    for name in names:
        if not 0 < getattr(record, name) <= LARGEST_AMOUNT:
            raise unlike("this must be above 0 and possible", file, f"{where}{name}")


def unlike(problem: str, file: str, field: str) -> InputError:
    """The error for a file that joulewise would not have written like this."""
    return InputError(
        problem, file=file, field=field, hint="Use the file as joulewise wrote it, or make it anew."
    )
