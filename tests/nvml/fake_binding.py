"""NVML of the fake driver through its Python binding, initialised for a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from joulewise.simulator.fake_driver import FakeDriver, FakeKernel

KERNEL = FakeKernel(
    compute_cycle_count=1e-3,
    memory_bytes=1e8,
    core_j=0.08,
    memory_j=0.01,
    set_point_ratio=1.0,
    overlap_exponent_ratio=6.0,
)
LIGHT_KERNEL = FakeKernel(
    compute_cycle_count=2e-4,
    memory_bytes=1e6,
    core_j=0.002,
    memory_j=1e-4,
    set_point_ratio=1.0,
    overlap_exponent_ratio=6.0,
)


@contextmanager
def opened(index: int = 0) -> Iterator[tuple[ModuleType, object]]:
    """The binding, and a handle of this GPU."""
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)
    finally:
        pynvml.nvmlShutdown()


def load(driver: FakeDriver, kernel: FakeKernel = KERNEL, index: int = 0) -> None:
    """Run this kernel back to back."""
    driver.run(index, [(driver.add_kernel(index, kernel), 1)])


def field(nvml: ModuleType, handle: object, number: int, scope: int = 0) -> tuple[int, int]:
    """Return code and value of one field."""
    value = nvml.nvmlDeviceGetFieldValues(handle, [(number, scope)])[0]
    is_short = value.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_INT
    return value.nvmlReturn, value.value.uiVal if is_short else value.value.ullVal
