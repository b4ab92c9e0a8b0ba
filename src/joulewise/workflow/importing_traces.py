"""`import kineto|nsys|ncu`: a profiler's file, turned into a workload."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InputError
from joulewise.domain.ports import Progress
from joulewise.domain.trace import KernelTotal, ProfilerTrace
from joulewise.domain.workload import Workload
from joulewise.report.workload_facts import WorkloadFacts, workload_facts
from joulewise.store.atomic import require_place
from joulewise.store.documents import write_workload
from joulewise.store.files import file_error
from joulewise.store.importers.traces.kineto import read_kineto
from joulewise.store.importers.traces.ncu import read_ncu
from joulewise.store.importers.traces.nsys import read_nsys
from joulewise.workload.capture.capture import captured_workload
from joulewise.workload.capture.choice import CaptureChoice

_HEAD_COUNT = 65_536
_TOP_COUNT = 10
_MOST_GPUS = 10**7
_MOST_TOKENS = 10**15


class Profiler(StrEnum):
    """Whose file is read; `joulewise import` has a command of each name."""

    KINETO = "kineto"
    NSYS = "nsys"
    NCU = "ncu"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """What `import` was asked for."""

    profiler: Profiler
    file: Path
    out: Path
    choice: CaptureChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrace:
    """What came out, and what the whole file holds; `top_kernels` are those of the most time."""

    workload: Workload
    facts: WorkloadFacts
    trace_kernel_count: int
    trace_kernel_time_s: float
    top_kernels: tuple[KernelTotal, ...]

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """Doubts about the workload."""
        return self.workload.caveats


def import_trace_to_file(job: TraceJob, progress: Progress) -> ImportedTrace:
    """Read a profiler's file, take one iteration out of it, and write that as a workload.

    Raises:
        InputError: not a file of that profiler, or of none; no kernels in it; a choice that the
            file does not have; a place that cannot be written to, or that is the file itself.
    """
    _check_choice(job.choice)
    require_place(job.out, sources=(job.file,))
    _refuse_other_profiler(job.file, job.profiler)
    trace = _READERS[job.profiler](job.file, progress)
    workload = captured_workload(trace, job.choice)
    _check_nodes(workload, job.choice)
    write_workload(workload, job.out)
    return ImportedTrace(
        workload=workload,
        facts=workload_facts(workload),
        trace_kernel_count=trace.kernel_count,
        trace_kernel_time_s=trace.kernel_time_s,
        top_kernels=trace.totals[:_TOP_COUNT],
    )


_READERS: Mapping[Profiler, Callable[[Path, Progress], ProfilerTrace]] = {
    Profiler.KINETO: lambda file, progress: read_kineto(file, progress=progress),
    Profiler.NSYS: lambda file, _: read_nsys(file),
    Profiler.NCU: lambda file, _: read_ncu(file),
}


def _check_choice(choice: CaptureChoice) -> None:
    """Refuse numbers that no job has before minutes go into reading."""
    limits = (
        ("tokens", choice.token_count, _MOST_TOKENS),
        ("gpus", choice.gpu_count, _MOST_GPUS),
        ("node-gpus", choice.node_gpu_count, _MOST_GPUS),
    )
    for field, value, most in limits:
        if value is not None and not 1 <= value <= most:
            raise InputError(
                f"{value} is not between 1 and {most}",
                field=field,
                hint="Count those of the whole job.",
            )
    if choice.name is not None and not (choice.name.strip() and choice.name.isprintable()):
        raise InputError(
            f"{choice.name!r} cannot be a workload's name",
            field="name",
            hint="Write letters, digits and signs.",
        )


def _check_nodes(workload: Workload, choice: CaptureChoice) -> None:
    gpu_count = workload.size.gpu_count if workload.size else 1
    if choice.node_gpu_count is not None and choice.node_gpu_count > gpu_count:
        raise InputError(
            f"{choice.node_gpu_count} of the job's GPUs cannot share a node: it has {gpu_count}",
            field="node-gpus",
            hint="Say with --gpus how many GPUs the whole job has.",
        )


def _refuse_other_profiler(file: Path, profiler: Profiler) -> None:
    """Say which command reads this file, where it is plainly another's.

    What is no plain file is left to the reader: opening a pipe waits for its other end.
    """
    if not file.is_file():
        return
    found = _profiler_of(_head(file))
    if found is None or found is profiler:
        return
    raise InputError(
        f"this looks like {_FILES[found]}, not like {_FILES[profiler]}",
        file=str(file),
        hint=f"Use `joulewise import {found.value} {file}`.",
    )


_FILES = {
    Profiler.KINETO: "a trace of PyTorch's profiler",
    Profiler.NSYS: "a file of Nsight Systems",
    Profiler.NCU: "a file of Nsight Compute",
}


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_HEAD_COUNT)
    except (OSError, ValueError) as error:
        raise file_error(error, file, doing="read") from error
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return zlib.decompressobj(wbits=31).decompress(raw, _HEAD_COUNT)
    except (zlib.error, gzip.BadGzipFile):
        return raw


def _profiler_of(head: bytes) -> Profiler | None:
    """Whose file begins like this; `None` where it is not plain."""
    if head.startswith(b"SQLite format 3\0"):
        return Profiler.NSYS
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith((b"{", b"[")):
        return Profiler.KINETO
    if b"Kernel Name" in head and b"," in head:
        return Profiler.NCU
    if b"Instances" in head or b"CorrId" in head:
        return Profiler.NSYS
    return None
