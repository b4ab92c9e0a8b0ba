"""The traced iteration of a workload file: its launches as columns, for there may be a million."""

from __future__ import annotations

from typing import Annotated

import msgspec

from joulewise.domain.errors import InputError
from joulewise.domain.passes import Pass
from joulewise.domain.trace import IterationTrace, TracedKernel, TracedLaunch
from joulewise.store.columns import Field, names
from joulewise.store.record_files import builtins_of, record_of
from joulewise.store.wire import LARGEST_INTEGER, LEAST_INTEGER, wire_type
from joulewise.store.workload_works import WORK_BOUNDS

# Longer than any GPU ever ran without a break.
_LONGEST_S = 1e9

Amount = Annotated[float, msgspec.Meta(ge=0)]
Index = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_INTEGER)]
Signed = Annotated[int, msgspec.Meta(ge=LEAST_INTEGER, le=LARGEST_INTEGER)]


class LaunchColumns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Launches as they ran, one entry each in every list; `kernel_index` counts into `kernels`."""

    kernel_index: tuple[Index, ...]
    pass_: tuple[Pass, ...] = msgspec.field(name="pass")
    stream: tuple[Signed, ...]
    start_s: tuple[Amount, ...]
    duration_s: tuple[Amount, ...]
    is_graph_launch: tuple[bool, ...]


class TraceItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One iteration on one GPU, as a profiler saw it."""

    tool: str
    file: str
    gpu: Signed
    device_name: str | None
    rank: Signed | None
    rank_count: Index | None
    step: str | None
    iteration_count: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_INTEGER)]
    duration_s: Amount
    busy_s: Amount
    overlap_s: Amount
    gap_s: Amount
    kernels: tuple[wire_type(TracedKernel), ...]  # type: ignore[valid-type]
    launches: LaunchColumns
    trace_kernel_count: Index
    trace_kernel_time_s: Amount


_PLAIN = tuple(name for name in TraceItem.__struct_fields__ if name not in {"kernels", "launches"})
_TIMES = ("duration_s", "busy_s", "overlap_s", "gap_s", "trace_kernel_time_s")


def trace_item(trace: IterationTrace, file: str) -> dict[str, object]:
    """A traced iteration as what JSON is made of.

    Raises:
        InputError: a launch of a kernel that `kernels` does not name, or a value that could not
            be read back.
    """
    index = {kernel.kernel: number for number, kernel in enumerate(trace.kernels)}
    launches = trace.launches
    unknown = next((one.kernel for one in launches if one.kernel not in index), None)
    if unknown is not None:
        raise InputError(
            f"the launched kernel {unknown!r} is not among the kernels of the trace",
            file=file,
            field="trace.launches",
            hint="Every kernel that is launched is listed once.",
        )
    return {
        **{name: getattr(trace, name) for name in _PLAIN},
        "kernels": [
            builtins_of(kernel, f"trace.kernels[{number}]", file)
            for number, kernel in enumerate(trace.kernels)
        ],
        "launches": {
            "kernel_index": [index[launch.kernel] for launch in launches],
            "pass": [launch.pass_.value for launch in launches],
            "stream": [launch.stream for launch in launches],
            "start_s": [launch.start_s for launch in launches],
            "duration_s": [launch.duration_s for launch in launches],
            "is_graph_launch": [launch.is_graph_launch for launch in launches],
        },
    }


def trace_of_item(item: TraceItem, file: str) -> IterationTrace:
    """The traced iteration that a decoded item stands for.

    Raises:
        InputError: columns of unlike length, an index beyond the kernels, a kernel named twice,
            a senseless time; names the field.
    """
    kernels = check_trace_item(item, file)
    return IterationTrace(
        tool=item.tool,
        file=item.file,
        gpu=item.gpu,
        device_name=item.device_name,
        rank=item.rank,
        rank_count=item.rank_count,
        step=item.step,
        iteration_count=item.iteration_count,
        duration_s=item.duration_s,
        busy_s=item.busy_s,
        overlap_s=item.overlap_s,
        gap_s=item.gap_s,
        kernels=kernels,
        launches=_launches(item.launches, kernels),
        trace_kernel_count=item.trace_kernel_count,
        trace_kernel_time_s=item.trace_kernel_time_s,
    )


def check_trace_item(item: TraceItem, file: str) -> tuple[TracedKernel, ...]:
    """All checks of `trace_of_item`, and the kernels; raises as it does."""
    for name in _TIMES:
        _check_time(getattr(item, name), f"trace.{name}", file)
    kernels = tuple(record_of(kernel, TracedKernel, file) for kernel in item.kernels)
    _check_kernels(kernels, file)
    _check_columns(item.launches, len(kernels), file)
    return kernels


def _check_kernels(kernels: tuple[TracedKernel, ...], file: str) -> None:
    labels = [kernel.kernel for kernel in kernels]
    names(labels, Field(file=file, name="trace.kernels"))
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(
            f"the kernel {twice!r} is listed twice",
            file=file,
            field="trace.kernels",
            hint="Keep one.",
        )
    for number, kernel in enumerate(kernels):
        _check_time(kernel.time_s, f"trace.kernels[{number}].time_s", file)
        for name in ("flop_count", "traffic_bytes"):
            _check_amount(getattr(kernel, name), name, f"trace.kernels[{number}].{name}", file)


def _check_amount(amount: float | None, name: str, field: str, file: str) -> None:
    """Refuse what no launch computes or moves."""
    highest = WORK_BOUNDS[name][1]
    if amount is not None and amount > highest:
        raise InputError(
            f"this must be at most {highest:g}, not {amount:g}",
            file=file,
            field=field,
            hint="It is of one launch.",
        )


def _check_columns(columns: LaunchColumns, kernel_count: int, file: str) -> None:
    count = len(columns.kernel_index)
    for name in LaunchColumns.__struct_fields__:
        if len(getattr(columns, name)) != count:
            raise InputError(
                f"the list has {len(getattr(columns, name))} entries, and kernel_index {count}",
                file=file,
                field=f"trace.launches.{name.rstrip('_')}",
                hint="Every list has one entry for each launch.",
            )
    highest = max(columns.kernel_index, default=-1)
    if highest >= kernel_count:
        raise InputError(
            f"there is no kernel {highest}; {kernel_count} are listed",
            file=file,
            field="trace.launches.kernel_index",
            hint="It counts into trace.kernels, from 0.",
        )
    for name in ("start_s", "duration_s"):
        _check_time(max(getattr(columns, name), default=0.0), f"trace.launches.{name}", file)


def _launches(
    columns: LaunchColumns, kernels: tuple[TracedKernel, ...]
) -> tuple[TracedLaunch, ...]:
    labels = tuple(kernel.kernel for kernel in kernels)
    return tuple(
        TracedLaunch(
            kernel=labels[index],
            pass_=pass_,
            stream=stream,
            start_s=start_s,
            duration_s=duration_s,
            is_graph_launch=is_graph_launch,
        )
        for index, pass_, stream, start_s, duration_s, is_graph_launch in zip(
            columns.kernel_index,
            columns.pass_,
            columns.stream,
            columns.start_s,
            columns.duration_s,
            columns.is_graph_launch,
            strict=True,
        )
    )


def _check_time(time_s: float, field: str, file: str) -> None:
    if time_s > _LONGEST_S:
        raise InputError(
            f"{time_s:g} s is longer than any iteration",
            file=file,
            field=field,
            hint="Times are in seconds.",
        )
