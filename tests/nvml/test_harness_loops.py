"""Loops of one kernel on the fake driver: windows reach from launch to launch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.fake_nvml import DriverMaker
from tests.nvml.works import WORKS

from joulewise.domain.errors import DeviceLost, InputError, MeasurementError
from joulewise.domain.points import AUTO
from joulewise.simulator.fake_board import fake_noise
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.fake_runner import FakeRunner, open_fake_session_parts
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset

SPEC = preset("rtx3080ti")
AUTO_TIMES_S = dict(
    zip(
        [work.kernel for work in WORKS],
        steady_state(SPEC, WORKS, [AUTO]).time_s[:, 0].tolist(),
        strict=True,
    )
)


def runner_on(driver: FakeDriver, noise: str = "0") -> FakeRunner:
    return open_fake_session_parts(driver, 0, WORKS, noise=fake_noise(noise))[0]


def test_the_kernels_are_those_of_the_works(driver: FakeDriver) -> None:
    assert tuple(work.kernel for work in WORKS) == runner_on(driver).kernels


def test_works_may_be_missing_where_nothing_shall_run(driver: FakeDriver) -> None:
    runner, _, _ = open_fake_session_parts(driver, 0, ())
    assert () == runner.kernels


@pytest.mark.parametrize("kernel", [work.kernel for work in WORKS])
@pytest.mark.parametrize("lead_s", [0.0, 0.0123])
def test_a_window_holds_whole_launches_and_their_exact_time(
    driver: FakeDriver, kernel: str, lead_s: float
) -> None:
    with runner_on(driver).loop(kernel, run="r") as loop:
        loop.run_for(lead_s)
        loop.begin_window(0)
        loop.run_for(0.5)
        timing = loop.end_window()
    time_s = AUTO_TIMES_S[kernel]
    assert timing.launch_count * time_s == pytest.approx(timing.elapsed_s, abs=3e-9, rel=1e-9)
    assert 0 <= 0.5 / time_s - timing.launch_count <= 1 or timing.launch_count == 1


def test_a_window_waits_for_its_first_launch(driver: FakeDriver) -> None:
    with runner_on(driver).loop("gemm", run="r") as loop:
        loop.run_for(0.001)
        loop.begin_window(0)
        timing = loop.end_window()
    assert 1 == timing.launch_count
    assert AUTO_TIMES_S["gemm"] == pytest.approx(timing.elapsed_s, abs=3e-9)


def test_the_mean_clock_shows_what_moved_it_within_the_window(driver: FakeDriver) -> None:
    low_mhz = SPEC.grid.sm_clocks_mhz[20]
    with runner_on(driver).loop("copy", run="r") as loop:
        loop.begin_window(0)
        before_mhz = driver.true_sm_clock_mhz(0)
        loop.run_for(1.0)
        at_s = driver.now_s() + 0.25 - driver.knob(0, "lag_s")
        driver.foreign_lock(0, at_s=at_s, min_clock_mhz=low_mhz, max_clock_mhz=low_mhz)
        loop.run_for(0.5)
        timing = loop.end_window()
    assert timing.mean_sm_clock_mhz is not None
    # A quarter of a second of one and a half ran at the lower clock.
    expected_mhz = (1.25 * before_mhz + 0.25 * low_mhz) / 1.5
    assert expected_mhz == pytest.approx(timing.mean_sm_clock_mhz, rel=0.002)


def test_loops_take_turns_and_end_with_their_block(driver: FakeDriver) -> None:
    runner = runner_on(driver)
    with runner.loop("gemm", run="r") as loop:
        with (
            pytest.raises(MeasurementError, match="'copy' has to wait"),
            runner.loop("copy", run="r"),
        ):
            pass
        with pytest.raises(MeasurementError, match="no window"):
            loop.end_window()
        loop.begin_window(0)
        with pytest.raises(MeasurementError, match="already open"):
            loop.begin_window(1)
    for ask in (lambda: loop.run_for(1.0), lambda: loop.begin_window(0), loop.end_window):
        with pytest.raises(MeasurementError, match="runs no more"):
            ask()
    with runner.loop("copy", run="r") as other:
        other.run_for(0.01)


def test_an_unknown_kernel_is_refused_before_anything_runs(driver: FakeDriver) -> None:
    before_s = driver.now_s()
    with pytest.raises(InputError, match="no such"), runner_on(driver).loop("no such", run="r"):
        pass
    assert before_s == driver.now_s()


def test_a_gpu_lost_on_the_way_says_so_inside_the_loop(driver: FakeDriver) -> None:
    driver.set_knob(0, "lost_at_s", driver.now_s() + 5.0)
    with runner_on(driver).loop("gemm", run="r") as loop:
        loop.begin_window(0)
        for ask in (lambda: loop.run_for(20.0), loop.end_window):
            with pytest.raises(DeviceLost):
                ask()


def test_windows_are_quiet_unless_noise_is_asked_for(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAKE_NVML_NOISE", raising=False)
    quiet, _, _ = open_fake_session_parts(driver, 0, WORKS)
    assert 1 == len({round(time_s, 9) for time_s in window_times_s(quiet, 5)})
    monkeypatch.setenv("FAKE_NVML_NOISE", "stress")
    noisy, _, _ = open_fake_session_parts(driver, 0, WORKS)
    assert 5 == len(set(window_times_s(noisy, 5)))


def test_the_noise_of_a_window_is_that_of_its_number(make_driver: DriverMaker) -> None:
    first = window_times_s(runner_on(make_driver(), "noise=stress,seed=4"), 20)
    driver = make_driver()
    driver.advance(1.0)
    again = window_times_s(runner_on(driver, "noise=stress,seed=4"), 20)
    assert first == pytest.approx(again, rel=1e-6)
    assert all(one != other for one, other in pairwise(first))
    spread_ratio = float(np.std(np.log(first)))
    assert 0.008 == pytest.approx(spread_ratio, rel=0.6)


def window_times_s(runner: FakeRunner, count: int) -> list[float]:
    times_s = []
    with runner.loop("copy", run="r") as loop:
        for window in range(count):
            loop.begin_window(window)
            loop.run_for(0.1)
            timing = loop.end_window()
            times_s.append(timing.elapsed_s / timing.launch_count)
    return times_s


def test_windows_work_in_real_time(make_driver: DriverMaker) -> None:
    driver = make_driver(is_virtual_time=False)
    with runner_on(driver).loop("copy", run="r") as loop:
        loop.begin_window(0)
        loop.run_for(0.1)
        timing = loop.end_window()
        clock_mhz = driver.true_sm_clock_mhz(0)
    time_s = AUTO_TIMES_S["copy"]
    assert timing.launch_count * time_s == pytest.approx(timing.elapsed_s, rel=1e-6)
    assert timing.launch_count >= 0.1 / time_s - 1
    assert timing.mean_sm_clock_mhz == pytest.approx(clock_mhz, rel=0.01)
