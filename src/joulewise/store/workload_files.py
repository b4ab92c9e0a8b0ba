"""Workload files: launches in order, with nested repeated groups."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InputError
from joulewise.domain.workload import IterationSize, KernelWork, Launch, Pass, Workload
from joulewise.store.atomic import write_atomically
from joulewise.store.columns import Field, names
from joulewise.store.document_kinds import refuse_other_kind
from joulewise.store.files import MOST_BYTES_COUNT, read_bytes
from joulewise.store.json_files import (
    SCHEMA_VERSION,
    decode_document,
    require_version,
)
from joulewise.store.record_files import builtins_of, record_of
from joulewise.store.wire import wire_type
from joulewise.store.workload_trace import TraceItem, check_trace_item, trace_item, trace_of_item
from joulewise.store.workload_works import WORK_BOUNDS, check_size, check_works

__all__ = ["WORK_BOUNDS", "LaunchItem", "WorkloadFile", "read_workload", "write_workload"]

MOST_LAUNCHES = 1_000_000
DEEPEST_NESTING = 50
_PASSES = frozenset(each.value for each in Pass)

Item = dict[str, object]

Name = Annotated[str, msgspec.Meta(min_length=1)]


class LaunchItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch (`kernel`, `pass`) or a group (`launches`), `repeat` times in a row."""

    kernel: Name | msgspec.UnsetType = msgspec.UNSET
    pass_: Pass | msgspec.UnsetType = msgspec.field(name="pass", default=msgspec.UNSET)
    launches: tuple[LaunchItem, ...] | msgspec.UnsetType = msgspec.UNSET
    repeat: Annotated[int, msgspec.Meta(ge=1)] = 1


class WorkloadFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An iteration as an ordered sequence of launches; all but these may be left out."""

    schema_version: Literal[1]
    name: Name
    launches: tuple[LaunchItem, ...]
    works: tuple[wire_type(KernelWork), ...] = ()  # type: ignore[valid-type]
    size: wire_type(IterationSize) | None = None  # type: ignore[valid-type]
    caveats: tuple[wire_type(Caveat), ...] = ()  # type: ignore[valid-type]
    trace: TraceItem | None = None


def read_workload(path: Path) -> Workload:
    """Read a workload file and expand its groups.

    Raises:
        InputError: anything wrong with the file; names file, line or field.
    """
    raw, file = read_bytes(path), str(path)
    refuse_other_kind(raw, "Workload", file)
    require_version(raw, file)
    document = decode_document(raw, WorkloadFile, file)
    del raw  # a large one would lie beside the million records that it becomes
    launches = _checked_launches(document, file)
    return Workload(
        name=document.name,
        launches=launches,
        works=_checked_works(document, file),
        size=_checked_size(document, file),
        trace=None if document.trace is None else trace_of_item(document.trace, file),
        caveats=tuple(record_of(caveat, Caveat, file) for caveat in document.caveats),
    )


def write_workload(workload: Workload, path: Path) -> None:
    """Write a workload file, whole or not at all; equal neighbours become one with `repeat`.

    What could not be read again is not written: it passes the checks of `read_workload` first.

    Raises:
        InputError: the place cannot be written to, or the workload is none that a file can hold;
            names the field.
    """
    try:
        text = _document_text(workload, str(path))
    except UnicodeEncodeError as error:
        raise InputError(
            "a name of the workload is not Unicode text, so it cannot be written",
            file=str(path),
            hint="Look for damaged kernel names where the workload comes from.",
        ) from error
    if len(text) > MOST_BYTES_COUNT:
        raise InputError(
            f"the file would be larger than {MOST_BYTES_COUNT // 2**20} MiB",
            file=str(path),
            hint="Keep fewer launches: one iteration is meant.",
        )
    write_atomically(path, text)


def _document_text(workload: Workload, file: str) -> bytes:
    """The file: indented, but for the columns of a trace, which would be a line a number."""
    items = _items(workload.launches)
    document = _head(workload, items, file)
    trace = None if workload.trace is None else trace_item(workload.trace, file)
    text = _joined(document, trace)
    if len(workload.launches) > MOST_LAUNCHES or not _is_readable(document, items, trace, file):
        _check_document(decode_document(text, WorkloadFile, file), file)
    return text


def _head(workload: Workload, items: list[Item], file: str) -> Item:
    """All of the document but the trace."""
    document: Item = {
        "schema_version": SCHEMA_VERSION,
        "name": workload.name,
        "launches": items,
        "works": [
            builtins_of(work, f"works[{number}]", file)
            for number, work in enumerate(workload.works)
        ],
    }
    if workload.size is not None:
        document["size"] = builtins_of(workload.size, "size", file)
    if workload.caveats:
        document["caveats"] = [
            builtins_of(caveat, f"caveats[{number}]", file)
            for number, caveat in enumerate(workload.caveats)
        ]
    return document


def _items(launches: tuple[Launch, ...]) -> list[Item]:
    """Runs of equal launches; equal runs are one object, for there may be a million."""
    known: dict[tuple[tuple[str, str], int], Item] = {}
    # Texts are compared faster than records.
    keys = [(launch.kernel, str(launch.pass_)) for launch in launches]
    items: list[Item] = []
    for key, same in itertools.groupby(keys):
        run = (key, len(list(same)))
        item = known.get(run)
        if item is None:
            item = known[run] = {"kernel": key[0], "pass": key[1], "repeat": run[1]}
        items.append(item)
    return items


def _joined(document: Item, trace: Item | None) -> bytes:
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    if trace is not None:
        columns = msgspec.json.encode(trace)
        text = b"".join((text.removesuffix(b"\n}"), b',\n  "trace": ', columns, b"\n}"))
    return text + b"\n"


def _is_readable(document: Item, items: list[Item], trace: Item | None, file: str) -> bool:
    """Whether reading surely takes what is written, proven by a document of few launches.

    Items are checked each by itself, so that one of each kind tells of all; what is allowed in a
    column is an interval, so that its ends tell. False where that does not prove it.
    """
    short = {**document, "launches": list({id(item): item for item in items}.values())}
    short_trace = None
    if trace is not None:
        ends = _ends(trace["launches"])
        if ends is None:
            return False
        short_trace = {**trace, "launches": ends}
    try:
        _check_document(decode_document(_joined(short, short_trace), WorkloadFile, file), file)
    except InputError:
        return False
    return True


def _ends(columns: object) -> dict[str, tuple[object, object]] | None:
    """The least and the largest of each column; nothing where they do not tell of all."""
    if not isinstance(columns, dict):
        return None
    found: dict[str, tuple[object, object]] = {}
    for name, column in columns.items():
        is_told = _PASSES.issuperset(column) if name == "pass" else _is_interval(column)
        if not column or not is_told:
            return None
        found[name] = min(column), max(column)
    return found


def _is_interval(column: list[float]) -> bool:
    """Numbers of one kind that JSON has; others compare as they like, and are written as null."""
    kinds = set(map(type, column))
    return kinds in ({int}, {bool}) or (kinds == {float} and all(map(math.isfinite, column)))


def _check_document(document: WorkloadFile, file: str) -> None:
    """All that `read_workload` checks of a file of the right form."""
    _checked_launches(document, file)
    _checked_works(document, file)
    _checked_size(document, file)
    if document.trace is not None:
        check_trace_item(document.trace, file)


def _checked_launches(document: WorkloadFile, file: str) -> tuple[Launch, ...]:
    names([document.name], Field(file=file, name="name"))
    return tuple(_Expansion(file).expanded(document.launches, "launches", depth=0))


def _checked_works(document: WorkloadFile, file: str) -> tuple[KernelWork, ...]:
    works = tuple(record_of(work, KernelWork, file) for work in document.works)
    check_works(works, file)
    return works


def _checked_size(document: WorkloadFile, file: str) -> IterationSize | None:
    if document.size is None:
        return None
    size = record_of(document.size, IterationSize, file)
    check_size(size, file)
    return size


class _Expansion:
    """Items of a file turned into launches; names are checked, and launches made, once each."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._launches: dict[tuple[str, Pass], Launch] = {}

    def expanded(self, items: tuple[LaunchItem, ...], path: str, *, depth: int) -> list[Launch]:
        """What a list of items stands for."""
        if not items:
            raise InputError(
                "there are no launches",
                file=self._file,
                field=path,
                hint='Write {"kernel": "…"} items.',
            )
        if depth > DEEPEST_NESTING:
            raise InputError(
                f"groups are nested more than {DEEPEST_NESTING} deep",
                file=self._file,
                field="launches",
                hint="Write fewer, longer groups.",
            )
        launches: list[Launch] = []
        for index, item in enumerate(items):
            here = f"{path}[{index}]"
            once = self._once(item, here, depth=depth)
            if len(launches) + len(once) * item.repeat > MOST_LAUNCHES:
                raise InputError(
                    f"the iteration is longer than {MOST_LAUNCHES} launches",
                    file=self._file,
                    field=f"{here}.repeat",
                    hint="One iteration is meant, not a whole training run.",
                )
            launches.extend(once * item.repeat)
        return launches

    def _once(self, item: LaunchItem, here: str, *, depth: int) -> list[Launch]:
        """What an item stands for, before it is repeated."""
        if isinstance(item.launches, msgspec.UnsetType):
            return [self._launch(item, here)]
        for name, value in (("kernel", item.kernel), ("pass", item.pass_)):
            if not isinstance(value, msgspec.UnsetType):
                raise InputError(
                    f"a group of launches takes no {name} of its own",
                    file=self._file,
                    field=f"{here}.{name}",
                    hint=f"Give the {name} to the launches inside.",
                )
        return self.expanded(item.launches, f"{here}.launches", depth=depth + 1)

    def _launch(self, item: LaunchItem, here: str) -> Launch:
        if isinstance(item.kernel, msgspec.UnsetType):
            raise InputError(
                "neither a kernel nor a group of launches is given",
                file=self._file,
                field=here,
                hint='Write {"kernel": "…"} or {"repeat": 24, "launches": […]}.',
            )
        pass_ = Pass.FORWARD if isinstance(item.pass_, msgspec.UnsetType) else item.pass_
        known = self._launches.get((item.kernel, pass_))
        if known is None:
            names([item.kernel], Field(file=self._file, name=f"{here}.kernel"))
            known = Launch(kernel=item.kernel, pass_=pass_)
            self._launches[item.kernel, pass_] = known
        return known
