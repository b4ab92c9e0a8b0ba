"""Kernels that wait: gaps between kernels, and exchanges over a link."""

from __future__ import annotations

from joulewise.domain.workload import Dtype, KernelKind, KernelWork


def gap(wait_s: float, kernel: str = "gap") -> KernelWork:
    """Time in which no kernel runs."""
    return KernelWork(
        kernel=kernel,
        kind=KernelKind.GAP,
        dtype=Dtype.FP32,
        flop_count=0.0,
        traffic_bytes=0.0,
        compute_efficiency_ratio=1.0,
        memory_efficiency_ratio=1.0,
        core_activity_ratio=1.0,
        memory_activity_ratio=1.0,
        wait_s=wait_s,
    )


def exchange(
    wait_s: float,
    flop_count: float = 1e9,
    traffic_bytes: float = 4e8,
    kernel: str = "all-reduce",
) -> KernelWork:
    """A collective: so long on the link, and its local work beside that."""
    return KernelWork(
        kernel=kernel,
        kind=KernelKind.COLLECTIVE,
        dtype=Dtype.FP32,
        flop_count=flop_count,
        traffic_bytes=traffic_bytes,
        compute_efficiency_ratio=0.5,
        memory_efficiency_ratio=0.8,
        core_activity_ratio=0.5,
        memory_activity_ratio=1.0,
        wait_s=wait_s,
    )
