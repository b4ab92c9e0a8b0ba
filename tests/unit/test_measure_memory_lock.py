from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.measurement import LoopTiming
from joulewise.domain.points import AUTO, ClockGrid, OperatingPoint
from joulewise.domain.ports import Gpu, KernelLoop, KernelRunner
from joulewise.domain.session import DeviceSession
from joulewise.measure.memory_lock import check_memory_lock
from joulewise.measure.settings import MeasureSettings
from joulewise.simulator.virtual import open_virtual
from joulewise.workload.gpt3_xl import gpt3_xl

WORK = next(work for work in gpt3_xl().works if work.flop_count / work.traffic_bytes < 1)
SETTINGS = MeasureSettings()


class RecordingLease:
    """Sets points and keeps a list of them."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.points: list[OperatingPoint] = []

    def apply(self, point: OperatingPoint) -> None:
        self._gpu.request(point)
        self.points.append(point)

    def release(self) -> None:
        self._gpu.reset()


class LockedLoop:
    """A loop that takes longer while the memory clock is locked, as on an RTX 5090."""

    def __init__(self, loop: KernelLoop, lease: RecordingLease, slowdown_ratio: float) -> None:
        self._loop = loop
        self._lease = lease
        self._slowdown_ratio = slowdown_ratio

    def begin_window(self, window: int) -> None:
        self._loop.begin_window(window)

    def run_for(self, duration_s: float) -> None:
        self._loop.run_for(duration_s)

    def end_window(self) -> LoopTiming:
        timing = self._loop.end_window()
        is_locked = self._lease.points[-1].mem_clock_mhz is not None
        ratio = self._slowdown_ratio if is_locked else 1.0
        return replace(timing, elapsed_s=ratio * timing.elapsed_s)


class LockedRunner:
    """Runs kernels in such loops."""

    def __init__(self, runner: KernelRunner, lease: RecordingLease, slowdown_ratio: float) -> None:
        self._runner = runner
        self._lease = lease
        self._slowdown_ratio = slowdown_ratio

    @property
    def kernels(self) -> tuple[str, ...]:
        return self._runner.kernels

    @contextmanager
    def loop(self, kernel: str, *, run: str) -> Iterator[KernelLoop]:
        with self._runner.loop(kernel, run=run) as loop:
            yield LockedLoop(loop, self._lease, self._slowdown_ratio)


def _checked(
    slowdown_ratio: float, device: str = "virtual:rtx3080ti"
) -> tuple[DeviceSession, RecordingLease, list[CaveatKind]]:
    session = open_virtual(device, (WORK,))
    lease = RecordingLease(session.gpu)
    locked = replace(session, runner=LockedRunner(session.runner, lease, slowdown_ratio))
    caveats = check_memory_lock(locked, lease, WORK.kernel, SETTINGS)
    return session, lease, [caveat.kind for caveat in caveats]


@pytest.mark.parametrize("seed", range(4))
def test_a_harmless_lock_is_not_doubted(seed: int) -> None:
    _, _, kinds = _checked(1.0, f"virtual:rtx3080ti,seed={seed}")
    assert [] == kinds


@pytest.mark.parametrize("seed", range(4))
def test_memory_lock_costs_16_to_32_percent_on_an_rtx_5090(seed: int) -> None:
    for slowdown_ratio in (1.05, 1.16, 1.32):
        _, _, kinds = _checked(slowdown_ratio, f"virtual:rtx3080ti,seed={seed}")
        assert [CaveatKind.MEMORY_LOCK_SLOWS] == kinds


def test_both_sides_take_turns_and_the_device_is_left_at_auto() -> None:
    _, lease, _ = _checked(1.0)
    locked = OperatingPoint(mem_clock_mhz=9501)
    assert [AUTO, AUTO, locked, locked, AUTO] == lease.points[:5]
    assert lease.points.count(locked) == 8
    assert AUTO == lease.points[-1]


def test_a_device_that_takes_no_memory_lock_is_left_alone() -> None:
    session = open_virtual("virtual:rtx3080ti", (WORK,))
    lease = RecordingLease(session.gpu)

    class LocklessGpu:
        def __getattr__(self, name: str) -> object:
            return getattr(session.gpu, name)

        def clock_grid(self) -> ClockGrid:
            return replace(session.gpu.clock_grid(), mem_clocks_mhz=())

    lockless = replace(session, gpu=LocklessGpu())  # type: ignore[arg-type]
    assert () == check_memory_lock(lockless, lease, WORK.kernel, SETTINGS)
    assert [] == lease.points
