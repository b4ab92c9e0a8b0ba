"""Energy per iteration on the fake driver, against what its boards truly drew."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.fake_nvml import DriverMaker, open_fake

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.plan import PlannedLaunch
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import no_progress
from joulewise.domain.workload import KernelWork, Pass
from joulewise.measure.replay_window import (
    ReplayTask,
    Schedule,
    enough_iterations,
    measure_replay,
)
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.window import measure_window
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset
from joulewise.workload.gpt3_xl import gpt3_xl

POINT = OperatingPoint(sm_clock_mhz=1500)
SPEC = preset("rtx3080ti")
SETTINGS = MeasureSettings()
COUNTER_PERIOD_S = 0.1
WARM_S = 60.0
# Some of these keep step with the counter (100 ms, 250 ms) or nearly so.
LOADS_S = (0.03, 0.05, 0.0777, 0.0995, 0.1, 0.101, 0.13, 0.25, 0.2503, 0.33, 1.0, 1.03, 2.5, 10.0)
WITHIN_RATIO = 0.005
HOT = next(work for work in gpt3_xl().works if "gemm_logits" in work.kernel)
COOL = replace(
    HOT,
    kernel="cool",
    flop_count=0.05 * HOT.flop_count,
    compute_efficiency_ratio=0.05 * HOT.compute_efficiency_ratio,
    core_activity_ratio=0.05,
    memory_activity_ratio=0.05,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What truly happened between two moments."""

    energy_j: float
    duration_s: float


def lasting(work: KernelWork, time_s: float) -> KernelWork:
    """The same kernel with so much work that a launch takes this long."""
    for _ in range(5):
        ratio = time_s / float(steady_state(SPEC, [work], [POINT]).time_s[0, 0])
        work = replace(
            work, flop_count=ratio * work.flop_count, traffic_bytes=ratio * work.traffic_bytes
        )
    return work


def board(make_driver: DriverMaker, phase_ratio: float) -> FakeDriver:
    driver = make_driver("rtx3080ti")
    driver.set_knob(0, "counter_period_s", COUNTER_PERIOD_S)
    driver.set_knob(0, "counter_phase_ratio", phase_ratio)
    return driver


def kernel_error_ratio(make_driver: DriverMaker, time_s: float, phase_ratio: float) -> float:
    """Of a window of one kernel whose launches take this long."""
    driver = board(make_driver, phase_ratio)
    session = open_fake(driver, (lasting(HOT, time_s),))
    session.gpu.request(POINT)
    with session.runner.loop(HOT.kernel, run="r") as loop:
        loop.run_for(WARM_S)
        begin_s, begin_j = driver.now_s(), driver.true_energy_j(0)
        window = measure_window(session.gpu, loop, POINT, 0, SETTINGS)
        power_w = (driver.true_energy_j(0) - begin_j) / (driver.now_s() - begin_s)
    assert () == window.caveats
    assert window.time_s == pytest.approx(time_s, rel=1e-3)
    return window.energy_j / (power_w * window.time_s) - 1.0


def replay_error_ratio(
    make_driver: DriverMaker, iteration_s: float, hot_ratio: float, phase_ratio: float
) -> float:
    """Of a window of iterations, the first part of each at thrice the power of the rest."""
    driver = board(make_driver, phase_ratio)
    works = lasting(HOT, hot_ratio * iteration_s), lasting(COOL, (1.0 - hot_ratio) * iteration_s)
    session = open_fake(driver, works)
    assert session.iterations is not None
    session.gpu.request(POINT)
    launches = tuple(
        PlannedLaunch(kernel=work.kernel, pass_=Pass.FORWARD, point=POINT) for work in works
    )
    task = ReplayTask(
        schedule=Schedule(launches=launches),
        window=0,
        iteration_count=enough_iterations(iteration_s, COUNTER_PERIOD_S, SETTINGS),
        iteration_s=iteration_s,
    )
    with session.iterations.iterate(launches, (), lambda _point: None, run="r") as loop:
        loop.run_iterations(math.ceil(WARM_S / iteration_s))
        begun, begin_j = driver.progress(0).iteration_count, driver.true_energy_j(0)
        window = measure_replay(session.gpu, loop, task, SETTINGS, no_progress)
        loop.run_iterations(1)
        passed = driver.progress(0).iteration_count - begun
        true_j = (driver.true_energy_j(0) - begin_j) / passed
    assert () == window.caveats
    return window.energy_j / true_j - 1.0


@pytest.mark.parametrize("time_s", [0.03, 0.1, 0.25, 1.03, 10.0])
def test_the_energy_of_a_launch_is_true_within_half_a_percent(
    make_driver: DriverMaker, time_s: float
) -> None:
    assert abs(kernel_error_ratio(make_driver, time_s, 0.37)) < WITHIN_RATIO


@pytest.mark.parametrize("iteration_s", LOADS_S)
def test_the_energy_of_an_iteration_of_two_powers_is_true_within_half_a_percent(
    make_driver: DriverMaker, iteration_s: float
) -> None:
    rng = np.random.default_rng(round(1e4 * iteration_s))
    for hot_ratio in (0.1, 0.5):
        error_ratio = replay_error_ratio(make_driver, iteration_s, hot_ratio, rng.random())
        assert abs(error_ratio) < WITHIN_RATIO, (hot_ratio, error_ratio)


