"""What is kept of a Kineto trace while it is read: whole numbers in columns, texts once each."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from joulewise.store.importers.traces.kineto_batches import (
    identifier_column,
    span_column,
    time_column,
)
from joulewise.store.importers.traces.kineto_events import Arguments, KinetoEvent, identifier
from joulewise.store.importers.traces.launch_totals import LONGEST_LAUNCH_NS

IntColumn = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]
Events = list[KinetoEvent]
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
        self._numbers: _NewNumbers[Key] = _NewNumbers()

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, values: Iterable[Key]) -> IntColumn:
        """The number of each value, a new one for a new value."""
        return np.fromiter(map(self._numbers.__getitem__, values), dtype=np.int64)

    def values(self) -> tuple[Key, ...]:
        """All values, by number."""
        return tuple(self._numbers)


class _NewNumbers(dict[Key, int]):
    """Looked up without a step of Python for what is known."""

    def __missing__(self, value: Key) -> int:
        number = self[value] = len(self)
        return number


class Rows:
    """Rows of whole numbers, eight bytes each."""

    def __init__(self, *names: str) -> None:
        self._cells = {name: array("q") for name in names}

    def __len__(self) -> int:
        return len(next(iter(self._cells.values())))

    def add(self, *columns: IntColumn, which: BoolColumn | None = None) -> None:
        """Append rows, a column for each name; only those of `which` where it is given."""
        for cells, column in zip(self._cells.values(), columns, strict=True):
            cells.frombytes((column if which is None else column[which]).tobytes())

    def columns(self) -> dict[str, IntColumn]:
        """All rows as columns of shape (rows,), by name."""
        return {
            name: np.frombuffer(cells, dtype=np.int64) if cells else np.empty(0, np.int64)
            for name, cells in self._cells.items()
        }

    def taken(self) -> dict[str, IntColumn]:
        """As `columns`, which are kept here no more."""
        columns = self.columns()
        self._cells = {name: array("q") for name in columns}
        return columns


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
        self._adders: dict[str, Callable[[Events], None]] = {
            **dict.fromkeys(_KERNELS, self._add_kernels),
            **dict.fromkeys(_LAUNCHES, self._add_launches),
            **dict.fromkeys(_OPS, self._add_ops),
            **dict.fromkeys(_MARKS, self._add_marks),
            **dict.fromkeys(_GPU_MARKS, self._add_gpu_marks),
        }

    def add(self, events: Iterable[KinetoEvent]) -> None:
        """Keep what counts of the next events of the file."""
        by_category: dict[str | None, Events] = {}
        by_adder: dict[Callable[[Events], None], Events] = {}
        skipped: Events = []
        for event in events:
            if event.ph == "X":
                try:
                    chosen = by_category[event.cat]
                except KeyError:
                    adder = self._adders.get((event.cat or "").lower())
                    chosen = skipped if adder is None else by_adder.setdefault(adder, [])
                    by_category[event.cat] = chosen
                chosen.append(event)
        for adder, chosen in by_adder.items():
            adder(chosen)

    def row_count(self) -> int:
        """Rows of all kinds that were kept."""
        kinds = (
            self.kernels, self.launches, self.ops, self.marks, self.gpu_marks, self.unplaced,
        )  # fmt: skip
        return sum(len(rows) for rows in kinds)

    def _add_kernels(self, events: Events) -> None:
        args = [event.args or _NO_ARGUMENTS for event in events]
        start, is_placed = time_column([event.ts for event in events])
        duration, is_timed = span_column([event.dur for event in events])
        is_timed &= duration <= LONGEST_LAUNCH_NS
        # Totals are of names as they are written, to compare with other tools.
        name = self.names.of([event.name or "" for event in events])
        is_kept = is_placed & is_timed
        if not np.all(is_kept):
            self.unplaced.add(name, np.where(is_timed, duration, 0), which=~is_kept)
            self.timeless_count += int(np.count_nonzero(~is_timed))
        geometry = self.geometries.of(
            zip(
                map(bytes, [one.grid for one in args]),
                map(bytes, [one.block for one in args]),
                [one.shared_memory for one in args],
                [one.registers for one in args],
                strict=True,
            )
        )
        is_graph = (identifier_column([one.graph for one in args], 0) > 0) | (
            identifier_column([one.graph_node for one in args], 0) > 0
        )
        correlation = identifier_column([one.correlation for one in args])
        self.kernels.add(
            start, duration, name, *_places(events, args), geometry, self._collectives(args),
            correlation, _externals(args), is_graph.astype(np.int64), which=is_kept,
        )  # fmt: skip

    def _add_launches(self, events: Events) -> None:
        correlation = identifier_column(
            [(event.args or _NO_ARGUMENTS).correlation for event in events]
        )
        start, is_placed = time_column([event.ts for event in events])
        is_kept = is_placed & (correlation != ABSENT)
        owner, name = self._owners(events), self._names(events)
        self.launches.add(start, owner, correlation, name, which=is_kept)

    def _add_ops(self, events: Events) -> None:
        start, end, is_kept = _spans(events)
        args = [event.args or _NO_ARGUMENTS for event in events]
        self.ops.add(
            start, end, self._owners(events), self._names(events), _externals(args),
            identifier_column([one.sequence for one in args]),
            identifier_column([one.forward_thread for one in args], 0), self._op_inputs(args),
            self._collectives(args), which=is_kept,
        )  # fmt: skip

    def _add_marks(self, events: Events) -> None:
        start, end, is_kept = _spans(events)
        self.marks.add(start, end, self._owners(events), self._names(events), which=is_kept)

    def _add_gpu_marks(self, events: Events) -> None:
        start, end, is_kept = _spans(events)
        place = _places(events, [event.args or _NO_ARGUMENTS for event in events])
        self.gpu_marks.add(start, end, *place, self._names(events), which=is_kept)

    def _names(self, events: Events) -> IntColumn:
        """Of what is no kernel: the beginning is enough."""
        return self.names.of([(event.name or "")[:_LONGEST_NAME_COUNT] for event in events])

    def _owners(self, events: Events) -> IntColumn:
        return self.owners.of([(event.pid, event.tid) for event in events])

    def _op_inputs(self, args: Sequence[Arguments]) -> IntColumn:
        found = np.full(len(args), ABSENT, dtype=np.int64)
        dims = [bytes(one.dims) or bytes(one.old_dims) for one in args]
        rows = [row for row, each in enumerate(dims) if each]
        found[rows] = self.inputs.of(
            (dims[row], bytes(args[row].types), bytes(args[row].concrete)) for row in rows
        )
        return found

    def _collectives(self, args: Sequence[Arguments]) -> IntColumn:
        found = np.full(len(args), ABSENT, dtype=np.int64)
        rows = [row for row, one in enumerate(args) if one.collective is not None]
        found[rows] = self.collectives.of(_collective(args[row]) for row in rows)
        return found


def _collective(args: Arguments) -> tuple[str | None, bytes, int, int, int]:
    return (
        args.collective, bytes(args.collective_dtype), identifier(args.sent_count),
        identifier(args.received_count), identifier(args.group_size),
    )  # fmt: skip


def _places(events: Events, args: Sequence[Arguments]) -> tuple[IntColumn, IntColumn]:
    """GPU and stream; old traces say them as process and thread only."""
    gpu = identifier_column([one.device for one in args])
    stream = identifier_column([one.stream for one in args])
    if np.any(gpu == ABSENT):
        gpu = np.where(gpu == ABSENT, identifier_column([one.pid for one in events], 0), gpu)
    if np.any(stream == ABSENT):
        thread = identifier_column([one.tid for one in events], 0)
        stream = np.where(stream == ABSENT, thread, stream)
    return gpu, stream


def _spans(events: Events) -> tuple[IntColumn, IntColumn, BoolColumn]:
    """Starts, ends, and which of the events have both."""
    start, is_placed = time_column([event.ts for event in events])
    duration, is_timed = span_column([event.dur for event in events])
    return start, start + duration, is_placed & is_timed


def _externals(args: Sequence[Arguments]) -> IntColumn:
    external = identifier_column([one.external_id for one in args])
    if np.all(external != ABSENT):
        return external
    old = identifier_column([one.old_external_id for one in args])
    return np.where(external == ABSENT, old, external)
