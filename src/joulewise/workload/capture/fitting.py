"""Shares of a GPU's peak that work must reach to take the time that a profiler saw.

The physics of joulewise, a launch and a smooth maximum of computing, traffic and waiting, is
solved for the share of the side that binds: `t = launch + ((a/c)^p + (b/m)^p + w^p)^(1/p)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from joulewise.domain.gpu_peaks import GpuPeaks, gpu_peaks
from joulewise.domain.workload import Dtype, KernelKind, KernelWork

LAUNCH_S = 2e-6
"""Part of a kernel's time that no clock shortens; that of the virtual H100.

Virtual GPUs have other launches, exponents and clocks above that of the printed peak, so that on
them captured kernels take other times than the profiler saw: up to 8 % less on the virtual H100,
2 % less on the A100, 14 % less on the RTX 3080 Ti, from 17 % less to 5 % more on the RTX 4090
(`tests/property/test_capture_laws.py`).
"""
REFERENCE_DEVICE_NAME = "NVIDIA A100-SXM4-40GB"
"""Whose peaks stand in for those of a GPU that the table does not list, where work is guessed
from times."""

# Even of a kernel hardly longer than a launch, this much is work; assumed.
_LEAST_WORK_RATIO = 0.25
_LEAST_TIME_S = 1e-9

# How sharply the slowest side sets the time; those of the virtual H100, see `LAUNCH_S`.
_GEMM_EXPONENT = 5.0
_OTHER_EXPONENT = 4.0

# Shares of the side that does not bind: medians of the kernels of the built-in gpt3-xl, which
# were fitted to measurements (workload/data/gpt3_xl.json).
_GEMM_DEFAULTS = (0.959, 0.543)
_OTHER_DEFAULTS = (0.0348, 0.925)
# The side that does not bind leaves this much of the time to the one that does; assumed.
_MOST_OF_OTHER_SIDE = 0.9
# Of a collective's time, what its additions take the SMs at most; assumed.
_MOST_OF_ADDING = 0.25
# Where neither computing nor traffic, as well as kernels of the kind do them, takes this much of
# the time seen, something else binds; assumed.
_LEAST_EXPLAINED_RATIO = 0.5
# Cycles in which the SMs wait switch this much of what those of a usual kernel do; assumed.
_LEAST_ACTIVITY_RATIO = 0.2
# A copy issues an operation for each word that it moves.
_WORD_BYTES = 4
# Boards boost above the clock that their peak is printed for; more than this is no arithmetic.
_MOST_OF_PEAK_RATIO = 1.2
_LEAST_RATIO = 1e-6  # what workload files take


@dataclass(frozen=True, slots=True, kw_only=True)
class RawWork:
    """Work of one launch before its shares of the peak are known.

    `link_s` is what a collective waits for the link; `is_estimated` says that FLOPs and bytes
    come from the duration, `is_product` that the FLOPs are those of matrix products.
    """

    kind: KernelKind
    dtype: Dtype
    flop_count: float
    traffic_bytes: float
    link_s: float = 0.0
    is_estimated: bool = False
    is_product: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    """Parts of the time that computing and traffic would take alone at the printed peaks.

    `core_activity_ratio` is what a cycle of the SMs switches against one of a usual kernel.
    """

    compute_ratio: float
    memory_ratio: float
    core_activity_ratio: float = 1.0


def reference_peaks() -> GpuPeaks:
    """Peaks that work is guessed with where those of the traced GPU are unknown."""
    peaks = gpu_peaks(REFERENCE_DEVICE_NAME)
    if peaks is None:
        raise AssertionError(f"{REFERENCE_DEVICE_NAME} is missing in the table of peaks")
    return peaks


def fitted_kernel(kernel: str, raw: RawWork, time_s: float, peaks: GpuPeaks | None) -> KernelWork:
    """The work of a kernel that takes `time_s` a launch on the GPU of these peaks.

    Traffic above what the memory can move in that time was served by caches and is left out.
    Without peaks the shares are the defaults, but for work that was guessed from the time: it
    takes that time on the GPU that it was guessed with.
    """
    peaks = peaks or (reference_peaks() if raw.is_estimated else None)
    work_s = _without_launch(time_s)
    if raw.kind is KernelKind.COLLECTIVE:
        return _collective(kernel, raw, time_s, peaks)
    if peaks is None:
        return _work(kernel, raw, _defaults(raw.kind), wait_s=0.0)
    moved = min(raw.traffic_bytes, peaks.bandwidth_bytes_per_s * work_s)
    raw = _issuing(raw, moved, work_s, peaks)
    ratios = _ratios(raw, moved, work_s, peaks)
    return _work(kernel, raw, ratios, wait_s=0.0, traffic_bytes=moved)


def fitted_region(
    kernel: str, raw: RawWork, busy_s: float, time_s: float, peaks: GpuPeaks | None
) -> KernelWork:
    """The work of launches that overlapped: `busy_s` of `time_s` are not links alone.

    Work and links share the time in proportion to what they take alone, so that their smooth
    maximum is the time seen.
    """
    peaks = peaks or (reference_peaks() if raw.is_estimated else None)
    span_s = _without_launch(time_s)
    exponent = _exponent(raw.kind)
    busy, link = min(busy_s, span_s) / span_s, min(raw.link_s, span_s) / span_s
    together = (busy**exponent + link**exponent) ** (1.0 / exponent)
    if raw.kind is KernelKind.COLLECTIVE or together <= 0.0:
        return _collective(kernel, raw, time_s, peaks)
    wait_s = span_s * link / together
    if peaks is None:
        return _work(kernel, raw, _defaults(raw.kind), wait_s=wait_s)
    work_s = max(span_s * busy / together, _LEAST_TIME_S)
    ratios = _ratios(raw, raw.traffic_bytes, work_s, peaks)
    return _work(kernel, raw, ratios, wait_s=wait_s)


def is_possible(raw: RawWork, time_s: float, peaks: GpuPeaks | None) -> bool:
    """Whether a GPU of these peaks can compute this much in the time: else the count is wrong."""
    peak = None if peaks is None else peaks.flop_per_s.get(raw.dtype)
    return peak is None or raw.flop_count <= _MOST_OF_PEAK_RATIO * peak * max(time_s, _LEAST_TIME_S)


def _without_launch(time_s: float) -> float:
    return max(time_s - LAUNCH_S, _LEAST_WORK_RATIO * time_s, _LEAST_TIME_S)


def _exponent(kind: KernelKind) -> float:
    return _GEMM_EXPONENT if kind is KernelKind.GEMM else _OTHER_EXPONENT


def _defaults(kind: KernelKind) -> _Shares:
    compute, memory = _GEMM_DEFAULTS if kind is KernelKind.GEMM else _OTHER_DEFAULTS
    return _Shares(compute_ratio=compute, memory_ratio=memory)


def _collective(kernel: str, raw: RawWork, time_s: float, peaks: GpuPeaks | None) -> KernelWork:
    """A collective waits for the link; what it moves locally takes a part of that.

    What only waits has no launch in the physics, and so waits all the time.
    """
    defaults = _defaults(raw.kind)
    if not raw.traffic_bytes and not raw.flop_count:
        return _work(kernel, raw, defaults, wait_s=max(time_s, _LEAST_TIME_S))
    work_s = _without_launch(time_s)
    if peaks is None or not raw.traffic_bytes:
        return _work(kernel, raw, defaults, wait_s=work_s)
    full_s = raw.traffic_bytes / peaks.bandwidth_bytes_per_s / defaults.memory_ratio
    share = min(full_s / work_s, _MOST_OF_OTHER_SIDE)
    moved = min(raw.traffic_bytes, share * work_s * peaks.bandwidth_bytes_per_s)
    # Adding up takes the SMs less than the traffic takes the memory.
    peak = peaks.flop_per_s.get(raw.dtype)
    needed = 0.0 if peak is None else raw.flop_count / (peak * work_s)
    ratios = _Shares(
        compute_ratio=max(defaults.compute_ratio, needed / _MOST_OF_ADDING),
        memory_ratio=moved / (peaks.bandwidth_bytes_per_s * work_s * share),
    )
    wait_s = work_s * (1.0 - share**_OTHER_EXPONENT) ** (1.0 / _OTHER_EXPONENT)
    return _work(kernel, raw, ratios, wait_s=wait_s, traffic_bytes=moved)


def _needs(raw: RawWork, traffic_bytes: float, work_s: float, peaks: GpuPeaks) -> _Shares:
    """Parts of the peaks that computing and traffic need to be done in `work_s`."""
    peak = peaks.flop_per_s.get(raw.dtype)
    return _Shares(
        compute_ratio=0.0 if peak is None else raw.flop_count / (peak * work_s),
        memory_ratio=traffic_bytes / (peaks.bandwidth_bytes_per_s * work_s),
    )


def _is_unexplained(needs: _Shares, defaults: _Shares) -> bool:
    """Whether something else than computing and traffic takes most of the time.

    Issuing instructions, waiting for caches and grids too small for the GPU go with the SM
    clock, so that time is computing's: a lower clock is then not taken to be free.
    """
    explained = max(
        needs.compute_ratio / defaults.compute_ratio, needs.memory_ratio / defaults.memory_ratio
    )
    return explained < _LEAST_EXPLAINED_RATIO


def _issuing(raw: RawWork, traffic_bytes: float, work_s: float, peaks: GpuPeaks) -> RawWork:
    """A copy that is slow for another reason than its traffic has operations to be slow with."""
    needs = _needs(raw, traffic_bytes, work_s, peaks)
    if raw.flop_count or not _is_unexplained(needs, _defaults(raw.kind)):
        return raw
    return replace(raw, flop_count=traffic_bytes / _WORD_BYTES)


def _ratios(raw: RawWork, traffic_bytes: float, work_s: float, peaks: GpuPeaks) -> _Shares:
    """Shares of the peak with which computing and traffic take `work_s` together."""
    defaults = _defaults(raw.kind)
    needs = _needs(raw, traffic_bytes, work_s, peaks)
    compute, memory = needs.compute_ratio, needs.memory_ratio
    exponent = _exponent(raw.kind)
    activity = 1.0
    if compute >= memory or (compute and _is_unexplained(needs, defaults)):
        memory_ratio, compute_ratio = _sides(memory, compute, defaults.memory_ratio, exponent)
        if _is_unexplained(needs, defaults):
            busy = compute_ratio / defaults.compute_ratio
            activity = min(1.0, max(_LEAST_ACTIVITY_RATIO, busy))
    else:
        compute_ratio, memory_ratio = _sides(compute, memory, defaults.compute_ratio, exponent)
    return _Shares(
        compute_ratio=compute_ratio, memory_ratio=memory_ratio, core_activity_ratio=activity
    )


def _sides(
    minor: float, major: float, default_ratio: float, exponent: float
) -> tuple[float, float]:
    """Shares of the peak for the side that does not bind and the one that does.

    Args:
        minor: Time of the one at its peak, as a part of the time seen.
        major: That of the other.
        default_ratio: Share of its peak that the one reaches where there is time enough.
        exponent: Of the smooth maximum.
    """
    left = (1.0 - min(major, 1.0) ** exponent) ** (1.0 / exponent)
    taken = max(min(minor / default_ratio, _MOST_OF_OTHER_SIDE, left), min(minor, 1.0))
    bound = (1.0 - min(taken, _MOST_OF_OTHER_SIDE) ** exponent) ** (1.0 / exponent)
    return (minor / taken if taken else default_ratio), major / bound


def _work(
    kernel: str,
    raw: RawWork,
    ratios: _Shares,
    *,
    wait_s: float,
    traffic_bytes: float | None = None,
) -> KernelWork:
    return KernelWork(
        kernel=kernel,
        kind=raw.kind,
        dtype=raw.dtype,
        flop_count=float(raw.flop_count),
        traffic_bytes=float(raw.traffic_bytes if traffic_bytes is None else traffic_bytes),
        compute_efficiency_ratio=_clipped(ratios.compute_ratio),
        memory_efficiency_ratio=_clipped(ratios.memory_ratio),
        core_activity_ratio=ratios.core_activity_ratio,
        memory_activity_ratio=1.0,
        wait_s=wait_s,
    )


def _clipped(ratio: float) -> float:
    return min(max(ratio, _LEAST_RATIO), 1.0)
