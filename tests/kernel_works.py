"""Works of kernels that tests make up."""

from __future__ import annotations

from collections.abc import Mapping

from joulewise.domain.workload import Dtype, KernelKind, KernelWork


def kernel_works(
    sizes: Mapping[str, tuple[float, float]], *, core_activity_ratio: float
) -> tuple[KernelWork, ...]:
    """Works that differ in size alone: kernel to FLOPs and bytes of a launch."""
    return tuple(
        KernelWork(
            kernel=kernel,
            kind=KernelKind.OTHER,
            dtype=Dtype.FP16,
            flop_count=flop_count,
            traffic_bytes=traffic_bytes,
            compute_efficiency_ratio=0.6,
            memory_efficiency_ratio=0.8,
            core_activity_ratio=core_activity_ratio,
            memory_activity_ratio=0.5,
        )
        for kernel, (flop_count, traffic_bytes) in sizes.items()
    )
