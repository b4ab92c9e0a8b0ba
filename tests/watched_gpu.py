"""A virtual GPU that notes every touch, and leases on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from joulewise.control.journal import JournalEntry, write_journal
from joulewise.control.lease import hold
from joulewise.control.state import state_file
from joulewise.domain.errors import DeviceError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import ClockGrid, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import Gpu, Lease
from joulewise.simulator.virtual import open_virtual


class WatchedGpu:
    """A virtual GPU that notes every touch; `is_shared` lets other processes reach it."""

    def __init__(self, device: str = "virtual:rtx3080ti", *, is_shared: bool = False) -> None:
        self._gpu: Gpu = open_virtual(device, []).gpu
        self.touches: list[str] = []
        self.given_back: list[Touched | None] = []
        self.refusal: DeviceError | None = None
        self.identity = replace(self._gpu.identity, is_in_process=not is_shared)

    @property
    def energy_counter_period_s(self) -> float | None:
        return self._gpu.energy_counter_period_s

    def clock_grid(self) -> ClockGrid:
        return self._gpu.clock_grid()

    def knob_state(self) -> KnobState:
        return self._gpu.knob_state()

    def sample(self) -> GpuSample:
        self.touches.append("sample")
        return self._gpu.sample()

    def now_s(self) -> float:
        return self._gpu.now_s()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        return self._gpu.clocks_mhz()

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        return self._gpu.wait_for_energy_tick(timeout_s)

    def wait(self, duration_s: float) -> None:
        self._gpu.wait(duration_s)

    def request(self, point: OperatingPoint) -> None:
        self.touches.append(point.label)
        self._gpu.request(point)

    def reset(self, touched: Touched | None = None) -> None:
        self.touches.append("reset")
        self.given_back.append(touched)
        if self.refusal is not None:
            raise self.refusal
        self._gpu.reset(touched)


def within_lease(gpu: WatchedGpu, state_dir: Path, *steps: Callable[[Lease], object]) -> None:
    with hold(gpu, state_dir=state_dir) as lease:
        for step in steps:
            step(lease)


def journal_of(gpu: WatchedGpu, state_dir: Path) -> Path:
    return state_file(gpu.identity, state_dir, ".journal.json")


def left_behind(gpu: WatchedGpu, state_dir: Path) -> Path:
    """A journal as a killed holder leaves it."""
    state_dir.mkdir(exist_ok=True)
    journal = journal_of(gpu, state_dir)
    entry = JournalEntry(
        device="d",
        device_name="n",
        uuid=gpu.identity.uuid,
        holder="process 1",
        touched=("sm_clock_mhz",),
    )
    write_journal(journal, entry)
    return journal
