"""Locks that others left on a GPU: dropped where they may be, told where they may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fake_nvml import DriverMaker, open_fake
from tests.nvml.fake_binding import opened

from joulewise.control.lease import hold
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.measurement import Window
from joulewise.domain.points import AUTO
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.window import measure_window
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.workload.gpt3_xl import gpt3_xl

WORKS = gpt3_xl().works
ONCE = MeasureSettings(repeat_count=0)


def _baseline(driver: FakeDriver, device: str, state_dir: Path) -> Window:
    """A window of the first kernel with every knob at auto."""
    session = open_fake(driver, WORKS, device)
    with (
        hold(session.gpu, state_dir=state_dir) as lease,
        session.runner.loop(WORKS[0].kernel, run="baseline") as loop,
    ):
        lease.apply(AUTO)
        loop.run_for(3.0)
        return measure_window(session.gpu, loop, AUTO, 0, ONCE)


def test_the_baseline_is_not_measured_under_a_lock_that_somebody_left(
    driver: FakeDriver, tmp_path: Path
) -> None:
    free = _baseline(driver, "nvml:0", tmp_path)
    with opened() as (pynvml, handle):
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, 1695, 1695)
        again = _baseline(driver, "nvml:0", tmp_path)

    assert again.time_s == pytest.approx(free.time_s, rel=1e-4)
    assert again.sm_clock_held_mhz == pytest.approx(free.sm_clock_held_mhz, rel=1e-3)


def test_a_lease_on_the_memory_clock_drops_a_lock_of_the_memory_clock(
    driver: FakeDriver, tmp_path: Path
) -> None:
    free = _baseline(driver, "nvml:0,memory_lock=on", tmp_path)
    with opened() as (pynvml, handle):
        pynvml.nvmlDeviceSetMemoryLockedClocks(handle, 5001, 5001)
        again = _baseline(driver, "nvml:0,memory_lock=on", tmp_path)

    assert again.time_s == pytest.approx(free.time_s, rel=1e-4)


def test_a_memory_lock_that_may_not_be_dropped_is_told(driver: FakeDriver, tmp_path: Path) -> None:
    free = _baseline(driver, "nvml:0", tmp_path)
    with opened() as (pynvml, handle):
        pynvml.nvmlDeviceSetMemoryLockedClocks(handle, 5001, 5001)
        again = _baseline(driver, "nvml:0", tmp_path)

    kinds = {caveat.kind for caveat in again.caveats}
    assert CaveatKind.FOREIGN_CONTROL in kinds - {caveat.kind for caveat in free.caveats}


def test_without_rights_a_baseline_is_measured_all_the_same(
    make_driver: DriverMaker, tmp_path: Path
) -> None:
    driver = make_driver()
    for function in ("nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"):
        driver.fail(function, 4)

    window = _baseline(driver, "nvml:0", tmp_path)

    assert window.energy_j > 0
    assert [] == list(tmp_path.glob("*.journal.json"))
