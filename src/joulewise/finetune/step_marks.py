"""Step marks: how a training program tells joulewise that a step has ended.

The program appends one line of JSON to the file that `JOULEWISE_STEPS` names for the end of each
optimizer step: `{"step": 3, "time_s": 123.456}`, on the machine's monotonic clock. Step 0 is the
begin of the first step. A number that comes twice says that something else than training went on
in between, such as an evaluation; one that is lower says that training began anew.

A line may carry the number of its process, `"pid"`: of two programs at once the first one's count.

Whatever else is in that file is another program's: it is passed over, and told once.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from joulewise.domain.finetuning import StepMark

STEPS_VARIABLE = "JOULEWISE_STEPS"
"""Names the file to which steps are appended."""
LIMIT_VARIABLE = "JOULEWISE_STEP_LIMIT"
"""Training ends gracefully after so many steps."""
STOP_VARIABLE = "JOULEWISE_STOP"
"""Names a file: as soon as it is there, training ends gracefully after the step at hand."""

_MOST_AT_ONCE_BYTES = 1 << 18
_MOST_BYTES = 1 << 28
_LONGEST_LINE_BYTES = 4096
_HIGHEST_STEP = 10**9
# 30,000 years.
_LATEST_S = 1e12
# Marks are written before they are read, so one from the future is of another clock; times may be
# rounded to milliseconds.
_AHEAD_S = 0.001
# Of marks that do not say who wrote them so many may repeat a number (assumed): a pause after every
# third step. Two programs that count alike repeat every second one.
_MOST_REPEATED_RATIO = 0.4
_FEWEST_MARKS_COUNT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpan:
    """Steps that followed one another without a break: `step_count` of them between two times."""

    start_s: float
    end_s: float
    step_count: int

    @property
    def duration_s(self) -> float:
        """Of all of its steps."""
        return self.end_s - self.start_s


def step_spans(marks: Iterable[StepMark]) -> tuple[StepSpan, ...]:
    """What lies between neighbouring marks and is training, in order; marks that were lost merge.

    A number that comes again, or falls, begins anew: what lies before it is no step.
    """
    return tuple(
        StepSpan(start_s=one.time_s, end_s=other.time_s, step_count=other.step - one.step)
        for one, other in pairwise(marks)
        if other.step > one.step and other.time_s > one.time_s
    )


def joined(spans: Sequence[StepSpan]) -> tuple[StepSpan, ...]:
    """Spans of which one begins where the one before ends, as one."""
    whole: list[StepSpan] = []
    for span in spans:
        if whole and whole[-1].end_s == span.start_s:
            last = whole.pop()
            span = StepSpan(  # noqa: PLW2901 - it takes the place of both
                start_s=last.start_s,
                end_s=span.end_s,
                step_count=last.step_count + span.step_count,
            )
        whole.append(span)
    return tuple(whole)


class StepTail:
    """Reads what a training program has appended to its file of step marks.

    Nothing in the file ends the reading: it is another program's, which may be wrong, write from
    several ranks, be killed in the middle of a line or begin anew. Each look reads a bounded
    amount; `doubt` is the first thing that was not as it should be.
    """

    def __init__(self, path: Path) -> None:
        """Read nothing yet; the file need not be there."""
        self._path = path
        self._read_bytes = 0
        self._rest = b""
        self._is_skipping = False
        self._last: StepMark | None = None
        self._is_cut = False
        self._writer_pid: int | None = None
        self._former_pids: set[int] = set()
        self._mark_count = 0
        self._repeated_count = 0
        self.doubt: str | None = None
        self.is_ambiguous = False
        """Whether several programs may have written marks that nothing tells apart."""
        self.planned_count: int | None = None
        """Steps that the program means to take, where it says so."""

    def read(self, now_s: float) -> tuple[StepMark, ...]:
        """Marks that came since the last look; `now_s` is the machine's monotonic time."""
        marks: list[StepMark] = []
        for line in self._lines(self._new_bytes()):
            mark = self._mark(line)
            if mark is not None and self._is_plausible(mark, now_s):
                self._count(mark)
                self._last = mark
                marks.append(mark)
        return tuple(marks)

    def _new_bytes(self) -> bytes:
        try:
            # A pipe would be waited for.
            descriptor = os.open(self._path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            return b""
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                self._note("it is not a plain file")
                return b""
            if about.st_size < self._read_bytes:
                self._note("it was cut while training ran")
                self._read_bytes, self._rest, self._is_skipping = 0, b"", False
            if self._read_bytes >= _MOST_BYTES:
                self._note(f"it is longer than {_MOST_BYTES >> 20} MiB")
                return b""
            os.lseek(descriptor, self._read_bytes, os.SEEK_SET)
            content = os.read(descriptor, _MOST_AT_ONCE_BYTES)
        except OSError as error:
            self._note(f"it cannot be read ({error.strerror})")
            return b""
        finally:
            os.close(descriptor)
        self._read_bytes += len(content)
        return content

    def _lines(self, content: bytes) -> list[bytes]:
        """Whole lines; the begin of one that is still being written is kept for the next look."""
        *whole, rest = (self._rest + content).split(b"\n")
        if self._is_skipping and whole:
            self._is_skipping = False
            del whole[0]
        if self._is_skipping or len(rest) > _LONGEST_LINE_BYTES:
            self._note("a line of it is too long for a step mark")
            self._is_skipping, rest = True, b""
        self._rest = rest
        return [line for line in whole if line.strip()]

    def _mark(self, line: bytes) -> StepMark | None:
        """A mark of rank 0; `None` for other ranks, and for what is none."""
        try:
            found = json.loads(line[: _LONGEST_LINE_BYTES + 1])
            rank, pid = found.get("rank", 0), found.get("pid")
            step, time_s = _step_count(found["step"]), _time_s(found["time_s"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self._note(f"a line of it is no step mark: {line[:60].decode('ascii', 'replace')!r}")
            return None
        if rank not in (0, None) or not self._is_of_writer(pid):
            return None
        self._note_planned(found.get("planned"))
        return StepMark(step=step, time_s=time_s)

    def _is_of_writer(self, pid: object) -> bool:
        """Whether the program wrote it that wrote first, or the one that took over from it."""
        if not isinstance(pid, int) or isinstance(pid, bool) or pid == self._writer_pid:
            return True
        if self._writer_pid is None or (
            pid not in self._former_pids and _is_gone(self._writer_pid)
        ):
            if self._writer_pid is not None:
                self._former_pids.add(self._writer_pid)
            self._writer_pid = pid
            return True
        self._note(
            f"two programs write to it at once (processes {self._writer_pid} and {pid}), and only "
            "those of the first were counted"
        )
        return False

    def _count(self, mark: StepMark) -> None:
        """Notice numbers that repeat more often than pauses explain, where nobody signs."""
        self._mark_count += 1
        if self._last is None or mark.step > self._last.step:
            return
        self._repeated_count += 1
        ratio = self._repeated_count / self._mark_count
        is_signed = self._writer_pid is not None
        if is_signed or self._mark_count < _FEWEST_MARKS_COUNT or ratio <= _MOST_REPEATED_RATIO:
            return
        self.is_ambiguous = True
        self._note(
            f"{self._repeated_count} of its first {self._mark_count} numbers of steps do not rise "
            f"(step {mark.step} comes after step {self._last.step}): several programs may write to "
            'it, which "pid" in each line would tell apart'
        )

    def _note_planned(self, planned: object) -> None:
        try:
            count = None if planned is None else _step_count(planned)
        except ValueError:
            return
        if count:
            self.planned_count = count

    def _is_plausible(self, mark: StepMark, now_s: float) -> bool:
        if mark.time_s > now_s + _AHEAD_S:
            self._note(
                f"step {mark.step} is marked at {mark.time_s:.3f} s and the machine's monotonic "
                f"clock stands at {now_s:.3f} s (Python: time.monotonic())"
            )
            return False
        if self._last is not None and mark.time_s < self._last.time_s:
            self._note(f"step {mark.step} is marked earlier than the step before")
            return False
        return True

    def _note(self, trouble: str) -> None:
        if self.doubt is None:
            self.doubt = f"step marks in {self._path}: {trouble}"


def _is_gone(pid: int) -> bool:
    """Whether a process has ended; `False` where nothing tells."""
    processes = Path("/proc")
    return (processes / "self").exists() and not (processes / str(pid)).exists()


def _step_count(value: object) -> int:
    """Raises ValueError for what numbers no step."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _HIGHEST_STEP:
        raise ValueError("no step")
    return value


def _time_s(value: object) -> float:
    """Raises ValueError for what is no time."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("no time")  # noqa: TRY004 - one error for all that is no mark
    # Compared first: whole numbers may be larger than any float. NaN lies in no range.
    if not 0 <= value < _LATEST_S:
        raise ValueError("no time")
    return float(value)
