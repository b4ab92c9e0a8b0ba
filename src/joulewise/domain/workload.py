"""What runs in one iteration: kernels, their launches in order, their device-free work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from joulewise.domain.caveats import Caveat
from joulewise.domain.passes import Pass
from joulewise.domain.trace import IterationTrace

__all__ = ["Dtype", "IterationSize", "KernelKind", "KernelWork", "Launch", "Pass", "Workload"]


class KernelKind(StrEnum):
    """Matrix kernels overlap computing and memory traffic otherwise than the rest do.

    A collective moves data between GPUs and mostly waits for the link. A gap is no kernel: the
    GPU waits for its host with the clocks up. Both are time that no clock shortens.
    """

    GEMM = "gemm"
    OTHER = "other"
    COLLECTIVE = "collective"
    GAP = "gap"


class Dtype(StrEnum):
    """The arithmetic a kernel's work is counted in; it picks the peak rate of a device."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"

    @property
    def element_bytes(self) -> int:
        """Bytes of one number in memory; TF32 is stored as FP32."""
        return _ELEMENT_BYTES[self]


_ELEMENT_BYTES: Mapping[Dtype, int] = MappingProxyType(
    {
        Dtype.FP64: 8,
        Dtype.FP32: 4,
        Dtype.TF32: 4,
        Dtype.FP16: 2,
        Dtype.BF16: 2,
        Dtype.FP8: 1,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One occurrence of a kernel in an iteration. JSON writes `pass_` as `pass`."""

    kernel: str
    pass_: Pass = Pass.FORWARD


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWork:
    """The work of one kernel launch, free of any device, so that it runs on every virtual GPU.

    `compute_efficiency_ratio` and `memory_efficiency_ratio` are shares of the device's peak
    rate that the kernel reaches; the activities scale the device's switching energy per unit
    of that work (1 = the device's typical kernel); `clock_offset_ratio` is how far off the
    board power lies to which the regulator steers the clock for this kernel (0 = not at all).
    `wait_s` is time that no clock shortens and that the work overlaps with: a collective's
    time on the link, a gap in which the GPU waits for its host.
    """

    kernel: str
    kind: KernelKind
    dtype: Dtype
    flop_count: float
    traffic_bytes: float
    compute_efficiency_ratio: float
    memory_efficiency_ratio: float
    core_activity_ratio: float
    memory_activity_ratio: float
    clock_offset_ratio: float = 0.0
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationSize:
    """What one iteration of the whole job does, over all its GPUs; `None` where unknown.

    `model_flop_count` is what the model's matrix products take, attention in full whatever is
    masked, without anything computed twice (Chowdhery et al., PaLM, arXiv 2204.02311,
    appendix B). `kernel_flop_count` is what matrix kernels execute: with recomputation, and
    without what causal flash attention leaves out, so that it may be below the other. `dtype` is
    the number format of the matrices. `node_gpu_count` is how many of the GPUs share one node.

    Of one stage of a pipeline, tokens and FLOPs are `None`: they are the whole job's, and the
    time of one stage, without its waits for the others, is not.
    """

    gpu_count: int = 1
    node_gpu_count: int | None = None
    token_count: int | None = None
    parameter_count: int | None = None
    model_flop_count: float | None = None
    kernel_flop_count: float | None = None
    dtype: Dtype | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """An iteration as an ordered sequence of launches; `works` is empty where unknown.

    `trace` is what a profiler saw of the iteration, where it was imported: there launches that
    ran at the same time are one launch of a region here, and gaps are launches too.
    """

    name: str
    launches: tuple[Launch, ...]
    works: tuple[KernelWork, ...] = ()
    size: IterationSize | None = None
    trace: IterationTrace | None = None
    caveats: tuple[Caveat, ...] = ()

    @property
    def kernels(self) -> tuple[str, ...]:
        """Distinct kernels in order of first launch."""
        return tuple(dict.fromkeys(launch.kernel for launch in self.launches))

    def launch_counts(self) -> dict[str, int]:
        """Launches per kernel in one iteration, in order of first launch."""
        return dict(Counter(launch.kernel for launch in self.launches))
