"""Locks and limits on the fake driver, as the real one takes, rounds, refuses and delays them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fake_nvml import DriverMaker
from tests.nvml.fake_binding import KERNEL, LIGHT_KERNEL, field, load, opened

from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.presets import preset

SPEC = preset("rtx3080ti")
TDP, UNLIMITED = 0xFFFFFF01, 0xFFFFFF02


@pytest.fixture
def nvml(driver: FakeDriver) -> Iterator[tuple[ModuleType, object]]:
    load(driver, LIGHT_KERNEL)
    with opened() as binding_and_handle:
        yield binding_and_handle
    driver.run(0, [])


def refused(call: Callable[..., object], *arguments: object) -> int:
    """The code with which the driver refuses."""
    import pynvml

    with pytest.raises(pynvml.NVMLError) as error:
        call(*arguments)
    code = error.value.value
    assert isinstance(code, int)
    return code


def test_clock_lists_descend_and_hold_what_the_preset_lists(
    nvml: tuple[ModuleType, object],
) -> None:
    binding, handle = nvml
    memory = binding.nvmlDeviceGetSupportedMemoryClocks(handle)
    top = binding.nvmlDeviceGetSupportedGraphicsClocks(handle, memory[0])
    low = binding.nvmlDeviceGetSupportedGraphicsClocks(handle, 405)

    assert list(reversed(SPEC.grid.mem_clocks_mhz)) == memory
    assert list(reversed(SPEC.grid.sm_clocks_mhz)) == top
    assert [clock for clock in top if clock <= 420] == low
    assert binding.NVML_ERROR_NOT_FOUND == refused(
        binding.nvmlDeviceGetSupportedGraphicsClocks, handle, 406
    )


def test_a_lock_is_a_range_busy_at_its_top_idle_at_its_bottom(
    driver: FakeDriver, nvml: tuple[ModuleType, object]
) -> None:
    binding, handle = nvml
    binding.nvmlDeviceSetGpuLockedClocks(handle, 300, 900)
    driver.advance(0.1)

    assert 900.0 == pytest.approx(driver.true_sm_clock_mhz(0))
    assert 900 == binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_SM)
    driver.run(0, [])
    assert 300 == binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_SM)
    binding.nvmlDeviceResetGpuLockedClocks(handle)
    driver.advance(0.1)
    assert 210 == binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_SM)


def test_a_lock_takes_effect_after_its_lag_and_work_goes_on(
    driver: FakeDriver, nvml: tuple[ModuleType, object]
) -> None:
    binding, handle = nvml
    driver.set_knob(0, "set_call_s", 0.004)
    driver.set_knob(0, "lag_s", 0.015)
    free_mhz, before_s = driver.true_sm_clock_mhz(0), driver.now_s()

    binding.nvmlDeviceSetGpuLockedClocks(handle, 210, 900)

    assert 0.004 == pytest.approx(driver.now_s() - before_s, abs=1e-9)
    driver.advance(0.0109)
    assert free_mhz == driver.true_sm_clock_mhz(0)
    done = driver.progress(0).launch_count
    driver.advance(0.0002)
    assert 900.0 == pytest.approx(driver.true_sm_clock_mhz(0))
    assert driver.progress(0).launch_count >= done


def test_the_gpu_waits_while_its_clocks_change(
    driver: FakeDriver, nvml: tuple[ModuleType, object]
) -> None:
    binding, handle = nvml
    for knob, value in (("set_call_s", 0.0), ("lag_s", 0.0), ("stall_s", 0.02)):
        driver.set_knob(0, knob, value)
    driver.advance(0.5)
    binding.nvmlDeviceSetGpuLockedClocks(handle, 210, 900)
    driver.advance(0.0)
    before = driver.progress(0)

    driver.advance(0.0199)
    meanwhile = driver.progress(0)
    assert before.sm_cycle_count == meanwhile.sm_cycle_count
    assert before.launch_done_ratio == meanwhile.launch_done_ratio
    driver.advance(0.1)
    assert meanwhile.launch_count < driver.progress(0).launch_count


def test_a_request_replaces_one_that_is_on_its_way(
    driver: FakeDriver, nvml: tuple[ModuleType, object]
) -> None:
    binding, handle = nvml
    driver.set_knob(0, "lag_s", 0.05)
    binding.nvmlDeviceSetGpuLockedClocks(handle, 210, 900)
    binding.nvmlDeviceSetGpuLockedClocks(handle, 210, 1200)
    seen = set()
    for _ in range(40):
        driver.advance(0.005)
        seen.add(round(driver.true_sm_clock_mhz(0)))

    assert 900 not in seen
    assert 1200 in seen


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(wanted=st.integers(1, 2500), is_down=st.booleans())
def test_a_clock_off_the_grid_is_rounded(
    driver: FakeDriver, nvml: tuple[ModuleType, object], wanted: int, *, is_down: bool
) -> None:
    binding, handle = nvml
    clocks = SPEC.grid.sm_clocks_mhz
    driver.set_knob(0, "rounding", float(is_down))
    binding.nvmlDeviceSetGpuLockedClocks(handle, wanted, wanted)
    driver.advance(0.1)

    below = [clock for clock in clocks if clock <= wanted]
    nearest = min(clocks, key=lambda clock: abs(clock - wanted))
    expected = (below[-1] if below else clocks[0]) if is_down else nearest
    highest = max(clock for clock in clocks if clock <= SPEC.sm_clock_max_mhz)
    assert min(expected, highest) == binding.nvmlDeviceGetClockInfo(handle, 1)


def test_a_strict_driver_refuses_clocks_off_the_grid(
    driver: FakeDriver, nvml: tuple[ModuleType, object]
) -> None:
    binding, handle = nvml
    driver.set_knob(0, "is_strict", 1)

    assert binding.NVML_ERROR_FREQ_NOT_SUPPORTED == refused(
        binding.nvmlDeviceSetGpuLockedClocks, handle, 210, 901
    )
    binding.nvmlDeviceSetGpuLockedClocks(handle, 210, 900)


def test_arguments_in_the_wrong_order_are_refused(nvml: tuple[ModuleType, object]) -> None:
    binding, handle = nvml
    wrong = binding.NVML_ERROR_INVALID_ARGUMENT

    assert wrong == refused(binding.nvmlDeviceSetGpuLockedClocks, handle, 900, 210)
    assert wrong == refused(binding.nvmlDeviceSetMemoryLockedClocks, handle, 9501, 405)
    assert wrong == refused(binding.nvmlDeviceSetApplicationsClocks, handle, 900, 9501)


def test_symbolic_limits_come_in_pairs(driver: FakeDriver, nvml: tuple[ModuleType, object]) -> None:
    binding, handle = nvml
    free_mhz = driver.true_sm_clock_mhz(0)
    binding.nvmlDeviceSetGpuLockedClocks(handle, TDP, TDP)
    driver.advance(0.1)
    assert 1365.0 == pytest.approx(driver.true_sm_clock_mhz(0))

    binding.nvmlDeviceSetGpuLockedClocks(handle, UNLIMITED, UNLIMITED)
    driver.advance(0.1)
    assert free_mhz == pytest.approx(driver.true_sm_clock_mhz(0), rel=1e-6)
    assert binding.NVML_ERROR_INVALID_ARGUMENT == refused(
        binding.nvmlDeviceSetGpuLockedClocks, handle, 210, UNLIMITED
    )


def test_a_memory_lock_holds_the_memory_clock(
    driver: FakeDriver, nvml: tuple[ModuleType, object]
) -> None:
    binding, handle = nvml
    binding.nvmlDeviceSetMemoryLockedClocks(handle, 5001, 5001)
    driver.advance(0.1)
    assert 5001 == binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_MEM)
    binding.nvmlDeviceResetMemoryLockedClocks(handle)
    driver.advance(0.1)
    assert 9501 == binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_MEM)


def test_some_boards_take_memory_locks_never_or_later(make_driver: DriverMaker) -> None:
    make_driver("a100-sxm")
    with opened() as (binding, handle):
        assert binding.NVML_ERROR_NOT_SUPPORTED == refused(
            binding.nvmlDeviceSetMemoryLockedClocks, handle, 1215, 1215
        )
        assert (0, 0) == field(binding, handle, 298)

    driver = make_driver("rtx4090")
    driver.set_knob(0, "memory_lock", 2)
    with opened() as (binding, handle):
        binding.nvmlDeviceSetMemoryLockedClocks(handle, 5001, 5001)
        driver.advance(1.0)
        assert 405 == binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_MEM)
        assert (0, 1) == field(binding, handle, 298)
        driver.reload()
        assert 5001 == binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_MEM)


def test_the_power_limit_is_a_knob_with_bounds(driver: FakeDriver) -> None:
    load(driver, KERNEL)
    with opened() as (binding, handle):
        least, most = binding.nvmlDeviceGetPowerManagementLimitConstraints(handle)
        driver.advance(30.0)
        free_mhz = driver.true_sm_clock_mhz(0)
        binding.nvmlDeviceSetPowerManagementLimit(handle, 200_500)
        assert 200_500 == binding.nvmlDeviceGetPowerManagementLimit(handle)
        driver.advance(200.0)

        assert 200.5 == pytest.approx(driver.true_power_w(0), rel=1e-4)
        assert driver.true_sm_clock_mhz(0) < free_mhz
        assert 4 == binding.nvmlDeviceGetCurrentClocksEventReasons(handle)
        assert SPEC.least_power_limit_w * 1000 == least
        for wrong in (least - 1, most + 1):
            assert binding.NVML_ERROR_INVALID_ARGUMENT == refused(
                binding.nvmlDeviceSetPowerManagementLimit, handle, wrong
            )
        assert 350_000 == binding.nvmlDeviceGetPowerManagementDefaultLimit(handle)


def test_a_limit_that_somebody_else_enforces_is_the_enforced_one(driver: FakeDriver) -> None:
    load(driver, KERNEL)
    driver.set_knob(0, "enforced_limit_w", 180.0)
    with opened() as (binding, handle):
        driver.advance(200.0)

        assert 350_000 == binding.nvmlDeviceGetPowerManagementLimit(handle)
        assert 180_000 == binding.nvmlDeviceGetEnforcedPowerLimit(handle)
        assert 180.0 == pytest.approx(driver.true_power_w(0), rel=1e-4)


def test_the_minimum_of_a_lock_may_not_hold_and_no_reason_says_so(
    driver: FakeDriver, nvml: tuple[ModuleType, object]
) -> None:
    binding, handle = nvml
    binding.nvmlDeviceSetGpuLockedClocks(handle, 1500, 1500)
    driver.advance(0.1)
    assert 1500 == binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_SM)

    driver.set_knob(0, "silent_ceiling_mhz", 1200)

    assert 1200 == binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_SM)
    assert 0 == binding.nvmlDeviceGetCurrentClocksEventReasons(handle)


@pytest.mark.parametrize(
    ("knob", "bits", "number"),
    [("power_brake_mhz", 0x88, 271), ("hw_thermal_mhz", 0x48, 270), ("sync_boost_mhz", 0x10, 76)],
)
def test_other_ceilings_have_a_reason_and_a_counter(
    driver: FakeDriver, nvml: tuple[ModuleType, object], knob: str, bits: int, number: int
) -> None:
    binding, handle = nvml
    assert (0, 0) == field(binding, handle, number)
    driver.set_knob(0, knob, 600)
    driver.advance(0.25)

    assert bits == binding.nvmlDeviceGetCurrentClocksEventReasons(handle)
    assert 600 == binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_SM)
    assert (0, 250_000_000) == field(binding, handle, number)


def test_another_controller_sets_and_resets_at_its_moments(
    driver: FakeDriver, nvml: tuple[ModuleType, object]
) -> None:
    binding, handle = nvml
    lag_s, start_s = driver.knob(0, "lag_s"), driver.now_s()
    free_mhz = driver.true_sm_clock_mhz(0)
    driver.foreign_lock(0, at_s=start_s + 1.0, min_clock_mhz=210, max_clock_mhz=705)
    driver.foreign_lock(0, at_s=start_s + 2.0, min_clock_mhz=0, max_clock_mhz=0)
    driver.advance(0.999 + lag_s)
    assert free_mhz == driver.true_sm_clock_mhz(0)
    driver.advance(0.002)
    assert 705 == binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_SM)
    driver.advance(1.0)
    assert free_mhz == pytest.approx(driver.true_sm_clock_mhz(0))


def test_gpus_locked_all_at_once_are_not_ready(make_driver: DriverMaker) -> None:
    driver = make_driver(device_count=3)
    for index in range(3):
        driver.set_knob(index, "ready_gap_s", 0.05)
    with opened() as (binding, first):
        others = [binding.nvmlDeviceGetHandleByIndex(index) for index in (1, 2)]
        binding.nvmlDeviceSetGpuLockedClocks(first, 210, 900)
        for handle in others:
            call = binding.nvmlDeviceSetGpuLockedClocks
            assert binding.NVML_ERROR_NOT_READY == refused(call, handle, 210, 900)
            driver.advance(0.05)
            call(handle, 210, 900)


def test_a_memory_lock_may_cost_time_at_its_highest_clock(
    driver: FakeDriver, nvml: tuple[ModuleType, object]
) -> None:
    binding, handle = nvml
    driver.set_knob(0, "memory_lock_slowdown_ratio", 0.25)

    def launches() -> int:
        before = driver.progress(0).launch_count
        driver.advance(10.0)
        return driver.progress(0).launch_count - before

    free = launches()
    binding.nvmlDeviceSetMemoryLockedClocks(handle, 9501, 9501)
    driver.advance(0.1)

    assert 1.25 == pytest.approx(free / launches(), rel=1e-3)


def test_a_point_of_the_planner_runs_as_planned(
    driver: FakeDriver, nvml: tuple[ModuleType, object]
) -> None:
    binding, handle = nvml
    kernel = driver.add_kernel(0, LIGHT_KERNEL)
    point = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=5001, power_limit_w=300.0)
    binding.nvmlDeviceSetGpuLockedClocks(handle, 210, 1200)
    binding.nvmlDeviceSetMemoryLockedClocks(handle, 5001, 5001)
    binding.nvmlDeviceSetPowerManagementLimit(handle, 300_000)
    driver.advance(300.0)
    before = driver.progress(0)
    driver.run_launches(0, 1000)
    after = driver.progress(0)

    steady = driver.steady(0, kernel, point)
    span_s = after.launch_start_s - before.launch_start_s
    assert steady.time_s == pytest.approx(span_s / 1000, rel=1e-6)
    assert steady.power_w == pytest.approx(driver.true_power_w(0), rel=1e-9)
