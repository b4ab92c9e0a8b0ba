"""The marks around iterations, and which kernels were launched in them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulewise.store.importers.traces.annotations import is_step_mark
from joulewise.store.importers.traces.kineto_columns import ABSENT, KinetoColumns
from joulewise.store.importers.traces.kineto_links import Columns, Links

IntColumn = NDArray[np.int64]

# PyTorch's own marks go before those of programs, which may stand inside them.
_PROFILER_STEP = "ProfilerStep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Marks that do not overlap, by start, in nanoseconds; `of_kernel` is -1 outside of them."""

    names: tuple[str, ...]
    start: IntColumn
    end: IntColumn
    of_kernel: IntColumn


def steps_of(columns: KinetoColumns, kernels: Columns, ops: Columns, links: Links) -> Steps:
    """Assign kernels by the time of their launch; by their start where that is unknown."""
    names = columns.names.values()
    marks, gpu_marks = columns.marks.columns(), columns.gpu_marks.columns()
    host = _outermost(
        np.concatenate((marks["start"], ops["start"])),
        np.concatenate((marks["end"], ops["end"])),
        np.concatenate((marks["name"], ops["name"])),
        names,
    )
    gpu = _outermost(gpu_marks["start"], gpu_marks["end"], gpu_marks["name"], names)
    if not len(host[0]):
        return _steps(gpu, names, _containing(kernels["start"], gpu))
    by_launch = _containing(links.host_time, host)
    by_start = _containing(kernels["start"], host)
    by_gpu_mark = _host_step_of(_containing(kernels["start"], gpu), gpu, host)
    unknown = np.where(by_gpu_mark == ABSENT, by_start, by_gpu_mark)
    return _steps(host, names, np.where(links.is_launch_known, by_launch, unknown))


Marks = tuple[IntColumn, IntColumn, IntColumn]


def _steps(marks: Marks, names: tuple[str, ...], of_kernel: IntColumn) -> Steps:
    start, end, name = marks
    return Steps(
        names=tuple(names[number] for number in name.tolist()),
        start=start,
        end=end,
        of_kernel=of_kernel,
    )


def _outermost(start: IntColumn, end: IntColumn, name: IntColumn, names: tuple[str, ...]) -> Marks:
    """Start, end and name of the marks around iterations that stand in no other."""
    numbers = [number for number in np.unique(name).tolist() if is_step_mark(names[number])]
    own = [number for number in numbers if names[number].startswith(_PROFILER_STEP)]
    rows = np.flatnonzero(np.isin(name, own or numbers))
    rows = rows[np.lexsort((-end[rows], start[rows]))]
    kept: list[int] = []
    last_end = -1
    for row in rows.tolist():
        # Ends are off by some nanoseconds, so that the middle tells whether a mark is inside.
        if (int(start[row]) + int(end[row])) // 2 >= last_end:
            kept.append(row)
            last_end = int(end[row])
    return start[kept], end[kept], name[kept]


def _containing(time: IntColumn, marks: Marks) -> IntColumn:
    start, end, _ = marks
    if not len(start):
        return np.full(len(time), ABSENT, dtype=np.int64)
    step = np.searchsorted(start, time, side="right") - 1
    is_inside = (step >= 0) & (time <= end[np.maximum(step, 0)])
    return np.where(is_inside, step, ABSENT)


def _host_step_of(gpu_step: IntColumn, gpu: Marks, host: Marks) -> IntColumn:
    """The mark on the host that a mark on the GPU repeats: the last of its name before it."""
    steps_by_name: dict[int, list[int]] = {}
    for step, name in enumerate(host[2].tolist()):
        steps_by_name.setdefault(name, []).append(step)
    host_start = host[0].tolist()
    found = [ABSENT]
    for start, name in zip(gpu[0].tolist(), gpu[2].tolist(), strict=True):
        steps = steps_by_name.get(name, [])
        position = bisect_right(steps, start, key=host_start.__getitem__)
        found.append(steps[position - 1] if position else ABSENT)
    return np.array(found, dtype=np.int64)[gpu_step + 1]
