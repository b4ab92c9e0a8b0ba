"""Discovery, launches and faults on the fake driver."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fake_nvml import DriverMaker
from tests.nvml.fake_binding import KERNEL, LIGHT_KERNEL, load, opened

from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeDriver


def test_gpus_are_found_by_index_uuid_and_bus(make_driver: DriverMaker) -> None:
    make_driver("rtx4090", device_count=3)
    with opened(2) as (nvml, handle):
        uuid = nvml.nvmlDeviceGetUUID(handle)
        bus = nvml.nvmlDeviceGetPciInfo(handle).busId

        assert "00000000:03:00.0" == bus
        for found in (
            nvml.nvmlDeviceGetHandleByUUID(uuid),
            nvml.nvmlDeviceGetHandleByPciBusId(bus),
            nvml.nvmlDeviceGetHandleByPciBusId("0000:03:00.0"),
            nvml.nvmlDeviceGetHandleByPciBusId("03:00.0"),
        ):
            assert 2 == nvml.nvmlDeviceGetIndex(found)
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(3)]
        assert 3 == len({nvml.nvmlDeviceGetUUID(each)[:8] for each in handles})
        for lookup, wrong in (
            (nvml.nvmlDeviceGetHandleByUUID, "GPU-0"),
            (nvml.nvmlDeviceGetHandleByPciBusId, "00000000:09:00.0"),
        ):
            with pytest.raises(nvml.NVMLError_NotFound):
                lookup(wrong)
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            nvml.nvmlDeviceGetHandleByIndex(3)


def test_an_instance_of_mig_has_no_clocks_of_its_own(make_driver: DriverMaker) -> None:
    driver = make_driver("a100-sxm")
    driver.set_knob(0, "mig_mode", 1)
    with opened() as (nvml, handle):
        assert [1, 1] == nvml.nvmlDeviceGetMigMode(handle)
        instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 1)
        uuid = nvml.nvmlDeviceGetUUID(instance)

        assert uuid.startswith("MIG-")
        found = nvml.nvmlDeviceGetHandleByUUID(uuid)
        assert 1 == nvml.nvmlDeviceIsMigDeviceHandle(found).value
        parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)
        assert nvml.nvmlDeviceGetUUID(handle) == nvml.nvmlDeviceGetUUID(parent)
        with pytest.raises(nvml.NVMLError_NotSupported):
            nvml.nvmlDeviceGetTotalEnergyConsumption(instance)
        with pytest.raises(nvml.NVMLError_NotFound):
            nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 2)


def test_nothing_works_before_the_driver_is_initialised(driver: FakeDriver) -> None:
    with opened() as (nvml, handle):
        pass
    load(driver)
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetPowerUsage(handle)


def test_a_fault_lasts_as_many_calls_as_asked_for(driver: FakeDriver) -> None:
    with opened() as (nvml, handle):
        driver.fail("nvmlDeviceGetName", 999, call_count=2)
        for _ in range(2):
            with pytest.raises(nvml.NVMLError_Unknown):
                nvml.nvmlDeviceGetName(handle)
        assert "NVIDIA GeForce RTX 3080 Ti" == nvml.nvmlDeviceGetName(handle)
        driver.fail("nvmlDeviceGetName", 15)
        for _ in range(5):
            with pytest.raises(nvml.NVMLError_GpuIsLost):
                nvml.nvmlDeviceGetName(handle)
        driver.fail("nvmlDeviceGetName", 0)
        assert "NVIDIA GeForce RTX 3080 Ti" == nvml.nvmlDeviceGetName(handle)


def test_the_binding_drops_what_the_driver_says_of_some_calls(driver: FakeDriver) -> None:
    with opened() as (nvml, handle):
        driver.fail("nvmlDeviceSetPowerManagementLimit_v2", 4)
        code = nvml.nvmlDeviceSetPowerManagementLimit_v2(handle, 0, 200_000)

        assert nvml.NVML_SUCCESS == code
        assert 350_000 == nvml.nvmlDeviceGetPowerManagementLimit(handle)


def test_a_lost_gpu_answers_nothing(make_driver: DriverMaker) -> None:
    driver = make_driver(device_count=2)
    driver.set_knob(0, "lost_at_s", driver.now_s() + 1.0)
    with opened() as (nvml, handle):
        nvml.nvmlDeviceGetPowerUsage(handle)
        driver.advance(1.0)
        for call in (nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetUUID):
            with pytest.raises(nvml.NVMLError_GpuIsLost):
                call(handle)
        nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(1))
        driver.set_knob(1, "is_lost", 1)
        with pytest.raises(nvml.NVMLError_GpuIsLost):
            nvml.nvmlDeviceGetHandleByIndex(1)


def test_a_driver_that_is_not_ready_takes_the_next_request(driver: FakeDriver) -> None:
    driver.set_knob(0, "not_ready_count", 2)
    with opened() as (nvml, handle):
        for _ in range(2):
            with pytest.raises(nvml.NVMLError_NotReady):
                nvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 900)
        nvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 900)


def test_another_process_takes_time_and_power(driver: FakeDriver) -> None:
    load(driver, LIGHT_KERNEL)

    def ten_seconds() -> tuple[int, float]:
        driver.advance(300.0)
        launches, energy_j = driver.progress(0).launch_count, driver.true_energy_j(0)
        driver.advance(10.0)
        return driver.progress(0).launch_count - launches, driver.true_energy_j(0) - energy_j

    alone, alone_j = ten_seconds()
    driver.set_knob(0, "other_process_count", 1)
    shared, shared_j = ten_seconds()
    with opened() as (nvml, handle):
        assert 2 == len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))

    assert 1.25 == pytest.approx(alone / shared, rel=1e-3)
    assert 250.0 == pytest.approx(shared_j - alone_j, rel=1e-6)


def test_a_launch_goes_on_by_its_share_when_the_clock_changes(driver: FakeDriver) -> None:
    driver.set_knob(0, "lag_s", 0.0)
    driver.set_knob(0, "set_call_s", 0.0)
    kernel = driver.add_kernel(0, KERNEL)
    slow = driver.steady(0, kernel, OperatingPoint(sm_clock_mhz=300)).time_s
    fast = driver.steady(0, kernel, OperatingPoint(sm_clock_mhz=600)).time_s
    with opened() as (nvml, handle):
        nvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 300)
        driver.advance(0.1)
        driver.run(0, [(kernel, 1)])
        start_s = driver.now_s()
        driver.advance(0.25 * slow)
        assert 0.25 == pytest.approx(driver.progress(0).launch_done_ratio, abs=1e-5)
        nvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 600)
        driver.run_launches(0, 1)

    assert 0.25 * slow + 0.75 * fast == pytest.approx(driver.now_s() - start_s, rel=1e-5)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    program=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 40)), min_size=1, max_size=6),
    first=st.integers(0, 100),
    second=st.integers(1, 5),
)
def test_programs_run_their_launches_in_order_and_over_again(
    make_driver: DriverMaker, program: list[tuple[int, int]], first: int, second: int
) -> None:
    driver = make_driver()
    kernels = [driver.add_kernel(0, kernel) for kernel in (KERNEL, LIGHT_KERNEL)]
    times_s = [driver.steady(0, kernel, OperatingPoint()).time_s for kernel in kernels]
    order = [kernel for kernel, count in program for _ in range(count)]
    start_s = driver.now_s()
    driver.run(0, [(kernels[kernel], count) for kernel, count in program])

    driver.run_launches(0, first)
    progress = driver.progress(0)
    expected_s = sum(times_s[order[launch % len(order)]] for launch in range(first))
    assert (first, first // len(order)) == (progress.launch_count, progress.iteration_count)
    assert expected_s == pytest.approx(progress.launch_start_s - start_s, abs=2e-9)
    assert 0.0 == progress.launch_done_ratio

    driver.run_iterations(0, second)
    progress = driver.progress(0)
    pass_s = sum(times_s[kernel] for kernel in order)
    assert first // len(order) + second == progress.iteration_count
    assert progress.iteration_count * pass_s == pytest.approx(driver.now_s() - start_s, abs=3e-9)
    assert progress.iteration_start_s == driver.now_s()
    assert progress.launch_count == progress.iteration_count * len(order)


def test_noise_of_a_window_moves_time_and_power(driver: FakeDriver) -> None:
    load(driver, LIGHT_KERNEL)
    driver.advance(300.0)
    power_w = driver.true_power_w(0)
    driver.run_launches(0, 1)
    start_s = driver.now_s()
    driver.run_launches(0, 1000)
    plain_s = driver.now_s() - start_s
    driver.blur(0, time_ratio=1.01, power_ratio=0.98)
    start_s = driver.now_s()
    driver.run_launches(0, 1000)

    assert 1.01 == pytest.approx((driver.now_s() - start_s) / plain_s, rel=1e-6)
    assert 0.98 == pytest.approx(driver.true_power_w(0) / power_w, rel=1e-6)
