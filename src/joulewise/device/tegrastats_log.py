"""Log files of tegrastats: lines put on a time axis, with the module's power at each."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from joulewise.device.jetson_rails import RailScope, rail_scope
from joulewise.device.jetson_readings import HIGHEST_W
from joulewise.device.tegrastats import parse_line
from joulewise.device.tegrastats_runs import Break, Interval, breaks, interval
from joulewise.domain.errors import InputError
from joulewise.domain.tegrastats import TegrastatsLine, TegrastatsLog, TegrastatsRun, TimedLine

_HINT = "tegrastats --interval 500 --logfile FILE writes one."
# An interval that was given, and one by the stamps, agree within so many standard errors and so
# much of it: 100 ms asked gives about nine lines a second.
_AGREE_ERROR_COUNT = 4.0
_AGREE_RATIO = 0.05
_NAMED_COUNT = 5
_MILLI_PER_S = 1000.0
# A line has 300 bytes or so: 400,000 lines, a day at five a second.
_LARGEST_BYTES = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """Lines of a file that tegrastats wrote whole, with their numbers in it."""

    lines: tuple[TegrastatsLine, ...]
    rows: tuple[int, ...]
    notes: tuple[str, ...]


def read_tegrastats_log(path: Path, *, interval_s: float | None = None) -> TegrastatsLog:
    """Read a log of any JetPack.

    Args:
        path: what `tegrastats --logfile` wrote, or its output redirected.
        interval_s: how far lines lie apart; `None`: as their stamps tell, by least squares.

    Raises:
        InputError: no file, no line of tegrastats, or no way to tell the time between lines.
    """
    if interval_s is not None and not (math.isfinite(interval_s) and interval_s > 0):
        raise InputError(f"{interval_s} s is no interval between lines", field="interval")
    told = _told(path)
    found = breaks(told.lines)
    runs = _runs(told.lines, found)
    intervals = _intervals(runs, interval_s, path)
    scope, usual = _scope(told.lines)
    return TegrastatsLog(
        runs=tuple(_timed(runs, intervals, found, scope, usual)),
        counted=tuple(rail for rail in usual if rail in scope.counted),
        left_out=scope.left_out,
        notes=(
            *told.notes,
            *_break_notes(found, told.rows),
            *_power_notes(told.lines, scope, usual),
            *_interval_notes(runs, interval_s),
            *_impossible_notes(told.lines),
        ),
    )


def line_power_w(line: TegrastatsLine, scope: RailScope) -> float | None:
    """The module's instant power; `None` where a counted rail is missing or told twice."""
    counted = {
        reading.rail: reading.power_w for reading in line.rails if reading.rail in scope.counted
    }
    is_twice = len(set(line.labels)) < len(line.rails)
    if not counted or len(counted) < len(scope.counted) or is_twice:
        return None
    return sum(counted.values())


def _told(path: Path) -> _Told:
    texts, is_ended = _texts(path)
    parsed = [(row, parse_line(text)) for row, text in enumerate(texts, start=1) if text.strip()]
    notes = []
    if not is_ended and _is_torn([line for _, line in parsed]):
        notes.append(f"line {parsed[-1][0]} was cut off in the middle, and is left out")
        parsed.pop()
    known = [(row, line) for row, line in parsed if line.is_recognised]
    foreign = [row for row, line in parsed if not line.is_recognised]
    if foreign:
        notes.append(f"{_lines(foreign)} not of tegrastats, and left out")
    if not known:
        raise InputError("holds no line that tegrastats wrote", file=str(path), hint=_HINT)
    return _Told(
        lines=tuple(line for _, line in known),
        rows=tuple(row for row, _ in known),
        notes=tuple(notes),
    )


