"""Plans and verifications in and out of JSON files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec

from joulewise.domain.plan import Plan, Verification
from joulewise.store.atomic import write_atomically
from joulewise.store.files import read_bytes
from joulewise.store.json_files import (
    SCHEMA_VERSION,
    decode_document,
    require_version,
    shape_error,
)
from joulewise.store.wire import document_type, from_wire, to_builtins
from joulewise.store.workload_files import read_workload, write_workload

__all__ = [
    "plan_sha256",
    "read_plan",
    "read_verification",
    "read_workload",
    "write_plan",
    "write_verification",
    "write_workload",
]

Record = TypeVar("Record")


def read_plan(path: Path) -> Plan:
    """Read `plan.json`.

    Raises:
        InputError: anything wrong with the file; names file, line or field.
    """
    return _read(path, Plan)


def write_plan(plan: Plan, path: Path) -> None:
    """Write `plan.json`, whole or not at all.

    Raises:
        InputError: the place cannot be written to.
    """
    write_atomically(path, _document(plan))


def plan_sha256(plan: Plan) -> str:
    """Hash of what a plan says, as hexadecimal text; independent of the file's layout."""
    return hashlib.sha256(msgspec.json.encode(to_builtins(plan), order="sorted")).hexdigest()


def read_verification(path: Path) -> Verification:
    """Read `verification.json`.

    Raises:
        InputError: anything wrong with the file; names file, line or field.
    """
    return _read(path, Verification)


def write_verification(verification: Verification, path: Path) -> None:
    """Write `verification.json`, whole or not at all.

    Raises:
        InputError: the place cannot be written to.
    """
    write_atomically(path, _document(verification))


def _read(path: Path, record: type[Record]) -> Record:
    raw, file = read_bytes(path), str(path)
    require_version(raw, file)
    wire = decode_document(raw, document_type(record, SCHEMA_VERSION), file)
    try:
        return from_wire(wire, record)
    except msgspec.ValidationError as error:
        raise shape_error(error, file) from error


def _document(record: object) -> bytes:
    fields = to_builtins(record)
    text = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **fields})
    # JSON has no NaN: msgspec writes null, which a number field would not read back.
    msgspec.json.decode(text, type=document_type(type(record), SCHEMA_VERSION))
    return msgspec.json.format(text, indent=2) + b"\n"
