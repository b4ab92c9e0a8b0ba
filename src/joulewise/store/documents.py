"""Plans and verifications in and out of JSON files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from joulewise.domain.errors import InputError
from joulewise.domain.plan import Interval, Plan, Status, Verification
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

_PLANNED = (Status.OPTIMAL, Status.FEASIBLE, Status.NO_GAIN)
_PLAN_AMOUNTS = ("time_s", "energy_j", "baseline_time_s", "baseline_energy_j", "slowdown_ratio")
_PAIR_AMOUNTS = ("baseline_time_s", "baseline_energy_j", "plan_time_s", "plan_energy_j")
# A sweep's largest number times the most launches, and more: ratios of such stay finite.
_LARGEST_AMOUNT = 1e30


def read_plan(path: Path) -> Plan:
    """Read `plan.json`.

    Raises:
        InputError: anything wrong with the file; names file, line or field.
    """
    plan, file = _read(path, Plan), str(path)
    if plan.status not in _PLANNED:
        raise _unlike("a plan is never of this status", file, "status")
    if not plan.launches:
        raise _unlike("the plan has no launches", file, "launches")
    _require_positive(plan, _PLAN_AMOUNTS, "", file)
    return plan


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
    seen, file = _read(path, Verification), str(path)
    if not seen.pairs:
        raise _unlike("the verification has no pairs", file, "pairs")
    for index, pair in enumerate(seen.pairs):
        _require_positive(pair, _PAIR_AMOUNTS, f"pairs[{index}].", file)
    _require_positive(seen, ("slowdown_ratio", "promised_slowdown_ratio"), "", file)
    for name in ("slowdown_interval", "saving_interval"):
        interval: Interval = getattr(seen, name)
        if interval.low_ratio > interval.high_ratio:
            raise _unlike("the interval ends below its beginning", file, name)
    return seen


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


def _require_positive(record: object, names: Iterable[str], where: str, file: str) -> None:
    for name in names:
        if not 0 < getattr(record, name) <= _LARGEST_AMOUNT:
            raise _unlike("this must be above 0 and possible", file, f"{where}{name}")


def _unlike(problem: str, file: str, field: str) -> InputError:
    return InputError(
        problem, file=file, field=field, hint="Use the file as joulewise wrote it, or make it anew."
    )


def _document(record: object) -> bytes:
    fields = to_builtins(record)
    text = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **fields})
    # JSON has no NaN: msgspec writes null, which a number field would not read back.
    msgspec.json.decode(text, type=document_type(type(record), SCHEMA_VERSION))
    return msgspec.json.format(text, indent=2) + b"\n"
