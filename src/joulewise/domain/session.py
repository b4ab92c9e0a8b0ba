"""A device together with what can run on it."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.ports import Gpu, KernelRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSession:
    """One opened GPU and the runner of the workload's kernels on it."""

    gpu: Gpu
    runner: KernelRunner
