"""Small Nsight Systems exports, as releases of several years write them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

Cell = int | float | str | bytes | None

FIRST_PROCESS = 0x0001_0000_6400_0000  # pid 100; a thread's number goes into the lowest 24 bits
SECOND_PROCESS = 0x0001_0000_6500_0000  # pid 101


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One row of the kernel table; times are in nanoseconds."""

    name: Cell = "gemm(float*)"
    start: Cell = 0
    end: Cell = 10
    device: int = 0
    stream: int = 7
    correlation: int | None = None
    process: int = FIRST_PROCESS
    grid: tuple[int, int, int] = (4, 2, 1)
    registers: Cell = 32
    shared: tuple[int, int] = (16, 1024)
    graph_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One row of the table of calls."""

    correlation: Cell
    start: Cell
    thread: Cell = FIRST_PROCESS + 1
    name: str = "cudaLaunchKernel_v7000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """One row of the table of NVTX events; type 59 is pushed and popped, 60 started and ended."""

    text: str | None
    start: Cell
    end: Cell
    thread: int = FIRST_PROCESS + 1
    kind: int = 59
    domain: int = 0
    payload: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What to write; `year` chooses columns and tables as releases of that year have them."""

    kernels: Sequence[Kernel] = ()
    calls: Sequence[Call] = ()
    ranges: Sequence[Range] = ()
    graphs: Sequence[Kernel] = ()
    diagnostics: Sequence[str] = ()
    gpu_names: Mapping[int, str] = field(default_factory=dict)
    devices: Sequence[tuple[int, int, int]] = ()  # pid, CUDA's number, GPU
    year: int = 2025


def write_export(path: Path, export: Export) -> Path:
    """Write an export; the kernel table comes with the file only where there are kernels."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = OFF")
        writer = _Writer(connection, export)
        writer.kernels()
        writer.calls()
        writer.ranges()
        writer.others()
        writer.strings()
    return path


class _Writer:
    def __init__(self, connection: sqlite3.Connection, export: Export) -> None:
        self._connection = connection
        self._export = export
        self._texts: dict[str, int] = {}

    def kernels(self) -> None:
        export = self._export
        if export.kernels:
            self._table(
                "CUPTI_ACTIVITY_KIND_KERNEL", [self._kernel(kernel) for kernel in export.kernels]
            )
        if export.graphs:
            rows: list[Mapping[str, Cell]] = [
                {
                    "start": graph.start,
                    "end": graph.end,
                    "deviceId": graph.device,
                    "streamId": graph.stream,
                    "correlationId": graph.correlation,
                    "globalPid": graph.process,
                    "graphId": graph.graph_node,
                }
                for graph in export.graphs
            ]
            self._table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", rows)

    def calls(self) -> None:
        rows: list[Mapping[str, Cell]] = [
            {
                "start": call.start,
                "end": call.start,
                "globalTid": call.thread,
                "correlationId": call.correlation,
                "nameId": self._id(call.name),
            }
            for call in self._export.calls
        ]
        if rows:
            self._table("CUPTI_ACTIVITY_KIND_RUNTIME", rows)

    def ranges(self) -> None:
        if not self._export.ranges:
            return
        rows: list[Mapping[str, Cell]] = []
        for mark in self._export.ranges:
            row: dict[str, Cell] = {
                "start": mark.start,
                "end": mark.end,
                "eventType": mark.kind,
                "globalTid": mark.thread,
            }
            if self._export.year < 2020:  # every text is a registered one
                row["textId"] = None if mark.text is None else self._id(mark.text)
            else:
                row |= {"text": mark.text, "textId": None, "domainId": mark.domain}
                row["jsonText"] = mark.payload
            rows.append(row)
        self._table("NVTX_EVENTS", rows)

    def others(self) -> None:
        export = self._export
        if export.year >= 2021:
            major, minor = (3, 25) if export.year >= 2025 else (2, 7)
            self._table(
                "META_DATA_EXPORT",
                [
                    {"name": "EXPORT_PRODUCT_VERSION", "value": f"{export.year}.3.2.21"},
                    {"name": "EXPORT_SCHEMA_VERSION", "value": f"{major}.{minor}.0"},
                ],
            )
        self._table("DIAGNOSTIC_EVENT", [{"text": text} for text in export.diagnostics])
        gpus: list[Mapping[str, Cell]] = [
            {"id": gpu, "name": name} for gpu, name in export.gpu_names.items()
        ]
        self._table("TARGET_INFO_GPU" if export.year >= 2021 else "TARGET_INFO_CUDA_GPU", gpus)
        devices: list[Mapping[str, Cell]] = [
            {"pid": pid, "cudaId": cuda, "gpuId": gpu} for pid, cuda, gpu in export.devices
        ]
        self._table("TARGET_INFO_CUDA_DEVICE", devices)

    def strings(self) -> None:
        rows: list[Mapping[str, Cell]] = [
            {"id": number, "value": text} for text, number in self._texts.items()
        ]
        self._table("StringIds", rows or [{"id": 1, "value": "nothing"}])

    def _kernel(self, kernel: Kernel) -> dict[str, Cell]:
        name = self._id(kernel.name) if isinstance(kernel.name, str) else kernel.name
        row: dict[str, Cell] = {
            "start": kernel.start,
            "end": kernel.end,
            "deviceId": kernel.device,
            "streamId": kernel.stream,
            "correlationId": kernel.correlation,
            "shortName": name,
        }
        if self._export.year >= 2019:
            row |= {"globalPid": kernel.process, "demangledName": name}
            row |= dict(zip(("gridX", "gridY", "gridZ"), kernel.grid, strict=True))
            row |= {"blockX": 128, "blockY": 1, "blockZ": 1, "registersPerThread": kernel.registers}
            row["staticSharedMemory"], row["dynamicSharedMemory"] = kernel.shared
        if self._export.year >= 2021:
            row["graphNodeId"] = kernel.graph_node
        return row

    def _id(self, text: str) -> int:
        return self._texts.setdefault(text, 1000 + len(self._texts))

    def _table(self, name: str, rows: Sequence[Mapping[str, Cell]]) -> None:
        """Columns as the exporter declares them, without types: any value may stand anywhere."""
        if not rows:
            return
        columns = list(rows[0])
        self._connection.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
        places = ", ".join("?" * len(columns))
        self._connection.executemany(
            f'INSERT INTO "{name}" VALUES ({places})',  # noqa: S608 - names are ours
            [[row[column] for column in columns] for row in rows],
        )
