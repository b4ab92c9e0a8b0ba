"""The work of every kernel of an iteration: counted, computed from shapes, or estimated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joulewise.domain.gpu_peaks import GpuPeaks
from joulewise.domain.trace import OpInput
from joulewise.domain.workload import Dtype, KernelKind
from joulewise.workload.capture.alike import taken_over
from joulewise.workload.capture.collectives import collective_work
from joulewise.workload.capture.fitting import RawWork, is_possible, reference_peaks
from joulewise.workload.capture.kernel_traits import (
    format_of_name,
    is_product_name,
    product_format,
)
from joulewise.workload.capture.ops.answer import OpWork
from joulewise.workload.capture.ops.formulas import MOST_BYTES, MOST_FLOP_COUNT, op_work
from joulewise.workload.capture.passes import is_communication
from joulewise.workload.capture.uses import KernelUse

# Shares of the peaks that work is estimated with where nothing else is known; assumed: matrix
# kernels compute, all others stream, at rates that such kernels commonly reach, and others do
# one FLOP for a number of FP32 that they move.
_ESTIMATED_COMPUTE_RATIO = 0.6
_ESTIMATED_GEMM_MEMORY_RATIO = 0.3
_ESTIMATED_MEMORY_RATIO = 0.8
_BYTES_OF_A_FLOP = 4.0
# Kernels that take so much of the longest one's time may do the same product; assumed.
_ALIKE_TIME_RATIO = 0.25

_Family = tuple[str, tuple[OpInput, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawWorks:
    """Work by kernel, and what was wrong with shapes: one sentence for each operation."""

    works: Mapping[int, RawWork]
    complaints: tuple[str, ...]


def raw_works(uses: Mapping[int, KernelUse], peaks: GpuPeaks | None) -> RawWorks:
    """FLOPs, bytes, format and kind of one launch of every kernel.

    What the profiler counted wins; then come formulas of the operation and its shapes. An
    operation that launches several kernels shares its work among them: FLOPs of matrix products
    belong to the kernels that multiply, everything else is shared by time. A kernel without an
    operation does what launches of it with one do in the same time, see `taken_over`. What is
    left is estimated from the duration, and so is what no GPU of these peaks could do in that
    time.
    """
    works, complaints = _of_operations(uses)
    for kernel, use in uses.items():
        known = works.get(kernel)
        if is_communication(use.signature):
            known = collective_work(use.signature, use.mean_s)
        if known is not None and not is_possible(known, use.mean_s, peaks):
            known = None
        known = _counted(use, known)
        works[kernel] = known if known is not None and _is_work(known) else _estimated(use, peaks)
    works.update(taken_over(uses, works))
    return RawWorks(works=works, complaints=complaints)


def _of_operations(
    uses: Mapping[int, KernelUse],
) -> tuple[dict[int, RawWork], tuple[str, ...]]:
    """Work of kernels whose operation and shapes are known, and complaints about shapes."""
    works: dict[int, RawWork] = {}
    complaints: dict[str, None] = {}
    families: dict[_Family, list[int]] = defaultdict(list)
    for kernel, use in uses.items():
        if use.signature.op is not None and not is_communication(use.signature):
            families[use.signature.op, use.signature.inputs].append(kernel)
    for (op, inputs), kernels in families.items():
        answer = op_work(op, inputs)
        if answer.complaint is not None:
            complaints[answer.complaint] = None
        if answer.work is not None:
            works.update(_shared(answer.work, {kernel: uses[kernel] for kernel in kernels}))
    return works, tuple(complaints)


def _is_work(raw: RawWork) -> bool:
    """Whether there is work at all, as every kernel must have, and not more than there can be.

    Tensors may be empty, counts and metadata may be nonsense.
    """
    is_any = raw.kind is KernelKind.COLLECTIVE or raw.flop_count + raw.traffic_bytes >= 1.0
    return is_any and raw.flop_count <= MOST_FLOP_COUNT and raw.traffic_bytes <= MOST_BYTES


def _counted(use: KernelUse, known: RawWork | None) -> RawWork | None:
    """The work with what a profiler counted in place of what formulas say."""
    measured = use.measured
    if measured is None or (measured.flop_count is None and measured.traffic_bytes is None):
        return known
    basis = known or _estimated(use, None)
    is_complete = measured.flop_count is not None or known is not None
    flop_count = basis.flop_count if measured.flop_count is None else measured.flop_count
    moved = basis.traffic_bytes if measured.traffic_bytes is None else measured.traffic_bytes
    return RawWork(
        kind=basis.kind,
        dtype=basis.dtype,
        flop_count=flop_count,
        traffic_bytes=moved,
        link_s=basis.link_s,
        is_estimated=not is_complete,
        is_product=basis.is_product,
    )


def _shared(work: OpWork, uses: Mapping[int, KernelUse]) -> dict[int, RawWork]:
    """The work of one call among the kernels that calls of the operation launch."""
    if not work.is_product:
        return _streamed(work, uses)
    return {
        kernel: RawWork(
            kind=KernelKind.GEMM,
            dtype=product_format(uses[kernel].signature, work.dtype),
            flop_count=flop_count,
            traffic_bytes=work.traffic_bytes * flop_count / work.flop_count,
            is_product=True,
        )
        for kernel, flop_count in _multiplying(work, uses).items()
        if work.flop_count
    }


def _multiplying(work: OpWork, uses: Mapping[int, KernelUse]) -> dict[int, float]:
    """FLOPs by kernel, of those that multiply; helpers of theirs are not among them."""
    named = [kernel for kernel, use in uses.items() if is_product_name(use.signature.name)]
    longest = max(named or uses, key=lambda kernel: uses[kernel].mean_s)
    if not work.flop_count_by_part:
        # One product a call, by whichever kernel: calls of the same shape may use several.
        alike = [kernel for kernel in named if _is_alike(uses[kernel], uses[longest])]
        return dict.fromkeys(alike or [longest], work.flop_count)
    by_part: dict[int, float] = {}
    for part, flop_count in work.flop_count_by_part:
        own = [kernel for kernel in named if part in uses[kernel].signature.name.lower()]
        for kernel in own if flop_count else ():
            by_part[kernel] = flop_count
    if len(by_part) == sum(1 for _, flop_count in work.flop_count_by_part if flop_count):
        return by_part
    # Names do not tell which part is whose: the kernels that multiply share by time.
    return _by_time(work.flop_count, uses, named or [longest])


def _is_alike(use: KernelUse, longest: KernelUse) -> bool:
    """Whether a kernel may do the whole product too."""
    return use.mean_s >= _ALIKE_TIME_RATIO * longest.mean_s


def _by_time(
    total: float, uses: Mapping[int, KernelUse], kernels: Sequence[int]
) -> dict[int, float]:
    """What calls do altogether, per launch of each kernel, by its share of the time.

    Each call is taken to launch all of the kernels, or those of one name several times.
    """
    time_s = sum(uses[kernel].time_s for kernel in kernels)
    calls = max(uses[kernel].launch_count for kernel in kernels)
    if not time_s:
        return dict.fromkeys(kernels, total / len(kernels))
    return {kernel: total * calls * uses[kernel].mean_s / time_s for kernel in kernels}


def _streamed(work: OpWork, uses: Mapping[int, KernelUse]) -> dict[int, RawWork]:
    # Kernels that take turns for calls of one shape do the whole of it each.
    shares = dict.fromkeys(uses, 1.0) if work.is_one_kernel else _by_time(1.0, uses, list(uses))
    dtype = Dtype.FP64 if _is_double(uses) else Dtype.FP32
    return {
        kernel: RawWork(
            kind=KernelKind.OTHER,
            dtype=dtype,
            flop_count=work.flop_count * share,
            traffic_bytes=work.traffic_bytes * share,
        )
        for kernel, share in shares.items()
    }


def _is_double(uses: Mapping[int, KernelUse]) -> bool:
    """Whether the tensors are FP64; a scalar of that type is only how Python writes numbers."""
    return any(
        one.dtype == "double" and one.shape for use in uses.values() for one in use.signature.inputs
    )


def _estimated(use: KernelUse, peaks: GpuPeaks | None) -> RawWork:
    """Work that fills the duration on the GPU, or on the reference where its peaks are unknown."""
    known = peaks or reference_peaks()
    moved = known.bandwidth_bytes_per_s * use.mean_s
    name = use.signature.name
    if is_product_name(name):
        dtype = format_of_name(name)
        # A format that the GPU does not have was only in the kernel's name.
        dtype = dtype if dtype in known.flop_per_s else Dtype.FP32
        rate = known.flop_per_s[dtype]
        return RawWork(
            kind=KernelKind.GEMM,
            dtype=dtype,
            flop_count=max(1.0, _ESTIMATED_COMPUTE_RATIO * rate * use.mean_s),
            traffic_bytes=_ESTIMATED_GEMM_MEMORY_RATIO * moved,
            is_estimated=True,
            is_product=True,
        )
    traffic_bytes = max(1.0, _ESTIMATED_MEMORY_RATIO * moved)
    return RawWork(
        kind=KernelKind.OTHER,
        dtype=Dtype.FP32,
        flop_count=traffic_bytes / _BYTES_OF_A_FLOP,
        traffic_bytes=traffic_bytes,
        is_estimated=True,
    )
