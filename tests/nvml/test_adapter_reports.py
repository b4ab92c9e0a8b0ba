"""Public reports about NVIDIA's driver that reach the adapter, each named after its symptom.

The ones that reach measuring are in tests of measure; issue trackers are named by project and
number.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pynvml
import pytest
from tests.fake_nvml import BUILD, DriverMaker

from joulewise.device.nvml import NvmlDevice
from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.device.nvml_knobs import NvmlKnobs
from joulewise.device.nvml_memory import MemoryClockSwitch
from joulewise.device.nvml_reply import Reply
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import DeviceError, DeviceLost, NotPermitted, NotSupported
from joulewise.domain.points import KnobState, OperatingPoint, Touched
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel

KERNEL = FakeKernel(
    compute_cycle_count=0.017,
    memory_bytes=1e9,
    core_j=0.5,
    memory_j=0.1,
    set_point_ratio=1.0,
    overlap_exponent_ratio=3.0,
)


@pytest.fixture
def gpu(driver: FakeDriver) -> NvmlGpu:
    return open_nvml("nvml:0", timer=driver.timer)


def a_point(gpu: NvmlGpu) -> OperatingPoint:
    return OperatingPoint(sm_clock_mhz=gpu.clock_grid().sm_clocks_mhz[10])


def test_insufficient_permissions_in_a_container_names_the_capability_and_the_user_namespace(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    """nvidia-docker 495: the message has to say what to add, and that root is not enough."""
    driver.fail("nvmlDeviceSetGpuLockedClocks", 4)

    with pytest.raises(NotPermitted) as caught:
        gpu.request(a_point(gpu))

    assert "CAP_SYS_ADMIN" in (caught.value.hint or "")
    assert "--cap-add SYS_ADMIN" in (caught.value.hint or "")
    assert "rootless" in (caught.value.hint or "")
    assert gpu.sample().energy_j is not None


def test_not_supported_in_a_sandboxed_container_is_not_taken_for_missing_rights(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    """Gvisor 14070: the runtime does not pass the control on."""
    driver.fail("nvmlDeviceSetGpuLockedClocks", 3)

    with pytest.raises(NotSupported) as caught:
        gpu.request(a_point(gpu))

    assert "container runtime" in (caught.value.hint or "")


def test_unknown_error_in_a_container_after_daemon_reload_is_a_clear_error_and_passes(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    """nvidia-container-toolkit 48: the cgroup's device rules are lost until a restart."""
    driver.fail("nvmlDeviceGetFieldValues", 999)
    with pytest.raises(DeviceError, match="NVML 999") as caught:
        gpu.sample()
    assert "start the container anew" in (caught.value.hint or "")

    driver.fail("nvmlDeviceGetFieldValues", 0)

    assert gpu.sample().energy_j is not None


def test_process_lists_are_not_read_in_the_hot_path(driver: FakeDriver, gpu: NvmlGpu) -> None:
    """MangoHud 2104, 1307: 4.5 ms per list under the driver's global lock."""
    assert 0 == gpu.sample().other_process_count
    driver.set_knob(0, "other_process_count", 2)

    counts = []
    for _ in range(90):
        driver.advance(0.1)
        counts.append(gpu.sample().other_process_count)

    assert [0] * 90 == counts
    # Windows begin and end there.
    assert 2 == gpu.wait_for_energy_tick(1.0).other_process_count


def test_not_ready_when_gpus_are_set_one_after_the_other_is_retried(
    make_driver: DriverMaker,
) -> None:
    """Megatron-Bridge 5299: "not ready" from a set on all GPUs at once."""
    driver = make_driver("a100-sxm", device_count=2)
    gpus = [open_nvml(f"nvml:{index}", timer=driver.timer) for index in range(2)]
    for index in range(2):
        driver.set_knob(index, "ready_gap_s", 0.02)

    for gpu in gpus:
        gpu.request(a_point(gpu))

    driver.set_knob(0, "not_ready_count", 100)
    with pytest.raises(DeviceError, match="NVML 27"):
        gpus[0].request(OperatingPoint(power_limit_w=200.0))


