"""What an event of a Kineto trace holds, of all that one may hold.

Source of the names: libkineto's output_json.cpp and torch's profiler_kineto.cpp; names of
PyTorch before 1.12 ("external id", "Input dims") are known too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import TypeVar

import msgspec

from joulewise.store.importers.traces.json_cursor import WrittenFloat

Identifier = int | str | None
Number = int | float | None

_NOTHING = msgspec.Raw(b"")
_NANOSECONDS_PER_MICROSECOND = 1000
# Since 1970 until 2116; what lies beyond, or that long before, is no time.
_MOST_NANOSECONDS = 2**62
_LEAST_NANOSECONDS = -(2**61)
# An end is a start and a duration, and must be a number of eight bytes.
_LONGEST_SPAN_NS = 2**61
MOST_IDENTIFIER = 2**62
# Digits of the largest time, and a few of a fraction.
_LONGEST_TIME = 40
_DECIMALS = 3
_IDENTIFIER_DIGITS = 20

Shape = TypeVar("Shape", bound=msgspec.Struct)


class Arguments(msgspec.Struct, gc=False):
    """Of `args`. What may hold anything stays as it was written until it is needed."""

    external_id: Identifier = msgspec.field(name="External id", default=None)
    old_external_id: Identifier = msgspec.field(name="external id", default=None)
    correlation: Identifier = None
    device: Identifier = None
    stream: Identifier = None
    grid: msgspec.Raw = _NOTHING
    block: msgspec.Raw = _NOTHING
    shared_memory: Number = msgspec.field(name="shared memory", default=None)
    registers: Number = msgspec.field(name="registers per thread", default=None)
    graph: Identifier = msgspec.field(name="graph id", default=None)
    graph_node: Identifier = msgspec.field(name="graph node id", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    old_dims: msgspec.Raw = msgspec.field(name="Input dims", default=_NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NOTHING)
    sequence: Identifier = msgspec.field(name="Sequence number", default=None)
    forward_thread: Identifier = msgspec.field(name="Fwd thread id", default=None)
    collective: str | None = msgspec.field(name="Collective name", default=None)
    collective_dtype: msgspec.Raw = msgspec.field(name="dtype", default=_NOTHING)
    sent_count: Identifier = msgspec.field(name="In msg nelems", default=None)
    received_count: Identifier = msgspec.field(name="Out msg nelems", default=None)
    group_size: Identifier = msgspec.field(name="Group size", default=None)


class KinetoEvent(msgspec.Struct, gc=False):
    """One event; times are microseconds, `ts` as it was written, for a float is too coarse."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    ts: msgspec.Raw = _NOTHING
    dur: Number = None
    pid: Identifier | float = None
    tid: Identifier | float = None
    args: Arguments | None = None


def lenient_event(value: Mapping[str, object]) -> KinetoEvent:
    """An event of which some fields hold what they should not; those are as if they were absent."""
    event = _softened({**value, "args": None}, KinetoEvent, _EVENT_FIELDS)
    args = value.get("args")
    if isinstance(args, Mapping):
        event.args = _softened(args, Arguments, _ARGUMENT_FIELDS)
    return event


def nanoseconds(ts: msgspec.Raw) -> int | None:
    """Whole nanoseconds of a time in microseconds; `None` where it is none.

    A float holds the microseconds since 1970 to a quarter of one only, so the text is read.
    """
    text = bytes(ts)
    whole, _, part = text.partition(b".")
    if len(part) == _DECIMALS and whole.isdigit() and part.isdigit():
        return _bounded(int(whole[:_LONGEST_TIME] + part))
    if len(text) > _LONGEST_TIME:
        return None
    try:
        number = Decimal(text.decode("ascii", "replace").strip('"')) * _NANOSECONDS_PER_MICROSECOND
    except InvalidOperation:
        return None
    if not number.is_finite() or not _LEAST_NANOSECONDS <= number <= _MOST_NANOSECONDS:
        return None
    return int(number.to_integral_value(ROUND_HALF_UP))


def span_nanoseconds(dur: Number) -> int | None:
    """Whole nanoseconds of a duration in microseconds; `None` where it is none.

    Halves are rounded away from zero, as `round` of C and jq does.
    """
    if dur is None or not 0 <= dur * _NANOSECONDS_PER_MICROSECOND <= _LONGEST_SPAN_NS:
        return None
    number = dur * _NANOSECONDS_PER_MICROSECOND
    whole = int(number)
    return whole + (number - whole >= 0.5)  # noqa: PLR2004 - a half


def identifier(value: Identifier | float, absent: int = -1) -> int:
    """A number that names something; `absent` where there is none."""
    if isinstance(value, str):
        is_number = value.isascii() and value.isdigit() and len(value) <= _IDENTIFIER_DIGITS
        value = int(value) if is_number else None
    if value is None or isinstance(value, float) or not 0 <= value <= MOST_IDENTIFIER:
        return absent
    return value


def _bounded(number: int) -> int | None:
    return number if number <= _MOST_NANOSECONDS else None


def _softened(
    value: Mapping[str, object], shape: type[Shape], fields: tuple[tuple[str, str, object], ...]
) -> Shape:
    found = {}
    for name, written_name, kind in fields:
        if written_name in value:
            own = _converted(value[written_name], kind)
            if own is not None:
                found[name] = own
    return shape(**found)


def _converted(value: object, kind: object) -> object:
    """The value as a field of that type holds it; `None` where it does not fit."""
    if kind is msgspec.Raw:
        return _raw(value)
    if isinstance(value, bool) or not isinstance(value, kind):  # type: ignore[arg-type]
        return None
    if isinstance(value, str):
        # Half a surrogate cannot be written to a file again.
        return value.encode("utf-8", "replace").decode("utf-8")
    return float(value) if isinstance(value, float) else value


def _raw(value: object) -> msgspec.Raw | None:
    if isinstance(value, WrittenFloat):
        return msgspec.Raw(value.text.encode())
    try:
        return msgspec.Raw(json.dumps(value).encode())
    except RecursionError:
        return None


def _fields(shape: type[msgspec.Struct]) -> tuple[tuple[str, str, object], ...]:
    return tuple(
        (field.name, field.encode_name, field.type) for field in msgspec.structs.fields(shape)
    )


_EVENT_FIELDS = _fields(KinetoEvent)
_ARGUMENT_FIELDS = _fields(Arguments)
