"""Tables of Nsight Compute as CSV: its details page or its raw page."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from joulewise.domain.errors import InputError
from joulewise.domain.trace import Extent, KernelSignature, MeasuredWork, ProfilerTrace, TracedGpu
from joulewise.store.importers.traces.csv_report import (
    Cell,
    Report,
    ReportRow,
    open_text,
    read_report,
    require_plain_number,
    whole_ns,
    whole_number,
)
from joulewise.store.importers.traces.file_kinds import Profiler, refuse_other_profiler
from joulewise.store.importers.traces.launch_totals import (
    MOST_LISTED_COUNT,
    NS_PER_S,
    kernel_name,
    kernel_totals,
    too_many_launches,
)
from joulewise.store.importers.traces.ncu_work import amount, is_kept, measured_work
from joulewise.store.workload_works import WORK_BOUNDS

_DETAILS = ("metric name", "metric unit", "metric value")
_DURATIONS = ("gpu__time_duration.sum", "duration")
_REGISTERS = ("launch__registers_per_thread", "registers per thread")
_SHARED = (
    ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"),
    ("static shared memory per block", "dynamic shared memory per block"),
)
_GPU_NAME = "device__attribute_display_name"
_EXTENT = re.compile(r"\(? *([0-9]{1,10})[, x]+([0-9]{1,10})[, x]+([0-9]{1,10}) *\)?")
_NOT_MEASURED = "n/a"
_MOST_ID = 2**62
_MOST_GPUS_COUNT = 10**6
_MOST_REGISTERS_COUNT = 2**16
_MOST_SHARED_BYTES = 2**31
_LONGEST_GPU_NAME_COUNT = 200
_ONE_REPORT = "Put one report into a file, as ncu writes it."


@dataclass(slots=True)
class _Profile:
    """One launch: its identity, where its first row stands, and its metrics as text and unit."""

    row: int
    index: int
    process: str
    name: str
    grid: Extent | None
    block: Extent | None
    gpu: int
    stream: int
    metrics: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, metric: str, cell: Cell, unit: str) -> None:
        """Keep a metric; one that was not measured is left out.

        Raises:
            InputError: it is a number of another locale, or the launch has another value of it.
        """
        text = cell.text
        if not text or text.lower() == _NOT_MEASURED:
            return
        if metric != _GPU_NAME:
            require_plain_number(cell)
        former = self.metrics.setdefault(metric, (text, unit))
        if former != (text, unit):
            raise cell.error(
                f"launch {self.index} has two values of {metric}: {former[0][:40]} and {text[:40]}",
                hint=_ONE_REPORT,
            )


@dataclass(slots=True)
class _Launches:
    """Launches in the order of the table, with what their metrics say."""

    file: str
    index: array[int] = field(default_factory=lambda: array("q"))
    signature: array[int] = field(default_factory=lambda: array("q"))
    duration_ns: array[int] = field(default_factory=lambda: array("q"))
    gpu: array[int] = field(default_factory=lambda: array("q"))
    stream: array[int] = field(default_factory=lambda: array("q"))
    signatures: dict[KernelSignature, int] = field(default_factory=dict)
    works: list[_MeanWork] = field(default_factory=list)
    gpu_names: dict[int, str | None] = field(default_factory=dict)
    _numbers: dict[str, set[int]] = field(default_factory=dict)

    def start(self, row: ReportRow) -> _Profile:
        """A launch whose first row this is.

        Raises:
            InputError: the file has it already, or has too many.
        """
        profile = _profile(row)
        numbers = self._numbers.setdefault(profile.process, set())
        if profile.index in numbers:
            raise row.cell("id").error(
                f"launch {profile.index} comes twice in the table", hint=_ONE_REPORT
            )
        numbers.add(profile.index)
        if len(self.index) >= MOST_LISTED_COUNT:
            raise too_many_launches(self.file, MOST_LISTED_COUNT)
        return profile

    def finish(self, profile: _Profile | None) -> None:
        """Take in a launch all of whose metrics are known. Raises InputError."""
        if profile is None:
            return
        duration_ns = _duration_ns(profile, self.file)
        signature = _signature(profile)
        number = self.signatures.setdefault(signature, len(self.signatures))
        if number == len(self.works):
            self.works.append(_MeanWork())
        self.works[number].add(_work(profile, duration_ns, self.file))
        self.index.append(profile.index)
        self.signature.append(number)
        self.duration_ns.append(duration_ns)
        self.gpu.append(profile.gpu)
        self.stream.append(profile.stream)
        name = profile.metrics.get(_GPU_NAME, ("", ""))[0]
        is_name = name.isprintable() and 0 < len(name) <= _LONGEST_GPU_NAME_COUNT
        self.gpu_names.setdefault(profile.gpu, name if is_name else None)


@dataclass(slots=True)
class _MeanWork:
    """The mean of what was counted of the launches of one kernel."""

    flop_counts: tuple[float, int] = (0.0, 0)
    traffic_bytes: tuple[float, int] = (0.0, 0)

    def add(self, work: MeasuredWork) -> None:
        """One more launch."""
        self.flop_counts = _with(self.flop_counts, work.flop_count)
        self.traffic_bytes = _with(self.traffic_bytes, work.traffic_bytes)

    def mean(self) -> MeasuredWork:
        """Of the launches for which it was counted; `None` where for none."""
        return MeasuredWork(
            flop_count=_mean(self.flop_counts), traffic_bytes=_mean(self.traffic_bytes)
        )


def _with(sums: tuple[float, int], value: float | None) -> tuple[float, int]:
    return sums if value is None else (sums[0] + value, sums[1] + 1)


def _mean(sums: tuple[float, int]) -> float | None:
    return sums[0] / sums[1] if sums[1] else None


def read_ncu(path: Path) -> ProfilerTrace:
    """Read `ncu --csv`, page details or raw: launches in order, with what was counted of each.

    Nsight Compute runs kernels one by one, several times each, so that the file has no timeline:
    launches follow each other without gaps.

    Raises:
        InputError: anything wrong with the file, another file, no kernel in it, or a kernel
            without a duration; names row and field.
    """
    file = str(path)
    refuse_other_profiler(path, Profiler.NCU)
    with open_text(path) as text:
        report = read_report(text, file, _is_known, may_end_after=_DETAILS[-1])
        if report is None:
            raise InputError(
                "this is no table of Nsight Compute",
                file=file,
                hint="Make one: ncu --import FILE.ncu-rep --csv --page raw",
            )
        if "id" not in report.names:
            raise InputError(
                "the table sums kernels up instead of listing their launches",
                file=file,
                hint="Make it anew without --print-summary.",
            )
        is_details = set(_DETAILS) <= set(report.names)
        launches = _details(report) if is_details else _raw(report)
    if not launches.index:
        raise InputError("no GPU kernels are in the table", file=file, hint="Profile again.")
    page = "details" if is_details else "raw"
    return _trace(launches, file, f"ncu ({page} page)")


def _is_known(names: Sequence[str]) -> bool:
    found = set(names)
    is_raw = {"id", "kernel name"} <= found
    return is_raw or ("kernel name" in found and "invocations" in found)


def _details(report: Report) -> _Launches:
    """One row a metric of a launch, rows of a launch together; rows of rules have no metric."""
    launches = _Launches(report.file)
    profile: _Profile | None = None
    for row in report.rows:
        number = whole_number(row.cell("id"), most=_MOST_ID)
        is_next = profile is None or (profile.process, profile.index) != _key(row, number)
        if profile is None or is_next:
            launches.finish(profile)
            profile = launches.start(row)
        elif row.text("kernel name") != profile.name:
            raise row.cell("kernel name").error(
                f"launch {number} has two names: {profile.name[:60]!r} stands above",
                hint=_ONE_REPORT,
            )
        metric, unit = row.text("metric name").lower(), row.text("metric unit")
        # Two sections have a metric of this name: bytes a second, and a share of the peak.
        if is_kept(metric) and unit != "%":
            if metric in _DURATIONS and metric in profile.metrics:
                raise row.cell("metric name").error(
                    f"launch {number} has a second {metric}", hint=_ONE_REPORT
                )
            profile.add(metric, row.cell("metric value"), unit)
    launches.finish(profile)
    return launches


def _key(row: ReportRow, number: int) -> tuple[str, int]:
    return row.text("process id"), number


def _raw(report: Report) -> _Launches:
    """One row a launch; the first row holds the units."""
    launches = _Launches(report.file)
    kept = [name for name in report.names if is_kept(name)]
    units = {name: report.units.get(name, "") for name in kept}
    for row in report.rows:
        if row.row == 1 and not row.text("id"):
            units = {name: row.text(name) for name in kept}
            continue
        profile = launches.start(row)
        for name in kept:
            profile.add(name, row.cell(name), units[name])
        launches.finish(profile)
    return launches


def _profile(row: ReportRow) -> _Profile:
    device, stream = row.cell("device"), row.cell("stream")
    return _Profile(
        row=row.row,
        index=whole_number(row.cell("id"), most=_MOST_ID),
        process=row.text("process id"),
        name=kernel_name(row.text("kernel name"), row.file, row.row, "kernel name"),
        grid=_extent(row.text("grid size")),
        block=_extent(row.text("block size")),
        gpu=whole_number(device, most=_MOST_GPUS_COUNT) if device.text else 0,
        stream=whole_number(stream, most=_MOST_ID) if stream.text else 0,
    )


def _extent(text: str) -> Extent | None:
    match = _EXTENT.fullmatch(text[:60])
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _trace(launches: _Launches, file: str, tool: str) -> ProfilerTrace:
    order = np.argsort(np.array(launches.index, dtype=np.int64), kind="stable")
    totals, time_ns = kernel_totals(
        [signature.name for signature in launches.signatures],
        zip(launches.signature, launches.duration_ns, strict=True),
    )
    # As fractions: a sum of a million days does not fit into 64 bits.
    duration = np.array(launches.duration_ns, dtype=np.float64)[order]
    launch_count = len(order)
    names = launches.gpu_names
    return ProfilerTrace(
        tool=tool,
        file=file,
        signatures=tuple(launches.signatures),
        signature_index=np.array(launches.signature, dtype=np.int64)[order],
        start_s=(np.cumsum(duration) - duration) / NS_PER_S,
        duration_s=duration / NS_PER_S,
        gpu=np.array(launches.gpu, dtype=np.int64)[order],
        stream=np.array(launches.stream, dtype=np.int64)[order],
        is_graph_launch=np.zeros(launch_count, dtype=np.bool_),
        passes=(None,) * launch_count,
        steps=(),
        step_index=np.zeros(launch_count, dtype=np.int64),
        is_in_step=np.zeros(launch_count, dtype=np.bool_),
        gpus=tuple(TracedGpu(gpu=gpu, name=name) for gpu, name in sorted(names.items())),
        kernel_count=launch_count,
        kernel_time_s=time_ns / NS_PER_S,
        totals=totals,
        is_timeline=False,
        measured=tuple(work.mean() for work in launches.works),
    )


def _work(profile: _Profile, duration_ns: int, file: str) -> MeasuredWork:
    """What was counted of a launch. Raises InputError where no kernel does as much."""
    work = measured_work(profile.name, profile.metrics, duration_ns / NS_PER_S)
    for name, value in (("flop_count", work.flop_count), ("traffic_bytes", work.traffic_bytes)):
        if value is not None and value > WORK_BOUNDS[name][1]:
            what = "FLOPs" if name == "flop_count" else "bytes"
            raise InputError(
                f"no kernel has {value:.3g} {what}, as the metrics of this one say",
                file=file,
                row=profile.row,
                hint="The file was edited or is damaged: export it again.",
            )
    return work


def _duration_ns(profile: _Profile, file: str) -> int:
    for metric in _DURATIONS:
        text, unit = profile.metrics.get(metric, ("", ""))
        if text:
            return whole_ns(Cell(text=text, file=file, row=profile.row, field=metric), unit)
    raise InputError(
        f"the kernel {profile.name[:60]!r} has no duration",
        file=file,
        row=profile.row,
        field=_DURATIONS[0],
        hint="Profile again with --set basic, or with --metrics gpu__time_duration.sum among them.",
    )


def _signature(profile: _Profile) -> KernelSignature:
    registers = _first(profile.metrics, _REGISTERS)
    shared = [
        static + dynamic
        for names in _SHARED
        if (static := amount(profile.metrics, names[0])) is not None
        and (dynamic := amount(profile.metrics, names[1])) is not None
    ]
    is_known = registers is not None and registers <= _MOST_REGISTERS_COUNT
    return KernelSignature(
        name=profile.name,
        grid=profile.grid,
        block=profile.block,
        shared_memory_bytes=round(shared[0])
        if shared and shared[0] <= _MOST_SHARED_BYTES
        else None,
        register_count=round(registers) if registers is not None and is_known else None,
    )


def _first(metrics: Mapping[str, tuple[str, str]], names: Sequence[str]) -> float | None:
    values = (amount(metrics, name) for name in names)
    return next((value for value in values if value is not None), None)
