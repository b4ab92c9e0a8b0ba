"""GPM activity through the real binding."""

from __future__ import annotations

import pytest
from tests.fake_nvml import DriverMaker

from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.domain.measurement import GpuActivity
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel

PERIOD_S = 0.12
KERNEL = FakeKernel(
    compute_cycle_count=0.0035,
    memory_bytes=1e8,
    core_j=0.4,
    memory_j=0.05,
    set_point_ratio=1.0,
    overlap_exponent_ratio=3.0,
)


@pytest.fixture
def hopper(make_driver: DriverMaker) -> FakeDriver:
    return make_driver("h100-sxm")


def opened(driver: FakeDriver) -> NvmlGpu:
    return open_nvml("nvml:0", timer=driver.timer)


def activity_at(driver: FakeDriver, gpu: NvmlGpu, busy_ratio: float) -> GpuActivity:
    """Busy for a share of each period, sampled in mid-load and at its end, four times over."""
    kernel = driver.add_kernel(0, KERNEL)
    activity = None
    for _ in range(4):
        driver.run(0, [(kernel, 1)])
        driver.advance(busy_ratio * PERIOD_S / 2)
        gpu.sample()
        driver.advance(busy_ratio * PERIOD_S / 2)
        driver.run(0, [])
        driver.advance((1 - busy_ratio) * PERIOD_S)
        activity = gpu.sample().activity
    assert activity is not None
    return activity


@pytest.mark.parametrize("busy_ratio", [0.1, 0.25, 0.5, 0.75])
def test_activity_in_time_is_right_where_cycles_mislead(
    hopper: FakeDriver, busy_ratio: float
) -> None:
    gpu = opened(hopper)
    gpu.sample()

    activity = activity_at(hopper, gpu, busy_ratio)

    assert activity.sm_cycle_ratio is not None
    assert activity.sm_cycle_ratio > 1.15 * busy_ratio
    assert busy_ratio == pytest.approx(activity.sm_time_ratio, abs=0.005)
    assert activity.is_clock_varying
    assert PERIOD_S == pytest.approx(activity.duration_s)


def test_the_two_agree_where_the_clock_stands_still(hopper: FakeDriver) -> None:
    gpu = opened(hopper)
    gpu.request(OperatingPoint(sm_clock_mhz=gpu.clock_grid().sm_clocks_mhz[0]))
    hopper.advance(1.0)
    gpu.sample()

    activity = activity_at(hopper, gpu, 0.5)

    assert not activity.is_clock_varying
    assert 0.5 == pytest.approx(activity.sm_cycle_ratio, abs=0.01)
    assert activity.sm_cycle_ratio == pytest.approx(activity.sm_time_ratio, rel=0.01)


def test_shares_of_the_peak_are_shares(hopper: FakeDriver) -> None:
    gpu = opened(hopper)
    hopper.run(0, [(hopper.add_kernel(0, KERNEL), 1)])
    hopper.advance(0.5)
    gpu.sample()
    hopper.advance(0.5)

    activity = gpu.sample().activity
    hopper.run(0, [])

    assert activity is not None
    for ratio in (activity.occupancy_ratio, activity.tensor_ratio, activity.dram_ratio):
        assert ratio is not None
        assert 0 < ratio <= 1
    assert 0.99 < (activity.sm_time_ratio or 0) <= 1
    assert activity.sm_cycle_ratio == pytest.approx(activity.sm_time_ratio, rel=1e-3)


def test_readings_within_a_tenth_of_a_second_bring_none_and_lose_none(hopper: FakeDriver) -> None:
    gpu = opened(hopper)
    gpu.sample()

    seen = []
    for _ in range(10):
        hopper.advance(0.03)
        seen.append(gpu.sample().activity)

    durations_s = [activity.duration_s for activity in seen if activity is not None]
    assert [0.12, 0.12] == pytest.approx(durations_s)


@pytest.mark.parametrize(("step_s", "count"), [(0.1, 5), (0.105, 5), (0.111, 10)])
def test_two_gpm_samples_lie_more_than_a_tenth_of_a_second_apart(
    hopper: FakeDriver, step_s: float, count: int
) -> None:
    """Header of NVML: "must be greater than 100 ms"."""
    gpu = opened(hopper)
    gpu.sample()

    seen = []
    for _ in range(10):
        hopper.advance(step_s)
        seen.append(gpu.sample().activity)

    durations_s = [activity.duration_s for activity in seen if activity is not None]
    assert count == len(durations_s)
    assert min(durations_s) >= 0.11


@pytest.mark.parametrize("profile", ["rtx3080ti", "a100-sxm", "rtx4090"])
def test_before_hopper_there_is_no_activity_rather_than_none_at_work(
    make_driver: DriverMaker, profile: str
) -> None:
    driver = make_driver(profile)
    gpu = opened(driver)
    gpu.sample()
    driver.advance(1.0)

    assert gpu.sample().activity is None


@pytest.mark.parametrize("code", [3, 4, 13])
@pytest.mark.parametrize(
    "function", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet"]
)
def test_gpm_that_is_refused_leaves_the_rest_of_the_sample(
    hopper: FakeDriver, function: str, code: int
) -> None:
    hopper.fail(function, code)
    gpu = opened(hopper)
    gpu.sample()
    hopper.advance(1.0)

    sample = gpu.sample()

    assert sample.activity is None
    assert sample.energy_j is not None
