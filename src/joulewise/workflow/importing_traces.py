"""`import kineto|nsys|ncu`: a profiler's file, turned into a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InputError
from joulewise.domain.ports import Progress
from joulewise.domain.trace import KernelTotal, ProfilerTrace
from joulewise.domain.workload import Workload
from joulewise.report.workload_facts import WorkloadFacts, workload_facts
from joulewise.store.atomic import require_place
from joulewise.store.documents import write_workload
from joulewise.store.importers.traces.file_kinds import Profiler, refuse_other_profiler
from joulewise.store.importers.traces.kineto import read_kineto
from joulewise.store.importers.traces.ncu import read_ncu
from joulewise.store.importers.traces.nsys import read_nsys
from joulewise.store.workload_works import SIZE_BOUNDS
from joulewise.workflow.traced_elsewhere import virtual_device_of
from joulewise.workflow.workloads import check_workload_name
from joulewise.workload.capture.capture import captured_workload
from joulewise.workload.capture.choice import CaptureChoice

_TOP_COUNT = 10


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

    @property
    def virtual_device(self) -> str | None:
        """A virtual device of the traced kind; `None` where there is none."""
        trace = self.workload.trace
        return None if trace is None else virtual_device_of(trace.device_name)


def import_trace_to_file(job: TraceJob, progress: Progress) -> ImportedTrace:
    """Read a profiler's file, take one iteration out of it, and write that as a workload.

    Raises:
        InputError: not a file of that profiler, or of none; no kernels in it; a choice that the
            file does not have; a place that cannot be written to, or that is the file itself.
    """
    _check_choice(job.choice)
    require_place(job.out, sources=(job.file,))
    refuse_other_profiler(job.file, job.profiler)
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
    Profiler.NSYS: lambda file, progress: read_nsys(file, progress=progress),
    Profiler.NCU: lambda file, _: read_ncu(file),
}


def _check_choice(choice: CaptureChoice) -> None:
    """Refuse numbers that no job has before minutes go into reading."""
    numbers = (
        ("tokens", choice.token_count, "token_count"),
        ("gpus", choice.gpu_count, "gpu_count"),
        ("node-gpus", choice.node_gpu_count, "node_gpu_count"),
    )
    for field, value, name in numbers:
        least, most = (round(bound) for bound in SIZE_BOUNDS[name])
        if value is not None and not least <= value <= most:
            raise InputError(
                f"{value} is not between {least} and {most}",
                field=field,
                hint="Count those of the whole job.",
            )
    if choice.name is not None:
        check_workload_name(choice.name)


def _check_nodes(workload: Workload, choice: CaptureChoice) -> None:
    gpu_count = workload.size.gpu_count if workload.size else 1
    if choice.node_gpu_count is not None and choice.node_gpu_count > gpu_count:
        raise InputError(
            f"{choice.node_gpu_count} of the job's GPUs cannot share a node: it has {gpu_count}",
            field="node-gpus",
            hint="Say with --gpus how many GPUs the whole job has.",
        )
