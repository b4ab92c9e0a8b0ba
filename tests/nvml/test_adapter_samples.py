"""Reading a GPU through the real binding."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pynvml
import pytest
from tests.fake_nvml import DriverMaker

from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.domain.errors import (
    DeviceError,
    DeviceLost,
    InputError,
    JoulewiseError,
    MeasurementError,
    NotPermitted,
    NotSupported,
)
from joulewise.domain.measurement import EventReason, GpuSample
from joulewise.domain.points import OperatingPoint, Touched
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel

PROFILES = ["rtx3080ti", "a100-sxm", "h100-sxm", "rtx4090"]
# As heavy as a large matrix product: 20 ms of cycles at 1.7 GHz, and power to match.
HEAVY = FakeKernel(
    compute_cycle_count=0.035,
    memory_bytes=2e9,
    core_j=4.0,
    memory_j=0.5,
    set_point_ratio=1.0,
    overlap_exponent_ratio=3.0,
)


# Boards of files alone tell the rest.
FIELDS = frozenset(GpuSample.__dataclass_fields__) - {"busy_ratio", "over_current_count"}


def opened(driver: FakeDriver) -> NvmlGpu:
    return open_nvml("nvml:0", timer=driver.timer)


@pytest.fixture
def loaded(driver: FakeDriver) -> Iterator[FakeDriver]:
    """A GPU under load."""
    driver.run(0, [(driver.add_kernel(0, HEAVY), 1)])
    yield driver
    driver.run(0, [])


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_tells_everything_but_what_its_kind_lacks(
    make_driver: DriverMaker, profile: str
) -> None:
    driver = make_driver(profile)
    driver.advance(3.0)

    sample = opened(driver).sample()

    lacking = {name for name in FIELDS if getattr(sample, name) is None}
    # Header of NVML, field 185: "Ampere (except GA100) or newer".
    lacks_average = {"average_power_w"} if profile == "a100-sxm" else set()
    assert {"activity"} | lacks_average == lacking
    assert driver.now_s() == sample.time_s
    assert driver.true_power_w(0) == pytest.approx(sample.power_w, rel=0.02)
    assert driver.true_energy_j(0) == pytest.approx(sample.energy_j, rel=0.1)


def test_a_capped_gpu_says_so_and_counts_the_seconds(loaded: FakeDriver) -> None:
    gpu = opened(loaded)
    loaded.advance(1.0)
    before = gpu.sample()
    limits = gpu.clock_grid().power_limits
    assert limits is not None
    gpu.request(OperatingPoint(power_limit_w=limits.least_w))
    loaded.advance(2.0)
    middle = gpu.sample()
    loaded.advance(2.0)

    after = gpu.sample()

    assert before.event_reasons is not None
    assert EventReason.POWER_CAP in (after.event_reasons or ())
    assert 2.0 == pytest.approx(
        (after.power_capped_s or 0) - (middle.power_capped_s or 0), abs=0.01
    )
    assert (after.sm_clock_mhz or 0) < (before.sm_clock_mhz or 0)
    assert after.power_limit_w == gpu.knob_state().power_limit_w


def test_a_limit_from_outside_the_driver_is_the_one_in_force(driver: FakeDriver) -> None:
    driver.set_knob(0, "enforced_limit_w", 200.0)
    gpu = opened(driver)

    assert 200.0 == gpu.sample().power_limit_w
    assert 350.0 == gpu.knob_state().power_limit_w


def test_a_gpu_that_this_process_alone_loads_has_no_other_process(loaded: FakeDriver) -> None:
    assert 0 == opened(loaded).sample().other_process_count


@pytest.mark.parametrize("function", ["nvmlDeviceGetFieldValues", "nvmlDeviceGetClockInfo"])
def test_a_gpu_that_the_system_keeps_from_this_process_is_not_one_without_meters(
    driver: FakeDriver, function: str
) -> None:
    gpu = opened(driver)
    driver.fail(function, 17)

    with pytest.raises(NotPermitted, match="NVML 17"):
        gpu.sample()


@pytest.mark.parametrize("code", [3, 4, 13])
@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetCurrentClocksEventReasons", "event_reasons"),
        ("nvmlDeviceGetEnforcedPowerLimit", "power_limit_w"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "other_process_count"),
        ("nvmlDeviceGetTemperatureV", "temp_c"),
    ],
)
def test_what_the_gpu_cannot_or_may_not_tell_is_none_and_never_zero(
    driver: FakeDriver, function: str, field: str, code: int
) -> None:
    driver.fail(function, code)
    # The older names of the same.
    driver.fail("nvmlDeviceGetCurrentClocksThrottleReasons", code)
    driver.fail("nvmlDeviceGetTemperature", code)

    sample = opened(driver).sample()

    assert getattr(sample, field) is None
    assert sample.energy_j is not None


def test_an_older_driver_is_asked_by_the_older_names(driver: FakeDriver) -> None:
    driver.fail("nvmlDeviceGetTemperatureV", 13)
    driver.fail("nvmlDeviceGetCurrentClocksEventReasons", 13)

    sample = opened(driver).sample()

    assert sample.temp_c is not None
    assert sample.event_reasons is not None


@pytest.mark.parametrize("code", [3, 13])
def test_without_field_values_energy_and_power_come_from_their_own_calls(
    driver: FakeDriver, code: int
) -> None:
    driver.advance(5.0)
    expected = opened(driver).sample()
    driver.fail("nvmlDeviceGetFieldValues", code)

    sample = opened(driver).sample()

    assert expected.energy_j == sample.energy_j
    assert sample.power_w is not None
    assert sample.average_power_w is None
    assert sample.power_capped_s is None


def test_a_gpu_without_counter_has_no_energy_rather_than_none_used(driver: FakeDriver) -> None:
    driver.set_knob(0, "has_counter", 0)
    gpu = opened(driver)

    assert gpu.sample().energy_j is None
    assert gpu.energy_counter_period_s is None
    with pytest.raises(NotSupported, match="has no energy counter"):
        gpu.wait_for_energy_tick(1.0)


@pytest.mark.parametrize("code", [15, 16, 18, 28])
@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    ],
)
def test_a_gpu_that_is_lost_is_lost_to_every_reading(
    driver: FakeDriver, function: str, code: int
) -> None:
    gpu = opened(driver)
    driver.fail(function, code)

    with pytest.raises(DeviceLost, match="NVIDIA GeForce RTX 3080 Ti"):
        gpu.sample()


def test_every_method_of_a_lost_gpu_raises_device_lost(driver: FakeDriver) -> None:
    gpu = opened(driver)
    gpu.clock_grid()
    driver.set_knob(0, "is_lost", 1)

    for ask in (
        gpu.sample,
        gpu.knob_state,
        lambda: gpu.reset(Touched(knobs=frozenset({"sm_clock_mhz"}))),
        lambda: gpu.wait_for_energy_tick(1.0),
        lambda: gpu.request(OperatingPoint(sm_clock_mhz=gpu.clock_grid().sm_clocks_mhz[0])),
    ):
        with pytest.raises(DeviceLost):
            ask()


@pytest.mark.parametrize("code", [10, 27, 999])
def test_a_failure_that_passes_is_asked_again_and_one_that_stays_is_an_error(
    driver: FakeDriver, code: int
) -> None:
    gpu = opened(driver)
    driver.fail("nvmlDeviceGetFieldValues", code, call_count=2)
    assert gpu.sample().energy_j is not None
    driver.fail("nvmlDeviceGetFieldValues", code)
    began_s = driver.now_s()

    with pytest.raises(DeviceError, match=f"NVML {code}") as caught:
        gpu.sample()

    assert DeviceError is type(caught.value)
    assert 0 < driver.now_s() - began_s < 1.0


@pytest.mark.parametrize("code", [10, 27, 999])
@pytest.mark.parametrize(
    ("functions", "fields"),
    [
        (("nvmlDeviceGetClockInfo",), {"sm_clock_mhz", "mem_clock_mhz"}),
        (("nvmlDeviceGetTemperatureV",), {"temp_c"}),
        (("nvmlDeviceGetCurrentClocksEventReasons",), {"event_reasons"}),
        (("nvmlDeviceGetEnforcedPowerLimit",), {"power_limit_w"}),
        (("nvmlDeviceGetComputeRunningProcesses_v3",), {"other_process_count"}),
        (("nvmlGpmSampleGet",), {"activity"}),
        (("nvmlGpmSampleAlloc",), {"activity"}),
        (("nvmlGpmMetricsGet",), {"activity"}),
    ],
)
def test_what_a_sample_can_do_without_never_ends_it_nor_holds_it_up(
    make_driver: DriverMaker, functions: tuple[str, ...], fields: set[str], code: int
) -> None:
    driver = make_driver("h100-sxm")
    gpu = opened(driver)
    for function in functions:
        driver.fail(function, code)
    gpu.sample()
    driver.advance(11.0)
    began_s = driver.now_s()

    sample = gpu.sample()

    assert driver.now_s() == began_s
    assert fields == {name for name in FIELDS if _is_none(sample, name)}
    for function in functions:
        driver.fail(function, 0)
    for _ in range(2):
        driver.advance(11.0)
        sample = gpu.sample()
    assert set() == {name for name in FIELDS if _is_none(sample, name)}


def _is_none(sample: GpuSample, name: str) -> bool:
    return getattr(sample, name) is None


@pytest.mark.parametrize("code", [2, 19, 20, 23, 29])
def test_other_codes_are_errors_that_name_the_call(driver: FakeDriver, code: int) -> None:
    gpu = opened(driver)
    driver.fail("nvmlDeviceGetTemperatureV", code)

    with pytest.raises(JoulewiseError, match="nvmlDeviceGetTemperatureV answered"):
        gpu.sample()


def test_someone_who_shut_nvml_down_in_this_process_is_made_good(driver: FakeDriver) -> None:
    gpu = opened(driver)
    pynvml.nvmlShutdown()

    assert gpu.sample().sm_clock_mhz is not None


@pytest.mark.parametrize("period_s", [0.02, 0.05, 0.1])
def test_the_counters_period_is_measured(make_driver: DriverMaker, period_s: float) -> None:
    driver = make_driver("h100-sxm")
    driver.set_knob(0, "counter_period_s", period_s)

    assert period_s == pytest.approx(opened(driver).energy_counter_period_s, abs=2e-4)


def test_a_sample_at_a_tick_is_taken_within_two_milliseconds_of_it(driver: FakeDriver) -> None:
    gpu = opened(driver)
    for pause_s in (0.0, 0.033, 0.5):
        driver.advance(pause_s)
        before = gpu.sample()
        tick = gpu.wait_for_energy_tick(1.0)
        driver.advance(0.098)
        later = gpu.sample()

        assert (tick.energy_j or 0) > (before.energy_j or 0)
        assert later.energy_j == tick.energy_j


def test_a_stuck_counter_has_no_period_and_times_out(driver: FakeDriver) -> None:
    driver.set_knob(0, "counter_is_stuck", 1)
    gpu = opened(driver)

    assert gpu.energy_counter_period_s is None
    with pytest.raises(MeasurementError, match="did not move within 1 s"):
        gpu.wait_for_energy_tick(1.0)


def test_a_sampler_thread_may_read_while_the_main_thread_waits(make_driver: DriverMaker) -> None:
    driver = make_driver("h100-sxm", is_virtual_time=False)
    gpu = opened(driver)
    samples: list[GpuSample] = []
    is_over = threading.Event()

    def sample_on() -> None:
        while not is_over.is_set():
            samples.append(gpu.sample())

    sampler = threading.Thread(target=sample_on)
    sampler.start()
    try:
        ticks = [gpu.wait_for_energy_tick(2.0) for _ in range(4)]
    finally:
        is_over.set()
        sampler.join()

    energies_j = [sample.energy_j or 0.0 for sample in samples]
    assert energies_j == sorted(energies_j)
    assert 4 == len({tick.energy_j for tick in ticks})


@pytest.mark.parametrize("duration_s", [-1.0, float("nan"), float("inf")])
def test_a_wait_that_is_no_duration_is_refused_in_the_machines_time_too(
    driver: FakeDriver, duration_s: float
) -> None:
    assert driver.is_virtual_time
    gpu = open_nvml("nvml:0")

    with pytest.raises(InputError, match="duration"):
        gpu.wait(duration_s)
