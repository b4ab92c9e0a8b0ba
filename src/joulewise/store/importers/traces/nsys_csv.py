"""Tables of `nsys stats`: sums by kernel, or one GPU operation a row."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from joulewise.domain.errors import InputError
from joulewise.domain.trace import Extent, KernelSignature, ProfilerTrace, TracedGpu
from joulewise.store.importers.traces.csv_report import (
    Report,
    ReportRow,
    number,
    open_text,
    read_report,
    require_plain_number,
    whole_ns,
    whole_number,
)
from joulewise.store.importers.traces.launch_totals import (
    LONGEST_LAUNCH_NS,
    MOST_LAUNCHES_COUNT,
    MOST_LISTED_COUNT,
    NS_PER_S,
    kernel_name,
    kernel_totals,
    longest_first,
    refuse_long_span,
    too_many_launches,
)

_COUNTS = ("instances", "calls", "count")
_NAMES = ("name", "operation")
_TRACE_COLUMNS = frozenset({"start", "duration", "grdx", "strm", "name"})
_MEMORY_OPERATION = "[CUDA mem"
_GPU = re.compile(r"(?P<name>.{0,200}?) ?\((?P<gpu>[0-9]{1,6})\)")
_MOST_STREAM = 2**62
_MOST_EXTENT = 2**31
_MOST_REGISTERS_COUNT = 2**16
_LAST_START_NS = 2**62
_BYTES_PER_UNIT = {"b": 1, "": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def read_nsys_csv(path: Path) -> ProfilerTrace:
    """Read `cuda_gpu_kern_sum` or `cuda_gpu_trace` as CSV; memory operations are left out.

    Sums have no timeline: each kernel's launches follow each other and take its mean time.

    Raises:
        InputError: anything wrong with the file, another table, or no kernel in it.
    """
    file = str(path)
    with open_text(path) as text:
        report = read_report(text, file, _is_known)
        if report is None:
            raise InputError(
                "this is no table of kernels from Nsight Systems",
                file=file,
                hint="Make one: nsys stats --report cuda_gpu_trace --format csv FILE.nsys-rep",
            )
        return _traced(report) if _TRACE_COLUMNS.issubset(report.names) else _summed(report)


def _is_known(names: Sequence[str]) -> bool:
    found = set(names)
    is_summary = "total time" in found and bool(found & set(_COUNTS)) and names[-1] in _NAMES
    return is_summary or _TRACE_COLUMNS.issubset(found)


@dataclass(slots=True)
class _Sums:
    """Launches and time in nanoseconds of each row of a summary."""

    signatures: list[KernelSignature] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)


def _summed(report: Report) -> ProfilerTrace:
    sums, name_column = _Sums(), report.names[-1]
    count_column = next(name for name in _COUNTS if name in report.names)
    unit, left_count = report.units["total time"] or "ns", MOST_LISTED_COUNT
    for row in report.rows:
        name = kernel_name(row.text(name_column), report.file, row.row, name_column)
        if not _is_kernel(row, name):
            continue
        count = whole_number(row.cell(count_column), most=2**62)
        longest_ns = max(count, 1) * LONGEST_LAUNCH_NS
        time_ns = whole_ns(row.cell("total time"), unit, longest_ns=longest_ns)
        left_count -= count
        if left_count < 0:
            raise too_many_launches(report.file, MOST_LISTED_COUNT)
        if count:
            grid, block = _extent_text(row, "gridxyz"), _extent_text(row, "blockxyz")
            sums.signatures.append(KernelSignature(name=name, grid=grid, block=block))
            sums.counts.append(count)
            sums.times_ns.append(time_ns)
    if not sums.counts:
        raise _no_kernels(report.file)
    return _listed(sums, report.file)


def _listed(sums: _Sums, file: str) -> ProfilerTrace:
    counts = np.array(sums.counts, dtype=np.int64)
    launch_count = int(counts.sum())
    means_s = np.array(sums.times_ns, dtype=np.float64) / counts / NS_PER_S
    duration_s = np.repeat(means_s, counts)
    by_name: dict[str, int] = {}
    times_ns: dict[str, int] = {}
    for signature, count, time_ns in zip(sums.signatures, sums.counts, sums.times_ns, strict=True):
        by_name[signature.name] = by_name.get(signature.name, 0) + count
        times_ns[signature.name] = times_ns.get(signature.name, 0) + time_ns
    return ProfilerTrace(
        tool="nsys stats (kernel summary)",
        file=file,
        signatures=tuple(sums.signatures),
        signature_index=np.repeat(np.arange(len(counts), dtype=np.int64), counts),
        start_s=np.cumsum(duration_s) - duration_s,
        duration_s=duration_s,
        gpu=np.zeros(launch_count, dtype=np.int64),
        stream=np.zeros(launch_count, dtype=np.int64),
        is_graph_launch=np.zeros(launch_count, dtype=np.bool_),
        passes=(None,) * launch_count,
        steps=(),
        step_index=np.zeros(launch_count, dtype=np.int64),
        is_in_step=np.zeros(launch_count, dtype=np.bool_),
        gpus=(TracedGpu(gpu=0),),
        kernel_count=launch_count,
        kernel_time_s=sum(sums.times_ns) / NS_PER_S,
        totals=longest_first(by_name, times_ns),
        is_timeline=False,
    )


@dataclass(slots=True)
class _Launches:
    """Launches in the order of the table; times are in nanoseconds."""

    signatures: dict[KernelSignature, int] = field(default_factory=dict)
    signature_index: array[int] = field(default_factory=lambda: array("q"))
    start: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    gpu: array[int] = field(default_factory=lambda: array("q"))
    stream: array[int] = field(default_factory=lambda: array("q"))
    gpu_names: dict[int, str | None] = field(default_factory=dict)


def _traced(report: Report) -> ProfilerTrace:
    launches = _Launches()
    start_unit, duration_unit = (report.units[name] or "ns" for name in ("start", "duration"))
    for row in report.rows:
        name = kernel_name(row.text("name"), report.file, row.row, "name")
        if not _is_kernel(row, name):
            continue
        if len(launches.start) >= MOST_LAUNCHES_COUNT:
            raise too_many_launches(report.file)
        start_ns = whole_ns(row.cell("start"), start_unit, longest_ns=_LAST_START_NS)
        launches.start.append(start_ns)
        launches.duration.append(whole_ns(row.cell("duration"), duration_unit))
        signature = _signature(row, name, report.units)
        number_of = launches.signatures.setdefault(signature, len(launches.signatures))
        launches.signature_index.append(number_of)
        launches.stream.append(whole_number(row.cell("strm"), most=_MOST_STREAM))
        launches.gpu.append(_gpu(row, launches.gpu_names))
    if not launches.start:
        raise _no_kernels(report.file)
    refuse_long_span(launches.start, report.file, "start")
    return _by_start(launches, report.file)


def _by_start(launches: _Launches, file: str) -> ProfilerTrace:
    start_ns = np.array(launches.start, dtype=np.int64)
    order = np.argsort(start_ns, kind="stable")
    signatures = tuple(launches.signatures)
    totals, time_ns = kernel_totals(
        [signature.name for signature in signatures],
        zip(launches.signature_index, launches.duration, strict=True),
    )
    launch_count = len(order)
    return ProfilerTrace(
        tool="nsys stats (GPU trace)",
        file=file,
        signatures=signatures,
        signature_index=np.array(launches.signature_index, dtype=np.int64)[order],
        start_s=(start_ns - start_ns.min())[order] / NS_PER_S,
        duration_s=np.array(launches.duration, dtype=np.int64)[order] / NS_PER_S,
        gpu=np.array(launches.gpu, dtype=np.int64)[order],
        stream=np.array(launches.stream, dtype=np.int64)[order],
        is_graph_launch=np.zeros(launch_count, dtype=np.bool_),
        passes=(None,) * launch_count,
        steps=(),
        step_index=np.zeros(launch_count, dtype=np.int64),
        is_in_step=np.zeros(launch_count, dtype=np.bool_),
        gpus=tuple(
            TracedGpu(gpu=gpu, name=name) for gpu, name in sorted(launches.gpu_names.items())
        ),
        kernel_count=launch_count,
        kernel_time_s=time_ns / NS_PER_S,
        totals=totals,
    )


def _is_kernel(row: ReportRow, name: str) -> bool:
    """Older tables hold memory copies and sets too, newer ones say so in a column."""
    if name.startswith(_MEMORY_OPERATION):
        return False
    return row.text("category").upper() in ("", "CUDA_KERNEL")


def _signature(row: ReportRow, name: str, units: dict[str, str]) -> KernelSignature:
    static, dynamic = (_bytes(row, column, units) for column in ("stcsmem", "dymsmem"))
    registers = row.cell("reg/trd")
    return KernelSignature(
        name=name,
        grid=_extent(row, ("grdx", "grdy", "grdz")),
        block=_extent(row, ("blkx", "blky", "blkz")),
        shared_memory_bytes=None if static is None or dynamic is None else static + dynamic,
        register_count=whole_number(registers, most=_MOST_REGISTERS_COUNT)
        if registers.text
        else None,
    )


def _extent(row: ReportRow, columns: tuple[str, str, str]) -> Extent | None:
    cells = [row.cell(column) for column in columns]
    if not all(cell.text for cell in cells):
        return None
    x, y, z = (whole_number(cell, most=_MOST_EXTENT) for cell in cells)
    return x, y, z


def _extent_text(row: ReportRow, column: str) -> Extent | None:
    """Three numbers in one field, as summaries by grid and block have them."""
    values = [int(text) for text in re.findall(r"[0-9]{1,10}", row.text(column)[:60])]
    return (values[0], values[1], values[2]) if len(values) == 3 else None  # noqa: PLR2004 - x, y, z


def _bytes(row: ReportRow, column: str, units: dict[str, str]) -> int | None:
    require_plain_number(row.cell(column))
    value = number(row.text(column))
    ratio = _BYTES_PER_UNIT.get(units.get(column, "").lower())
    if value is None or ratio is None or not 0 <= value * ratio < _MOST_EXTENT:
        return None
    return round(value * ratio)


def _gpu(row: ReportRow, names: dict[int, str | None]) -> int:
    """The GPU's number; `Device` reads `NVIDIA H100 (0)`, or holds the number alone."""
    text = row.text("device")
    match = _GPU.fullmatch(text)
    if match is not None:
        gpu, name = int(match["gpu"]), match["name"] or None
    else:
        is_number = text.isascii() and text.isdigit() and len(text) <= 6  # noqa: PLR2004 - GPUs of one file
        gpu, name = (int(text), None) if is_number else (0, text[:200] or None)
    names.setdefault(gpu, name if name is None or name.isprintable() else None)
    return gpu


def _no_kernels(file: str) -> InputError:
    return InputError(
        "no GPU kernels are in the table",
        file=file,
        hint="Profile with nsys profile --trace cuda,nvtx",
    )
