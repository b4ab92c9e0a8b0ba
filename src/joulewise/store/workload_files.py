"""Workload files: launches in order, with nested repeated groups."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from joulewise.domain.errors import InputError
from joulewise.domain.workload import KernelWork, Launch, Pass, Workload
from joulewise.store.atomic import write_atomically
from joulewise.store.columns import Field, names
from joulewise.store.document_kinds import refuse_other_kind
from joulewise.store.files import read_bytes
from joulewise.store.json_files import (
    SCHEMA_VERSION,
    decode_document,
    require_version,
)
from joulewise.store.wire import from_wire, to_builtins, wire_type

MOST_LAUNCHES = 1_000_000
DEEPEST_NESTING = 50

# What any kernel on any GPU stays within by far; beyond it physics gives no finite numbers.
WORK_BOUNDS: Mapping[str, tuple[float, float]] = {
    "flop_count": (0.0, 1e21),
    "traffic_bytes": (0.0, 1e18),
    "compute_efficiency_ratio": (1e-6, 1.0),
    "memory_efficiency_ratio": (1e-6, 1.0),
    "core_activity_ratio": (0.0, 1000.0),
    "memory_activity_ratio": (0.0, 1000.0),
    "clock_offset_ratio": (-0.5, 0.5),
}

Name = Annotated[str, msgspec.Meta(min_length=1)]


class LaunchItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch (`kernel`, `pass`) or a group (`launches`), `repeat` times in a row."""

    kernel: Name | msgspec.UnsetType = msgspec.UNSET
    pass_: Pass | msgspec.UnsetType = msgspec.field(name="pass", default=msgspec.UNSET)
    launches: tuple[LaunchItem, ...] | msgspec.UnsetType = msgspec.UNSET
    repeat: Annotated[int, msgspec.Meta(ge=1)] = 1


class WorkloadFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An iteration as an ordered sequence of launches; `works` may be left out."""

    schema_version: Literal[1]
    name: Name
    launches: tuple[LaunchItem, ...]
    works: tuple[wire_type(KernelWork), ...] = ()  # type: ignore[valid-type]


def read_workload(path: Path) -> Workload:
    """Read a workload file and expand its groups.

    Raises:
        InputError: anything wrong with the file; names file, line or field.
    """
    raw, file = read_bytes(path), str(path)
    refuse_other_kind(raw, "Workload", file)
    require_version(raw, file)
    document = decode_document(raw, WorkloadFile, file)
    names([document.name], Field(file=file, name="name"))
    launches = _expanded(document.launches, "launches", file, depth=0)
    works = tuple(from_wire(work, KernelWork) for work in document.works)
    for index, work in enumerate(works):
        _check_work(work, f"works[{index}]", file)
    for name, count in Counter(work.kernel for work in works).items():
        if count > 1:
            raise InputError(
                f"the work of kernel {name!r} is given {count} times",
                file=file,
                field="works",
                hint="Keep one.",
            )
    return Workload(name=document.name, launches=tuple(launches), works=works)


def _check_work(work: KernelWork, here: str, file: str) -> None:
    for name, (lowest, highest) in WORK_BOUNDS.items():
        value = getattr(work, name)
        if not lowest <= value <= highest:
            raise InputError(
                f"this must be between {lowest:g} and {highest:g}, not {value:g}",
                file=file,
                field=f"{here}.{name}",
                hint="See the page on file formats.",
            )
    if work.flop_count + work.traffic_bytes < 1:
        raise InputError(
            f"the kernel {work.kernel!r} neither computes nor moves anything",
            file=file,
            field=f"{here}.flop_count",
            hint="Give its FLOPs, its bytes, or both, per launch.",
        )


def write_workload(workload: Workload, path: Path) -> None:
    """Write a workload file, whole or not at all; equal neighbours become one with `repeat`.

    Raises:
        InputError: the place cannot be written to.
    """
    runs = [(launch, len(list(same))) for launch, same in itertools.groupby(workload.launches)]
    document = {
        "schema_version": SCHEMA_VERSION,
        "name": workload.name,
        "launches": [
            {"kernel": launch.kernel, "pass": launch.pass_.value, "repeat": count}
            for launch, count in runs
        ],
        "works": [to_builtins(work) for work in workload.works],
    }
    text = msgspec.json.encode(document)
    msgspec.json.decode(text, type=WorkloadFile)  # what cannot be read is not written
    write_atomically(path, msgspec.json.format(text, indent=2) + b"\n")


def _expanded(items: tuple[LaunchItem, ...], path: str, file: str, *, depth: int) -> list[Launch]:
    if not items:
        raise InputError(
            "there are no launches", file=file, field=path, hint='Write {"kernel": "…"} items.'
        )
    if depth > DEEPEST_NESTING:
        raise InputError(
            f"groups are nested more than {DEEPEST_NESTING} deep",
            file=file,
            field="launches",
            hint="Write fewer, longer groups.",
        )
    launches: list[Launch] = []
    for index, item in enumerate(items):
        here = f"{path}[{index}]"
        once = _once(item, here, file, depth=depth)
        if len(launches) + len(once) * item.repeat > MOST_LAUNCHES:
            raise InputError(
                f"the iteration is longer than {MOST_LAUNCHES} launches",
                file=file,
                field=f"{here}.repeat",
                hint="One iteration is meant, not a whole training run.",
            )
        launches.extend(once * item.repeat)
    return launches


def _once(item: LaunchItem, here: str, file: str, *, depth: int) -> list[Launch]:
    """What an item stands for, before it is repeated."""
    if isinstance(item.launches, msgspec.UnsetType):
        if isinstance(item.kernel, msgspec.UnsetType):
            raise InputError(
                "neither a kernel nor a group of launches is given",
                file=file,
                field=here,
                hint='Write {"kernel": "…"} or {"repeat": 24, "launches": […]}.',
            )
        names([item.kernel], Field(file=file, name=f"{here}.kernel"))
        pass_ = Pass.FORWARD if isinstance(item.pass_, msgspec.UnsetType) else item.pass_
        return [Launch(kernel=item.kernel, pass_=pass_)]
    for name, value in (("kernel", item.kernel), ("pass", item.pass_)):
        if not isinstance(value, msgspec.UnsetType):
            raise InputError(
                f"a group of launches takes no {name} of its own",
                file=file,
                field=f"{here}.{name}",
                hint=f"Give the {name} to the launches inside.",
            )
    return _expanded(item.launches, f"{here}.launches", file, depth=depth + 1)