def _texts(path: Path) -> tuple[list[str], bool]:
    """Lines of the file, and whether the last one was ended."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot be read: {reason}", file=str(path), hint=_HINT) from error
    if len(content) > _LARGEST_BYTES:
        raise InputError(
            f"is longer than {_LARGEST_BYTES >> 20} MiB, more than is read at once",
            file=str(path),
            hint="Cut it: split --line-bytes=100M FILE.",
        )
    # A board that lost its supply leaves zeros where it had not written yet.
    text = content.replace(b"\0", b"").decode("utf-8-sig", errors="replace")
    return text.replace("\r\n", "\n").split("\n"), text.endswith("\n")


def _is_torn(lines: Sequence[TegrastatsLine]) -> bool:
    """Whether a last line that was not ended says less than the one before."""
    if len(lines) < 2 or not lines[-2].is_recognised:  # noqa: PLR2004 - nothing to compare with
        return False
    before, last = lines[-2:]
    sensors = {temp.sensor for temp in before.temps}
    return last.labels != before.labels or not sensors <= {temp.sensor for temp in last.temps}


def _runs(
    lines: Sequence[TegrastatsLine], found: Sequence[Break]
) -> tuple[tuple[TegrastatsLine, ...], ...]:
    ends = [0, *(one.index for one in found), len(lines)]
    return tuple(tuple(lines[begin:end]) for begin, end in pairwise(ends))


def _intervals(
    runs: Sequence[Sequence[TegrastatsLine]], interval_s: float | None, path: Path
) -> tuple[Interval | None, ...]:
    """Each run's interval; one that is too short to tell has that of the others.

    `None` where no run has two lines.
    """
    if interval_s is not None:
        return (Interval(interval_s=interval_s, interval_error_s=None),) * len(runs)
    own = [interval(run) for run in runs]
    told = [one for one in own if one is not None]
    if not told:
        if max(len(run) for run in runs) == 1:
            return (None,) * len(runs)
        raise InputError(
            "has no two lines of different seconds, so the time between lines is not known",
            file=str(path),
            hint="Say how far lines lie apart: --interval 500ms, as tegrastats was started.",
        )
    usual = Interval(
        interval_s=statistics.median(one.interval_s for one in told),
        interval_error_s=max(one.interval_error_s or 0.0 for one in told),
    )
    return tuple(one or usual for one in own)


def _scope(lines: Sequence[TegrastatsLine]) -> tuple[RailScope, tuple[str, ...]]:
    """What to count, by the rails that most lines with any have."""
    seen = Counter(line.labels for line in lines if line.rails)
    usual = seen.most_common(1)[0][0] if seen else ()
    if not usual:
        why = "no line tells of power: tegrastats prints rails to root only on some releases"
        return RailScope(counted=frozenset(), left_out=why), usual
    return rail_scope(usual), usual


def _timed(
    runs: Sequence[Sequence[TegrastatsLine]],
    intervals: Sequence[Interval | None],
    found: Sequence[Break],
    scope: RailScope,
    usual: Sequence[str],
) -> Iterator[TegrastatsRun]:
    begin_s = 0.0
    gaps = [one.after_s for one in found]
    for run, step, after_s in zip(runs, intervals, [*gaps, None], strict=True):
        interval_s = 0.0 if step is None else step.interval_s
        yield TegrastatsRun(
            lines=tuple(
                TimedLine(
                    time_s=begin_s + index * interval_s,
                    line=line,
                    module_power_w=line_power_w(line, scope) if usual else None,
                )
                for index, line in enumerate(run)
            ),
            interval_s=None if step is None else step.interval_s,
            interval_error_s=None if step is None else step.interval_error_s,
        )
        last_s = begin_s + (len(run) - 1) * interval_s
        begin_s = last_s + (interval_s if after_s is None else after_s)


def _break_notes(found: Sequence[Break], rows: Sequence[int]) -> Iterator[str]:
    for one in found[:_NAMED_COUNT]:
        yield f"line {rows[one.index]} begins another run of tegrastats: {one.why}"
    if len(found) > _NAMED_COUNT:
        yield f"{len(found) - _NAMED_COUNT} more runs begin after that"


def _power_notes(
    lines: Sequence[TegrastatsLine], scope: RailScope, usual: Sequence[str]
) -> Iterator[str]:
    if not scope.counted:
        yield f"the module's power is not known: {scope.left_out}"
        return
    lacking_count = sum(line_power_w(line, scope) is None for line in lines)
    if usual and lacking_count:
        yield (
            f"{lacking_count} of {len(lines)} lines do not tell all of "
            f"{', '.join(sorted(scope.counted))}: power between lines around them was taken to "
            "be straight, and none before the first or after the last of a run"
        )


def _impossible_notes(lines: Sequence[TegrastatsLine]) -> Iterator[str]:
    count = sum(line.impossible_count for line in lines)
    if count:
        powers = "1 power" if count == 1 else f"{count} powers"
        yield f"{powers} above {HIGHEST_W:g} W cannot be, and counted for nothing"


def _interval_notes(
    runs: Sequence[Sequence[TegrastatsLine]], interval_s: float | None
) -> Iterator[str]:
    longest = max(runs, key=len)
    told = interval(longest)
    if interval_s is None or told is None or told.interval_error_s is None:
        return
    allowed_s = max(_AGREE_ERROR_COUNT * told.interval_error_s, _AGREE_RATIO * interval_s)
    if abs(told.interval_s - interval_s) > allowed_s:
        yield (
            f"the stamps say that lines lie {told.interval_s * _MILLI_PER_S:.0f} ms apart, not "
            f"{interval_s * _MILLI_PER_S:.0f} ms as given"
        )


def _lines(rows: Sequence[int]) -> str:
    if len(rows) == 1:
        return f"line {rows[0]} is"
    named = ", ".join(map(str, rows[:_NAMED_COUNT]))
    return f"{len(rows)} lines are ({named}{', …' if len(rows) > _NAMED_COUNT else ''})"
