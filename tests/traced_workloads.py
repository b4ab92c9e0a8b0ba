"""Workloads as imports make them, by hand: a trace, a region, a gap, a size, a doubt."""

from __future__ import annotations

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.trace import (
    Collective,
    IterationTrace,
    KernelSignature,
    OpInput,
    TracedKernel,
    TracedLaunch,
)
from joulewise.domain.workload import (
    Dtype,
    IterationSize,
    KernelKind,
    KernelWork,
    Launch,
    Pass,
    Workload,
)


def work(
    kernel: str,
    *,
    flop: float = 0.0,
    traffic: float = 0.0,
    wait: float = 0.0,
    kind: KernelKind = KernelKind.OTHER,
) -> KernelWork:
    """A kernel that reaches half of what the device has."""
    return KernelWork(
        kernel=kernel,
        kind=kind,
        dtype=Dtype.BF16 if kind is KernelKind.GEMM else Dtype.FP32,
        flop_count=flop,
        traffic_bytes=traffic,
        compute_efficiency_ratio=0.5,
        memory_efficiency_ratio=0.5,
        core_activity_ratio=1.0,
        memory_activity_ratio=1.0,
        wait_s=wait,
    )


def traced_workload() -> Workload:
    """Two products, an all-reduce beside one of them, a gap and an optimizer step: 1 ms in all."""
    signature = KernelSignature(
        name="void gemm<float, 128>(float*)",
        grid=(4, 8, 1),
        block=(128, 1, 1),
        shared_memory_bytes=49152,
        register_count=168,
        op="aten::mm",
        inputs=(OpInput(shape=(512, 1024), dtype="c10::BFloat16"), OpInput(value="True")),
    )
    reduction = KernelSignature(
        name="ncclDevKernel_AllReduce",
        collective=Collective(name="allreduce", dtype="BFloat16", input_element_count=4096),
    )
    step = KernelSignature(name="multi_tensor_adam")
    return Workload(
        name="traced",
        launches=(
            Launch(kernel="gemm"),
            Launch(kernel="region 1", pass_=Pass.BACKWARD),
            Launch(kernel="gap 128 µs", pass_=Pass.BACKWARD),
            Launch(kernel="adam", pass_=Pass.OPTIMIZER),
        ),
        works=(
            work("gemm", flop=6e9, traffic=4e7, kind=KernelKind.GEMM),
            work("region 1", flop=6e9, traffic=4e7, wait=3e-4, kind=KernelKind.GEMM),
            work("gap 128 µs", wait=2e-4, kind=KernelKind.GAP),
            work("adam", flop=1e6, traffic=8e7),
        ),
        size=IterationSize(
            gpu_count=8, node_gpu_count=8, token_count=4096, kernel_flop_count=9.6e10
        ),
        trace=IterationTrace(
            tool="PyTorch profiler",
            file="trace.json",
            gpu=0,
            device_name="NVIDIA A100-SXM4-80GB",
            rank=0,
            rank_count=8,
            step="ProfilerStep#3",
            iteration_count=3,
            duration_s=1e-3,
            busy_s=8e-4,
            overlap_s=1e-4,
            gap_s=2e-4,
            kernels=(
                TracedKernel(kernel="gemm", signature=signature, launch_count=2, time_s=5e-4),
                TracedKernel(kernel="all-reduce", signature=reduction, launch_count=1, time_s=2e-4),
                TracedKernel(kernel="adam", signature=step, launch_count=1, time_s=2e-4),
            ),
            launches=(
                _launch("gemm", Pass.FORWARD, 7, 0.0, 2e-4),
                _launch("gemm", Pass.BACKWARD, 7, 2e-4, 3e-4),
                _launch("all-reduce", Pass.COMMUNICATION, 20, 4e-4, 2e-4),
                _launch("adam", Pass.OPTIMIZER, 7, 8e-4, 2e-4),
            ),
            trace_kernel_count=12,
            trace_kernel_time_s=2.7e-3,
        ),
        caveats=(
            Caveat(kind=CaveatKind.STREAMS_MERGED, seen="1 region, 40 % of the time"),
            Caveat(kind=CaveatKind.OTHER_GPUS_LEFT_OUT, seen="7 others", advice="Import them."),
        ),
    )


def _launch(
    kernel: str, pass_: Pass, stream: int, start_s: float, duration_s: float
) -> TracedLaunch:
    return TracedLaunch(
        kernel=kernel, pass_=pass_, stream=stream, start_s=start_s, duration_s=duration_s
    )
