"""NVTX ranges of an export by thread, and which of them are open at a time."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from joulewise.store.importers.traces.annotations import is_step_mark
from joulewise.store.importers.traces.nsys_database import (
    TIMES_NS,
    NsysDatabase,
    Place,
    Value,
    whole_columns,
)
from joulewise.store.importers.traces.nsys_marks import NCCL_DOMAIN, Mark, MarkReader

RANGES = "NVTX_EVENTS"
STILL_OPEN_NS = 2**62
# Ranges that one thread starts and another ends belong to no thread.
NO_THREAD = -1
Thread = tuple[int, int]
IntColumn = NDArray[np.int64]

_THREAD_BITS = 24
_EVENT_TYPES = "ENUM_NSYS_EVENT_TYPE"
_STACKED = {59: True, 60: False, 70: True, 71: False}
_STACKED_BY_NAME = {
    "NvtxPushPopRange": True,
    "NvtxStartEndRange": False,
    "NvtxtPushPopRange": True,
    "NvtxtStartEndRange": False,
}
_DOMAIN = 75
_TID = 5
_COLUMNS = (
    "start", "end", "eventType", "text", "textId", "globalTid", "domainId", "jsonText",
    "jsonTextId",
)  # fmt: skip


def process_of(global_tid: int) -> int:
    """The globalPid that a globalTid belongs to."""
    return global_tid >> _THREAD_BITS << _THREAD_BITS


@dataclass(slots=True)
class ThreadRanges:
    """Ranges of one thread, in the order of the file; times are in nanoseconds."""

    start: array[int] = field(default_factory=lambda: array("q"))
    end: array[int] = field(default_factory=lambda: array("q"))
    mark: array[int] = field(default_factory=lambda: array("q"))
    sequence: array[int] = field(default_factory=lambda: array("q"))

    def append(self, start: int, end: int, mark: int, sequence: int) -> None:
        """One more range."""
        self.start.append(start)
        self.end.append(end)
        self.mark.append(mark)
        self.sequence.append(sequence)

    def outer_first(self) -> list[int]:
        """Indices by start, longer ones first."""
        starts = np.array(self.start, dtype=np.int64)
        ends = np.array(self.end, dtype=np.int64)
        order: list[int] = np.lexsort((-ends, starts)).tolist()
        return order


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Ranges by thread, and the marks that they point to.

    `gradients` holds, by process, sequence numbers of operations whose gradient is computed
    somewhere; `is_any` says whether the export has any range at all.
    """

    threads: Mapping[Thread, ThreadRanges] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    gradients: Mapping[int, set[int]] = field(default_factory=dict)
    is_any: bool = False


def read_ranges(database: NsysDatabase, moments: Mapping[int, IntColumn]) -> Ranges:
    """The ranges that matter: one of the moments lies in them, or they may be a step's.

    Args:
        database: The export.
        moments: By process, when it launched kernels, ascending; in nanoseconds.

    Raises:
        InputError: a range has no start, or ends before it starts.
    """
    if not database.columns(RANGES):
        return Ranges()
    texts, nccl = _texts(database)
    reading = _Reading(database.file, moments, _stacked_types(database), texts, nccl)
    row_count = 0
    for batch in database.batches(RANGES, _COLUMNS):
        reading.add(batch, row_count)
        row_count += len(batch)
    return Ranges(
        threads=reading.threads,
        marks=tuple(reading.reader.marks),
        gradients=reading.gradients,
        is_any=reading.is_any,
    )


class _Reading:
    """Ranges as they are read, batch by batch."""

    def __init__(
        self,
        file: str,
        moments: Mapping[int, IntColumn],
        is_stacked: Mapping[int, bool],
        texts: Mapping[int, str],
        nccl: set[tuple[int, Value]],
    ) -> None:
        self.threads: dict[Thread, ThreadRanges] = {}
        self.reader = MarkReader()
        self.is_any = False
        self.gradients: dict[int, set[int]] = defaultdict(set)
        self._file = file
        self._moments = moments
        self._is_stacked = is_stacked
        self._texts = texts
        self._nccl = nccl

    def add(self, batch: Sequence[tuple[Value, ...]], row_count: int) -> None:
        """Take in rows, of which `row_count` lie before them. Raises InputError."""
        matters = self._matters(batch)
        for place, (values, does_matter) in enumerate(zip(batch, matters, strict=True)):
            start, end, kind, text, text_id, tid, domain, payload, payload_id = values
            if not isinstance(text, str):
                text = self._texts.get(text_id) if isinstance(text_id, int) else None
            if kind not in self._is_stacked or not text or not isinstance(kind, int):
                continue
            self.is_any = True
            start_ns, end_ns = _times(start, end, self._file, row_count + place + 1)
            global_tid = _number(tid, 0)
            process = process_of(global_tid)
            is_nccl = (process, domain) in self._nccl
            if not does_matter and not self._may_be_step(text):
                self._note_gradient(text, process)
                continue
            if is_nccl and not isinstance(payload, str):
                payload = self._texts.get(_number(payload_id, -1), "")
            shown = payload if is_nccl and isinstance(payload, str) else ""
            mark, sequence = self.reader.read(text, is_nccl=is_nccl, payload=shown)
            if sequence >= 0 and self.reader.marks[mark].is_backward_op:
                self.gradients[process].add(sequence)
            thread = process, global_tid if self._is_stacked[kind] else NO_THREAD
            ranges = self.threads.get(thread)
            if ranges is None:
                ranges = self.threads[thread] = ThreadRanges()
            ranges.append(start_ns, end_ns, mark, sequence)

    def _matters(self, batch: Sequence[tuple[Value, ...]]) -> Sequence[bool]:
        """Whether a moment of its process lies in each range; yes where that cannot be told."""
        columns = list(zip(*batch, strict=True))
        ends = [STILL_OPEN_NS if end is None else end for end in columns[1]]
        tids = [0 if tid is None else tid for tid in columns[_TID]]
        whole = whole_columns([columns[0], ends, tids])
        if whole is None:
            return [True] * len(batch)
        start, end, tid = (np.array(column, dtype=np.int64) for column in whole)
        process = tid >> _THREAD_BITS << _THREAD_BITS
        found = np.zeros(len(batch), dtype=np.bool_)
        for one in np.unique(process).tolist():
            moments = self._moments.get(one)
            if moments is not None:
                rows = process == one
                first = np.searchsorted(moments, start[rows], side="left")
                found[rows] = np.searchsorted(moments, end[rows], side="left") > first
        matters: list[bool] = found.tolist()
        return matters

    def _may_be_step(self, text: str) -> bool:
        return "::" not in text and is_step_mark(text)

    def _note_gradient(self, text: str, process: int) -> None:
        """Keep the number of an operation that computes a gradient without a kernel."""
        if "ackward" in text or "stashed" in text or "evaluate_function" in text:
            mark, sequence = self.reader.read(text)
            if sequence >= 0 and self.reader.marks[mark].is_backward_op:
                self.gradients[process].add(sequence)


