"""Time and energy of commands on the fake driver, against what its GPUs truly drew.

The command is a function here, so that the truth is read at its very ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.fake_nvml import DriverMaker
from tests.hanging_gpu import HangingGpu
from tests.nvml.works import WORKS

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import DeviceError, DeviceLost, InputError, NotSupported
from joulewise.domain.ports import KernelRunner
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.fake_runner import open_fake_session_parts
from joulewise.workflow.hardware import open_hardware, open_visible
from joulewise.workflow.running import CommandRun, GpuRun, run_measured


@dataclass(slots=True, kw_only=True)
class Load:
    """A command that loads one GPU for a while; knows what the GPU truly drew."""

    driver: FakeDriver
    duration_s: float
    index: int = 0
    between: Callable[[], None] | None = None
    true_j: float = field(default=0.0, init=False)
    runner: KernelRunner = field(init=False)

    def __post_init__(self) -> None:
        """Made ready before the command, for its own time counts."""
        self.runner, _, _ = open_fake_session_parts(self.driver, self.index, WORKS)

    def __call__(self) -> int:
        before_j = self.driver.true_energy_j(self.index)
        with self.runner.loop("gemm", run="command"):
            time.sleep(self.duration_s)
            if self.between is not None:
                self.between()
        self.true_j = self.driver.true_energy_j(self.index) - before_j
        return 3


def measured(load: Load, devices: tuple[str, ...] = ("nvml:0",)) -> CommandRun:
    return run_measured(open_visible(devices), load)


def kinds(gpu: GpuRun) -> set[CaveatKind]:
    return {caveat.kind for caveat in gpu.caveats}


@pytest.mark.parametrize(
    ("profile", "duration_s"),
    [
        ("rtx3080ti", 0.3),
        pytest.param("a100-sxm", 1.0, marks=pytest.mark.integration),
        pytest.param("h100-sxm", 0.3, marks=pytest.mark.integration),
        pytest.param("rtx3080ti", 3.0, marks=pytest.mark.integration),
        pytest.param("a100-sxm", 3.0, marks=pytest.mark.integration),
        pytest.param("rtx4090", 3.0, marks=pytest.mark.integration),
    ],
)
def test_the_energy_of_a_command_is_what_the_gpu_drew(
    make_driver: DriverMaker, profile: str, duration_s: float
) -> None:
    load = Load(driver=make_driver(profile, is_virtual_time=False), duration_s=duration_s)
    result = measured(load)
    (gpu,) = result.gpus

    assert gpu.energy_j == pytest.approx(load.true_j, rel=0.01)
    assert gpu.uncertainty_j is not None
    assert gpu.energy_j is not None
    assert abs(gpu.energy_j - load.true_j) <= gpu.uncertainty_j
    assert (gpu.uncertainty_j > 0.01 * gpu.energy_j) == (
        CaveatKind.COUNTER_TOO_COARSE in kinds(gpu)
    )
    assert (3, False, True) == (result.code, gpu.is_idle, gpu.is_simulated)
    assert gpu.mean_power_w == pytest.approx(gpu.energy_j / result.time_s, rel=0.05)


def test_energies_of_several_gpus_are_told_apart_and_added(make_driver: DriverMaker) -> None:
    driver = make_driver(device_count=2, is_virtual_time=False)
    load = Load(driver=driver, duration_s=0.2, index=1)
    idle_before_j = driver.true_energy_j(0)
    result = measured(load, ("nvml:0", "nvml:1", "nvml:0"))
    idle, busy = result.gpus

    assert (True, False) == (idle.is_idle, busy.is_idle)
    assert busy.energy_j == pytest.approx(load.true_j, rel=0.01)
    assert result.energy_j == (idle.energy_j or 0.0) + (busy.energy_j or 0.0)
    assert 0 < (idle.energy_j or 0.0) < driver.true_energy_j(0) - idle_before_j
    assert (None, 1875.0) == (idle.sm_clock_held_mhz, busy.sm_clock_held_mhz)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("has_counter", 0),
        pytest.param("counter_is_stuck", 1, marks=pytest.mark.integration),
    ],
)
def test_power_is_added_up_where_no_counter_moves(
    make_driver: DriverMaker, knob: str, value: float
) -> None:
    driver = make_driver(is_virtual_time=False)
    driver.set_knob(0, knob, value)
    load = Load(driver=driver, duration_s=0.5)
    (gpu,) = measured(load).gpus

    assert CaveatKind.ENERGY_FROM_POWER in kinds(gpu)
    assert gpu.energy_j is not None
    assert gpu.uncertainty_j is not None
    assert abs(gpu.energy_j - load.true_j) <= gpu.uncertainty_j


def test_a_driver_that_is_loaded_anew_leaves_power_readings(make_driver: DriverMaker) -> None:
    driver = make_driver(is_virtual_time=False)
    load = Load(driver=driver, duration_s=0.2, between=driver.reload)
    (gpu,) = measured(load).gpus

    assert CaveatKind.ENERGY_FROM_POWER in kinds(gpu)
    assert gpu.energy_j is not None


def test_a_gpu_that_is_lost_meanwhile_has_no_energy(make_driver: DriverMaker) -> None:
    driver = make_driver(device_count=2, is_virtual_time=False)
    gpus = open_visible(("nvml:0", "nvml:1"))

    def lose() -> int:
        time.sleep(0.15)
        driver.set_knob(1, "is_lost", 1)
        time.sleep(0.15)
        return 0

    result = run_measured(gpus, lose)
    fine, lost = result.gpus

    assert (None, None) == (result.energy_j, lost.energy_j)
    assert isinstance(result.trouble, DeviceLost)
    assert fine.energy_j is not None


def test_readings_that_fail_for_a_while_cost_nothing_beside_a_counter(
    make_driver: DriverMaker,
) -> None:
    driver = make_driver(is_virtual_time=False)

    def lose_for_a_while() -> None:
        driver.set_knob(0, "is_lost", 1)
        time.sleep(0.15)
        driver.set_knob(0, "is_lost", 0)

    load = Load(driver=driver, duration_s=0.15, between=lose_for_a_while)
    (gpu,) = measured(load).gpus

    assert gpu.trouble is None
    assert gpu.energy_j is not None
    assert gpu.uncertainty_j is not None
    assert abs(gpu.energy_j - load.true_j) <= gpu.uncertainty_j < 0.1 * gpu.energy_j


def test_a_driver_that_hangs_meanwhile_is_not_waited_for(make_driver: DriverMaker) -> None:
    make_driver(device_count=2, is_virtual_time=False)
    fine, other = open_visible(("nvml:0", "nvml:1"))
    hangs = HangingGpu(other)

    def hang() -> int:
        hangs.begin()
        return 3

    result = run_measured((fine, hangs), hang, patience_s=1.5)
    hangs.end()

    assert (3, None) == (result.code, result.energy_j)
    assert result.gpus[0].energy_j is not None
    assert "stopped answering meanwhile: its driver hangs" in str(result.gpus[1].trouble)


def test_nothing_runs_where_a_driver_hangs_before(make_driver: DriverMaker) -> None:
    driver = make_driver(is_virtual_time=False)
    hangs = HangingGpu(open_visible(("nvml:0",))[0])
    hangs.begin()
    load = Load(driver=driver, duration_s=0.1)

    with pytest.raises(DeviceError, match="does not answer: its driver hangs"):
        run_measured((hangs,), load, patience_s=0.1)

    hangs.end()
    assert load.true_j == 0


@pytest.mark.integration
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
def test_who_waits_for_a_driver_that_hangs_can_be_ended(
    make_driver: DriverMaker, name: str, fake_library: Path, tmp_path: Path
) -> None:
    driver = make_driver(is_virtual_time=False)
    code = (
        "import sys; from tests.hanging_gpu import HangingGpu; "
        "from joulewise.workflow.command import Command; "
        "from joulewise.workflow.hardware import open_visible; "
        "from joulewise.workflow.running import run_measured; "
        "gpu = HangingGpu(open_visible(('nvml:0',))[0]); command = Command(('true',)); "
        "run = lambda: (command.run_alone(), gpu.begin(), print('over', flush=True))[0]; "
        "run_measured((gpu,), run, patience_s=60)"
    )
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(fake_library.parent),
        "FAKE_NVML_STATE": str(driver.state_path),
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process:
        assert b"over\n" == process.stdout.readline()
        process.send_signal(getattr(signal, name))
        assert process.wait(20.0) != 0


@pytest.mark.integration
def test_who_else_was_on_the_gpu_is_told(make_driver: DriverMaker) -> None:
    driver = make_driver(is_virtual_time=False)
    driver.set_knob(0, "other_process_count", 2)
    (gpu,) = measured(Load(driver=driver, duration_s=0.2)).gpus

    assert CaveatKind.OTHER_PROCESS_ON_GPU in kinds(gpu)


@pytest.mark.integration
def test_a_power_limit_that_holds_the_clock_down_is_told(make_driver: DriverMaker) -> None:
    driver = make_driver("h100-sxm", is_virtual_time=False)
    driver.set_knob(0, "enforced_limit_w", 250)
    (gpu,) = measured(Load(driver=driver, duration_s=0.3)).gpus

    assert CaveatKind.POWER_CAPPED in kinds(gpu)


def test_nothing_runs_where_neither_energy_nor_power_can_be_read(make_driver: DriverMaker) -> None:
    driver = make_driver(is_virtual_time=False)
    gpus = open_visible(("nvml:0",))
    driver.set_knob(0, "has_counter", 0)
    driver.fail("nvmlDeviceGetFieldValues", 3)
    driver.fail("nvmlDeviceGetPowerUsage", 3)
    load = Load(driver=driver, duration_s=0.1)

    with pytest.raises(NotSupported, match="no energy counter that moves, and tells no power"):
        run_measured(gpus, load)

    assert load.true_j == 0


def test_a_command_that_does_not_start_leaves_no_thread_behind(make_driver: DriverMaker) -> None:
    make_driver(is_virtual_time=False)

    def fail() -> int:
        raise InputError("it does not start")

    with pytest.raises(InputError):
        run_measured(open_visible(("nvml:0",)), fail)


def test_without_a_device_the_gpus_that_cuda_programs_see_are_measured(
    make_driver: DriverMaker,
) -> None:
    make_driver(device_count=3, is_virtual_time=False)
    uuids = [gpu.identity.uuid for gpu in open_visible((), {})]

    def seen(visible: str, order: str = "") -> list[str]:
        environment = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order}
        return [gpu.identity.uuid for gpu in open_visible((), environment)]

    assert 3 == len(uuids)
    # Equal models are in the order of their addresses for CUDA, too.
    assert [uuids[2], uuids[0]] == seen("2,0") == seen("2,0", "PCI_BUS_ID")
    assert [uuids[1]] == seen(uuids[1])
    for hidden in ("", "-1", "none"):
        with pytest.raises(InputError, match="hides every GPU"):
            seen(hidden)
    with pytest.raises(NotSupported, match="MIG"):
        seen("MIG-1234")


@pytest.mark.parametrize("device", ["virtual:rtx3080ti", "recorded:sweep.parquet"])
def test_no_command_runs_on_a_gpu_that_lives_in_joulewise(device: str) -> None:
    with pytest.raises(InputError, match="no command runs on"):
        open_hardware(device)


def test_a_fake_driver_in_virtual_time_is_refused(driver: FakeDriver) -> None:
    assert driver.is_virtual_time
    with pytest.raises(NotSupported, match="time stands still"):
        open_hardware("nvml:0")


def test_a_machine_without_a_gpu_says_what_the_doctor_says(make_driver: DriverMaker) -> None:
    driver = make_driver(is_virtual_time=False)
    driver.fail("nvmlInitWithFlags", 9)
    driver.fail("nvmlInit_v2", 9)

    with pytest.raises(NotSupported) as caught:
        open_visible((), {})

    assert caught.value.hint is not None
    assert "joulewise doctor" in caught.value.hint
