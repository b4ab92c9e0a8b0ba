"""Gaps and exchanges on the fake driver, as on the virtual GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.fake_nvml import DriverMaker, open_fake
from tests.nvml.fake_binding import KERNEL
from tests.nvml.replaying import VIRTUAL, launches_of, replay
from tests.waiting import exchange, gap

from joulewise.domain.errors import InputError
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_board import FakeNoise
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel
from joulewise.simulator.fake_runner import open_fake_session_parts
from joulewise.simulator.noise import STRESS_NOISE
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual

TOP = OperatingPoint(sm_clock_mhz=1875, mem_clock_mhz=9501)
WORKS = (gap(1e-3), exchange(2e-3, 1e10), gap(2e-5, "short gap"))
MIXED = launches_of(
    ("all-reduce", TOP, 3), ("gap", TOP, 2), ("short gap", TOP, 5), ("all-reduce", TOP, 2)
)
GAP = replace(KERNEL, compute_cycle_count=0.0, memory_bytes=0.0, core_j=0.0, memory_j=0.0)


def test_an_iteration_with_gaps_goes_as_on_the_virtual_gpu(driver: FakeDriver) -> None:
    driver.set_knob(0, "set_call_s", 0.0)
    driver.set_knob(0, "counter_period_s", 0.01)
    true_s, _ = open_oracle(VIRTUAL, WORKS).true_iteration(MIXED)

    fake, virtual = (
        replay(session, MIXED, (), warm_s=5.0, iteration_count=900)
        for session in (open_fake(driver, WORKS), open_virtual(VIRTUAL, WORKS))
    )

    assert true_s == pytest.approx(fake.time_s, rel=1e-6)
    assert true_s == pytest.approx(virtual.time_s, rel=1e-6)
    assert virtual.mean_w == pytest.approx(fake.mean_w, rel=0.002)


def test_a_gap_is_no_activity_and_an_exchange_is(make_driver: DriverMaker) -> None:
    driver = make_driver("h100-sxm")
    session = open_fake(driver, WORKS)
    busy_ratios = {}
    for kernel in ("gap", "all-reduce"):
        with session.runner.loop(kernel, run="r"):
            session.gpu.sample()
            session.gpu.wait(0.5)
            activity = session.gpu.sample().activity
        assert activity is not None
        busy_ratios[kernel] = activity.sm_time_ratio

    assert 0.0 == pytest.approx(busy_ratios["gap"], abs=0.02)
    assert 1.0 == pytest.approx(busy_ratios["all-reduce"], abs=0.02)


def test_what_neither_works_nor_waits_is_no_kernel(driver: FakeDriver) -> None:
    with pytest.raises(InputError):
        driver.add_kernel(0, GAP)
    number = driver.add_kernel(0, replace(GAP, wait_s=1e-3))

    seen = driver.steady(0, number, TOP)

    assert 1e-3 == seen.time_s
    assert not seen.is_power_capped


def test_a_kernel_that_says_nothing_of_waiting_does_not_wait() -> None:
    assert (
        0.0
        == FakeKernel(
            compute_cycle_count=1.0,
            memory_bytes=1.0,
            core_j=1.0,
            memory_j=1.0,
            set_point_ratio=1.0,
            overlap_exponent_ratio=4.0,
        ).wait_s
    )


def test_noise_of_the_gpu_does_not_lengthen_a_gap(driver: FakeDriver) -> None:
    noise = FakeNoise(level=STRESS_NOISE)
    runner, iterations, _ = open_fake_session_parts(driver, 0, WORKS, noise=noise)

    def seen_s(kernel: str, window: int) -> float:
        with runner.loop(kernel, run="r") as loop:
            loop.begin_window(window)
            loop.run_for(0.5)
            timing = loop.end_window()
        return timing.elapsed_s / timing.launch_count

    times_s = {kernel: [seen_s(kernel, w) for w in range(3)] for kernel in ("gap", "all-reduce")}

    assert [1e-3] * 3 == pytest.approx(times_s["gap"], rel=1e-9)
    assert 3 == len({round(time_s, 9) for time_s in times_s["all-reduce"]})
    gaps = launches_of(("gap", TOP, 4))
    with iterations.iterate(gaps, (), lambda _point: None, run="r") as loop:
        loop.begin_window(1)
        loop.run_iterations(50)
        timing = loop.end_window()
    assert 4e-3 == pytest.approx(timing.elapsed_s / timing.iteration_count, rel=1e-9)
