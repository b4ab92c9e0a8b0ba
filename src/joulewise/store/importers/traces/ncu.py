"""Tables of Nsight Compute as CSV: its details page or its raw page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from joulewise.domain.errors import InputError
from joulewise.domain.trace import Extent, KernelSignature, MeasuredWork, ProfilerTrace, TracedGpu
from joulewise.store.files import file_error
from joulewise.store.importers.traces.csv_report import (
    Cell,
    Report,
    ReportRow,
    open_text,
    read_report,
    whole_ns,
    whole_number,
)
from joulewise.store.importers.traces.launch_totals import (
    MOST_LAUNCHES_COUNT,
    NS_PER_S,
    kernel_name,
    kernel_totals,
    too_many_launches,
)
from joulewise.store.importers.traces.ncu_work import amount, is_kept, measured_work
from joulewise.store.importers.traces.nsys_database import SQLITE_MAGIC

_HEAD_BYTES = 4096
_DETAILS = ("metric name", "metric unit", "metric value")
_DURATIONS = ("gpu__time_duration.sum", "duration")
_REGISTERS = ("launch__registers_per_thread", "registers per thread")
_SHARED = (
    ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"),
    ("static shared memory per block", "dynamic shared memory per block"),
)
_GPU_NAME = "device__attribute_display_name"
_EXTENT = re.compile(r"\(? *(\d{1,10})[, x]+(\d{1,10})[, x]+(\d{1,10}) *\)?")
_MOST_ID = 2**62
_MOST_GPUS_COUNT = 10**6


@dataclass(slots=True)
class _Profile:
    """One launch: its identity, where its first row stands, and its metrics as text and unit."""

    row: int
    index: int
    name: str
    grid: Extent | None
    block: Extent | None
    gpu: int
    stream: int
    metrics: dict[str, tuple[str, str]] = field(default_factory=dict)


def read_ncu(path: Path) -> ProfilerTrace:
    """Read `ncu --csv`, page details or raw: launches in order, with what was counted of each.

    Nsight Compute runs kernels one by one, several times each, so that the file has no timeline:
    launches follow each other without gaps.

    Raises:
        InputError: anything wrong with the file, another file, no kernel in it, or a kernel
            without a duration; names row and field.
    """
    file = str(path)
    _require_text(path)
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
        profiles = _details(report) if is_details else _raw(report)
    if not profiles:
        raise InputError("no GPU kernels are in the table", file=file, hint="Profile again.")
    page = "details" if is_details else "raw"
    return _trace(sorted(profiles, key=lambda profile: profile.index), file, f"ncu ({page} page)")


def _require_text(path: Path) -> None:
    try:
        with path.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
    except (OSError, ValueError) as error:
        raise file_error(error, path, doing="read") from error
    if not head:
        raise InputError("the file is empty", file=str(path), hint="Export it again.")
    if head.startswith(SQLITE_MAGIC):
        raise InputError(
            "this is a database, not a table of Nsight Compute",
            file=str(path),
            hint=f"Run joulewise import nsys {path.name}",
        )
    if b"\0" in head:
        raise InputError(
            "this is not a table but a binary file",
            file=str(path),
            hint=f"Export it: ncu --import {path.name} --csv --page raw",
        )


def _is_known(names: Sequence[str]) -> bool:
    found = set(names)
    is_raw = {"id", "kernel name"} <= found
    return is_raw or ("kernel name" in found and "invocations" in found)


def _details(report: Report) -> list[_Profile]:
    """One row a metric of a launch; rows of rules have no metric."""
    profiles: dict[tuple[str, int], _Profile] = {}
    for row in report.rows:
        number = whole_number(row.cell("id"), most=_MOST_ID)
        key = row.text("process id"), number
        profile = profiles.get(key)
        if profile is None:
            _require_room(len(profiles), report.file)
            profile = profiles[key] = _profile(row, number)
        metric = row.text("metric name").lower()
        unit = row.text("metric unit")
        # Two sections have a metric of this name: bytes a second, and a share of the peak.
        if is_kept(metric) and unit != "%":
            profile.metrics.setdefault(metric, (row.text("metric value"), unit))
    return list(profiles.values())


def _raw(report: Report) -> list[_Profile]:
    """One row a launch; the first row holds the units."""
    profiles: list[_Profile] = []
    kept = [name for name in report.names if is_kept(name)]
    units = {name: report.units.get(name, "") for name in kept}
    for row in report.rows:
        if row.row == 1 and not row.text("id"):
            units = {name: row.text(name) for name in kept}
            continue
        _require_room(len(profiles), report.file)
        profile = _profile(row, whole_number(row.cell("id"), most=_MOST_ID))
        profile.metrics.update((name, (row.text(name), units[name])) for name in kept)
        profiles.append(profile)
    return profiles


def _require_room(count: int, file: str) -> None:
    if count >= MOST_LAUNCHES_COUNT:
        raise too_many_launches(file)


def _profile(row: ReportRow, number: int) -> _Profile:
    device, stream = row.cell("device"), row.cell("stream")
    return _Profile(
        row=row.row,
        index=number,
        name=kernel_name(row.text("kernel name"), row.file, row.row, "kernel name"),
        grid=_extent(row.text("grid size")),
        block=_extent(row.text("block size")),
        gpu=whole_number(device, most=_MOST_GPUS_COUNT) if device.text else 0,
        stream=whole_number(stream, most=_MOST_ID) if stream.text else 0,
    )


def _extent(text: str) -> Extent | None:
    match = _EXTENT.fullmatch(text[:60])
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _trace(profiles: Sequence[_Profile], file: str, tool: str) -> ProfilerTrace:
    durations_ns = [_duration_ns(profile, file) for profile in profiles]
    signatures: dict[KernelSignature, int] = {}
    index = [signatures.setdefault(_signature(item), len(signatures)) for item in profiles]
    works: list[list[MeasuredWork]] = [[] for _ in signatures]
    for place, profile, duration_ns in zip(index, profiles, durations_ns, strict=True):
        works[place].append(measured_work(profile.name, profile.metrics, duration_ns / NS_PER_S))
    totals, time_ns = kernel_totals(
        [signature.name for signature in signatures], zip(index, durations_ns, strict=True)
    )
    duration = np.array(durations_ns, dtype=np.int64)
    launch_count = len(profiles)
    names = _gpu_names(profiles)
    return ProfilerTrace(
        tool=tool,
        file=file,
        signatures=tuple(signatures),
        signature_index=np.array(index, dtype=np.int64),
        start_s=(np.cumsum(duration) - duration) / NS_PER_S,
        duration_s=duration / NS_PER_S,
        gpu=np.array([profile.gpu for profile in profiles], dtype=np.int64),
        stream=np.array([profile.stream for profile in profiles], dtype=np.int64),
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
        measured=tuple(_mean(launches) for launches in works),
    )


def _duration_ns(profile: _Profile, file: str) -> int:
    for metric in _DURATIONS:
        text, unit = profile.metrics.get(metric, ("", ""))
        if text and text.lower() != "n/a":
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
        round(static + dynamic)
        for names in _SHARED
        if (static := amount(profile.metrics, names[0])) is not None
        and (dynamic := amount(profile.metrics, names[1])) is not None
    ]
    return KernelSignature(
        name=profile.name,
        grid=profile.grid,
        block=profile.block,
        shared_memory_bytes=shared[0] if shared else None,
        register_count=None if registers is None else round(registers),
    )


def _first(metrics: Mapping[str, tuple[str, str]], names: Sequence[str]) -> float | None:
    values = (amount(metrics, name) for name in names)
    return next((value for value in values if value is not None), None)


def _gpu_names(profiles: Sequence[_Profile]) -> dict[int, str | None]:
    names: dict[int, str | None] = {}
    for profile in profiles:
        name = profile.metrics.get(_GPU_NAME, ("", ""))[0]
        names.setdefault(profile.gpu, name if name and name.isprintable() else None)
    return names


def _mean(works: Sequence[MeasuredWork]) -> MeasuredWork:
    return MeasuredWork(
        flop_count=_mean_of([work.flop_count for work in works]),
        traffic_bytes=_mean_of([work.traffic_bytes for work in works]),
    )


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
