"""Kernels that run on every fake GPU."""

from __future__ import annotations

from joulewise.domain.workload import Dtype, KernelKind, KernelWork

WORKS = tuple(
    KernelWork(
        kernel=name,
        kind=KernelKind.OTHER,
        dtype=Dtype.FP16,
        flop_count=flop_count,
        traffic_bytes=traffic_bytes,
        compute_efficiency_ratio=0.6,
        memory_efficiency_ratio=0.8,
        core_activity_ratio=0.3,
        memory_activity_ratio=0.5,
    )
    for name, flop_count, traffic_bytes in (
        ("gemm", 3e11, 1e7),
        ("copy", 1e9, 2e9),
        ("short", 1e7, 3e7),
    )
)