def test_clocks_that_are_stuck_after_the_program_ended_are_given_back_by_the_next(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    """NBMiner 839: the lock outlives the process that set it."""
    assert driver.state_path is not None
    script = (
        "from joulewise.device.nvml_gpu import open_nvml\n"
        "from joulewise.domain.points import OperatingPoint\n"
        "from joulewise.simulator.fake_driver import loaded_driver\n"
        "gpu = open_nvml('nvml:0', timer=loaded_driver().timer)\n"
        "gpu.request(OperatingPoint(sm_clock_mhz=gpu.clock_grid().sm_clocks_mhz[0]))\n"
        "import os; os._exit(9)\n"
    )
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(BUILD),
        "FAKE_NVML_STATE": str(driver.state_path),
    }
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert 9 == done.returncode
    kernel = driver.add_kernel(0, KERNEL)
    driver.run(0, [(kernel, 1)])
    driver.advance(1.0)
    stuck_mhz = gpu.sample().sm_clock_mhz

    gpu.reset(Touched(knobs=frozenset({"sm_clock_mhz"})))
    driver.advance(1.0)
    free_mhz = gpu.sample().sm_clock_mhz
    driver.run(0, [])

    assert gpu.clock_grid().sm_clocks_mhz[0] == stuck_mhz
    assert (free_mhz or 0) > (stuck_mhz or 0)


def test_a_cap_that_is_silently_back_to_stock_is_seen_in_the_state_of_the_knobs(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    """lium-io 1229: the driver was unloaded, or somebody else set the limit anew."""
    gpu.request(OperatingPoint(power_limit_w=250.0))

    driver.reload()

    assert KnobState(power_limit_w=350.0) == gpu.knob_state()


def test_a_cap_that_another_controller_changed_is_installed_anew_by_the_next_request(
    gpu: NvmlGpu,
) -> None:
    """lium-io 1229, the other cause: two controllers set the same knob."""
    gpu.request(OperatingPoint(power_limit_w=250.0))
    pynvml.nvmlDeviceSetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(0), 300_000)

    gpu.request(OperatingPoint(power_limit_w=250.0))

    assert KnobState(power_limit_w=250.0) == gpu.knob_state()


class DeafDevice(NvmlDevice):
    """A driver that answers SUCCESS and keeps its limit."""

    def set_power_limit(self, limit_mw: int) -> Reply[bool]:
        return Reply(call=f"set to {limit_mw}", value=True)


def test_success_that_set_nothing_is_an_error_where_it_can_be_read_back(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    """A success code means that the request was taken, not that it is in force."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
    device = DeafDevice(handle, 0, driver.timer.sleep)
    deaf = NvmlKnobs(device, MemoryClockSwitch(device, driver.timer))

    with pytest.raises(DeviceError, match="asked for a power limit of 250 W, and 350 W is set"):
        deaf.request(OperatingPoint(power_limit_w=250.0), gpu.clock_grid())


def test_the_same_energy_in_every_mig_instance_is_refused_rather_than_told_twice(
    make_driver: DriverMaker,
) -> None:
    """dcgm-exporter 317, zeus 109: one sensor; and MIG UUIDs once crashed a parser."""
    driver = make_driver("a100-sxm")
    driver.set_knob(0, "mig_mode", 1)
    parent = open_nvml("nvml:0", timer=driver.timer)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    instance = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0))

    with pytest.raises(NotSupported, match="one energy counter"):
        open_nvml(f"nvml:{instance}", timer=driver.timer)
    assert CaveatKind.GPU_PARTITIONED in {caveat.kind for caveat in parent.identity.caveats}


def test_a_binding_that_is_newer_than_the_driver_loses_only_what_is_new(
    driver: FakeDriver,
) -> None:
    """Nvitop 88, gpustat 143, pynvml 43: FunctionNotFound and a mismatch that is no NVMLError."""
    for function in (
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetC2cModeInfoV",
        "nvmlGpmQueryDeviceSupport",
    ):
        driver.fail(function, 13)

    sample = open_nvml("nvml:0", timer=driver.timer).sample()

    assert sample.other_process_count is None
    assert sample.temp_c is not None
    assert sample.event_reasons is not None


def test_settings_that_an_old_gpu_does_not_support_are_told_apart_knob_by_knob(
    driver: FakeDriver,
) -> None:
    """kernel_tuner 86, 134, 271: a GTX 1070 has neither clock lists nor locks, but power."""
    driver.fail("nvmlDeviceGetSupportedMemoryClocks", 3)
    driver.fail("nvmlDeviceSetGpuLockedClocks", 3)
    gpu = open_nvml("nvml:0", timer=driver.timer)

    with pytest.raises(NotSupported, match="lists no clocks"):
        gpu.clock_grid()
    assert gpu.knob_state().power_limit_w == 350.0


def test_a_gpu_that_fell_off_the_bus_is_lost_and_not_idle(driver: FakeDriver, gpu: NvmlGpu) -> None:
    driver.set_knob(0, "lost_at_s", driver.now_s() + 1.0)
    assert gpu.sample().power_w is not None
    driver.advance(2.0)

    with pytest.raises(DeviceLost, match="nvmlDeviceGetFieldValues"):
        gpu.sample()
