"""A GPU whose driver hangs for a while."""

from __future__ import annotations

import threading
from threading import Event

from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import ClockGrid, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import Gpu, GpuIdentity


class HangingGpu:
    """Another GPU, every call to which waits from `begin` to `end`; its clock goes on."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._answers = Event()
        self._answers.set()
        self._callers: set[threading.Thread] = set()

    def begin(self) -> None:
        self._answers.clear()

    def end(self) -> None:
        """Answer again, and wait until nobody calls from another thread any more."""
        self._answers.set()
        for caller in self._callers - {threading.current_thread(), threading.main_thread()}:
            caller.join(20.0)

    @property
    def identity(self) -> GpuIdentity:
        return self._gpu.identity

    @property
    def energy_counter_period_s(self) -> float | None:
        return self._answering().energy_counter_period_s

    def clock_grid(self) -> ClockGrid:
        return self._answering().clock_grid()

    def knob_state(self) -> KnobState:
        return self._answering().knob_state()

    def sample(self) -> GpuSample:
        return self._answering().sample()

    def now_s(self) -> float:
        return self._gpu.now_s()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        return self._answering().clocks_mhz()

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        return self._answering().wait_for_energy_tick(timeout_s)

    def wait(self, duration_s: float) -> None:
        self._gpu.wait(duration_s)

    def request(self, point: OperatingPoint) -> None:
        self._answering().request(point)

    def reset(self, touched: Touched | None = None) -> None:
        self._answering().reset(touched)

    def _answering(self) -> Gpu:
        self._callers.add(threading.current_thread())
        self._answers.wait()
        return self._gpu
