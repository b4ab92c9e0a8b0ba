"""Marks around iterations, whichever profiler drew them: which count, and what lies in them.

Marks of PyTorch's profiler go before those of programs, which may stand inside them; of nested
marks the outermost counts; a mark holds its start and not its end. Times are whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joulewise.store.importers.traces.annotations import is_step_mark

IntColumn = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]

NO_STEP = -1
_PROFILER_STEP = "ProfilerStep"


def step_names(names: Sequence[str], used: Sequence[int]) -> list[int]:
    """Which of the `used` numbers of names are of marks around iterations.

    Args:
        names: Texts of marks.
        used: Numbers into `names` of the marks that there are.
    """
    steps = [number for number in used if is_step_mark(names[number])]
    own = [number for number in steps if names[number].startswith(_PROFILER_STEP)]
    return own or steps


def outermost(start: IntColumn, end: IntColumn) -> IntColumn:
    """Rows, by start, of the marks that stand in no other; of equal ones the first.

    Args:
        start: Starts of marks of one thread or stream, of shape (marks,).
        end: Their ends.
    """
    kept: list[int] = []
    last_end: int | None = None
    for row in np.lexsort((-end, start)).tolist():
        # Ends are off by some nanoseconds, so that the middle tells whether a mark is inside.
        middle = (int(start[row]) + int(end[row])) // 2
        if last_end is None or middle >= last_end:
            kept.append(row)
            last_end = int(end[row])
    return np.array(kept, dtype=np.int64)


def containing(time: IntColumn, start: IntColumn, end: IntColumn) -> IntColumn:
    """The mark around each time, `NO_STEP` outside of all.

    Args:
        time: Moments, of shape (moments,).
        start: Starts of marks that `outermost` gives, which ascend.
        end: Their ends, which belong to the mark no more.
    """
    if not len(start):
        return np.full(len(time), NO_STEP, dtype=np.int64)
    mark = np.searchsorted(start, time, side="right") - 1
    is_inside = (mark >= 0) & (time < end[np.maximum(mark, 0)])
    return np.where(is_inside, mark, NO_STEP)


def settled(
    step: IntColumn, is_launch_known: BoolColumn, start: IntColumn, stream: IntColumn
) -> IntColumn:
    """Steps of kernels, where those of unknown launch have been told by their own start.

    A stream runs kernels in the order of their launches, and the host runs ahead: a kernel of
    unknown launch that starts within a step, but before the first kernel that is known to have
    been launched in that step, was launched earlier. It belongs to the step of the known kernel
    before it, to none where there is no such kernel.

    Args:
        step: The step of each kernel, of shape (kernels,), `NO_STEP` for none.
        is_launch_known: Whether it is that of the launch.
        start: When each kernel started.
        stream: A number for each stream, alike for kernels of one stream of one GPU.
    """
    found = step.copy()
    order = np.lexsort((start, stream))
    ends = np.flatnonzero(np.diff(stream[order])) + 1
    for rows in np.split(order, ends):
        known = rows[is_launch_known[rows] & (step[rows] != NO_STEP)]
        unknown = rows[~is_launch_known[rows] & (step[rows] != NO_STEP)]
        if not len(known) or not len(unknown):
            continue
        steps, first = np.unique(step[known], return_index=True)
        place = np.minimum(np.searchsorted(steps, step[unknown]), len(steps) - 1)
        is_early = (steps[place] == step[unknown]) & (start[unknown] < start[known[first[place]]])
        early = unknown[is_early]
        before = np.searchsorted(start[known], start[early], side="right") - 1
        found[early] = np.where(before >= 0, step[known[np.maximum(before, 0)]], NO_STEP)
    return found
