"""What one launch of each kernel computes and moves, and whether that was guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from joulewise.domain.trace import IterationTrace, TracedKernel
from joulewise.domain.workload import KernelKind, KernelWork, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """FLOPs and bytes of one launch; `None` where unknown.

    `is_estimated` says that they were guessed from the time, in whole or in part.
    """

    kind: KernelKind | None
    flop_count: float | None
    traffic_bytes: float | None
    is_estimated: bool


def traced_amounts(trace: IterationTrace, works: Mapping[str, KernelWork]) -> dict[str, Amounts]:
    """Those of kernels as they ran, each on its own.

    Files of older versions tell them only where a kernel is one of the workload's, too.
    """
    found: dict[str, Amounts] = {}
    for one in trace.kernels:
        work = works.get(one.kernel)
        flop_count, traffic_bytes = one.flop_count, one.traffic_bytes
        if work is not None:
            flop_count = work.flop_count if flop_count is None else flop_count
            traffic_bytes = work.traffic_bytes if traffic_bytes is None else traffic_bytes
        found[one.kernel] = Amounts(
            kind=work.kind if work is not None else None,
            flop_count=flop_count,
            traffic_bytes=traffic_bytes,
            is_estimated=one.is_work_estimated,
        )
    return found


def listed_amounts(workload: Workload) -> dict[str, Amounts]:
    """Those of the workload's own kernels, regions among them.

    Which kernels are in which region is not kept: if any kernel whose work was guessed ran in
    one, that of all regions counts as guessed.
    """
    traced = {} if workload.trace is None else {one.kernel: one for one in workload.trace.kernels}
    counts = workload.launch_counts()
    is_in_region = any(
        one.is_work_estimated and one.launch_count > counts.get(one.kernel, 0)
        for one in traced.values()
    )
    return {
        work.kernel: Amounts(
            kind=work.kind,
            flop_count=_as_traced(traced.get(work.kernel), work),
            traffic_bytes=work.traffic_bytes,
            is_estimated=traced[work.kernel].is_work_estimated
            if work.kernel in traced
            else is_in_region and bool(traced) and work.kind is not KernelKind.GAP,
        )
        for work in workload.works
    }


def _as_traced(traced: TracedKernel | None, work: KernelWork) -> float:
    """FLOPs as counted: a slow copy's work has operations too, so that something takes time."""
    return work.flop_count if traced is None or traced.flop_count is None else traced.flop_count
