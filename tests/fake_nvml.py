"""The fake NVIDIA driver for tests: built once, loaded into this process, a fresh one per test.

A suite gets the fixtures by importing them in its conftest. Once loaded, the library stays in
the process; between tests it is shut down and has no GPUs, so that other suites find the machine
as it is.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from joulewise.device.nvml import stop
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.session import DeviceSession
from joulewise.domain.workload import KernelWork
from joulewise.simulator.fake_driver import LIBRARY_NAME, FakeDriver, loaded_driver
from joulewise.simulator.fake_runner import open_fake_session_parts

__all__ = ["DriverMaker", "driver", "fake_library", "make_driver", "open_fake"]

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = REPOSITORY / "tools" / "fake-nvml"
BUILD = REPOSITORY / "build" / "fake-nvml"
DRIVER_NOT_LOADED = 9
HIDDEN = (
    "nvmlInit_v2",
    "nvmlInitWithFlags",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetHandleByPciBusId_v2",
)


class DriverMaker(Protocol):
    """Makes a fake driver anew and returns its harness."""

    def __call__(
        self,
        profile: str = "rtx3080ti",
        *,
        device_count: int = 1,
        is_virtual_time: bool = True,
    ) -> FakeDriver: ...


@pytest.fixture(scope="session")
def fake_library() -> Path:
    """The library, built anew by its Makefile where anything that it is made of has changed."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the fake NVIDIA driver is a Linux library")
    _build()
    return BUILD / LIBRARY_NAME


@pytest.fixture
def make_driver(fake_library: Path, tmp_path: Path) -> Iterator[DriverMaker]:
    """Makes fresh drivers with their state in this test's own folder."""
    # What an earlier test of this process left started would count as a client of the driver.
    stop()
    ctypes.CDLL(str(fake_library))
    harness = loaded_driver()
    assert harness is not None, "another libnvidia-ml.so.1 was loaded before the fake one"
    made: list[Path] = []

    def make(
        profile: str = "rtx3080ti", *, device_count: int = 1, is_virtual_time: bool = True
    ) -> FakeDriver:
        state_path = tmp_path / f"driver-{len(made)}.state"
        made.append(state_path)
        harness.create(
            state_path,
            profile=profile,
            device_count=device_count,
            is_virtual_time=is_virtual_time,
        )
        return harness

    yield make
    stop()
    _hide_gpus(harness, tmp_path)


@pytest.fixture
def driver(make_driver: DriverMaker) -> FakeDriver:
    """A fresh driver with one RTX 3080 Ti in virtual time."""
    return make_driver()


def open_fake(
    driver: FakeDriver, works: Sequence[KernelWork], device: str = "nvml:0,memory_lock=on"
) -> DeviceSession:
    """A GPU of this driver through the real binding, and what runs on it."""
    gpu = open_nvml(device, timer=driver.timer)
    runner, iterations, tracer = open_fake_session_parts(driver, gpu.index, works)
    return DeviceSession(gpu=gpu, runner=runner, iterations=iterations, tracer=tracer)


def _hide_gpus(harness: FakeDriver, folder: Path) -> None:
    """Leave the process with a driver that finds none, as if it were not loaded."""
    harness.create(folder / "none.state", profile="rtx3080ti", is_virtual_time=True)
    for function in HIDDEN:
        harness.fail(function, DRIVER_NOT_LOADED)


def _build() -> None:
    """Build it, one test process at a time."""
    import fcntl

    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "building.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-s", "-C", str(SOURCES), f"PYTHON={sys.executable}", f"OUT={BUILD}"],
            env={name: text for name, text in os.environ.items() if name != "LD_LIBRARY_PATH"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"the fake driver does not build:\n{done.stderr}"
