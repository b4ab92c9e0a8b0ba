"""What a captured workload leaves in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.gpu_peaks import GpuPeaks
from joulewise.domain.trace import ProfilerTrace
from joulewise.workload.capture.fitting import REFERENCE_DEVICE_NAME, RawWork
from joulewise.workload.capture.regions import Composition, RegionUse
from joulewise.workload.capture.uses import KernelUse


def work_doubts(
    uses: Mapping[int, KernelUse], works: Mapping[int, RawWork], peaks: GpuPeaks | None
) -> Iterator[Caveat]:
    """Whose work was estimated."""
    estimated = [kernel for kernel, work in works.items() if work.is_estimated]
    if not estimated:
        return
    whole_s = sum(use.time_s for use in uses.values())
    share = sum(uses[kernel].time_s for kernel in estimated) / whole_s if whole_s else 0.0
    on = f", as if on an {REFERENCE_DEVICE_NAME}" if peaks is None else ""
    yield Caveat(
        kind=CaveatKind.WORK_ESTIMATED,
        seen=(
            f"{_estimated_words(len(estimated), len(uses), share)} was estimated from how long "
            f"{'it' if len(estimated) == 1 else 'they'} ran{on}."
        ),
    )


def _estimated_words(count: int, whole_count: int, share_ratio: float) -> str:
    if count == whole_count:
        return "The work of the only kernel" if count == 1 else f"The work of all {count} kernels"
    share = _percent(share_ratio)
    return f"The work of {count} of {whole_count} kernels ({share} of the kernels' time)"


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"


def efficiency_doubts(
    trace: ProfilerTrace, device_name: str | None, peaks: GpuPeaks | None
) -> Iterator[Caveat]:
    """Whether what kernels reach of the GPU's peaks follows from the profile."""
    if peaks is None:
        name = f"{device_name!r}" if device_name else "the traced GPU"
        yield Caveat(
            kind=CaveatKind.EFFICIENCY_ASSUMED,
            seen=(
                f"The peak rates of {name} are not known, so what kernels reach of them is assumed."
            ),
        )
    if _is_nsight_compute(trace):
        yield Caveat(
            kind=CaveatKind.EFFICIENCY_ASSUMED,
            seen=(
                "Unless told otherwise, Nsight Compute holds the clocks at base and empties the "
                "caches before every kernel, so kernels may be faster in the job itself."
            ),
            advice="Profile with --clock-control none --cache-control none.",
        )


def _is_nsight_compute(trace: ProfilerTrace) -> bool:
    """The one profiler that counts what kernels do, and runs each of them alone for it."""
    return bool(trace.measured)


def region_doubts(regions: Mapping[Composition, RegionUse], busy_s: float) -> Iterator[Caveat]:
    """How much of the busy time is launches that overlapped."""
    if not regions:
        return
    count = sum(use.region_count for use in regions.values())
    launches = sum(use.region_count * use.launch_count for use in regions.values())
    time_s = sum(use.time_s for use in regions.values())
    overlap_s = sum(use.overlap_s for use in regions.values())
    share = time_s / busy_s if busy_s else 0.0
    overlap = overlap_s / time_s if time_s else 0.0
    yield Caveat(
        kind=CaveatKind.STREAMS_MERGED,
        seen=(
            f"{launches} launches that overlapped became {count} "
            f"{'region' if count == 1 else 'regions'}, {_percent(share)} of the busy time. "
            f"For {_percent(overlap)} of {'its' if count == 1 else 'their'} time more than one "
            "kernel ran."
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
