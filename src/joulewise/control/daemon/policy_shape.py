"""The shape of the policy file: which fields there are, and what each may hold."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Literal

import msgspec

from joulewise.domain.errors import InputError
from joulewise.store.files import decode_text
from joulewise.store.json_files import shape_error

_HINT = "See the page on safe control for an example of every field."

Clock = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Watts = Annotated[float, msgspec.Meta(gt=0, le=100_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
PathText = Annotated[str, msgspec.Meta(pattern=r"^/[^\x00]*\Z", max_length=4096)]
Selector = Annotated[str, msgspec.Meta(pattern=r"^(\*|[Gg][Pp][Uu]-[0-9A-Za-z-]+)\Z")]
Listen = Annotated[str, msgspec.Meta(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]+):[0-9]{1,5}\Z")]


class DaemonTable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`[daemon]`; what is left out has the default of `DaemonSettings`."""

    socket: PathText | msgspec.UnsetType = msgspec.UNSET
    state_dir: PathText | msgspec.UnsetType = msgspec.UNSET
    heartbeat_timeout_s: Annotated[float, msgspec.Meta(ge=0.5, le=3600)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    max_connection_count: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    max_connection_per_user_count: (
        Annotated[int, msgspec.Meta(ge=1, le=100_000)] | msgspec.UnsetType
    ) = msgspec.UNSET
    max_changes_per_s: Annotated[float, msgspec.Meta(ge=1, le=1e6)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    sample_period_s: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    metrics_listen: Listen | msgspec.UnsetType = msgspec.UNSET


class IdleTable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`[idle]`."""

    after_s: Annotated[float, msgspec.Meta(ge=1, le=86_400 * 365)]
    sm_clock_mhz: Clock | Literal["lowest"] = "lowest"


class AllowTable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One `[[allow]]`."""

    users: list[Name | int] = msgspec.field(default_factory=list)
    groups: list[Name | int] = msgspec.field(default_factory=list)
    gpus: list[Selector] = msgspec.field(default_factory=lambda: ["*"])
    allow_memory_lock: bool = False
    allow_power_limit: bool | None = None
    min_sm_clock_mhz: Clock | None = None
    max_sm_clock_mhz: Clock | None = None
    min_mem_clock_mhz: Clock | None = None
    max_mem_clock_mhz: Clock | None = None
    min_power_limit_w: Watts | None = None
    max_power_limit_w: Watts | None = None


class PolicyFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    daemon: DaemonTable = msgspec.field(default_factory=DaemonTable)
    idle: IdleTable | None = None
    allow: list[AllowTable] = msgspec.field(default_factory=list)


_TABLES: Mapping[str, type[msgspec.Struct]] = {
    "daemon": DaemonTable,
    "idle": IdleTable,
    "allow": AllowTable,
}


def decode_policy(raw: bytes, file: str) -> PolicyFile:
    """Read a policy file.

    Raises:
        InputError: no TOML, or a field that is unknown, missing or of the wrong type; names
            file and field.
    """
    try:
        tables = tomllib.loads(decode_text(raw, file))
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"this is no TOML: {why}", file=file, hint=_HINT) from error
    _refuse_unknown(tables, file)
    try:
        return msgspec.convert(tables, PolicyFile)
    except msgspec.ValidationError as error:
        told = shape_error(error, file, PolicyFile)
        message, hint = _in_words(told.message, told.field or "")
        raise InputError(message, file=file, field=told.field, hint=hint) from error


# Of fields whose shape is a pattern, or a table in the wrong place: what to write there.
_WRITE: Mapping[str, str] = {
    "daemon.socket": 'Write a path from / on, as "/run/joulewise/joulewised.sock".',
    "daemon.state_dir": 'Write a path from / on, as "/var/lib/joulewise".',
    "daemon.metrics_listen": 'Write address and port, as "127.0.0.1:9835".',
    "idle": "Write it as a table: [idle], and below it after_s = 60.",
    "idle.sm_clock_mhz": 'Write "lowest", or a clock that the GPUs list, in MHz.',
    "allow": "Write each rule below a line of its own: [[allow]].",
    "allow.users": 'Write a list of names or numbers: ["alice", 1001].',
    "allow.groups": 'Write a list of names or numbers: ["gpu-tuners", 2000].',
    "allow.gpus": 'Write "*", or beginnings of UUIDs as nvidia-smi -L shows them: ["GPU-4ad1"].',
}
_INDEX = re.compile(r"\[[^\]]*\]")


def _in_words(message: str, field: str) -> tuple[str, str]:
    """A message without patterns, and what helps."""
    hint = _WRITE.get(_INDEX.sub("", field), _HINT)
    return ("this is not as it has to be" if "regex" in message else message), hint


def _refuse_unknown(tables: Mapping[str, object], file: str) -> None:
    """Refuse a field that nobody knows, with a guess which one was meant."""
    _refuse_unknown_in(tables, PolicyFile, "", file)
    for name, shape in _TABLES.items():
        found = tables.get(name)
        for index, table in enumerate(found if isinstance(found, list) else [found]):
            if isinstance(table, dict):
                place = f"{name}[{index}]." if isinstance(found, list) else f"{name}."
                _refuse_unknown_in(table, shape, place, file)


def _refuse_unknown_in(
    table: Mapping[str, object], shape: type[msgspec.Struct], place: str, file: str
) -> None:
    known = shape.__struct_fields__
    for name in table:
        if name not in known:
            alike = get_close_matches(name, known, n=1, cutoff=0.5)
            guess = f"Did you mean {alike[0]}? " if alike else ""
            raise InputError(
                "the field is not known",
                file=file,
                field=f"{place}{name}",
                hint=f"{guess}Known here: {', '.join(known)}.",
            )
