"""NVTX ranges of an export by thread, and which of them are open at a time."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from joulewise.store.importers.traces.nsys_database import TIMES_NS, NsysDatabase, Place, Value
from joulewise.store.importers.traces.nsys_marks import NCCL_DOMAIN, Mark, MarkReader

RANGES = "NVTX_EVENTS"
STILL_OPEN_NS = 2**62
# Ranges that one thread starts and another ends belong to no thread.
NO_THREAD = -1
Thread = tuple[int, int]
State = TypeVar("State")

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


def read_ranges(database: NsysDatabase) -> tuple[dict[Thread, ThreadRanges], tuple[Mark, ...]]:
    """Every range by process and thread, and the marks that they point to.

    Raises:
        InputError: a range has no start, or ends before it starts.
    """
    threads: dict[Thread, ThreadRanges] = {}
    reader = MarkReader()
    if not database.columns(RANGES):
        return threads, ()
    is_stacked = _stacked_types(database)
    texts, nccl = _texts(database)
    for row, values in enumerate(database.rows(RANGES, _COLUMNS), start=1):
        start, end, kind, text, text_id, tid, domain, payload, payload_id = values
        text = text if isinstance(text, str) else texts.get(_number(text_id, -1))
        if not isinstance(kind, int) or kind not in is_stacked or not text:
            continue
        start_ns, end_ns = _times(start, end, database.file, row)
        global_tid = _number(tid, 0)
        process = process_of(global_tid)
        if not isinstance(payload, str):
            payload = texts.get(_number(payload_id, -1), "")
        is_nccl = (process, domain) in nccl
        mark, sequence = reader.read(text, is_nccl=is_nccl, payload=payload if is_nccl else "")
        thread = process, global_tid if is_stacked[kind] else NO_THREAD
        threads.setdefault(thread, ThreadRanges()).append(start_ns, end_ns, mark, sequence)
    return threads, tuple(reader.marks)


def swept(
    ranges: ThreadRanges,
    times: Sequence[int],
    opened: Callable[[State, int], State],
    outside: State,
) -> list[State]:
    """What holds at each of the times, which may come in any order.

    `opened(state, i)` is what holds in range i where `state` held around it.
    """
    order = ranges.outer_first()
    queries = np.argsort(np.array(times, dtype=np.int64), kind="stable").tolist()
    found = [outside] * len(queries)
    stack: list[tuple[int, State]] = [(STILL_OPEN_NS + 1, outside)]
    position = 0
    for query in queries:
        time = times[query]
        while position < len(order) and ranges.start[order[position]] <= time:
            index = order[position]
            position += 1
            _close(stack, ranges.start[index])
            stack.append((ranges.end[index], opened(stack[-1][1], index)))
        _close(stack, time)
        found[query] = stack[-1][1]
    return found


def _close(stack: list[tuple[int, State]], time: int) -> None:
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
    ids: set[int] = set()
    domains: list[tuple[int, Value, Value, Value]] = []
    for kind, text, text_id, tid, domain, payload_id in database.rows(
        RANGES, ("eventType", "text", "textId", "globalTid", "domainId", "jsonTextId")
    ):
        ids.update(value for value in (text_id, payload_id) if isinstance(value, int))
        if kind == _DOMAIN:
            domains.append((process_of(_number(tid, 0)), domain, text, text_id))
    texts = database.texts(ids)
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
