"""Clocks of the fake driver that move although nobody asks and nothing holds them down."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from tests.fake_nvml import DriverMaker

from joulewise.simulator.fake_driver import FakeDriver, FakeKernel
from joulewise.simulator.physics import kernel_load
from joulewise.simulator.presets import preset
from joulewise.workload.gpt3_xl import gpt3_xl

SPEC = preset("rtx3080ti")
LOWEST_MHZ = SPEC.grid.sm_clocks_mhz[0]
# What the chip reaches lies between two listed clocks.
HIGHEST_MHZ = round(SPEC.sm_clock_max_mhz, 3)
BELOW_MHZ = 1860.0
STEP_MHZ = 15


def light_kernel(driver: FakeDriver) -> int:
    """A kernel that no power limit holds down."""
    load = kernel_load(SPEC, [gpt3_xl().works[0]])
    fields = dataclasses.fields(FakeKernel)
    kernel = FakeKernel(**{field.name: float(getattr(load, field.name)[0]) for field in fields})
    return driver.add_kernel(0, kernel)


def clocks_mhz(driver: FakeDriver, step_s: float, count: int) -> list[float]:
    """True SM clocks from now on, this far apart."""
    clocks = []
    for _ in range(count):
        clocks.append(round(driver.true_sm_clock_mhz(0), 3))
        driver.advance(step_s)
    return clocks


@pytest.fixture
def loaded(make_driver: DriverMaker) -> tuple[FakeDriver, int]:
    driver = make_driver("rtx3080ti")
    return driver, light_kernel(driver)


def test_a_load_on_a_rested_gpu_wakes_its_clock_from_the_lowest_to_the_target(
    loaded: tuple[FakeDriver, int],
) -> None:
    driver, kernel = loaded
    driver.set_knob(0, "wake_s", 0.2)
    driver.advance(3.0)
    driver.run(0, [(kernel, 1)])
    rising = clocks_mhz(driver, 0.01, 21)
    assert LOWEST_MHZ == rising[0]
    assert sorted(rising) == rising
    assert rising[10] == pytest.approx(0.5 * (LOWEST_MHZ + HIGHEST_MHZ), abs=4 * STEP_MHZ)
    assert rising[19] < HIGHEST_MHZ
    assert HIGHEST_MHZ == rising[20]
    assert {float(clock) for clock in SPEC.grid.sm_clocks_mhz} >= set(rising[:-1])


def test_a_clock_wakes_sooner_after_a_shorter_rest_and_at_once_after_none(
    loaded: tuple[FakeDriver, int],
) -> None:
    driver, kernel = loaded
    driver.set_knob(0, "wake_s", 0.2)
    driver.run(0, [(kernel, 1)])
    driver.advance(1.0)
    driver.run(0, [])
    driver.advance(0.05)
    driver.run(0, [(kernel, 1)])
    rising = clocks_mhz(driver, 0.01, 6)
    assert rising[0] == pytest.approx(
        LOWEST_MHZ + 0.75 * (HIGHEST_MHZ - LOWEST_MHZ), abs=4 * STEP_MHZ
    )
    assert HIGHEST_MHZ == rising[5]
    driver.run(0, [])
    driver.run(0, [(kernel, 1)])
    assert [HIGHEST_MHZ] == clocks_mhz(driver, 0.01, 1)


def test_a_waking_clock_costs_a_launch_the_time_that_it_takes(
    loaded: tuple[FakeDriver, int],
) -> None:
    driver, kernel = loaded
    driver.run(0, [(kernel, 1)])
    driver.advance(1.0)
    usual_count = driver.progress(0).launch_count
    driver.run(0, [])
    driver.set_knob(0, "wake_s", 0.2)
    driver.advance(1.0)
    driver.run(0, [(kernel, 1)])
    driver.advance(1.0)
    assert 0.8 * usual_count < driver.progress(0).launch_count < usual_count


def test_a_dithering_clock_wanders_by_one_step_of_the_grid_about_half_of_the_time(
    loaded: tuple[FakeDriver, int],
) -> None:
    driver, kernel = loaded
    driver.set_knob(0, "dither_s", 0.03)
    driver.run(0, [(kernel, 1)])
    clocks = clocks_mhz(driver, 0.01, 900)
    assert {BELOW_MHZ, HIGHEST_MHZ} == set(clocks)
    assert 0.35 < clocks.count(HIGHEST_MHZ) / len(clocks) < 0.65
    moves = sum(a != b for a, b in itertools.pairwise(clocks))
    assert 100 < moves < 200


def test_clocks_neither_wake_nor_dither_unless_told_to(loaded: tuple[FakeDriver, int]) -> None:
    driver, kernel = loaded
    driver.advance(3.0)
    driver.run(0, [(kernel, 1)])
    assert {HIGHEST_MHZ} == set(clocks_mhz(driver, 0.003, 300))
