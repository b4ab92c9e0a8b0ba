"""Files of Nsight Systems: an export to SQLite, or a table of `nsys stats` as CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.passes import Pass, is_communication_kernel
from joulewise.domain.ports import Progress, no_progress
from joulewise.domain.trace import KernelSignature, ProfilerTrace, TracedGpu, TracedStep
from joulewise.store.importers.traces.file_kinds import Profiler, refuse_other_profiler
from joulewise.store.importers.traces.launch_totals import (
    NS_PER_S,
    kernel_totals,
    refuse_long_span,
)
from joulewise.store.importers.traces.nsys_csv import read_nsys_csv
from joulewise.store.importers.traces.nsys_database import (
    NsysDatabase,
    opened_database,
)
from joulewise.store.importers.traces.nsys_gpus import read_gpus
from joulewise.store.importers.traces.nsys_kernels import (
    GRAPHS,
    KERNELS,
    KernelColumns,
    read_kernels,
)
from joulewise.store.importers.traces.nsys_links import (
    Around,
    Calls,
    StepRange,
    moments_of,
    read_calls,
    step_ranges,
    steps_of,
    surroundings,
)
from joulewise.store.importers.traces.nsys_ranges import read_ranges
from joulewise.store.importers.traces.step_marks import NO_STEP, BoolColumn, IntColumn

_META = "META_DATA_EXPORT"
_DIAGNOSTICS = "DIAGNOSTIC_EVENT"
_NSYS_TABLES = ("StringIds", _META, "TARGET_INFO_SYSTEM_ENV", "NVTX_EVENTS")
_VERSION_KEYS = ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
_LOSS = re.compile(r"\b(?:not all|dropped|lost|discarded|overflow\w*|truncated)\b", re.IGNORECASE)
_LONGEST_SEEN_COUNT = 200


def read_nsys(path: Path, *, progress: Progress = no_progress) -> ProfilerTrace:
    """Read `nsys export --type sqlite`, or CSV of `nsys stats`: a GPU trace or a kernel summary.

    In an export, kernels are linked to the calls that launched them, and by these to NVTX
    ranges: steps, passes, operations of PyTorch with shapes, NCCL's calls.

    Raises:
        InputError: anything wrong with the file, another file, or no kernel in it; names the
            table's row and column.
    """
    if refuse_other_profiler(path, Profiler.NSYS):
        with opened_database(path, progress) as database:
            return _read_export(database)
    return read_nsys_csv(path)


def _read_export(database: NsysDatabase) -> ProfilerTrace:
    if not any(database.columns(table) for table in (*_NSYS_TABLES, KERNELS, GRAPHS)):
        raise InputError(
            "this SQLite file is no export of Nsight Systems",
            file=database.file,
            hint="Make one: nsys export --type sqlite FILE.nsys-rep",
        )
    launches, caveats = read_kernels(database)
    if not launches.start:
        raise InputError(
            "no GPU kernels are in the export",
            file=database.file,
            hint="Profile with nsys profile --trace cuda,nvtx",
        )
    refuse_long_span(launches.start, database.file, f"{KERNELS}.start")
    calls = read_calls(database, launches)
    ranges = read_ranges(database, moments_of(calls, launches))
    around = surroundings(ranges, calls)
    steps = step_ranges(ranges)
    is_graph = np.frombuffer(launches.is_graph, dtype=np.bool_) | (
        calls.is_known & calls.is_graph_launch
    )
    return _trace(
        database,
        launches,
        around,
        (steps, steps_of(steps, calls, launches)),
        is_graph,
        (*caveats, *_unlinked(calls, is_told=ranges.is_any), *_losses(database)),
    )


def _trace(
    database: NsysDatabase,
    launches: KernelColumns,
    around: Around,
    steps: tuple[tuple[StepRange, ...], IntColumn],
    is_graph: BoolColumn,
    caveats: tuple[Caveat, ...],
) -> ProfilerTrace:
    start_ns = np.array(launches.start, dtype=np.int64)
    order = np.argsort(start_ns, kind="stable")
    first_ns = int(start_ns.min())
    marks, step_index = steps
    gpus = read_gpus(database, launches)
    signatures, signature_index = _signatures(launches, around)
    totals, time_ns = kernel_totals(
        [signature.name for signature in launches.signatures],
        zip(launches.base, launches.duration, strict=True),
    )
    passes = _passes(signatures, signature_index, around)
    return ProfilerTrace(
        tool=_tool(database),
        file=database.file,
        signatures=signatures,
        signature_index=np.array(signature_index, dtype=np.int64)[order],
        start_s=(start_ns[order] - first_ns) / NS_PER_S,
        duration_s=np.array(launches.duration, dtype=np.int64)[order] / NS_PER_S,
        gpu=np.array(gpus.gpu, dtype=np.int64)[order],
        stream=np.array(launches.stream, dtype=np.int64)[order],
        is_graph_launch=is_graph[order],
        passes=tuple(passes[place] for place in order.tolist()),
        steps=tuple(
            TracedStep(
                name=mark.name,
                start_s=(mark.start - first_ns) / NS_PER_S,
                duration_s=(mark.end - mark.start) / NS_PER_S,
            )
            for mark in marks
        ),
        step_index=np.maximum(step_index, 0)[order],
        is_in_step=(step_index != NO_STEP)[order],
        gpus=tuple(TracedGpu(gpu=gpu, name=gpus.names.get(gpu)) for gpu in sorted(set(gpus.gpu))),
        kernel_count=len(order),
        kernel_time_s=time_ns / NS_PER_S,
        totals=totals,
        caveats=caveats,
    )


def _signatures(
    launches: KernelColumns, around: Around
) -> tuple[tuple[KernelSignature, ...], list[int]]:
    """Kernels with the operations that launched them, and which of them each launch is."""
    found: dict[KernelSignature, int] = {}
    known: dict[tuple[int, int], int] = {}
    is_exchange = [is_communication_kernel(kernel.name) for kernel in launches.signatures]
    index: list[int] = []
    for key in zip(launches.base, around.index, strict=True):
        number = known.get(key)
        if number is None:
            surrounding = around.kinds[key[1]]
            signature = replace(
                launches.signatures[key[0]],
                op=surrounding.op,
                inputs=surrounding.inputs,
                collective=surrounding.collective if is_exchange[key[0]] else None,
            )
            number = known[key] = found.setdefault(signature, len(found))
        index.append(number)
    return tuple(found), index


def _passes(
    signatures: Sequence[KernelSignature], signature_index: Sequence[int], around: Around
) -> list[Pass | None]:
    is_exchange = [is_communication_kernel(signature.name) for signature in signatures]
    passes = [kind.pass_ for kind in around.kinds]
    return [
        Pass.COMMUNICATION if is_exchange[signature] else passes[state]
        for signature, state in zip(signature_index, around.index, strict=True)
    ]


def _tool(database: NsysDatabase) -> str:
    """`nsys 2026.2.1 (schema 3.25)`, as far as the export says."""
    rows = database.rows(_META, ("name", "value")) if database.columns(_META) else ()
    texts = {name: value for name, value in rows if name in _VERSION_KEYS}
    product, schema = (str(texts.get(key) or "") for key in _VERSION_KEYS)
    version = _version(product, 3)
    known_schema = _version(schema, 2)
    suffix = f" (schema {known_schema})" if known_schema else ""
    return f"nsys{' ' if version else ''}{version}{suffix}"


def _version(text: str, part_count: int) -> str:
    match = re.match(r"\d{1,6}(?:\.\d{1,6})*", text)
    return ".".join(match[0].split(".")[:part_count]) if match else ""


def _unlinked(calls: Calls, *, is_told: bool) -> tuple[Caveat, ...]:
    """Ranges say nothing of kernels whose launching call is not in the export."""
    count = int(np.sum(~calls.is_known))
    if not count or not is_told:
        return ()
    return (
        Caveat(
            kind=CaveatKind.TRACE_INCOMPLETE,
            seen=f"{count} of {len(calls.time)} kernels have no launching call in the file, "
            "so that their operation and pass are unknown.",
            advice="Trace calls too, from before the first kernel: nsys profile --trace cuda,nvtx",
        ),
    )


def _losses(database: NsysDatabase) -> tuple[Caveat, ...]:
    """What the profiler says that it lost."""
    if not database.columns(_DIAGNOSTICS):
        return ()
    texts = {
        " ".join(text.split())[:_LONGEST_SEEN_COUNT]
        for (text,) in database.rows(_DIAGNOSTICS, ("text",))
        if isinstance(text, str) and _LOSS.search(text)
    }
    if not texts:
        return ()
    shown = min(texts)
    others = f" ({len(texts) - 1} more such messages)" if len(texts) > 1 else ""
    return (
        Caveat(
            kind=CaveatKind.TRACE_INCOMPLETE,
            seen=f"Nsight Systems says: {shown}{others}",
            advice="Profile a shorter time, and stop before the buffers are full.",
        ),
    )
