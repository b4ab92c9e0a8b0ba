"""What is kept of a Kineto trace while it is read: whole numbers in columns, texts once each."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from joulewise.store.importers.traces.kineto_events import (
    Arguments,
    KinetoEvent,
    identifier,
    launch_nanoseconds,
    nanoseconds,
    span_nanoseconds,
)

IntColumn = NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)

# Of PyTorch since 1.12, then before.
_OPS = ("cpu_op", "operator")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime")
_MARKS = ("user_annotation",)
_GPU_MARKS = ("gpu_user_annotation",)
_KERNELS = ("kernel",)
_NO_ARGUMENTS = Arguments()
_LONGEST_NAME_COUNT = 1_000
ABSENT = -1


class Numbers(Generic[Key]):
    """Numbers values from 0 on, equal ones alike."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, value: Key) -> int:
        """The number of a value, a new one for a new value."""
        return self._numbers.setdefault(value, len(self._numbers))

    def values(self) -> tuple[Key, ...]:
        """All values, by number."""
        return tuple(self._numbers)


class Rows:
    """Rows of whole numbers, eight bytes each."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._cells = array("q")

    def __len__(self) -> int:
        return len(self._cells) // len(self._names)

    def add(self, row: Iterable[int]) -> None:
        """Append one row, a number for each name."""
        self._cells.extend(row)

    def columns(self) -> dict[str, IntColumn]:
        """All rows as columns of shape (rows,), by name."""
        table = np.frombuffer(self._cells, dtype=np.int64) if self._cells else np.empty(0, np.int64)
        table = table.reshape(-1, len(self._names))
        return {name: table[:, index] for index, name in enumerate(self._names)}


class KinetoColumns:
    """Collects kernels, launches, operations and marks; times in nanoseconds, -1 where absent.

    A kernel is an event with `ph` X whose `cat` is "kernel" in any case; memory copies and sets
    are none.
    """

    def __init__(self) -> None:
        self.names: Numbers[str] = Numbers()
        self.owners: Numbers[tuple[object, object]] = Numbers()
        self.geometries: Numbers[tuple[bytes, bytes, float | None, float | None]] = Numbers()
        self.inputs: Numbers[tuple[bytes, bytes, bytes]] = Numbers()
        self.collectives: Numbers[tuple[str | None, bytes, int, int, int]] = Numbers()
        self.kernels = Rows(
            "start", "duration", "name", "gpu", "stream", "geometry", "collective",
            "correlation", "external", "is_graph",
        )  # fmt: skip
        self.launches = Rows("start", "owner", "correlation", "name")
        self.ops = Rows(
            "start", "end", "owner", "name", "external", "sequence", "forward_thread", "inputs",
            "collective",
        )  # fmt: skip
        self.marks = Rows("start", "end", "owner", "name")
        self.gpu_marks = Rows("start", "end", "gpu", "stream", "name")
        # Kernels without a start, or without a duration, which is 0 then, count in the totals only.
        self.unplaced = Rows("name", "duration")
        self.timeless_count = 0
        self._handlers: dict[str | None, Callable[[KinetoEvent], None]] = {}
        self._by_category = {
            **dict.fromkeys(_KERNELS, self._add_kernel),
            **dict.fromkeys(_LAUNCHES, self._add_launch),
            **dict.fromkeys(_OPS, self._add_op),
            **dict.fromkeys(_MARKS, self._add_mark),
            **dict.fromkeys(_GPU_MARKS, self._add_gpu_mark),
        }

    def add(self, events: Iterable[KinetoEvent]) -> None:
        """Keep what counts of the next events of the file."""
        handlers = self._handlers
        for event in events:
            if event.ph == "X":
                try:
                    handler = handlers[event.cat]
                except KeyError:
                    handler = self._handler(event.cat)
                handler(event)

    def row_count(self) -> int:
        """Rows of all kinds that were kept."""
        kinds = (
            self.kernels, self.launches, self.ops, self.marks, self.gpu_marks, self.unplaced,
        )  # fmt: skip
        return sum(len(rows) for rows in kinds)

    def _handler(self, category: str | None) -> Callable[[KinetoEvent], None]:
        found = self._by_category.get((category or "").lower(), _skip)
        self._handlers[category] = found
        return found

    def _add_kernel(self, event: KinetoEvent) -> None:
        args = event.args or _NO_ARGUMENTS
        start, duration = nanoseconds(event.ts), launch_nanoseconds(event.dur)
        # Totals are of names as they are written, to compare with other tools.
        name = self.names.of(event.name or "")
        if start is None or duration is None:
            self.unplaced.add((name, duration or 0))
            self.timeless_count += duration is None
            return
        geometry = (bytes(args.grid), bytes(args.block), args.shared_memory, args.registers)
        is_graph = identifier(args.graph, 0) > 0 or identifier(args.graph_node, 0) > 0
        self.kernels.add((
            start, duration, name, *_place(event, args), self.geometries.of(geometry),
            self._collective(args), identifier(args.correlation), _external(args), is_graph,
        ))  # fmt: skip

    def _add_launch(self, event: KinetoEvent) -> None:
        correlation = identifier((event.args or _NO_ARGUMENTS).correlation)
        start = nanoseconds(event.ts)
        if correlation != ABSENT and start is not None:
            name = self._name(event)
            self.launches.add((start, self._owner(event), correlation, name))

    def _add_op(self, event: KinetoEvent) -> None:
        span = _span(event)
        if span is None:
            return
        args = event.args or _NO_ARGUMENTS
        inputs = ABSENT
        dims = bytes(args.dims) or bytes(args.old_dims)
        if dims:
            inputs = self.inputs.of((dims, bytes(args.types), bytes(args.concrete)))
        self.ops.add((
            *span, self._owner(event), self._name(event), _external(args),
            identifier(args.sequence), identifier(args.forward_thread, 0), inputs,
            self._collective(args),
        ))  # fmt: skip

    def _add_mark(self, event: KinetoEvent) -> None:
        span = _span(event)
        if span is not None:
            self.marks.add((*span, self._owner(event), self._name(event)))

    def _add_gpu_mark(self, event: KinetoEvent) -> None:
        span = _span(event)
        if span is not None:
            place = _place(event, event.args or _NO_ARGUMENTS)
            self.gpu_marks.add((*span, *place, self._name(event)))

    def _name(self, event: KinetoEvent) -> int:
        """Of what is no kernel: the beginning is enough."""
        return self.names.of((event.name or "")[:_LONGEST_NAME_COUNT])

    def _owner(self, event: KinetoEvent) -> int:
        return self.owners.of((event.pid, event.tid))

    def _collective(self, args: Arguments) -> int:
        if args.collective is None:
            return ABSENT
        return self.collectives.of((
            args.collective, bytes(args.collective_dtype), identifier(args.sent_count),
            identifier(args.received_count), identifier(args.group_size),
        ))  # fmt: skip


def _skip(_event: KinetoEvent) -> None:
    """Events of other categories tell nothing here."""


def _place(event: KinetoEvent, args: Arguments) -> tuple[int, int]:
    """GPU and stream; old traces say them as process and thread only."""
    gpu = identifier(args.device)
    stream = identifier(args.stream)
    return (
        identifier(event.pid, 0) if gpu == ABSENT else gpu,
        identifier(event.tid, 0) if stream == ABSENT else stream,
    )


def _span(event: KinetoEvent) -> tuple[int, int] | None:
    start, duration = nanoseconds(event.ts), span_nanoseconds(event.dur)
    return None if start is None or duration is None else (start, start + duration)


def _external(args: Arguments) -> int:
    external = identifier(args.external_id)
    return identifier(args.old_external_id) if external == ABSENT else external
