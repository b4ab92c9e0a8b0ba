"""What a captured workload leaves in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.gpu_peaks import GpuPeaks
from joulewise.domain.trace import ProfilerTrace
from joulewise.domain.workload import KernelKind
from joulewise.workload.capture.fitting import REFERENCE_DEVICE_NAME, RawWork
from joulewise.workload.capture.regions import Composition, RegionUse
from joulewise.workload.capture.works import KernelUse


def work_doubts(
    uses: Mapping[int, KernelUse],
    works: Mapping[int, RawWork],
    device_name: str | None,
    peaks: GpuPeaks | None,
) -> Iterator[Caveat]:
    """Whose work was estimated, and whether the GPU's peaks are known."""
    estimated = [kernel for kernel, work in works.items() if work.is_estimated]
    if not estimated and peaks is not None:
        return
    whole_s = sum(use.time_s for use in uses.values())
    share = sum(uses[kernel].time_s for kernel in estimated) / whole_s if whole_s else 0.0
    parts = []
    if estimated:
        parts.append(
            f"The work of {len(estimated)} of {len(uses)} kernels ({share:.1%} of the kernels' "
            "time) was estimated from how long they ran."
        )
    if peaks is None:
        name = f"{device_name!r}" if device_name else "the traced GPU"
        against = f" against an {REFERENCE_DEVICE_NAME}" if estimated else ""
        parts.append(
            f"The peak rates of {name} are not known, so what kernels reach of them is "
            f"assumed{against}."
        )
    yield Caveat(kind=CaveatKind.WORK_ESTIMATED, seen=" ".join(parts))


def region_doubts(regions: Mapping[Composition, RegionUse], busy_s: float) -> Iterator[Caveat]:
    """How much of the busy time is launches that overlapped."""
    if not regions:
        return
    count = sum(use.region_count for use in regions.values())
    launches = sum(use.region_count * use.launch_count for use in regions.values())
    share = sum(use.time_s for use in regions.values()) / busy_s if busy_s else 0.0
    yield Caveat(
        kind=CaveatKind.STREAMS_MERGED,
        seen=(
            f"{launches} launches that overlapped became {count} "
            f"{'region' if count == 1 else 'regions'}, {share:.1%} of the busy time."
        ),
    )


def gpu_doubts(trace: ProfilerTrace, gpu: int) -> Iterator[Caveat]:
    """Which GPUs of the job the iteration leaves out."""
    others = sorted(set(np.unique(trace.gpu).tolist()) - {gpu})
    parts = []
    if others:
        listed = ", ".join(str(one) for one in others[:16])
        parts.append(f"The iteration is that of GPU {gpu}; the trace also has GPU {listed}.")
    if trace.rank_count is not None and trace.rank_count > 1:
        rank = "one rank" if trace.rank is None else f"rank {trace.rank}"
        parts.append(f"The trace is of {rank} of {trace.rank_count}.")
    if parts:
        yield Caveat(kind=CaveatKind.OTHER_GPUS_LEFT_OUT, seen=" ".join(parts))


def shape_doubts(complaints: Sequence[str]) -> Iterator[Caveat]:
    """Operations whose shapes do not belong together."""
    if not complaints:
        return
    more = f", and so it is with {len(complaints) - 1} more" if len(complaints) > 1 else ""
    yield Caveat(
        kind=CaveatKind.TRACE_INCOMPLETE,
        seen=f"Shapes of an operation make no sense ({complaints[0][:300]}){more}.",
    )


def counted_time_ratio(uses: Mapping[int, KernelUse], works: Mapping[int, RawWork]) -> float:
    """The share of the kernels' time whose FLOPs are known; collectives compute next to none."""
    whole_s = sum(use.time_s for use in uses.values())
    known_s = sum(
        uses[kernel].time_s
        for kernel, work in works.items()
        if not work.is_estimated or work.kind is KernelKind.COLLECTIVE
    )
    return known_s / whole_s if whole_s else 0.0
