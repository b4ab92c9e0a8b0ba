"""Clients of NVML run unchanged on the fake driver, in processes of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fake_nvml import DriverMaker
from tests.kernel_works import kernel_works

from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.fake_runner import open_fake_session_parts
from joulewise.simulator.presets import preset

pytestmark = pytest.mark.integration

NAMES = {
    "rtx3080ti": "NVIDIA GeForce RTX 3080 Ti",
    "a100-sxm": "NVIDIA A100-SXM4-40GB",
    "h100-sxm": "NVIDIA H100 80GB HBM3",
    "rtx4090": "NVIDIA GeForce RTX 4090",
}
(WORK,) = kernel_works({"gemm": (2e10, 1e7)}, core_activity_ratio=0.3)
# Temperature drifts a little while a client looks.
DRIFT_RATIO = 0.02


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None,
        reason=f"{package} is not installed; make test-integrations installs it",
    )


class Machine:
    """A loaded fake GPU in real time, and processes that see it."""

    def __init__(self, driver: FakeDriver, library: Path) -> None:
        self.driver = driver
        self._environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library.parent),
            "FAKE_NVML_STATE": str(driver.state_path),
            "FAKE_NVML_PRIV": "1",
            "COLUMNS": "200",
            "TERM": "xterm",
        }

    @property
    def name(self) -> str:
        return NAMES[self.driver.profile(0)]

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def python(self, code: str) -> object:
        """What a script prints as JSON on its last line."""
        return json.loads(self.run(sys.executable, "-c", code).splitlines()[-1])


@pytest.fixture(params=NAMES)
def machine(
    request: pytest.FixtureRequest, make_driver: DriverMaker, fake_library: Path
) -> Iterator[Machine]:
    driver = make_driver(request.param, is_virtual_time=False)
    runner, _, _ = open_fake_session_parts(driver, 0, (WORK,))
    with runner.loop("gemm", run="clients") as loop:
        # Long enough for the slowest average of power.
        loop.run_for(1.5)
        yield Machine(driver, fake_library)


NVIDIA_ML_PY = """
import json, time, pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
e0, t0 = n.nvmlDeviceGetTotalEnergyConsumption(h), time.monotonic()
time.sleep(2)
e1, t1 = n.nvmlDeviceGetTotalEnergyConsumption(h), time.monotonic()
clocks = n.nvmlDeviceGetSupportedGraphicsClocks(h, n.nvmlDeviceGetSupportedMemoryClocks(h)[0])
seen = {
    "name": n.nvmlDeviceGetName(h),
    "count": n.nvmlDeviceGetCount(),
    "sm_mhz": n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
    "power_w": n.nvmlDeviceGetPowerUsage(h) / 1e3,
    "mean_w": (e1 - e0) / 1e3 / (t1 - t0),
    "passed_s": t1 - t0,
    "clocks": len(clocks),
}
n.nvmlDeviceSetGpuLockedClocks(h, clocks[-1], clocks[len(clocks) // 2])
seen["locked_mhz"] = clocks[len(clocks) // 2]
n.nvmlShutdown()
print(json.dumps(seen))
"""


def test_nvidia_ml_py_reads_the_truth_and_its_lock_outlives_it(machine: Machine) -> None:
    driver = machine.driver
    clock_mhz, power_w = driver.true_sm_clock_mhz(0), driver.true_power_w(0)
    seen = machine.python(NVIDIA_ML_PY)

    assert isinstance(seen, dict)
    assert (1, machine.name) == (seen["count"], seen["name"])
    assert len(preset(driver.profile(0)).grid.sm_clocks_mhz) == seen["clocks"]
    assert clock_mhz == pytest.approx(seen["sm_mhz"], abs=15)
    assert power_w == pytest.approx(seen["power_w"], rel=DRIFT_RATIO)
    # The counter may be a period behind at either end.
    period_ratio = driver.knob(0, "counter_period_s") / seen["passed_s"]
    assert power_w == pytest.approx(seen["mean_w"], rel=period_ratio + DRIFT_RATIO)
    # The client may be gone before its lock is in force.
    driver.timer.sleep(driver.knob(0, "lag_s"))
    assert seen["locked_mhz"] == driver.true_sm_clock_mhz(0)


NVITOP = """
import json
from nvitop import Device
device, = Device.all()
print(json.dumps({
    "name": device.name(),
    "power_w": device.power_usage() / 1e3,
    "limit_w": device.power_limit() / 1e3,
    "sm_mhz": device.sm_clock(),
    "temp_c": device.temperature(),
}))
"""


@needs("nvitop")
def test_nvitop_shows_the_gpu(machine: Machine) -> None:
    seen = machine.python(NVITOP)
    screen = machine.run(sys.executable, "-m", "nvitop", "-1", "--ascii")
    driver = machine.driver

    assert isinstance(seen, dict)
    assert machine.name == seen["name"]
    assert driver.true_sm_clock_mhz(0) == pytest.approx(seen["sm_mhz"], abs=15)
    assert driver.true_power_w(0) == pytest.approx(seen["power_w"], rel=DRIFT_RATIO)
    assert preset(driver.profile(0)).default_power_limit_w == seen["limit_w"]
    power = re.search(r"(\d+)W / (\d+)W", screen)
    assert power is not None, screen
    assert seen["limit_w"] == int(power[2])
    assert driver.true_power_w(0) == pytest.approx(int(power[1]), rel=DRIFT_RATIO, abs=1)


@needs("gpustat")
def test_gpustat_prints_the_gpu(machine: Machine) -> None:
    printed = json.loads(machine.run(sys.executable, "-m", "gpustat", "--json"))
    (gpu,) = printed["gpus"]
    driver = machine.driver

    assert 0 == gpu["index"]
    assert gpu["uuid"].startswith("GPU-")
    assert machine.name == gpu["name"]
    assert driver.true_power_w(0) == pytest.approx(gpu["power.draw"], rel=DRIFT_RATIO, abs=1)
    assert preset(driver.profile(0)).default_power_limit_w == gpu["enforced.power.limit"]
    assert gpu["temperature.gpu"] > 30
    assert gpu["utilization.gpu"] >= 99


ZEUS = """
import json, time
from zeus.device import get_gpus
from zeus.monitor import ZeusMonitor
monitor = ZeusMonitor(gpu_indices=[0])
monitor.begin_window("work", sync_execution=False)
time.sleep(3)
measured = monitor.end_window("work", sync_execution=False)
gpus = get_gpus()
memory_mhz = max(gpus.get_supported_memory_clocks(0))
clocks = sorted(gpus.get_supported_graphics_clocks(0, memory_mhz))
limit_w = gpus.get_power_management_limit(0) / 1e3
least_mw, _ = gpus.get_power_management_limit_constraints(0)
gpus.set_gpu_locked_clocks(0, clocks[0], clocks[len(clocks) // 2])
gpus.set_power_management_limit(0, least_mw)
time.sleep(0.2)
print(json.dumps({
    "time_s": measured.time,
    "energy_j": measured.gpu_energy[0],
    "limit_w": limit_w,
    "least_w": least_mw / 1e3,
    "set_w": gpus.get_power_management_limit(0) / 1e3,
    "locked_mhz": clocks[len(clocks) // 2],
}))
"""
ZEUS_RESET = """
from zeus.device import get_gpus
gpus = get_gpus()
gpus.reset_gpu_locked_clocks(0)
gpus.reset_power_management_limit(0)
print(gpus.get_power_management_limit(0) / 1e3)
"""


@needs("zeus")
def test_zeus_measures_energy_and_sets_clocks_and_limits(machine: Machine) -> None:
    driver = machine.driver
    spec = preset(driver.profile(0))
    power_w, clock_mhz = driver.true_power_w(0), driver.true_sm_clock_mhz(0)
    seen = machine.python(ZEUS)

    assert isinstance(seen, dict)
    # The counter may be a period behind at either end.
    period_ratio = driver.knob(0, "counter_period_s") / seen["time_s"]
    assert power_w * seen["time_s"] == pytest.approx(
        seen["energy_j"], rel=period_ratio + DRIFT_RATIO
    )
    assert spec.default_power_limit_w == seen["limit_w"]
    assert spec.least_power_limit_w == seen["least_w"] == seen["set_w"]
    assert seen["locked_mhz"] >= driver.true_sm_clock_mhz(0)
    assert spec.default_power_limit_w == machine.python(ZEUS_RESET)
    driver.timer.sleep(0.2)
    assert clock_mhz == pytest.approx(driver.true_sm_clock_mhz(0), rel=0.02)