def swept(
    ranges: ThreadRanges, times: IntColumn, opened: Callable[[int, int], int], outside: int
) -> list[int]:
    """The state that holds at each of the times, which may come in any order.

    `opened(state, i)` is what holds in range i where `state` held around it.
    """
    order = ranges.outer_first()
    queries = np.argsort(times, kind="stable")
    starts, ends = ranges.start, ranges.end
    found: list[int] = []
    stack: list[tuple[int, int]] = [(STILL_OPEN_NS + 1, outside)]
    position, count = 0, len(order)
    for time in times[queries].tolist():
        while position < count and starts[index := order[position]] <= time:
            position += 1
            _close(stack, starts[index])
            stack.append((ends[index], opened(stack[-1][1], index)))
        _close(stack, time)
        found.append(stack[-1][1])
    states = np.empty(len(found), dtype=np.int64)
    states[queries] = found
    sorted_back: list[int] = states.tolist()
    return sorted_back


def _close(stack: list[tuple[int, int]], time: int) -> None:
    while stack[-1][0] <= time:
        stack.pop()


def _stacked_types(database: NsysDatabase) -> Mapping[int, bool]:
    """Types of events that are ranges, and whether ranges of one thread lie in each other."""
    rows = database.rows(_EVENT_TYPES, ("name", "id")) if _has_types(database) else ()
    named = {name: number for name, number in rows}  # noqa: C416 - rows are of any length
    by_name = {
        number: is_stacked
        for name, is_stacked in _STACKED_BY_NAME.items()
        if isinstance(number := named.get(name), int)
    }
    return by_name or _STACKED


def _has_types(database: NsysDatabase) -> bool:
    return {"name", "id"} <= set(database.columns(_EVENT_TYPES))


def _texts(database: NsysDatabase) -> tuple[Mapping[int, str], set[tuple[int, Value]]]:
    """Registered texts of ranges, and the domains of NCCL by process."""
    ids: set[Value] = set()
    domains: list[tuple[int, Value, Value, Value]] = []
    wanted = ("eventType", "text", "textId", "globalTid", "domainId", "jsonTextId")
    for batch in database.batches(RANGES, wanted):
        kinds, _, text_ids, _, _, payload_ids = zip(*batch, strict=True)
        ids.update(text_ids)
        ids.update(payload_ids)
        if _DOMAIN in kinds:
            domains += [
                (process_of(_number(tid, 0)), domain, text, text_id)
                for kind, text, text_id, tid, domain, _ in batch
                if kind == _DOMAIN
            ]
    texts = database.texts({value for value in ids if isinstance(value, int)})
    nccl = {
        (process, domain)
        for process, domain, text, text_id in domains
        if (text or texts.get(_number(text_id, -1), "")) == NCCL_DOMAIN
    }
    return texts, nccl


def _times(start: Value, end: Value, file: str, row: int) -> tuple[int, int]:
    earliest, latest = TIMES_NS
    # The usual range first: there may be millions.
    if isinstance(start, int) and isinstance(end, int) and earliest <= start <= end <= latest:
        return start, end
    place = Place(file=file, table=RANGES, row=row)
    start_ns = place.whole(start, "start", TIMES_NS)
    if end is None:
        return start_ns, STILL_OPEN_NS
    end_ns = place.whole(end, "end", TIMES_NS)
    raise place.error("end", f"the range ends {start_ns - end_ns} ns before it starts")


def _number(value: Value, missing: int) -> int:
    return value if isinstance(value, int) else missing
