"""How frozen records look in JSON, derived from the records themselves.

The wire type of a record has the same fields, refuses unknown ones, writes `pass_` as `pass`
and bounds whole numbers by 64 bits and physical numbers by what their suffix says. It gives
decoding, encoding and the JSON Schema at once.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import types
import typing

import msgspec

from joulewise.domain import quantities

Record = typing.TypeVar("Record")

# Whole numbers of 64 bits; Python's have no end, and most arithmetic on them does not go on so far.
LEAST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1

_RENAMED = {"pass_": "pass"}
_NEVER_NEGATIVE = tuple(
    quantity.suffix
    for quantity in quantities.ALL
    if quantity not in (quantities.RATIO, quantities.TEMPERATURE)
)


def wire_type(record: type[object]) -> type[msgspec.Struct]:
    """The JSON shape of a record class."""
    return _wire_type(typing.cast("typing.Any", record))


def document_type(record: type[object], schema_version: int) -> type[msgspec.Struct]:
    """The JSON shape of a file that holds one record: its fields and `schema_version`."""
    return _document_type(typing.cast("typing.Any", record), schema_version)


@functools.cache
def _wire_type(record: typing.Any) -> type[msgspec.Struct]:  # noqa: ANN401 - classes are hashable
    return msgspec.defstruct(
        record.__name__,
        _fields(record),
        kw_only=True,
        forbid_unknown_fields=True,
        rename=_RENAMED,
        namespace={"__doc__": inspect.getdoc(record)},
    )


@functools.cache
def _document_type(record: typing.Any, schema_version: int) -> type[msgspec.Struct]:  # noqa: ANN401
    version: typing.Any = typing.Literal[schema_version]
    return msgspec.defstruct(
        record.__name__,
        [("schema_version", version), *_fields(record)],
        kw_only=True,
        forbid_unknown_fields=True,
        rename=_RENAMED,
        namespace={"__doc__": inspect.getdoc(record)},
    )


def to_builtins(record: object) -> dict[str, object]:
    """A record as what JSON is made of."""
    wire = msgspec.convert(record, wire_type(type(record)), from_attributes=True)
    return typing.cast("dict[str, object]", msgspec.to_builtins(wire))


def from_wire(wire: object, record: type[Record]) -> Record:
    """The record that a decoded wire value stands for.

    Raises:
        msgspec.ValidationError: a value that the record itself refuses.
    """
    return msgspec.convert(wire, record, from_attributes=True)


def _fields(record: type) -> list[tuple[str, typing.Any] | tuple[str, typing.Any, typing.Any]]:
    hints = typing.get_type_hints(record)
    fields: list[tuple[str, typing.Any] | tuple[str, typing.Any, typing.Any]] = []
    for field in dataclasses.fields(record):
        hint = _wire_hint(field.name, hints[field.name])
        if field.default is dataclasses.MISSING:
            fields.append((field.name, hint))
        else:
            fields.append((field.name, hint, field.default))
    return fields


def _wire_hint(name: str, hint: typing.Any) -> typing.Any:  # noqa: ANN401 - type expressions
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return wire_type(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        parts = tuple(part if part is ... else _wire_hint(name, part) for part in arguments)
        return tuple.__class_getitem__(parts)
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, (_wire_hint(name, part) for part in arguments))
    is_never_negative = name.endswith(_NEVER_NEGATIVE)
    if hint is int:
        lowest = 0 if is_never_negative else LEAST_INTEGER
        return typing.Annotated[int, msgspec.Meta(ge=lowest, le=LARGEST_INTEGER)]
    if hint is float and is_never_negative:
        return typing.Annotated[float, msgspec.Meta(ge=0)]
    return hint
