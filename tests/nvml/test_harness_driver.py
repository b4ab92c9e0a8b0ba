"""The harness of the fake driver from Python: time, kernels, truth, knobs and faults."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.fake_nvml import DriverMaker
from tests.nvml.fake_binding import opened
from tests.nvml.works import WORKS

from joulewise.domain.errors import DeviceLost, InputError
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.simulator.fake_board import FakeBoard, fake_noise
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel, FakeLocks, loaded_driver
from joulewise.simulator.noise import DEFAULT_NOISE, STRESS_NOISE
from joulewise.simulator.physics import kernel_load, steady_state
from joulewise.simulator.presets import nvml_preset_names, preset

SPEC = preset("rtx3080ti")


def add_kernels(driver: FakeDriver) -> list[int]:
    load = kernel_load(preset(driver.profile(0)), WORKS)
    names = [field.name for field in dataclasses.fields(FakeKernel)]
    rows = ({name: getattr(load, name)[row] for name in names} for row in range(len(WORKS)))
    return [driver.add_kernel(0, FakeKernel(**row)) for row in rows]


def test_the_loaded_driver_is_the_same_object_every_time(driver: FakeDriver) -> None:
    assert driver is loaded_driver()


def test_a_fresh_driver_is_what_was_asked_for(make_driver: DriverMaker) -> None:
    driver = make_driver("a100-sxm", device_count=2)

    assert ["a100-sxm", "a100-sxm"] == [driver.profile(index) for index in range(2)]
    assert driver.is_virtual_time
    with pytest.raises(InputError, match="no GPU 2"):
        driver.profile(2)


def test_an_unknown_profile_is_refused(make_driver: DriverMaker) -> None:
    with pytest.raises(InputError):
        make_driver("rtx9999")


def test_virtual_time_moves_only_where_it_is_let_pass(driver: FakeDriver) -> None:
    before_s = driver.now_s()
    assert before_s == driver.now_s()
    driver.advance(1.5)
    assert before_s + 1.5 == pytest.approx(driver.now_s(), abs=1e-9)
    driver.timer.sleep(0.25)
    assert before_s + 1.75 == pytest.approx(driver.timer.now_s(), abs=1e-9)


def test_who_sleeps_until_a_moment_finds_it_come(driver: FakeDriver) -> None:
    driver.advance(12345.678901)
    for step_s in (1e-12, 3.3e-10, 1e-9, 0.07, 1 / 3):
        until_s = driver.now_s() + step_s
        driver.timer.sleep(until_s - driver.now_s())
        assert until_s <= driver.now_s() < until_s + 3e-9


@pytest.mark.parametrize("duration_s", [-1.0, float("nan"), float("inf")])
def test_time_does_not_go_back_or_for_ever(driver: FakeDriver, duration_s: float) -> None:
    for let_pass in (driver.advance, driver.timer.sleep):
        with pytest.raises(InputError, match="duration"):
            let_pass(duration_s)


def test_real_time_passes_by_itself(make_driver: DriverMaker) -> None:
    driver = make_driver(is_virtual_time=False)
    before_s = driver.timer.now_s()
    driver.timer.sleep(0.02)
    assert driver.timer.now_s() >= before_s + 0.02
    assert not driver.is_virtual_time


@pytest.mark.parametrize("profile", nvml_preset_names())
def test_kernels_take_the_time_and_power_of_the_physics(
    make_driver: DriverMaker, profile: str
) -> None:
    driver = make_driver(profile)
    spec = preset(profile)
    middle = spec.grid.sm_clocks_mhz[len(spec.grid.sm_clocks_mhz) // 2]
    points = (
        AUTO,
        OperatingPoint(sm_clock_mhz=middle),
        OperatingPoint(sm_clock_mhz=middle, mem_clock_mhz=spec.grid.mem_clocks_mhz[-1]),
        OperatingPoint(power_limit_w=spec.least_power_limit_w),
    )
    table = steady_state(spec, WORKS, points)
    for row, number in enumerate(add_kernels(driver)):
        for column, point in enumerate(points):
            steady = driver.steady(0, number, point)
            assert table.time_s[row, column] == pytest.approx(steady.time_s, rel=1e-9)
            assert table.power_w[row, column] == pytest.approx(steady.power_w, rel=1e-9)
            held_mhz = table.sm_clock_held_mhz[row, column]
            assert held_mhz == pytest.approx(steady.sm_clock_mhz, rel=1e-9)
            assert table.is_power_capped[row, column] == steady.is_power_capped
            assert table.is_clock_not_held[row, column] == steady.is_clock_not_held


def test_a_program_counts_its_launches_and_passes(driver: FakeDriver) -> None:
    first, second, _ = add_kernels(driver)
    driver.run(0, [(first, 3), (second, 2)])
    times_s = [driver.steady(0, number, AUTO).time_s for number in (first, second)]
    begun_s = driver.now_s()
    driver.run_launches(0, 7)
    progress = driver.progress(0)

    assert (7, 1) == (progress.launch_count, progress.iteration_count)
    assert progress.launch_start_s == driver.now_s()
    assert 0.0 == progress.launch_done_ratio
    assert 5 * times_s[0] + 2 * times_s[1] == pytest.approx(driver.now_s() - begun_s, abs=1e-8)
    assert 3 * times_s[0] + 2 * times_s[1] == pytest.approx(
        progress.iteration_start_s - begun_s, abs=1e-8
    )
    driver.run_iterations(0, 2)
    assert 3 == driver.progress(0).iteration_count
    driver.advance(0.25 * times_s[0])
    assert driver.progress(0).launch_done_ratio == pytest.approx(0.25, abs=1e-4)


def test_cycles_over_time_are_the_clock(driver: FakeDriver) -> None:
    number = add_kernels(driver)[0]
    driver.run(0, [(number, 1)])
    before, before_s = driver.progress(0), driver.now_s()
    clock_mhz = driver.true_sm_clock_mhz(0)
    driver.advance(2.0)
    cycle_count = driver.progress(0).sm_cycle_count - before.sm_cycle_count
    assert clock_mhz == pytest.approx(cycle_count / (driver.now_s() - before_s) / 1e6, rel=1e-9)


def test_true_energy_is_power_over_time_on_a_warm_board(driver: FakeDriver) -> None:
    number = add_kernels(driver)[0]
    driver.run(0, [(number, 1)])
    driver.advance(300.0)
    before_j = driver.true_energy_j(0)
    driver.advance(10.0)
    energy_j = driver.true_energy_j(0) - before_j
    assert 10.0 * driver.true_power_w(0) == pytest.approx(energy_j, rel=1e-6)
    assert driver.steady(0, number, AUTO).power_w == pytest.approx(energy_j / 10.0, rel=1e-3)


def test_blur_stretches_launches_and_power(driver: FakeDriver) -> None:
    number = add_kernels(driver)[0]
    driver.run(0, [(number, 1)])
    driver.advance(300.0)
    plain_w = driver.true_power_w(0)
    driver.run_launches(0, 1)
    driver.blur(0, time_ratio=1.25, power_ratio=0.9)
    before_s = driver.now_s()
    driver.run_launches(0, 8)
    time_s = driver.steady(0, number, AUTO).time_s
    assert 8 * 1.25 * time_s == pytest.approx(driver.now_s() - before_s, rel=1e-5)
    assert 0.9 * plain_w == pytest.approx(driver.true_power_w(0), rel=1e-3)


def test_a_lost_gpu_says_so(driver: FakeDriver) -> None:
    driver.set_knob(0, "lost_at_s", driver.now_s() + 1.0)
    driver.advance(0.999)
    driver.check(0)
    driver.advance(0.001)
    with pytest.raises(DeviceLost):
        driver.check(0)
    driver.set_knob(0, "lost_at_s", 0.0)
    driver.check(0)
    driver.set_knob(0, "is_lost", 1.0)
    with pytest.raises(DeviceLost):
        driver.check(0)


def test_knobs_are_read_back_and_unknown_ones_refused(driver: FakeDriver) -> None:
    driver.set_knob(0, "stall_s", 0.003)
    assert 0.003 == driver.knob(0, "stall_s")
    for ask in (lambda: driver.knob(0, "nonsense"), lambda: driver.set_knob(0, "nonsense", 1.0)):
        with pytest.raises(InputError, match="nonsense"):
            ask()


def test_a_foreign_controller_sets_its_clock_at_its_moment(driver: FakeDriver) -> None:
    number = add_kernels(driver)[0]
    driver.run(0, [(number, 1)])
    foreign_mhz = SPEC.grid.sm_clocks_mhz[10]
    at_s = driver.now_s() + 1.0
    low_mhz = SPEC.grid.sm_clocks_mhz[0]
    driver.foreign_lock(0, at_s=at_s, min_clock_mhz=low_mhz, max_clock_mhz=foreign_mhz)
    driver.advance(0.99)
    assert driver.true_sm_clock_mhz(0) > foreign_mhz
    driver.advance(0.1)
    assert foreign_mhz == driver.true_sm_clock_mhz(0)
    driver.reload()
    assert foreign_mhz != driver.true_sm_clock_mhz(0)


def test_locks_in_force_are_told_whoever_set_them(driver: FakeDriver) -> None:
    driver.set_knob(0, "lag_s", 0.5)
    free = FakeLocks(sm_max_mhz=None, memory_max_mhz=None)
    assert free == driver.true_locks(0)
    with opened() as (nvml, handle):
        nvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 705)
        nvml.nvmlDeviceSetMemoryLockedClocks(handle, 5001, 5001)
        assert free == driver.true_locks(0), "asked for, and not in force yet"
        driver.advance(0.5)
        assert FakeLocks(sm_max_mhz=705, memory_max_mhz=5001) == driver.true_locks(0)
        nvml.nvmlDeviceResetGpuLockedClocks(handle)
        driver.advance(0.5)
        assert FakeLocks(sm_max_mhz=None, memory_max_mhz=5001) == driver.true_locks(0)
    with pytest.raises(InputError):
        driver.true_locks(1)


def test_noise_is_written_as_on_virtual_devices() -> None:
    assert DEFAULT_NOISE == fake_noise("default").level
    assert STRESS_NOISE == fake_noise("stress").level
    assert 0.0 == fake_noise("").level.time_ratio == fake_noise("0").level.time_ratio
    named = fake_noise("noise=0.5,seed=7")
    assert (DEFAULT_NOISE.scaled(0.5), 7) == (named.level, named.seed)
    for text in ("loud", "lag=3ms", "noise=default,counter_period=1"):
        with pytest.raises(InputError):
            fake_noise(text)


def test_kernels_of_a_board_have_one_work_each(driver: FakeDriver) -> None:
    with pytest.raises(InputError, match="more than one work"):
        FakeBoard(driver, 0, (*WORKS, WORKS[0]), fake_noise("0"))


def test_cells_have_the_noise_of_the_virtual_device(driver: FakeDriver) -> None:
    board = FakeBoard(driver, 0, WORKS, fake_noise("noise=default,seed=3"))
    drawn = [board.cell_noise("run", WORKS[0].kernel, AUTO, window) for window in range(200)]
    spread_ratio = float(np.std([np.log(noise.power_ratio) for noise in drawn]))
    assert DEFAULT_NOISE.energy_ratio == pytest.approx(spread_ratio, rel=0.2)
    assert drawn[0] == board.cell_noise("run", WORKS[0].kernel, AUTO, 0)
