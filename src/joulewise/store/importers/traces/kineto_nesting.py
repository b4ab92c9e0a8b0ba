"""What encloses a moment on a thread: the innermost operation, and the pass that marks name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]
Entry = tuple[int, int, int, bool]

# Codes in a column of passes; those of domain passes are positive.
NO_PASS = 0
# The forward pass by a sequence number alone: whatever else tells goes before it.
FORWARD_BY_SEQUENCE = -1
_OUTSIDE: Entry = (0, -1, NO_PASS, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Spans of time on threads, of shape (intervals,); `op` is -1 for what is no operation."""

    start: IntColumn
    end: IntColumn
    owner: IntColumn
    op: IntColumn
    pass_code: IntColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosed:
    """For each moment the innermost operation around it, -1 for none, and its pass code."""

    op: IntColumn
    pass_code: IntColumn
    is_forward_by_sequence: NDArray[np.bool_]


def enclosed(time: IntColumn, owner: IntColumn, intervals: Intervals) -> Enclosed:
    """Look up moments of shape (moments,); intervals of one thread lie in or beside each other.

    Of intervals with equal bounds the later one is the inner one.
    """
    op = np.full(len(time), -1, dtype=np.int64)
    pass_code = np.full(len(time), NO_PASS, dtype=np.int64)
    is_forward = np.zeros(len(time), dtype=np.bool_)
    moments = np.lexsort((time, owner))
    spans = np.lexsort((-intervals.end, intervals.start, intervals.owner))
    owners = np.unique(owner)
    for own_moments, own_spans in zip(
        _by_owner(moments, owner, owners),
        _by_owner(spans, intervals.owner, owners),
        strict=True,
    ):
        times = time[own_moments]
        # Most operations launch nothing: they need not be looked at one by one.
        first = np.searchsorted(times, intervals.start[own_spans], side="left")
        past = np.searchsorted(times, intervals.end[own_spans], side="right")
        around = own_spans[past > first]
        if not len(around):
            continue
        found = _swept(times.tolist(), _entries(intervals, around))
        op[own_moments] = [entry[1] for entry in found]
        pass_code[own_moments] = [entry[2] for entry in found]
        is_forward[own_moments] = [entry[3] for entry in found]
    return Enclosed(op=op, pass_code=pass_code, is_forward_by_sequence=is_forward)


def _by_owner(order: IntColumn, owner: IntColumn, owners: IntColumn) -> list[IntColumn]:
    """The parts of an order by owner that belong to each of `owners`, which ascend."""
    sorted_owner = owner[order]
    first = np.searchsorted(sorted_owner, owners, side="left").tolist()
    past = np.searchsorted(sorted_owner, owners, side="right").tolist()
    return [order[begin:end] for begin, end in zip(first, past, strict=True)]


def _entries(intervals: Intervals, spans: IntColumn) -> list[tuple[int, int, int, int]]:
    return list(
        zip(
            intervals.start[spans].tolist(),
            intervals.end[spans].tolist(),
            intervals.op[spans].tolist(),
            intervals.pass_code[spans].tolist(),
            strict=True,
        )
    )


def _swept(times: list[int], spans: list[tuple[int, int, int, int]]) -> list[Entry]:
    """Both in order of time; a span hands on to those inside it what they do not say."""
    found: list[Entry] = []
    open_spans: list[Entry] = []
    position = 0
    for time in times:
        while position < len(spans) and spans[position][0] <= time:
            start, end, op, code = spans[position]
            position += 1
            # Whole microseconds make neighbours touch: what ends here encloses nothing more.
            _leave(open_spans, start)
            _, outer_op, outer_code, outer_forward = open_spans[-1] if open_spans else _OUTSIDE
            open_spans.append((
                end,
                outer_op if op < 0 else op,
                code if code > NO_PASS else outer_code,
                outer_forward or code == FORWARD_BY_SEQUENCE,
            ))  # fmt: skip
        _leave(open_spans, time - 1)
        found.append(open_spans[-1] if open_spans else _OUTSIDE)
    return found


def _leave(open_spans: list[Entry], time: int) -> None:
    """Close what ends at that time or before."""
    while open_spans and open_spans[-1][0] <= time:
        open_spans.pop()
