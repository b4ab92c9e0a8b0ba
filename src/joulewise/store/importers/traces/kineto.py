"""Traces of PyTorch's profiler (Kineto), packed or not, of NVIDIA and AMD GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.ports import Progress, no_progress
from joulewise.domain.trace import KernelTotal, ProfilerTrace, TracedGpu, TracedStep
from joulewise.store.importers.traces.json_source import opened_source
from joulewise.store.importers.traces.json_stream import BLOCK_BYTE_COUNT, EventStream
from joulewise.store.importers.traces.kineto_columns import ABSENT, KinetoColumns
from joulewise.store.importers.traces.kineto_events import KinetoEvent, lenient_event
from joulewise.store.importers.traces.kineto_links import Columns, Links, linked
from joulewise.store.importers.traces.kineto_signatures import signatures_of
from joulewise.store.importers.traces.kineto_steps import Steps, steps_of
from joulewise.store.importers.traces.launch_totals import (
    LONGEST_NAME_COUNT,
    NS_PER_S,
    longest_first,
    refuse_long_span,
    too_many_launches,
)

TOOL = "kineto"
# What is kept of an event, and what is made of that, takes about 200 bytes; a trace of 1 GB
# holds some four million events that are kept, for each is written with 250 bytes and more.
_MOST_ROWS_COUNT = 6_000_000
_MOST_KERNELS_COUNT = 5_000_000
_FINE_BITS = 20
_DEVICES = "deviceProperties"
_JOB = "distributedInfo"


def read_kineto(
    path: Path,
    *,
    progress: Progress = no_progress,
    block_byte_count: int = BLOCK_BYTE_COUNT,
) -> ProfilerTrace:
    """Read a Chrome trace that PyTorch's profiler wrote, `.json` or `.json.gz`.

    Kernels are events with `ph` X whose `cat` is "kernel" in any case. Their launch is the
    runtime or driver call of the same correlation; their operation the one of their external
    id, else the innermost one that was open on the launching thread. The pass is that of the
    innermost mark or autograd node around the launch; forward also where a sequence number comes
    back in the backward pass. Source: libkineto's output_json.cpp.

    Args:
        path: The file.
        progress: Told how many bytes of the file were read.
        block_byte_count: How much is read at a time.

    Raises:
        InputError: the file cannot be read, is no trace, is damaged or without GPU kernels.
    """
    columns = KinetoColumns()
    with opened_source(path, progress) as source:
        stream = EventStream(
            source,
            KinetoEvent,
            lenient_event,
            wanted=(_DEVICES, _JOB),
            block_byte_count=block_byte_count,
        )
        for batch in stream.batches():
            columns.add(batch)
            _refuse_too_many(columns, str(path))
    return _trace(columns, str(path), stream.beside)


def _refuse_too_many(columns: KinetoColumns, file: str) -> None:
    if len(columns.kernels) + len(columns.unplaced) > _MOST_KERNELS_COUNT:
        raise too_many_launches(file, _MOST_KERNELS_COUNT)
    if columns.row_count() > _MOST_ROWS_COUNT:
        raise InputError(
            f"the file holds more than {_MOST_ROWS_COUNT} kernels, launches and operations",
            file=file,
            hint="Profile a few iterations only.",
        )


def _trace(columns: KinetoColumns, file: str, beside: Mapping[str, object]) -> ProfilerTrace:
    kernels, ops = columns.kernels.taken(), columns.ops.taken()
    totals, time_ns = _totals(columns, kernels)
    _refuse_senseless(file, totals, kernels)
    order = np.argsort(kernels["start"], kind="stable")
    for name in kernels:
        kernels[name] = kernels[name][order]
    links = linked(columns, kernels, ops)
    steps = steps_of(columns, kernels, ops, links)
    signatures, signature_index = signatures_of(columns, kernels, ops, links)
    first = int(kernels["start"][0])
    rank, rank_count = _ranks(beside.get(_JOB))
    return ProfilerTrace(
        tool=TOOL,
        file=file,
        signatures=signatures,
        signature_index=signature_index,
        start_s=_seconds(kernels["start"] - first),
        duration_s=_seconds(kernels["duration"]),
        gpu=kernels["gpu"],
        stream=kernels["stream"],
        is_graph_launch=links.is_graph,
        passes=links.passes,
        steps=_traced_steps(steps, first),
        step_index=np.maximum(steps.of_kernel, 0),
        is_in_step=steps.of_kernel != ABSENT,
        gpus=_gpus(kernels, beside.get(_DEVICES)),
        kernel_count=sum(total.launch_count for total in totals),
        kernel_time_s=time_ns / NS_PER_S,
        totals=totals,
        rank=rank,
        rank_count=rank_count,
        caveats=_caveats(columns, links),
    )


def _seconds(nanoseconds: NDArray[np.int64]) -> NDArray[np.float64]:
    return nanoseconds / NS_PER_S


def _totals(columns: KinetoColumns, kernels: Columns) -> tuple[tuple[KernelTotal, ...], int]:
    """Totals of every kernel name in the file, and the whole nanoseconds of all."""
    unplaced = columns.unplaced.columns()
    name = np.concatenate((kernels["name"], unplaced["name"]))
    duration = np.concatenate((kernels["duration"], unplaced["duration"]))
    names = columns.names.values()
    # Days of millions of kernels are more nanoseconds than eight bytes hold: two sums are.
    coarse, fine = np.zeros((2, len(names)), dtype=np.int64)
    np.add.at(coarse, name, duration >> _FINE_BITS)
    np.add.at(fine, name, duration & (2**_FINE_BITS - 1))
    numbers, launch_counts = np.unique(name, return_counts=True)
    counts, times_ns = {}, {}
    for number, count in zip(numbers.tolist(), launch_counts.tolist(), strict=True):
        counts[names[number]] = count
        times_ns[names[number]] = (int(coarse[number]) << _FINE_BITS) + int(fine[number])
    return longest_first(counts, times_ns), sum(times_ns.values())


def _refuse_senseless(file: str, totals: tuple[KernelTotal, ...], kernels: Columns) -> None:
    if not totals:
        raise InputError(
            "there are no GPU kernels in the file",
            file=file,
            hint="Profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], and "
            "after a warm-up step.",
        )
    if not len(kernels["start"]):
        raise InputError(
            "no GPU kernel in the file says when it began and how long it ran",
            file=file,
            field="ts",
            hint="Profile again.",
        )
    if any(len(total.name) > LONGEST_NAME_COUNT for total in totals):
        raise InputError(
            f"the name of a kernel is longer than {LONGEST_NAME_COUNT} characters",
            file=file,
            field="name",
            hint="The file is damaged: profile again.",
        )
    first, last = int(kernels["start"].min()), int(kernels["start"].max())
    refuse_long_span((first, last), file, "ts")


def _traced_steps(steps: Steps, first: int) -> tuple[TracedStep, ...]:
    return tuple(
        TracedStep(
            name=name, start_s=(start - first) / NS_PER_S, duration_s=(end - start) / NS_PER_S
        )
        for name, start, end in zip(
            steps.names, steps.start.tolist(), steps.end.tolist(), strict=True
        )
    )


def _gpus(kernels: Columns, devices: object) -> tuple[TracedGpu, ...]:
    """The GPUs on which kernels ran, with the names that the profiler gives them."""
    names: dict[int, str] = {}
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, dict):
            number, name = device.get("id"), device.get("name")
            if isinstance(number, int) and isinstance(name, str) and name.strip():
                names[number] = name.strip().encode("utf-8", "replace").decode("utf-8")
    return tuple(
        TracedGpu(gpu=gpu, name=names.get(gpu)) for gpu in np.unique(kernels["gpu"]).tolist()
    )


def _ranks(job: object) -> tuple[int | None, int | None]:
    if not isinstance(job, dict):
        return None, None
    rank, count = job.get("rank"), job.get("world_size")
    is_rank = type(rank) is int and rank >= 0
    is_count = type(count) is int and count >= 1
    return rank if is_rank else None, count if is_count else None


def _caveats(columns: KinetoColumns, links: Links) -> tuple[Caveat, ...]:
    unlinked_count = int(np.sum((links.op == ABSENT) & ~links.is_graph))
    kernel_count = len(links.op)
    doubts = (
        (
            columns.timeless_count,
            "{} GPU kernels do not say how long they ran, and count in the totals only, as 0 s",
        ),
        (
            len(columns.unplaced) - columns.timeless_count,
            "{} GPU kernels do not say when they began, and count in the totals only",
        ),
        (
            int(np.sum(links.is_ambiguous)),
            f"{{}} of {kernel_count} GPU kernels may have been launched by several processes",
        ),
        (
            unlinked_count,
            f"{{}} of {kernel_count} GPU kernels belong to no operation that was profiled",
        ),
    )
    return tuple(
        Caveat(kind=CaveatKind.TRACE_INCOMPLETE, seen=seen.format(count))
        for count, seen in doubts
        if count
    )
