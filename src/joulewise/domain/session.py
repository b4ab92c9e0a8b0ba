"""A device together with what can run on it."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.ports import ClockTracer, Gpu, IterationRunner, KernelRunner
from joulewise.domain.transition import TransitionModel


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSession:
    """One opened GPU and the runner of the workload's kernels on it.

    `iterations` runs whole iterations; `None` where the device only runs kernels alone.
    `transition` is what a change of point costs on this device, where that is known for sure
    because it is virtual; hardware has to be measured. `tracer` sees the clock from inside the
    GPU, where the device has one.
    """

    gpu: Gpu
    runner: KernelRunner
    iterations: IterationRunner | None = None
    transition: TransitionModel | None = None
    tracer: ClockTracer | None = None
