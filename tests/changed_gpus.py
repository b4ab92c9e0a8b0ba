"""A GPU some of whose readings are replaced on the way."""

from __future__ import annotations

from collections.abc import Callable

from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import ClockGrid, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import Gpu, GpuIdentity


class ChangedGpu:
    """Shows samples of another GPU, changed; its counter may hold still for some ticks."""

    def __init__(
        self,
        gpu: Gpu,
        change: Callable[[GpuSample], GpuSample],
        *,
        stuck_tick_count: int = 0,
        has_counter: bool = True,
    ) -> None:
        self._gpu = gpu
        self._change = change
        self._stuck_tick_count = stuck_tick_count
        self._has_counter = has_counter

    @property
    def identity(self) -> GpuIdentity:
        return self._gpu.identity

    @property
    def energy_counter_period_s(self) -> float | None:
        return self._gpu.energy_counter_period_s if self._has_counter else None

    def clock_grid(self) -> ClockGrid:
        return self._gpu.clock_grid()

    def knob_state(self) -> KnobState:
        return self._gpu.knob_state()

    def sample(self) -> GpuSample:
        return self._change(self._gpu.sample())

    def now_s(self) -> float:
        return self._gpu.now_s()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        sample = self.sample()
        return sample.sm_clock_mhz, sample.mem_clock_mhz

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        if self._stuck_tick_count:
            self._stuck_tick_count -= 1
            self._gpu.wait(timeout_s)
            raise MeasurementError("the energy counter did not move")
        return self._change(self._gpu.wait_for_energy_tick(timeout_s))

    def wait(self, duration_s: float) -> None:
        self._gpu.wait(duration_s)

    def request(self, point: OperatingPoint) -> None:
        self._gpu.request(point)

    def reset(self, touched: Touched | None = None) -> None:
        self._gpu.reset(touched)
