"""What the fake driver's sensors show, against what is true."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import pairwise
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fake_nvml import DriverMaker
from tests.nvml.fake_binding import KERNEL, LIGHT_KERNEL, field, load, opened

from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.presets import nvml_preset_names, preset

NOT_SUPPORTED = 3


def energy_mj(nvml: ModuleType, handle: object) -> int:
    value = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    assert isinstance(value, int)
    return value


def next_move(driver: FakeDriver, read: Callable[[], int], step_s: float = 1e-4) -> float:
    """When this reading next differs."""
    found = read()
    for _ in range(20_000):
        driver.advance(step_s)
        if read() != found:
            return driver.now_s()
    raise AssertionError("it never moves")


@pytest.mark.parametrize("name", nvml_preset_names())
def test_the_energy_counter_moves_once_per_period_and_not_at_the_start(
    make_driver: DriverMaker, name: str
) -> None:
    driver = make_driver(name)
    start_s, period_s = driver.now_s(), driver.knob(0, "counter_period_s")
    load(driver)
    with opened() as (nvml, handle):
        moves_s = [next_move(driver, lambda: energy_mj(nvml, handle)) for _ in range(4)]

    assert [period_s] * 3 == pytest.approx(
        [after - before for before, after in pairwise(moves_s)], abs=2e-4
    )
    phase_ratio = (moves_s[0] - start_s) / period_s
    assert 0.05 < phase_ratio < 0.95


def test_between_ticks_the_counter_counts_what_was_drawn(driver: FakeDriver) -> None:
    load(driver)
    with opened() as (nvml, handle):
        next_move(driver, lambda: energy_mj(nvml, handle), 1e-6 * 7919)
        shown_mj, true_j, before_s = (
            energy_mj(nvml, handle),
            driver.true_energy_j(0),
            driver.now_s(),
        )
        driver.advance(100.0)
        power_w = (energy_mj(nvml, handle) - shown_mj) / 1000 / (driver.now_s() - before_s)
        true_w = (driver.true_energy_j(0) - true_j) / (driver.now_s() - before_s)

    assert true_w == pytest.approx(power_w, rel=1e-3)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts_s=st.lists(st.floats(1e-6, 0.7), min_size=1, max_size=25))
def test_it_does_not_matter_how_time_is_cut_up(
    make_driver: DriverMaker, cuts_s: list[float]
) -> None:
    def played(pieces_s: list[float]) -> tuple[float, ...]:
        driver = make_driver()
        kernels = [driver.add_kernel(0, kernel) for kernel in (KERNEL, LIGHT_KERNEL)]
        driver.run(0, [(kernels[0], 3), (kernels[1], 5)])
        for piece_s in pieces_s:
            driver.advance(piece_s)
            driver.true_energy_j(0)
        progress = driver.progress(0)
        with opened() as (nvml, handle):
            readings = energy_mj(nvml, handle), *field(nvml, handle, 185), *field(nvml, handle, 186)
        return (driver.true_energy_j(0), progress.launch_count, progress.sm_cycle_count, *readings)

    # Each advance is rounded up to whole nanoseconds.
    whole_s = [round(cut_s, 6) + 1e-6 for cut_s in cuts_s]

    assert played(whole_s) == pytest.approx(played([sum(whole_s)]), rel=1e-7, abs=1.0)


def test_a_stuck_counter_stands_still(driver: FakeDriver) -> None:
    load(driver)
    with opened() as (nvml, handle):
        driver.advance(1.0)
        driver.set_knob(0, "counter_is_stuck", 1)
        before_mj = energy_mj(nvml, handle)
        driver.advance(30.0)
        assert before_mj == energy_mj(nvml, handle)


def test_a_missing_counter_is_not_supported_and_not_zero(driver: FakeDriver) -> None:
    driver.set_knob(0, "has_counter", 0)
    with opened() as (nvml, handle):
        with pytest.raises(nvml.NVMLError_NotSupported):
            nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        assert NOT_SUPPORTED == field(nvml, handle, 83)[0]
        assert NOT_SUPPORTED == field(nvml, handle, 191)[0]


@pytest.mark.parametrize(("knob", "ratio"), [("gain_ratio", 1.05), ("counter_gain_ratio", 0.5)])
def test_sensors_may_be_off_by_a_factor(driver: FakeDriver, knob: str, ratio: float) -> None:
    load(driver)
    driver.set_knob(0, knob, ratio)
    with opened() as (nvml, handle):
        driver.advance(100.0)
        before_mj, before_j = energy_mj(nvml, handle), driver.true_energy_j(0)
        driver.advance(100.0)
        shown_j = (energy_mj(nvml, handle) - before_mj) / 1000
        assert ratio == pytest.approx(shown_j / (driver.true_energy_j(0) - before_j), rel=2e-3)
        gain = ratio if knob == "gain_ratio" else 1.0
        power_w = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        assert gain == pytest.approx(power_w / driver.true_power_w(0), rel=1e-4)


def pulse(driver: FakeDriver, busy_s: float, idle_s: float, times: int) -> None:
    kernel = driver.add_kernel(0, LIGHT_KERNEL)
    for _ in range(times):
        driver.run(0, [(kernel, 1)])
        driver.advance(busy_s)
        driver.run(0, [])
        driver.advance(idle_s)


def test_part_time_sampling_misjudges_a_load_of_its_own_period(make_driver: DriverMaker) -> None:
    shares = []
    for is_sampled in (0, 1):
        driver = make_driver("a100-sxm")
        driver.set_knob(0, "counter_is_sampled", is_sampled)
        with opened() as (nvml, handle):
            driver.advance(1.0)
            before_mj, before_j = energy_mj(nvml, handle), driver.true_energy_j(0)
            pulse(driver, 0.05, 0.05, 200)
            shown_j = (energy_mj(nvml, handle) - before_mj) / 1000
            shares.append(shown_j / (driver.true_energy_j(0) - before_j))

    assert 1.0 == pytest.approx(shares[0], abs=0.01)
    assert abs(shares[1] - 1.0) > 0.1


def test_average_power_lags_by_its_window_and_instant_power_does_not(
    make_driver: DriverMaker,
) -> None:
    driver = make_driver("h100-sxm")
    with opened() as (nvml, handle):
        driver.advance(5.0)
        idle_w = driver.true_power_w(0)
        load(driver, LIGHT_KERNEL)
        driver.advance(0.5)
        busy_w = driver.true_power_w(0)
        average_w, instant_w = (field(nvml, handle, number)[1] / 1000 for number in (185, 186))

        assert busy_w == pytest.approx(instant_w, rel=0.01)
        share = (average_w - idle_w) / (busy_w - idle_w)
        assert 0.35 < share < 0.55
        assert average_w == nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        driver.advance(2.0)
        assert driver.true_power_w(0) == pytest.approx(field(nvml, handle, 185)[1] / 1000, rel=0.01)


def test_power_usage_is_instant_on_ga100_alone(make_driver: DriverMaker) -> None:
    for name in nvml_preset_names():
        driver = make_driver(name)
        with opened() as (nvml, handle):
            load(driver)
            driver.advance(0.4)
            usage = nvml.nvmlDeviceGetPowerUsage(handle)
            shown = field(nvml, handle, 186 if name == "a100-sxm" else 185)
            assert (0, usage) == shown
            is_averaged = field(nvml, handle, 185)[0] == 0
            assert (name != "a100-sxm") == is_averaged


def test_each_field_has_a_code_of_its_own(driver: FakeDriver) -> None:
    with opened() as (nvml, handle):
        numbers = [83, 186, 1, 187, 188, 189, 190, 192, 250]
        values = nvml.nvmlDeviceGetFieldValues(handle, numbers)
        assert [0, 0, 3, 0, 0, 0, 0, 0, 3] == [value.nvmlReturn for value in values]
        assert [100_000, 400_000, 350_000, 350_000, 350_000] == [
            value.value.uiVal for value in values[3:8]
        ]
        now_us = round(driver.now_s() * 1e6)
        assert {now_us} == {value.timestamp for value in values}


def test_power_may_be_that_of_the_module(driver: FakeDriver) -> None:
    with opened() as (nvml, handle):
        driver.advance(5.0)
        assert NOT_SUPPORTED == field(nvml, handle, 186, scope=1)[0]
        gpu_mw = field(nvml, handle, 186)[1]

        driver.set_knob(0, "scope", 2)
        assert NOT_SUPPORTED == field(nvml, handle, 186)[0]
        assert (0, gpu_mw + 60_000) == field(nvml, handle, 186, scope=1)
        driver.advance(5.0)
        before_mj = energy_mj(nvml, handle)
        driver.advance(10.0)
        power_w = (energy_mj(nvml, handle) - before_mj) / 1e4
        assert driver.true_power_w(0) + 60.0 == pytest.approx(power_w, rel=0.02)


def test_time_spent_capped_is_counted(driver: FakeDriver) -> None:
    with opened() as (nvml, handle):
        assert (0, 0) == field(nvml, handle, 74)
        load(driver, KERNEL)
        driver.advance(2.0)
        assert (0, 2_000_000_000) == field(nvml, handle, 74)
        assert nvml.nvmlClocksEventReasonSwPowerCap == (
            nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        )
        driver.run(0, [])
        driver.advance(2.0)
        assert (0, 2_000_000_000) == field(nvml, handle, 74)
        assert nvml.nvmlClocksEventReasonGpuIdle == (
            nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        )
        spent = nvml.nvmlDeviceGetViolationStatus(handle, nvml.NVML_PERF_POLICY_POWER)
        assert 2_000_000_000 == spent.violationTime


def test_heat_lowers_the_clock_before_the_board_gets_hotter(driver: FakeDriver) -> None:
    load(driver, KERNEL)
    with opened() as (nvml, handle):
        driver.advance(100.0)
        cool_mhz = driver.true_sm_clock_mhz(0)
        driver.set_knob(0, "ambient_c", 60.0)
        driver.advance(300.0)

        slowdown_c = nvml.nvmlDeviceGetTemperatureThreshold(handle, 1)
        assert slowdown_c - 2 <= nvml.nvmlDeviceGetTemperature(handle, 0) <= slowdown_c
        assert nvml.nvmlClocksEventReasonSwThermalSlowdown == (
            nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        )
        assert driver.true_sm_clock_mhz(0) < cool_mhz
        assert field(nvml, handle, 269)[1] > 250e9


def test_utilization_is_that_of_the_last_period(driver: FakeDriver) -> None:
    with opened() as (nvml, handle):
        driver.advance(1.0)
        assert 0 == nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        load(driver)
        driver.advance(1.0)
        assert 100 == nvml.nvmlDeviceGetUtilizationRates(handle).gpu


def gpm(
    nvml: ModuleType, handle: object, act: Callable[[], None], numbers: list[int]
) -> list[float]:
    samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
    nvml.nvmlGpmSampleGet(handle, samples[0])
    act()
    nvml.nvmlGpmSampleGet(handle, samples[1])
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(numbers)
    request.sample1, request.sample2 = samples
    ctypes.memset(ctypes.addressof(request.metrics), 0xA5, ctypes.sizeof(request.metrics))
    for place, number in enumerate(numbers):
        request.metrics[place].metricId = number
    nvml.nvmlGpmMetricsGet(request)
    untouched = bytes(request.metrics[len(numbers)])
    assert {0xA5} == set(untouched)
    assert [0] * len(numbers) == [request.metrics[i].nvmlReturn for i in range(len(numbers))]
    for sample in samples:
        nvml.nvmlGpmSampleFree(sample)
    return [float(request.metrics[i].value) for i in range(len(numbers))]


def test_gpm_counts_activity_in_cycles(make_driver: DriverMaker) -> None:
    driver = make_driver("h100-sxm")
    with opened() as (nvml, handle):
        busy_mhz = preset("h100-sxm").sm_clock_max_mhz

        def half_idle() -> None:
            load(driver, LIGHT_KERNEL)
            driver.advance(1.0)
            driver.run(0, [])
            driver.advance(1.0)

        time_util, sm, occupancy, tensor, memory = gpm(nvml, handle, half_idle, [1, 2, 3, 5, 10])

    share = busy_mhz / (busy_mhz + 210)
    assert 50.0 == pytest.approx(time_util, abs=0.01)
    assert 100 * share == pytest.approx(sm, rel=1e-3)
    assert 50 * share == pytest.approx(occupancy, rel=1e-3)
    assert 0 < tensor <= sm
    assert 0 < memory < 50


def test_gpm_is_for_hopper_and_later(make_driver: DriverMaker) -> None:
    make_driver("rtx4090")
    with opened() as (nvml, handle):
        assert 0 == nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice
        sample = nvml.nvmlGpmSampleAlloc()
        with pytest.raises(nvml.NVMLError_NotSupported):
            nvml.nvmlGpmSampleGet(handle, sample)
        nvml.nvmlGpmSampleFree(sample)


def test_a_long_rest_leaves_the_sensors_right(driver: FakeDriver) -> None:
    with opened() as (nvml, handle):
        driver.advance(10.0)
        before_mj, before_j = energy_mj(nvml, handle), driver.true_energy_j(0)
        driver.advance(90 * 86400.0)
        shown_j = (energy_mj(nvml, handle) - before_mj) / 1000

        assert driver.true_energy_j(0) - before_j == pytest.approx(shown_j, rel=1e-6)
        assert driver.true_power_w(0) == pytest.approx(field(nvml, handle, 185)[1] / 1000, rel=1e-4)
