"""From a profiler's trace to a workload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from joulewise.domain.errors import InputError
from joulewise.domain.gpu_peaks import gpu_peaks
from joulewise.domain.trace import IterationTrace, ProfilerTrace, TracedKernel, TracedLaunch
from joulewise.domain.workload import Workload
from joulewise.workload.capture.choice import CaptureChoice
from joulewise.workload.capture.doubts import (
    efficiency_doubts,
    gpu_doubts,
    region_doubts,
    shape_doubts,
    work_doubts,
)
from joulewise.workload.capture.fitting import RawWork
from joulewise.workload.capture.intervals import NS_PER_S
from joulewise.workload.capture.iteration import Iteration, iteration_of
from joulewise.workload.capture.keys import kernel_of_signatures
from joulewise.workload.capture.labels import kernel_labels, shortened
from joulewise.workload.capture.parts import parts_of
from joulewise.workload.capture.sequence import LaunchSequence, kernel_uses, sequence_of
from joulewise.workload.capture.sizes import iteration_size
from joulewise.workload.capture.uses import KernelUse
from joulewise.workload.capture.works import raw_works

MOST_LAUNCHES = 1_000_000
"""In one iteration, gaps included; workload files hold as many."""

_ENDINGS = frozenset({".gz", ".json", ".trace", ".pt", ".sqlite", ".csv"})


def captured_workload(trace: ProfilerTrace, choice: CaptureChoice) -> Workload:
    """One iteration of a trace as a workload: launches in order, works, size, doubts.

    The launches are one sequence: kernels, gaps in which the GPU waits for its host, and regions
    in which launches of several streams overlapped. Their works take, on a virtual GPU of the
    traced kind, about the time that the profiler saw, where the peaks of that GPU are known.
    The launches as they ran stay in `trace`.

    What the whole job does is in `size`, see `iteration_size`.

    Args:
        trace: What a reader of `joulewise.store.importers.traces` made.
        choice: What the user decides.

    Raises:
        InputError: the trace holds no kernel, not the GPU or not the step asked for; the
            iteration is longer than a million launches and gaps.
    """
    kernels = kernel_of_signatures(trace)
    iteration = iteration_of(trace, kernels, choice)
    _refuse_too_long(len(iteration.launches), "launches", trace.file)
    sequence = sequence_of(trace, kernels, iteration)
    uses = kernel_uses(sequence)
    labels = kernel_labels(sequence.signatures)
    device_name = choice.device_name or _device_name(trace, iteration.gpu)
    peaks = None if device_name is None else gpu_peaks(device_name)
    raw = raw_works(uses, peaks)
    parts = parts_of(sequence, uses, raw.works, labels, peaks)
    traced = _traced_kernels(uses, raw.works, labels)
    _refuse_too_long(len(parts.launches), "launches and gaps", trace.file)
    return Workload(
        name=shortened(choice.name or _stem(trace.file)),
        launches=parts.launches,
        works=parts.works,
        size=iteration_size(trace, choice, uses, raw.works),
        trace=_iteration_trace(trace, iteration, sequence, labels, traced, device_name),
        caveats=(
            *trace.caveats,
            *iteration.caveats,
            *shape_doubts(raw.complaints),
            *work_doubts(uses, raw.works, peaks),
            *efficiency_doubts(trace, device_name, peaks),
            *region_doubts(parts.regions, sequence.cover.busy_s),
            *gpu_doubts(trace, iteration.gpu),
        ),
    )


def _refuse_too_long(count: int, of: str, file: str) -> None:
    if count > MOST_LAUNCHES:
        raise InputError(
            f"what was taken for one iteration has {count} {of}, more than {MOST_LAUNCHES}",
            file=file,
            field="launches",
            hint="Mark iterations: profiler.step() in PyTorch, or NVTX ranges named step.",
        )


def _device_name(trace: ProfilerTrace, gpu: int) -> str | None:
    return next((one.name for one in trace.gpus if one.gpu == gpu and one.name), None)


def _stem(file: str) -> str:
    name = PurePath(file).name
    while (ending := PurePath(name).suffix) in _ENDINGS:
        name = name.removesuffix(ending)
    return "".join(c for c in name if c.isprintable()) or "trace"


def _iteration_trace(
    trace: ProfilerTrace,
    iteration: Iteration,
    sequence: LaunchSequence,
    labels: Mapping[int, str],
    kernels: tuple[TracedKernel, ...],
    device_name: str | None,
) -> IterationTrace:
    return IterationTrace(
        tool=trace.tool,
        file=trace.file,
        gpu=iteration.gpu,
        device_name=device_name,
        rank=trace.rank,
        rank_count=trace.rank_count,
        step=iteration.step,
        iteration_count=iteration.iteration_count,
        duration_s=sequence.duration_ns / NS_PER_S,
        busy_s=sequence.cover.busy_s,
        overlap_s=sequence.cover.overlap_s,
        gap_s=sequence.gap_s,
        kernels=kernels,
        launches=_traced_launches(sequence, labels),
        trace_kernel_count=trace.kernel_count,
        trace_kernel_time_s=trace.kernel_time_s,
    )


def _traced_kernels(
    uses: Mapping[int, KernelUse], works: Mapping[int, RawWork], labels: Mapping[int, str]
) -> tuple[TracedKernel, ...]:
    return tuple(
        TracedKernel(
            kernel=labels[kernel],
            signature=use.signature,
            launch_count=use.launch_count,
            time_s=use.time_s,
            flop_count=float(works[kernel].flop_count),
            traffic_bytes=float(works[kernel].traffic_bytes),
            is_work_estimated=works[kernel].is_estimated,
        )
        for kernel, use in uses.items()
    )


def _traced_launches(
    sequence: LaunchSequence, labels: Mapping[int, str]
) -> tuple[TracedLaunch, ...]:
    columns = zip(
        sequence.kernels,
        sequence.passes,
        sequence.streams,
        sequence.start_ns.tolist(),
        sequence.durations_ns.tolist(),
        sequence.is_graph_launch,
        strict=True,
    )
    return tuple(
        TracedLaunch(
            kernel=labels[kernel],
            pass_=pass_,
            stream=stream,
            start_s=start_ns / NS_PER_S,
            duration_s=duration_ns / NS_PER_S,
            is_graph_launch=is_graph_launch,
        )
        for kernel, pass_, stream, start_ns, duration_ns, is_graph_launch in columns
    )
