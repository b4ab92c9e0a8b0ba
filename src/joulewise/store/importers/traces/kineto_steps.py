"""The marks around iterations, and which kernels were launched in them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulewise.store.importers.traces.kineto_columns import ABSENT, KinetoColumns
from joulewise.store.importers.traces.kineto_links import Columns, Links
from joulewise.store.importers.traces.step_marks import (
    containing,
    outermost,
    settled,
    step_names,
)

IntColumn = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Marks that do not overlap, by start, in nanoseconds; `of_kernel` is -1 outside of them."""

    names: tuple[str, ...]
    start: IntColumn
    end: IntColumn
    of_kernel: IntColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marks:
    """Outermost marks by start; `name` is a number into the names of the trace."""

    start: IntColumn
    end: IntColumn
    name: IntColumn


def steps_of(columns: KinetoColumns, kernels: Columns, ops: Columns, links: Links) -> Steps:
    """Assign kernels by the time of their launch.

    Where that is unknown, by the marks on their GPU; where those do not repeat the step of the
    host, by their start.
    """
    names = columns.names.values()
    marks, gpu_marks = columns.marks.columns(), columns.gpu_marks.columns()
    host = _outermost(
        np.concatenate((marks["start"], ops["start"])),
        np.concatenate((marks["end"], ops["end"])),
        np.concatenate((marks["name"], ops["name"])),
        names,
    )
    if not len(host.start):
        host = _outermost(gpu_marks["start"], gpu_marks["end"], gpu_marks["name"], names)
        return _steps(host, names, _by_gpu_mark(kernels, gpu_marks, host, names))
    by_launch = containing(links.host_time, host.start, host.end)
    by_gpu_mark = _by_gpu_mark(kernels, gpu_marks, host, names)
    by_start = containing(kernels["start"], host.start, host.end)
    # What lies outside of the marks that repeat a step on the GPU was launched in another.
    is_repeated = np.isin(host.name, gpu_marks["name"])
    by_start[(by_start != ABSENT) & is_repeated[by_start]] = ABSENT
    is_known = links.is_launch_known
    is_told = is_known | (by_gpu_mark != ABSENT)
    told = np.where(is_known, by_launch, np.where(is_told, by_gpu_mark, by_start))
    _, stream = np.unique(
        np.stack((kernels["gpu"], kernels["stream"]), axis=1), axis=0, return_inverse=True
    )
    return _steps(host, names, settled(told, is_told, kernels["start"], stream.reshape(-1)))


def _steps(marks: _Marks, names: tuple[str, ...], of_kernel: IntColumn) -> Steps:
    return Steps(
        names=tuple(names[number] for number in marks.name.tolist()),
        start=marks.start,
        end=marks.end,
        of_kernel=of_kernel,
    )


def _outermost(start: IntColumn, end: IntColumn, name: IntColumn, names: tuple[str, ...]) -> _Marks:
    """The marks around iterations that stand in no other."""
    rows = np.flatnonzero(np.isin(name, step_names(names, np.unique(name).tolist())))
    rows = rows[outermost(start[rows], end[rows])]
    return _Marks(start=start[rows], end=end[rows], name=name[rows])


def _by_gpu_mark(
    kernels: Columns, gpu_marks: Columns, host: _Marks, names: tuple[str, ...]
) -> IntColumn:
    """The step whose mark on the GPU holds each kernel, -1 for none.

    The profiler draws a mark on each stream on which something ran in it; where it drew none on
    a kernel's own stream, those on the other streams of its GPU count.
    """
    found = np.full(len(kernels["start"]), ABSENT, dtype=np.int64)
    steps = step_names(names, np.unique(gpu_marks["name"]).tolist())
    is_step = np.isin(gpu_marks["name"], steps)
    for gpu in np.unique(gpu_marks["gpu"][is_step]).tolist():
        on_gpu = is_step & (gpu_marks["gpu"] == gpu)
        marked = np.unique(gpu_marks["stream"][on_gpu])
        own = kernels["gpu"] == gpu
        elsewhere = own & ~np.isin(kernels["stream"], marked)
        found[elsewhere] = _repeated(kernels["start"][elsewhere], gpu_marks, on_gpu, host)
        for stream in marked.tolist():
            mine = own & (kernels["stream"] == stream)
            on_stream = on_gpu & (gpu_marks["stream"] == stream)
            found[mine] = _repeated(kernels["start"][mine], gpu_marks, on_stream, host)
    return found


def _repeated(time: IntColumn, gpu_marks: Columns, which: BoolColumn, host: _Marks) -> IntColumn:
    """The step around each time: the last mark of the host of the same name before its own."""
    rows = np.flatnonzero(which)
    rows = rows[outermost(gpu_marks["start"][rows], gpu_marks["end"][rows])]
    steps_by_name: dict[int, list[int]] = {}
    for step, name in enumerate(host.name.tolist()):
        steps_by_name.setdefault(name, []).append(step)
    host_start = host.start.tolist()
    step_of_mark = []
    for start, name in zip(
        gpu_marks["start"][rows].tolist(), gpu_marks["name"][rows].tolist(), strict=True
    ):
        steps = steps_by_name.get(name, [])
        position = bisect_right(steps, start, key=host_start.__getitem__)
        step_of_mark.append(steps[position - 1] if position else ABSENT)
    mark = containing(time, gpu_marks["start"][rows], gpu_marks["end"][rows])
    return np.array([*step_of_mark, ABSENT], dtype=np.int64)[mark]
