"""`joulewise apply` beside other controllers, and on machines of several GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulewise.control.lease import hold
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.errors import InputError
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.fake_runner import open_fake_session_parts
from joulewise.workflow.point_watch import PointWatch
from tests.cli.conftest import Joulewise
from tests.cli.test_apply import driver, last_line, within
from tests.fake_nvml import DriverMaker
from tests.file_gpu import comes_true
from tests.nvml.works import WORKS

__all__ = ["driver"]


@pytest.mark.integration
def test_another_controller_is_told_of_at_once_and_left_alone(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    runner, _, _ = open_fake_session_parts(driver, 0, WORKS)
    with runner.loop("gemm", run="load"):
        at_s = driver.now_s() + 0.8
        driver.foreign_lock(0, at_s=at_s, min_clock_mhz=1500, max_clock_mhz=1500)
        said = joulewise("apply", "--sm-clock", "1005", "--json", "--", "sleep", "2")

    first, *_ = said.err.splitlines()
    assert "joulewise: ForeignControl: the SM clock runs at 1500 MHz, above the 1005 MHz" in first
    caveats = last_line(said)["caveats"]
    assert isinstance(caveats, list)
    assert 1 == sum(caveat["kind"] == "ForeignControl" for caveat in caveats)
    assert 1500 == driver.true_locks(0).sm_max_mhz


def test_a_foreign_clock_is_left_alone_where_nobody_can_be_told(
    joulewise: Joulewise, driver: FakeDriver, tmp_path: Path
) -> None:
    """The watch goes on when standard error breaks."""
    watch = PointWatch(open_nvml("nvml:0", timer=driver.timer), fail_to_tell)
    runner, _, _ = open_fake_session_parts(driver, 0, WORKS)
    gpu = open_nvml("nvml:0", timer=driver.timer)
    assert callable(joulewise)
    with runner.loop("gemm", run="load"), hold(gpu, state_dir=tmp_path / "state") as lease:
        point = OperatingPoint(sm_clock_mhz=1005)
        grid = gpu.clock_grid()
        lease.apply(point)
        with watch.watching(lease, point, grid):
            driver.foreign_lock(0, at_s=driver.now_s(), min_clock_mhz=1500, max_clock_mhz=1500)
            assert comes_true(lambda: bool(watch.taken_over), 10.0)

    assert 1500 == driver.true_locks(0).sm_max_mhz


def fail_to_tell(_sentence: str) -> None:
    raise InputError("standard error is full")


def test_a_power_limit_that_somebody_else_set_is_said_to_be_left(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    foreign = (
        "import ctypes; n = ctypes.CDLL('libnvidia-ml.so.1'); n.nvmlInit_v2(); "
        "h = ctypes.c_void_p(); n.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(h)); "
        "assert 0 == n.nvmlDeviceSetPowerManagementLimit(h, 200000)"
    )
    sets = within(driver, foreign)
    said = joulewise("apply", "--power-limit", "250", "--json", "--", *sets)

    document = last_line(said)
    assert (["power_limit_w"], 200.0, True) == (
        document["left_alone"],
        document["left_power_limit_w"],
        document["is_given_back"],
    ), said.err


def test_a_gpu_that_is_hidden_from_the_command_is_refused_and_the_visible_one_taken(
    joulewise: Joulewise, make_driver: DriverMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    monkeypatch.setenv("JOULEWISE_SOCKET", "off")
    many = make_driver(device_count=3, is_virtual_time=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert many.true_energy_j(2) > 0
    point = ("--sm-clock", "1005", "--dry-run")
    chosen = joulewise("apply", *point, "--json")
    refused = joulewise("apply", "--device", "nvml:0", *point)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    shown = joulewise("apply", "--device", "nvml:0", *point)
    several = joulewise("apply", *point)

    (device,) = [chosen.document["dry_run"]["device"]]  # type: ignore[index]
    assert open_nvml("nvml:2").uuid in device
    assert "CUDA_VISIBLE_DEVICES=2 hides" in refused.err
    assert 0 == shown.code, shown.err
    assert 1 == several.code
