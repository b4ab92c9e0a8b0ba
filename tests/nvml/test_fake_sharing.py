"""Several processes on one fake driver: what outlives them, and what leaves with the last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.fake_nvml import REPOSITORY, DriverMaker
from tests.nvml.fake_binding import LIGHT_KERNEL, load, opened

from joulewise.domain.errors import BusyError, DeviceError
from joulewise.simulator.fake_driver import FakeDriver

LOCK = """
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
pynvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 705)
"""
# Talks to the library alone: it starts faster than with the binding.
TALK = """
import ctypes, sys
library = ctypes.CDLL("libnvidia-ml.so.1")
library.nvmlInitWithFlags(0)
handle, value = ctypes.c_void_p(), ctypes.c_ulonglong()
library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
print("ready", flush=True)
"""
WAIT = TALK + "sys.stdin.read()"
HAMMER = (
    TALK + "while True: library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(value))"
)


def environment(library: Path, state_path: Path, **more: str) -> dict[str, str]:
    others = {key: text for key, text in os.environ.items() if not key.startswith("FAKE_NVML")}
    return {
        **others,
        "LD_LIBRARY_PATH": str(library.parent),
        "FAKE_NVML_STATE": str(state_path),
        **more,
    }


def run(code: str, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=False
    )


def started(code: str, settings: Mapping[str, str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=settings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "ready\n" == process.stdout.readline()
    return process


def end(process: subprocess.Popen[str], *, is_killed: bool = False) -> None:
    if is_killed:
        process.send_signal(signal.SIGKILL)
    process.communicate()


def is_locked(driver: FakeDriver) -> bool:
    """Whether a light kernel runs at the clock that LOCK sets."""
    load(driver, LIGHT_KERNEL)
    driver.advance(0.1)
    clock_mhz = driver.true_sm_clock_mhz(0)
    driver.run(0, [])
    return clock_mhz == pytest.approx(705.0)


def state_of(driver: FakeDriver) -> Path:
    assert driver.state_path is not None
    return driver.state_path


def test_a_lock_outlives_the_process_that_set_it(driver: FakeDriver, fake_library: Path) -> None:
    assert not is_locked(driver)
    done = run(LOCK, environment(fake_library, state_of(driver), FAKE_NVML_PRIV="1"))

    assert (0, "") == (done.returncode, done.stderr)
    assert is_locked(driver)
    driver.reload()
    assert not is_locked(driver)


def test_a_reload_forgets_limits_and_counts(driver: FakeDriver) -> None:
    load(driver, LIGHT_KERNEL)
    with opened() as (nvml, handle):
        nvml.nvmlDeviceSetPowerManagementLimit(handle, 200_000)
        driver.advance(10.0)
        assert nvml.nvmlDeviceGetTotalEnergyConsumption(handle) > 0
        driver.reload()
        assert 0 == nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        assert 350_000 == nvml.nvmlDeviceGetPowerManagementLimit(handle)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_without_persistence_mode_locks_go_with_the_last_client(
    driver: FakeDriver, fake_library: Path, *, is_persistent: bool, is_killed: bool
) -> None:
    settings = environment(fake_library, state_of(driver), FAKE_NVML_PRIV="1")
    with opened() as (nvml, handle):
        nvml.nvmlDeviceSetPersistenceMode(handle, int(is_persistent))
        nvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 705)
        other = started(WAIT, settings)
    assert is_locked(driver), "the other process still holds the driver"
    end(other, is_killed=is_killed)
    with opened():
        pass

    assert is_persistent == is_locked(driver)


def test_a_killed_client_leaves_the_driver_usable(driver: FakeDriver, fake_library: Path) -> None:
    settings = environment(fake_library, state_of(driver))
    for _ in range(5):
        process = started(HAMMER, settings)
        time.sleep(0.02)
        end(process, is_killed=True)
        with opened() as (nvml, handle):
            assert nvml.nvmlDeviceGetTotalEnergyConsumption(handle) >= 0
            driver.advance(0.5)


def test_what_a_killed_process_ran_stops(driver: FakeDriver, fake_library: Path) -> None:
    code = """
