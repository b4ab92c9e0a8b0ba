"""The iteration as one sequence: kernels, regions of launches that overlapped, gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.workload.capture.intervals import IntColumn, Nanoseconds, Position

# Overlap that only comes of how a kernel's end and the next one's beginning are taken: less than
# a microsecond or a fiftieth of the shorter kernel. Kernels of one stream run in order, and the
# next one's prologue may begin early (programmatic dependent launch): up to half of the shorter
# kernel. All three are assumed.
_TAIL_NS = 1_000
_TAIL_RATIO = 0.02
_PROLOGUE_RATIO = 0.5
# Gaps shorter than this wait for others until they make one together; assumed.
_LEAST_GAP_NS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Launches that ran as one: one alone, or several that overlapped.

    `members` are positions among the iteration's launches. The unit takes from `start_ns` to
    `end_ns`; units neither overlap nor leave busy time out.
    """

    members: tuple[int, ...]
    start_ns: Nanoseconds
    end_ns: Nanoseconds

    @property
    def duration_ns(self) -> int:
        """How long it took."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Idle time behind the unit of this place."""

    unit_index: Position
    duration_ns: Nanoseconds


def units_of(start_ns: IntColumn, end_ns: IntColumn, stream: IntColumn) -> tuple[Unit, ...]:
    """Launches that overlapped become one unit, all others one each; by start.

    A launch belongs to the unit before it if it began before that ended, unless what they share
    is only a tail; then it counts from where the unit before it ended. A launch that lies wholly
    within a unit is part of it.

    Args:
        start_ns: Starts of N launches, ascending.
        end_ns: Their ends.
        stream: Their streams.
    """
    starts, ends, streams = start_ns.tolist(), end_ns.tolist(), stream.tolist()
    units: list[Unit] = []
    members: list[int] = []
    begin = reach = last = 0
    for position, (start, end) in enumerate(zip(starts, ends, strict=True)):
        is_same = streams[position] == streams[last]
        shorter = min(end - start, ends[last] - starts[last])
        if members and _is_part(start, end, reach, shorter=shorter, is_same_stream=is_same):
            members.append(position)
        else:
            if members:
                units.append(Unit(members=tuple(members), start_ns=begin, end_ns=reach))
            begin = max(start, reach) if members else start
            members = [position]
        if len(members) == 1 or end >= reach:
            last, reach = position, end
    if members:
        units.append(Unit(members=tuple(members), start_ns=begin, end_ns=reach))
    return tuple(units)


def listed_units(duration_ns: Sequence[int]) -> tuple[Unit, ...]:
    """One unit for each launch of a list without a timeline, one behind the other."""
    units: list[Unit] = []
    at = 0
    for position, duration in enumerate(duration_ns):
        units.append(Unit(members=(position,), start_ns=at, end_ns=at + duration))
        at += duration
    return tuple(units)


def gaps_of(units: Sequence[Unit], end_ns: int) -> tuple[Gap, ...]:
    """Idle time between units, and behind the last until the iteration ends.

    Shorter ones than a microsecond are added up until they make one, so that the sum is exact
    and an iteration does not have a gap behind every kernel.
    """
    gaps: list[Gap] = []
    pending = 0
    ends = [*(unit.start_ns for unit in units[1:]), end_ns]
    for index, (unit, following) in enumerate(zip(units, ends, strict=True)):
        pending += max(0, following - unit.end_ns)
        if pending >= _LEAST_GAP_NS:
            gaps.append(Gap(unit_index=index, duration_ns=pending))
            pending = 0
    if pending and gaps:
        gap = gaps.pop()
        gaps.append(Gap(unit_index=gap.unit_index, duration_ns=gap.duration_ns + pending))
    elif pending:
        gaps.append(Gap(unit_index=len(units) - 1, duration_ns=pending))
    return tuple(gaps)


def gap_class(duration_ns: int) -> int:
    """The power of two, in nanoseconds, from which the class of a gap reaches to the next."""
    return max(0, duration_ns.bit_length() - 1)


def _is_part(start: int, end: int, reach: int, *, shorter: int, is_same_stream: bool) -> bool:
    overlap = reach - start
    if overlap <= 0:
        return False
    if end <= reach:
        return True
    if is_same_stream:
        return overlap > _PROLOGUE_RATIO * shorter
    return overlap >= _TAIL_NS and overlap >= _TAIL_RATIO * shorter
