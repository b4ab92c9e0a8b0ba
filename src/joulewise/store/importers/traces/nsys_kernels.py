"""Kernels of an Nsight Systems export, and the calls that launched them.

Source of tables and columns: "Exporter SQLite Schema" of the Nsight Systems user guide; a
globalTid holds the process in its bits 24-47 and the thread in its lowest 24.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.trace import Extent, KernelSignature
from joulewise.store.importers.traces.launch_totals import (
    LONGEST_LAUNCH_NS,
    MOST_LAUNCHES_COUNT,
    kernel_name,
    too_many_launches,
)
from joulewise.store.importers.traces.nsys_database import (
    TIMES_NS,
    NsysDatabase,
    Place,
    Value,
    whole_columns,
)

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"

_TIMES = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_GRAPH = ("graphNodeId", "graphId")
_NAMES = ("demangledName", "shortName", "mangledName", "name")
_EXTENTS = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_SIZES = ("staticSharedMemory", "dynamicSharedMemory", "registersPerThread")
_COLUMNS = (*_TIMES, *_GRAPH, *_NAMES, *_EXTENTS, *_SIZES)
_LARGEST_SIZE = 2**31
_MOST_GPUS_COUNT = 10**6
_MEND = "The file is damaged: export it again."


@dataclass(slots=True)
class KernelColumns:
    """N launches in the order of the file; times are in nanoseconds.

    `base` points into `signatures`; `process` is a globalPid; `correlation` is -1 where unknown.
    """

    start: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    device: array[int] = field(default_factory=lambda: array("q"))
    stream: array[int] = field(default_factory=lambda: array("q"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    process: array[int] = field(default_factory=lambda: array("q"))
    base: array[int] = field(default_factory=lambda: array("q"))
    is_graph: bytearray = field(default_factory=bytearray)
    signatures: list[KernelSignature] = field(default_factory=list)


def read_kernels(database: NsysDatabase) -> tuple[KernelColumns, tuple[Caveat, ...]]:
    """Every kernel, and whole CUDA graphs where the kernels in them were not traced.

    Raises:
        InputError: a value of a row is none that the profiler writes; names row and column.
    """
    launches = KernelColumns()
    if columns := database.columns(KERNELS):
        _require(database, columns)
        _add_kernels(database, launches)
    graph_count = _add_graphs(database, launches) if database.columns(GRAPHS) else 0
    if not graph_count:
        return launches, ()
    return launches, (
        Caveat(
            kind=CaveatKind.TRACE_INCOMPLETE,
            seen=f"Whole CUDA graphs were traced and count as one kernel each: {graph_count}.",
            advice="Profile again with nsys profile --cuda-graph-trace=node.",
        ),
    )


def _require(database: NsysDatabase, columns: Sequence[str]) -> None:
    missing = [name for name in ("start", "end") if name not in columns]
    if not set(_NAMES) & set(columns):
        missing.append(_NAMES[0])
    if missing:
        raise InputError(
            f"the table {KERNELS} has no column {missing[0]!r}",
            file=database.file,
            field=f"{KERNELS}.{missing[0]}",
            hint=_MEND,
        )


def _add_kernels(database: NsysDatabase, launches: KernelColumns) -> None:
    bases: dict[tuple[Value, ...], int] = {}
    first_rows: list[int] = []
    time_count, graph_end = len(_TIMES), len(_TIMES) + len(_GRAPH)
    row_count = 0
    for batch in database.batches(KERNELS, _COLUMNS):
        columns = list(zip(*batch, strict=True))
        if not _add_whole(launches, columns[:time_count]):
            for row, values in enumerate(batch, start=row_count + 1):
                place = Place(file=database.file, table=KERNELS, row=row)
                _add(launches, values[:time_count], place)
        graphs = zip(*columns[time_count:graph_end], strict=True)
        launches.is_graph.extend(map(any, graphs))
        keys = zip(*columns[graph_end:], strict=True)
        for row, key in enumerate(keys, start=row_count + 1):
            base = bases.setdefault(key, len(bases))
            if base == len(first_rows):
                first_rows.append(row)
            launches.base.append(base)
        row_count += len(batch)
        if row_count > MOST_LAUNCHES_COUNT:
            raise too_many_launches(database.file)
    names = _names(database, bases)
    for key, row, name in zip(bases, first_rows, names, strict=True):
        place = Place(file=database.file, table=KERNELS, row=row)
        launches.signatures.append(_signature(key, name, place))


def _add_whole(launches: KernelColumns, columns: Sequence[Sequence[Value]]) -> bool:
    """Add launches at once where every value is as it should be; whether they were added."""
    whole = whole_columns(columns)
    if whole is None:
        return False
    start, end, device = (np.array(column, dtype=np.int64) for column in whole[:3])
    earliest, latest = TIMES_NS
    is_within = (start >= earliest) & (start <= latest) & (end >= earliest) & (end <= latest)
    is_gpu = (device >= 0) & (device <= _MOST_GPUS_COUNT)
    if not (is_within & is_gpu).all():
        return False
    duration = end - start
    if duration.min() < 0 or duration.max() > LONGEST_LAUNCH_NS:
        return False
    launches.start.extend(whole[0])
    launches.duration.frombytes(duration.tobytes())
    launches.device.extend(whole[2])
    launches.stream.extend(whole[3])
    launches.correlation.extend(whole[4])
    launches.process.extend(whole[5])
    return True


def _add(launches: KernelColumns, times: Sequence[Value], place: Place) -> None:
    """One launch; a column that the export lacks is `None` in every row."""
    start, end, device, stream, correlation, process = times
    if len(launches.start) >= MOST_LAUNCHES_COUNT:
        raise too_many_launches(place.file)
    start_ns, end_ns = place.whole(start, "start", TIMES_NS), place.whole(end, "end", TIMES_NS)
    if not 0 <= end_ns - start_ns <= LONGEST_LAUNCH_NS:
        problem = "before it starts" if end_ns < start_ns else "more than a day later"
        raise place.error("end", f"the kernel starts at {start_ns} ns and ends {problem}")
    launches.start.append(start_ns)
    launches.duration.append(end_ns - start_ns)
    launches.device.append(place.whole(device or 0, "deviceId", (0, _MOST_GPUS_COUNT)))
    launches.stream.append(_optional(stream, "streamId", place, 0))
    launches.correlation.append(_optional(correlation, "correlationId", place, -1))
    launches.process.append(_optional(process, "globalPid", place, 0))


def _optional(value: Value, column: str, place: Place, missing: int) -> int:
    if isinstance(value, int):
        return value
    return missing if value is None else place.whole(value, column, TIMES_NS)


def _names(database: NsysDatabase, keys: Iterable[tuple[Value, ...]]) -> list[Value]:
    """Names of kernels: the demangled one, else the next best; `None` where there is none."""
    keys = list(keys)
    count = len(_NAMES)
    texts = database.texts({value for key in keys for value in key[:count] if type(value) is int})
    resolved: list[Value] = []
    for key in keys:
        candidates = (texts.get(v) if isinstance(v, int) else v for v in key[:count])
        resolved.append(next((text for text in candidates if text), None))
    return resolved


def _signature(key: tuple[Value, ...], name: Value, place: Place) -> KernelSignature:
    if not isinstance(name, str):
        raise place.error(_NAMES[0], "the kernel's name is not in StringIds")
    sizes = dict(zip((*_NAMES, *_EXTENTS, *_SIZES), key, strict=True))

    def size(column: str) -> int | None:
        value = sizes[column]
        return None if value is None else place.whole(value, column, (0, _LARGEST_SIZE))

    static, dynamic = size(_SIZES[0]), size(_SIZES[1])
    return KernelSignature(
        name=kernel_name(name, place.file, place.row, f"{KERNELS}.{_NAMES[0]}"),
        grid=_extent([size(column) for column in _EXTENTS[:3]]),
        block=_extent([size(column) for column in _EXTENTS[3:]]),
        shared_memory_bytes=None if static is None or dynamic is None else static + dynamic,
        register_count=size(_SIZES[2]),
    )


def _extent(sizes: Sequence[int | None]) -> Extent | None:
    x, y, z = sizes
    return None if x is None or y is None or z is None else (x, y, z)


def _add_graphs(database: NsysDatabase, launches: KernelColumns) -> int:
    """Graph launches without kernels of their own; how many there are."""
    known = set(zip(launches.process, launches.correlation, strict=True))
    bases: dict[Value, int] = {}
    count = 0
    rows = database.rows(GRAPHS, (*_TIMES, "graphId"))
    for row, (*times, graph) in enumerate(rows, start=1):
        place = Place(file=database.file, table=GRAPHS, row=row)
        *_, correlation, process = times
        if correlation is not None and (process or 0, correlation) in known:
            continue
        if graph not in bases:
            bases[graph] = len(launches.signatures)
            number = "" if graph is None else f" {place.whole(graph, 'graphId', (0, 2**62))}"
            launches.signatures.append(KernelSignature(name=f"CUDA graph{number}"))
        _add(launches, times, place)
        launches.base.append(bases[graph])
        launches.is_graph.append(True)
        count += 1
    return count
