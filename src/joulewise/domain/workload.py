"""What runs in one iteration: kernels, their launches in order, their device-free work."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class Pass(StrEnum):
    """The part of a training iteration that a launch belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    COMMUNICATION = "communication"


class KernelKind(StrEnum):
    """Matrix kernels overlap computing and memory traffic otherwise than the rest do."""

    GEMM = "gemm"
    OTHER = "other"


class Dtype(StrEnum):
    """The arithmetic a kernel's work is counted in; it picks the peak rate of a device."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """An iteration as an ordered sequence of launches; `works` is empty where unknown."""

    name: str
    launches: tuple[Launch, ...]
    works: tuple[KernelWork, ...] = ()

    @property
    def kernels(self) -> tuple[str, ...]:
        """Distinct kernels in order of first launch."""
        return tuple(dict.fromkeys(launch.kernel for launch in self.launches))

    def launch_counts(self) -> dict[str, int]:
        """Launches per kernel in one iteration, in order of first launch."""
        return dict(Counter(launch.kernel for launch in self.launches))