import ctypes, sys
from joulewise.simulator.fake_driver import loaded_driver
from tests.nvml.fake_binding import load
load(loaded_driver())
print("ready", flush=True)
sys.stdin.read()
"""
    process = started(code, environment(fake_library, state_of(driver), PYTHONPATH=str(REPOSITORY)))
    with opened() as (nvml, handle):
        assert [process.pid] == [
            seen.pid for seen in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ]
        with pytest.raises(BusyError):
            load(driver)
        end(process, is_killed=True)

        assert [] == nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        assert 1 == nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        load(driver)
        assert [os.getpid()] == [
            seen.pid for seen in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ]


def test_the_environment_says_what_the_first_client_makes(
    tmp_path: Path, fake_library: Path
) -> None:
    code = """
import pynvml
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
print(len(handles), pynvml.nvmlDeviceGetName(handles[1]), pynvml.nvmlDeviceGetUUID(handles[1]))
pynvml.nvmlDeviceGetPowerUsage(handles[0])
"""
    settings = environment(
        fake_library,
        tmp_path / "made.state",
        FAKE_NVML_PROFILE="h100-sxm",
        FAKE_NVML_DEVICES="2",
        FAKE_NVML_TIME="virtual",
        FAKE_NVML_KNOBS="set_call_s=0,mig_mode=1",
        FAKE_NVML_LOG=str(tmp_path / "calls.log"),
    )
    first, second = run(code, settings), run(code, settings)

    assert ("", first.stdout) == (first.stderr, second.stdout)
    assert first.stdout.startswith("2 NVIDIA H100 80GB HBM3 GPU-")
    lines = (tmp_path / "calls.log").read_text(encoding="utf-8").splitlines()
    calls = [(line.split()[2], line.split()[3]) for line in lines]
    assert ("nvmlInitWithFlags", "0") == calls[0]
    assert ("nvmlDeviceGetPowerUsage", "0") in calls


@pytest.mark.parametrize(
    ("settings", "call", "name"),
    [
        ({"FAKE_NVML_PRIV": "0"}, "SetGpuLockedClocks(handle, 210, 900)", "NoPermission"),
        ({"FAKE_NVML_PRIV": "0"}, "SetPowerManagementLimit(handle, 200000)", "NoPermission"),
        ({"FAKE_NVML_FAIL": "nvmlDeviceGetName=15"}, "GetName(handle)", "GpuIsLost"),
        (
            {"FAKE_NVML_FAIL": "nvmlDeviceGetIndex=3,nvmlDeviceGetUUID=999"},
            "GetUUID(handle)",
            "Unknown",
        ),
        ({"FAKE_NVML_DRIVER": "450.80.02"}, "GetMemoryInfo(handle, 2)", "FunctionNotFound"),
        (
            {"FAKE_NVML_DRIVER": "525.60.13"},
            "GetCurrentClocksEventReasons(handle)",
            "FunctionNotFound",
        ),
    ],
)
def test_the_environment_makes_calls_fail(
    driver: FakeDriver, fake_library: Path, settings: dict[str, str], call: str, name: str
) -> None:
    code = f"""
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
pynvml.nvmlDeviceGetPowerUsage(handle)
try:
    pynvml.nvmlDevice{call}
except pynvml.NVMLError as error:
    print(type(error).__name__)
"""
    done = run(code, environment(fake_library, state_of(driver), **settings))

    assert (f"NVMLError_{name}\n", "") == (done.stdout, done.stderr)


def test_a_file_that_is_no_state_is_refused(driver: FakeDriver, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"something else" * 10_000)
    (tmp_path / "short").write_bytes(b"")

    for name in ("other", "short", "missing"):
        with pytest.raises(DeviceError):
            driver.attach(tmp_path / name)
    assert driver.now_s() > 0


def test_real_time_passes_by_itself(make_driver: DriverMaker) -> None:
    driver = make_driver(is_virtual_time=False)
    driver.set_knob(0, "set_call_s", 0.02)
    before_s, clock_s, before_j = driver.now_s(), time.monotonic(), driver.true_energy_j(0)
    time.sleep(0.05)
    with opened() as (nvml, handle):
        nvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 900)
    passed_s = time.monotonic() - clock_s

    assert driver.now_s() - before_s >= 0.07
    assert abs(driver.now_s() - time.monotonic()) < passed_s
    assert driver.true_energy_j(0) > before_j
