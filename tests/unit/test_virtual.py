"""The virtual GPU at run time: clocks, heat, sensors, disturbances."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.plan import PlannedLaunch
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.workload import Dtype, KernelKind, KernelWork, Pass
from joulewise.simulator.boards import board
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.physics import idle_power_w, steady_state
from joulewise.simulator.presets import nvml_preset_names, preset, preset_names
from joulewise.simulator.virtual import open_virtual

SETTLED_S = 80.0
MODERATE = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=9501)


def _work(kernel: str, flop_count: float, traffic_bytes: float) -> KernelWork:
    return KernelWork(
        kernel=kernel,
        kind=KernelKind.GEMM,
        dtype=Dtype.FP16,
        flop_count=flop_count,
        traffic_bytes=traffic_bytes,
        compute_efficiency_ratio=0.6,
        memory_efficiency_ratio=0.8,
        core_activity_ratio=1.0,
        memory_activity_ratio=0.5,
    )


WORKS = (_work("compute", 3e10, 1e7), _work("memory", 1e8, 2e8), _work("long", 9e13, 1e9))


def _open(options: str = "noise=0", name: str = "rtx3080ti") -> DeviceSession:
    return open_virtual(f"virtual:{name},{options}", WORKS)


def _launch(
    session: DeviceSession, kernel: str, window: int = 0, run: str = "r"
) -> tuple[float, float]:
    """Time per launch and mean power of one settled window."""
    gpu = session.gpu
    with session.runner.loop(kernel, run=run) as loop:
        loop.run_for(SETTLED_S)
        start = gpu.wait_for_energy_tick(1.0)
        loop.begin_window(window)
        loop.run_for(5.0)
        end = gpu.wait_for_energy_tick(1.0)
        timing = loop.end_window()
    return timing.elapsed_s / timing.launch_count, _mean_power_w(start, end)


def _mean_power_w(start: GpuSample, end: GpuSample) -> float:
    assert start.energy_j is not None
    assert end.energy_j is not None
    return (end.energy_j - start.energy_j) / (end.time_s - start.time_s)


@pytest.mark.parametrize("name", nvml_preset_names())
def test_without_noise_a_settled_window_is_the_steady_state_of_the_physics(name: str) -> None:
    session = _open(name=name)
    truth = steady_state(preset(name), WORKS[:2], [AUTO])
    for row, kernel in enumerate(("compute", "memory")):
        time_s, power_w = _launch(session, kernel)
        assert time_s == pytest.approx(float(truth.time_s[row, 0]), rel=1e-12)
        assert power_w == pytest.approx(float(truth.power_w[row, 0]), rel=1e-5)


def test_idle_power_is_that_of_the_physics() -> None:
    session = _open()
    session.gpu.request(MODERATE)
    session.gpu.wait(SETTLED_S)
    start = session.gpu.wait_for_energy_tick(1.0)
    session.gpu.wait(5.0)
    end = session.gpu.wait_for_energy_tick(1.0)
    expected = idle_power_w(preset("rtx3080ti"), MODERATE)
    assert _mean_power_w(start, end) == pytest.approx(expected, rel=1e-5)


def test_every_preset_has_a_board_and_an_unknown_one_is_refused() -> None:
    for name in preset_names():
        spec = board(name)
        assert spec.thermal.equilibrium_c(preset(name).auto_set_point_w) < (
            spec.thermal.slowdown_temp_c
        )
    with pytest.raises(InputError, match="gtx9"):
        board("gtx9")


def test_virtual_devices_say_that_they_are_simulated_and_whether_they_are_calibrated() -> None:
    for name in preset_names():
        identity = _open(name=name).gpu.identity
        kinds = {caveat.kind for caveat in identity.caveats}
        assert identity.is_simulated
        assert CaveatKind.SIMULATED_DEVICE in kinds
        assert (CaveatKind.UNCALIBRATED in kinds) is not preset(name).is_calibrated


def test_the_identity_spec_opens_the_same_device_again() -> None:
    first = _open("seed=7,noise=stress,lag=20ms")
    again = open_virtual(first.gpu.identity.spec, WORKS)
    assert again.gpu.identity == first.gpu.identity
    assert _launch(first, "compute") == _launch(again, "compute")


def test_a_requested_point_takes_effect_after_the_transition_lag() -> None:
    session = _open("noise=0,lag=20ms")
    gpu = session.gpu
    with session.runner.loop("memory", run="r") as loop:
        loop.run_for(1.0)
        gpu.request(MODERATE)
        loop.run_for(0.019)
        assert gpu.sample().sm_clock_mhz != 1200
        loop.run_for(0.002)
        assert gpu.sample().sm_clock_mhz == 1200


def test_without_lag_a_point_is_in_force_at_once() -> None:
    session = _open("noise=0,lag=0")
    with session.runner.loop("memory", run="r"):
        session.gpu.request(MODERATE)
        assert session.gpu.sample().sm_clock_mhz == 1200


def test_a_clock_changed_within_a_window_counts_launches_of_both() -> None:
    session = _open("noise=0,lag=0")
    oracle = open_oracle("virtual:rtx3080ti", WORKS)
    slow = OperatingPoint(sm_clock_mhz=600, mem_clock_mhz=9501)
    times_s, _ = oracle.table([slow, MODERATE])
    session.gpu.request(slow)
    with session.runner.loop("compute", run="r") as loop:
        loop.begin_window(0)
        loop.run_for(2.0)
        session.gpu.request(MODERATE)
        loop.run_for(3.0)
        timing = loop.end_window()
    launches = 2.0 / float(times_s[0, 0]) + 3.0 / float(times_s[0, 1])
    assert timing.launch_count == math.floor(launches)
    assert timing.elapsed_s / timing.launch_count == pytest.approx(5.0 / launches, rel=1e-9)


def test_a_window_shorter_than_a_launch_waits_for_that_launch() -> None:
    session = _open()
    with session.runner.loop("long", run="r") as loop:
        before = session.gpu.sample()
        loop.begin_window(0)
        loop.run_for(0.001)
        timing = loop.end_window()
        after = session.gpu.sample()
    assert timing.launch_count == 1
    assert timing.elapsed_s == pytest.approx(after.time_s - before.time_s, rel=1e-6)


def test_memory_at_its_lowest_clock_holds_the_core_low() -> None:
    session = _open()
    session.gpu.request(OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=405))
    with session.runner.loop("compute", run="r") as loop:
        loop.run_for(1.0)
        sample = session.gpu.sample()
    assert sample.mem_clock_mhz == 405
    assert sample.sm_clock_mhz == 420


def test_a_power_limit_holds_power_down_and_is_counted_as_capped_time() -> None:
    session = _open()
    _, free_w = _launch(session, "compute")
    limit_w = 0.8 * free_w
    session.gpu.request(OperatingPoint(power_limit_w=limit_w))
    before = session.gpu.sample()
    _, held_w = _launch(session, "compute")
    after = session.gpu.sample()
    assert held_w == pytest.approx(limit_w, rel=0.02)
    assert before.power_capped_s is not None
    assert after.power_capped_s is not None
    assert after.power_capped_s - before.power_capped_s == pytest.approx(
        after.time_s - before.time_s, abs=0.2
    )


def test_a_cold_board_leaks_less_on_its_way_to_equilibrium() -> None:
    session = _open()
    thermal = board("rtx3080ti").thermal
    with session.runner.loop("compute", run="r") as loop:
        cold = session.gpu.wait_for_energy_tick(1.0)
        loop.run_for(0.05)
        early_w = _mean_power_w(cold, session.gpu.wait_for_energy_tick(1.0))
        loop.run_for(SETTLED_S)
        warm = session.gpu.wait_for_energy_tick(1.0)
        late_w = _mean_power_w(warm, session.gpu.wait_for_energy_tick(1.0))
    assert warm.temp_c == round(thermal.equilibrium_c(late_w))
    assert cold.temp_c is not None
    expected_w = late_w - thermal.leakage_w_per_c * (thermal.equilibrium_c(late_w) - cold.temp_c)
    assert early_w == pytest.approx(expected_w, abs=0.5)


def test_a_board_that_gets_too_hot_slows_down_and_says_so() -> None:
    hot, cool = _open("noise=0,ambient=60"), _open("noise=0")
    cool_time_s, cool_w = _launch(cool, "compute")
    hot_time_s, hot_w = _launch(hot, "compute")
    thermal = board("rtx3080ti").thermal
    with hot.runner.loop("compute", run="r") as loop:
        loop.run_for(SETTLED_S)
        sample = hot.gpu.sample()
    assert hot_time_s > 1.05 * cool_time_s
    assert hot_w < cool_w
    assert sample.temp_c == pytest.approx(thermal.slowdown_temp_c, abs=1)
    assert sample.thermally_throttled_s is not None
    assert sample.thermally_throttled_s > 60
    assert cool.gpu.sample().thermally_throttled_s == 0


def test_a_hot_board_runs_free_until_it_reaches_its_limit() -> None:
    session = _open("noise=0,ambient=60")
    with session.runner.loop("compute", run="r") as loop:
        loop.run_for(0.5)
        assert session.gpu.sample().thermally_throttled_s == 0
        loop.run_for(SETTLED_S)
        first = session.gpu.sample()
        loop.run_for(10.0)
        second = session.gpu.sample()
    assert first.thermally_throttled_s is not None
    assert second.thermally_throttled_s == pytest.approx(first.thermally_throttled_s + 10.0)


def test_heat_that_no_slowdown_can_hold_still_lets_time_pass() -> None:
    session = _open("noise=0,ambient=120")
    session.gpu.wait(10.0)
    with session.runner.loop("compute", run="r") as loop:
        loop.run_for(10.0)
        sample = session.gpu.sample()
    assert sample.time_s == pytest.approx(20.0, abs=0.2)
    assert sample.thermally_throttled_s == pytest.approx(10.0, abs=0.2)


def test_another_process_shows_takes_time_and_draws_power() -> None:
    session = _open("noise=0,foreign=100..200")
    alone_time_s, alone_w = _launch(session, "memory")
    assert session.gpu.sample().other_process_count == 0
    session.gpu.wait(101.0 - session.gpu.sample().time_s)
    shared_time_s, shared_w = _launch(session, "memory")
    assert session.gpu.sample().other_process_count == 1
    session.gpu.wait(100.0)
    after = _launch(session, "memory")
    assert session.gpu.sample().other_process_count == 0
    assert shared_time_s > 1.1 * alone_time_s
    assert shared_w > alone_w + 10
    assert after == (alone_time_s, alone_w)


def test_the_energy_counter_goes_back_once_when_asked_to() -> None:
    session = _open("noise=0,counter_reset=10")
    readings = []
    for _ in range(40):
        session.gpu.wait(0.5)
        energy_j = session.gpu.sample().energy_j
        assert energy_j is not None
        readings.append(energy_j)
    falls = [earlier > later for earlier, later in itertools.pairwise(readings)]
    assert falls.count(True) == 1
    assert readings[falls.index(True) + 1] < 5.0


def test_the_counter_period_can_be_set() -> None:
    session = _open("noise=0,counter_period=20ms")
    first = session.gpu.wait_for_energy_tick(1.0)
    second = session.gpu.wait_for_energy_tick(1.0)
    assert session.gpu.energy_counter_period_s == pytest.approx(0.02, abs=1e-9)
    assert second.time_s - first.time_s == session.gpu.energy_counter_period_s


def test_power_is_an_average_over_the_last_second() -> None:
    session = _open()
    session.gpu.wait(SETTLED_S)
    idle_w = session.gpu.sample().power_w
    with session.runner.loop("memory", run="r") as loop:
        loop.run_for(0.5)
        half_w = session.gpu.sample().power_w
        loop.run_for(0.5)
        full_w = session.gpu.sample().power_w
    assert idle_w is not None
    assert half_w is not None
    assert full_w is not None
    assert half_w == pytest.approx((idle_w + full_w) / 2, rel=0.02)


def test_the_oracle_adds_launches_up() -> None:
    oracle = open_oracle("virtual:rtx3080ti,seed=5,noise=stress", WORKS)
    time_s, energy_j = oracle.table([AUTO, MODERATE])
    launches = [
        PlannedLaunch(kernel="memory", pass_=Pass.FORWARD, point=AUTO),
        PlannedLaunch(kernel="compute", pass_=Pass.FORWARD, point=MODERATE),
        PlannedLaunch(kernel="memory", pass_=Pass.BACKWARD, point=AUTO),
    ]
    actual = oracle.true_iteration(launches)
    expected = (2 * time_s[1, 0] + time_s[0, 1], 2 * energy_j[1, 0] + energy_j[0, 1])
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    with pytest.raises(InputError, match="nothing"):
        oracle.true_iteration([PlannedLaunch(kernel="nothing", pass_=Pass.FORWARD, point=AUTO)])


def test_one_kernel_runs_at_a_time() -> None:
    session = _open()
    with (
        session.runner.loop("compute", run="r"),
        pytest.raises(MeasurementError, match="memory"),
        session.runner.loop("memory", run="r"),
    ):
        pass


def test_windows_do_not_nest_and_loops_end_with_their_block() -> None:
    session = _open()
    with session.runner.loop("compute", run="r") as loop:
        with pytest.raises(MeasurementError, match="no window"):
            loop.end_window()
        loop.begin_window(0)
        with pytest.raises(MeasurementError, match="already open"):
            loop.begin_window(1)
    with pytest.raises(MeasurementError, match="runs no more"):
        loop.run_for(1.0)


def test_an_error_inside_the_block_still_stops_the_kernel() -> None:
    session = _open()
    with pytest.raises(ZeroDivisionError), session.runner.loop("compute", run="r"):
        _ = 1 / 0
    idle_clock = session.gpu.clock_grid().sm_clocks_mhz[0]
    assert session.gpu.sample().sm_clock_mhz == idle_clock


def test_a_kernel_has_one_work() -> None:
    with pytest.raises(InputError, match="compute"):
        open_virtual("virtual:rtx3080ti", (*WORKS, WORKS[0]))


def test_a_device_opens_without_works_to_show_what_it_is() -> None:
    session = open_virtual("virtual:a100-sxm", ())
    assert session.runner.kernels == ()
    assert session.gpu.sample().energy_j == 0.0
