"""Work of kernels without an operation, from launches of the same kernel that have one."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joulewise.domain.trace import Extent, KernelSignature
from joulewise.domain.workload import Dtype
from joulewise.workload.capture.fitting import RawWork
from joulewise.workload.capture.uses import KernelUse

# Launches of the same work take about the same time; assumed: they differ by less than this.
_MOST_TIME_RATIO = 1.25
# So much of a kernel's time must be of launches that are like known ones; assumed.
_LEAST_SHARE_RATIO = 0.9

_Shape = tuple[str, Extent, Extent | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    mean_s: float
    work: RawWork


def taken_over(uses: Mapping[int, KernelUse], works: Mapping[int, RawWork]) -> dict[int, RawWork]:
    """Work of kernels that no operation tells, by kernel.

    Profilers lose operations: of those that ran before they started, and where buffers were
    full. A launch of the same name, grid, block and shared memory as one whose shapes are known
    does the same work if it takes the same time, within a quarter; the time tells products of
    another depth apart, and persistent kernels, whose grid is that of the GPU. A kernel whose
    launches are like several known ones has their mean.

    Args:
        uses: The kernels of an iteration.
        works: What is known of them, or estimated.
    """
    known: dict[_Shape, list[_Known]] = defaultdict(list)
    for kernel, use in uses.items():
        shape = _shape(use.signature)
        if shape is not None and not works[kernel].is_estimated and use.mean_s > 0.0:
            known[shape].append(_Known(mean_s=use.mean_s, work=works[kernel]))
    for alike in known.values():
        alike.sort(key=lambda one: one.mean_s)
    found: dict[int, RawWork] = {}
    for kernel, use in uses.items():
        shape = _shape(use.signature)
        if shape in known and works[kernel].is_estimated and not _has_shapes(use.signature):
            work = _mean(use, known[shape])
            if work is not None:
                found[kernel] = work
    return found


def _shape(signature: KernelSignature) -> _Shape | None:
    if signature.grid is None:
        return None
    return signature.name, signature.grid, signature.block, signature.shared_memory_bytes


def _has_shapes(signature: KernelSignature) -> bool:
    return any(one.shape for one in signature.inputs)


def _mean(use: KernelUse, known: Sequence[_Known]) -> RawWork | None:
    """The mean of what launches do that are like known ones; `None` where few of them are."""
    alike = [(time_s, _nearest(time_s, known)) for time_s in use.durations_s]
    works = [one.work for _, one in alike if one is not None]
    told_s = math.fsum(time_s for time_s, one in alike if one is not None)
    if not works or told_s < _LEAST_SHARE_RATIO * use.time_s:
        return None
    by_format: dict[Dtype, float] = defaultdict(float)
    for work in works:
        by_format[work.dtype] += work.flop_count
    return RawWork(
        kind=works[0].kind,
        dtype=max(by_format, key=lambda one: by_format[one]),
        flop_count=math.fsum(work.flop_count for work in works) / len(works),
        traffic_bytes=math.fsum(work.traffic_bytes for work in works) / len(works),
        is_product=works[0].is_product,
    )


def _nearest(time_s: float, known: Sequence[_Known]) -> _Known | None:
    """The known kernel, of several by duration, of the nearest one; `None` where none is near."""
    if time_s <= 0.0:
        return None
    place = bisect.bisect_left(known, time_s, key=lambda one: one.mean_s)
    beside = known[max(0, place - 1) : place + 1]
    nearest = min(beside, key=lambda one: abs(math.log(time_s / one.mean_s)))
    ratio = max(time_s / nearest.mean_s, nearest.mean_s / time_s)
    return nearest if ratio <= _MOST_TIME_RATIO else None
