"""How often the memory clock may change, and whether locks of it take effect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from joulewise.device.nvml import FieldValue, NvmlDevice
from joulewise.device.nvml_knobs import NvmlKnobs
from joulewise.device.nvml_memory import MemoryClockSwitch
from joulewise.device.nvml_reply import Reply
from joulewise.domain.points import ClockGrid, OperatingPoint

INTERVAL_MS = 250.0


@dataclass(slots=True)
class SleptTime:
    """A clock that only sleeping moves."""

    time_s: float = 100.0
    sleeps_s: list[float] = field(default_factory=list)

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        self.time_s += duration_s
        self.sleeps_s.append(duration_s)


class SwitchingDevice(NvmlDevice):
    """A GPU that answers fields 298 and 299 so."""

    def __init__(self, way: float | None, interval_ms: float | None, code: int = 0) -> None:
        super().__init__(None, 0, lambda _: None)
        self.answers = {298: way, 299: interval_ms}
        self.code = code

    def fields(self, ids: tuple[tuple[int, int], ...]) -> Reply[tuple[FieldValue, ...]]:
        if self.code:
            return Reply(call="nvmlDeviceGetFieldValues", code=self.code)
        told = [self.answers[field] for field, _scope in ids]
        values = tuple(FieldValue(3 if one is None else 0, one) for one in told)
        return Reply(call="nvmlDeviceGetFieldValues", value=values)


class ListeningDevice(SwitchingDevice):
    """Takes every lock, and notes when."""

    def __init__(self, time: SleptTime) -> None:
        super().__init__(2, INTERVAL_MS)
        self.time = time
        self.heard: list[tuple[float, str]] = []

    def call(self, function: str, *arguments: object) -> Reply[Any]:  # noqa: ARG002 - only when
        self.heard.append((self.time.now_s(), function.removeprefix("nvmlDevice")))
        return Reply(call=function, value=True)


def test_locks_and_resets_of_the_memory_clock_wait_for_each_other_and_no_others_do() -> None:
    time = SleptTime(time_s=0.0)
    device = ListeningDevice(time)
    knobs = NvmlKnobs(device, MemoryClockSwitch(device, time))
    grid = ClockGrid(sm_clocks_mhz=(900,), mem_clocks_mhz=(5001, 9501))

    for clock in (5001, 9501):
        knobs.request(OperatingPoint(mem_clock_mhz=clock), grid)
    knobs.request(OperatingPoint(mem_clock_mhz=9501, sm_clock_mhz=900), grid)
    knobs.reset(None)

    assert [
        (0.0, "SetMemoryLockedClocks"),
        (0.25, "SetMemoryLockedClocks"),
        (0.25, "SetGpuLockedClocks"),
        (0.5, "ResetMemoryLockedClocks"),
        (0.5, "ResetGpuLockedClocks"),
    ] == device.heard


def test_changes_of_the_memory_clock_keep_the_least_interval() -> None:
    time = SleptTime()
    switch = MemoryClockSwitch(SwitchingDevice(2, INTERVAL_MS), time)

    switch.pace()
    time.time_s += 0.1
    switch.pace()
    time.time_s += 1.0
    switch.pace()

    assert [0.15] == pytest.approx(time.sleeps_s)


@pytest.mark.parametrize(
    "device",
    [SwitchingDevice(2, 0.0), SwitchingDevice(None, None), SwitchingDevice(None, None, code=13)],
)
def test_without_a_least_interval_nothing_waits_and_nothing_is_refused(
    device: SwitchingDevice,
) -> None:
    time = SleptTime()
    switch = MemoryClockSwitch(device, time)

    switch.pace()
    switch.pace()

    assert [] == time.sleeps_s
    assert switch.refusal is None


@pytest.mark.parametrize(("way", "said"), [(0, "never"), (1, "driver is loaded anew")])
def test_a_memory_clock_that_does_not_switch_at_once_is_a_reason(way: int, said: str) -> None:
    refusal = MemoryClockSwitch(SwitchingDevice(way, 0.0), SleptTime()).refusal

    assert said in (refusal or "")