def naive_error_ratio(make_driver: DriverMaker, duration_s: float, phase_ratio: float) -> float:
    """Of a burst from idle, reading the counter at its edges, as many tools do."""
    driver = board(make_driver, phase_ratio)
    session = open_fake(driver, (lasting(HOT, 0.01),))
    gpu = session.gpu
    gpu.request(POINT)
    gpu.wait(5.0)
    begin_j, read_begin_j = driver.true_energy_j(0), gpu.sample().energy_j
    with session.runner.loop(HOT.kernel, run="r") as loop:
        loop.run_for(duration_s)
        true_j, read_end_j = driver.true_energy_j(0) - begin_j, gpu.sample().energy_j
    assert read_begin_j is not None
    assert read_end_j is not None
    return (read_end_j - read_begin_j) / true_j - 1.0


def test_edge_reads_are_biased_low_and_windows_are_not(make_driver: DriverMaker) -> None:
    phases = np.random.default_rng(5).random(20)
    naive = np.array([naive_error_ratio(make_driver, 1.03, phase) for phase in phases])
    honest = np.array([kernel_error_ratio(make_driver, 0.0377, phase) for phase in phases])
    replayed = np.array([replay_error_ratio(make_driver, 0.73, 0.3, phase) for phase in phases])

    def standard_error(errors: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        return float(errors.std(ddof=1) / math.sqrt(len(errors)))

    # Half a counter period of the difference between busy and idle power: u/(2 W) (1 - idle/P).
    assert naive.mean() < -0.03
    assert naive.mean() < -5.0 * standard_error(naive)
    for errors in (honest, replayed):
        assert abs(errors.mean()) < 3.0 * standard_error(errors)
        assert standard_error(errors) < 1e-4


@pytest.mark.parametrize("knob", ["counter_is_stuck", "has_counter"])
def test_energy_counter_absent_or_stuck_never_gives_zero(
    make_driver: DriverMaker, knob: str
) -> None:
    driver = board(make_driver, 0.2)
    driver.set_knob(0, knob, 1.0 if knob == "counter_is_stuck" else 0.0)
    session = open_fake(driver, (lasting(HOT, 0.01),))
    session.gpu.request(POINT)
    with session.runner.loop(HOT.kernel, run="r") as loop:
        loop.run_for(WARM_S)
        begin_s, begin_j = driver.now_s(), driver.true_energy_j(0)
        window = measure_window(session.gpu, loop, POINT, 0, SETTINGS)
        power_w = (driver.true_energy_j(0) - begin_j) / (driver.now_s() - begin_s)
    assert [CaveatKind.ENERGY_FROM_POWER] == [caveat.kind for caveat in window.caveats]
    assert window.energy_j == pytest.approx(power_w * window.time_s, rel=WITHIN_RATIO)


def test_a_counter_that_sticks_after_it_moved_is_replaced_by_power(
    make_driver: DriverMaker,
) -> None:
    driver = board(make_driver, 0.2)
    session = open_fake(driver, (lasting(HOT, 0.01),))
    assert session.gpu.energy_counter_period_s == pytest.approx(COUNTER_PERIOD_S)
    driver.set_knob(0, "counter_is_stuck", 1.0)
    with session.runner.loop(HOT.kernel, run="r") as loop:
        loop.run_for(WARM_S)
        window = measure_window(session.gpu, loop, OperatingPoint(), 0, SETTINGS)
        assert window.energy_j / window.time_s == pytest.approx(driver.true_power_w(0), rel=0.01)
    assert CaveatKind.ENERGY_FROM_POWER in {caveat.kind for caveat in window.caveats}


def test_an_iteration_without_counter_is_measured_by_power(make_driver: DriverMaker) -> None:
    driver = board(make_driver, 0.2)
    driver.set_knob(0, "has_counter", 0.0)
    works = lasting(HOT, 0.21), lasting(COOL, 0.16)
    session = open_fake(driver, works)
    assert session.iterations is not None
    session.gpu.request(POINT)
    launches = tuple(
        PlannedLaunch(kernel=work.kernel, pass_=Pass.FORWARD, point=POINT) for work in works
    )
    task = ReplayTask(
        schedule=Schedule(launches=launches), window=0, iteration_count=30, iteration_s=0.37
    )
    with session.iterations.iterate(launches, (), lambda _point: None, run="r") as loop:
        loop.run_iterations(100)
        window = measure_replay(session.gpu, loop, task, SETTINGS, no_progress)
        loop.run_iterations(1)
        begin_j = driver.true_energy_j(0)
        loop.run_iterations(20)
        true_j = (driver.true_energy_j(0) - begin_j) / 20
    assert [CaveatKind.ENERGY_FROM_POWER] == [caveat.kind for caveat in window.caveats]
    assert window.energy_j == pytest.approx(true_j, rel=0.02)
