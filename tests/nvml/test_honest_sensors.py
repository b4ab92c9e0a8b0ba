"""Sensors of the fake driver's boards, found out through the real binding."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.fake_nvml import DriverMaker, open_fake

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import Gpu
from joulewise.domain.sensor_probe import SensorProbe, UpdatePeriod
from joulewise.measure.memory_lock import check_memory_lock
from joulewise.measure.sensors import SensorSettings, probe_sensors
from joulewise.measure.settings import MeasureSettings
from joulewise.simulator.boards import board
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.workload.gpt3_xl import gpt3_xl

WORKS = gpt3_xl().works
GEMM = next(work for work in WORKS if "gemm_logits" in work.kernel)
STREAM = next(work for work in WORKS if "bias_gradient" in work.kernel)
QUICK = SensorSettings(
    idle_s=3.0,
    warm_up_s=3.0,
    steady_s=5.0,
    poll_s=0.002,
    poll_duration_s=1.5,
    hold_s=2.1,
    short_hold_s=0.3,
    short_step_count=32,
)
NO_STEPS = replace(QUICK, step_count=0, short_step_count=0)
PROFILES = ["rtx3080ti", "a100-sxm", "h100-sxm", "rtx4090"]


def _probe(driver: FakeDriver, settings: SensorSettings = QUICK) -> SensorProbe:
    session = open_fake(driver, (GEMM,))
    return probe_sensors(session.gpu, session.runner, GEMM.kernel, settings)


def _period_s(found: UpdatePeriod | None) -> float:
    assert found is not None
    return found.period_s


@pytest.mark.parametrize("profile", PROFILES)
def test_the_sensors_of_every_profile_are_found_as_they_are(
    make_driver: DriverMaker, profile: str
) -> None:
    driver = make_driver(profile)
    probe = _probe(driver)
    sensors = board(profile).sensors
    assert _period_s(probe.counter) == pytest.approx(sensors.energy_period_s, rel=0.01)
    assert _period_s(probe.power) == pytest.approx(sensors.power_period_s, rel=0.01)
    assert probe.instant_window_s == pytest.approx(sensors.instant_window_s, rel=0.1)
    if profile == "a100-sxm":
        # GA100 has no second reading: NVML's average power exists on later chips only.
        assert (None, None) == (probe.average_power, probe.average_window_s)
    else:
        assert _period_s(probe.average_power) == pytest.approx(sensors.power_period_s, rel=0.01)
        assert probe.average_window_s == pytest.approx(1.0, rel=0.05)
    assert probe.power_excess_ratio == pytest.approx(0.0, abs=0.005)
    assert CaveatKind.COUNTER_DISAGREES not in {caveat.kind for caveat in probe.caveats}


@pytest.mark.parametrize(("counter_period_s", "power_period_s"), [(0.07, 0.02), (0.25, 0.1)])
def test_other_periods_and_windows_are_found_too(
    driver: FakeDriver, counter_period_s: float, power_period_s: float
) -> None:
    driver.set_knob(0, "counter_period_s", counter_period_s)
    driver.set_knob(0, "power_period_s", power_period_s)
    driver.set_knob(0, "instant_window_s", 0.5 * power_period_s)
    driver.set_knob(0, "average_window_s", 0.6)
    probe = _probe(driver)
    assert _period_s(probe.counter) == pytest.approx(counter_period_s, rel=0.02)
    assert _period_s(probe.power) == pytest.approx(power_period_s, rel=0.02)
    assert probe.average_window_s == pytest.approx(0.6, rel=0.05)
    assert probe.instant_window_s == pytest.approx(0.5 * power_period_s, rel=0.25)


def test_idle_power_is_what_the_idle_board_truly_draws(driver: FakeDriver) -> None:
    session = open_fake(driver, ())
    session.gpu.wait(300.0)
    probe = probe_sensors(session.gpu, None, None)
    assert probe.idle_power_w == pytest.approx(driver.true_power_w(0), rel=0.005)
    assert (None, None, 30.0) == (probe.kernel, probe.instant_window_s, probe.idle_s)
    assert _period_s(probe.counter) == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize(("gain_ratio", "is_doubted"), [(0.98, False), (187 / 327, True)])
def test_energy_counter_disagrees_with_integrated_power(
    driver: FakeDriver, *, gain_ratio: float, is_doubted: bool
) -> None:
    driver.set_knob(0, "counter_gain_ratio", gain_ratio)
    probe = _probe(driver, NO_STEPS)
    assert probe.power_excess_ratio == pytest.approx(1.0 / gain_ratio - 1.0, abs=0.01)
    assert is_doubted == (CaveatKind.COUNTER_DISAGREES in {caveat.kind for caveat in probe.caveats})


def test_no_energy_on_gpus_without_counter_is_no_zero(driver: FakeDriver) -> None:
    driver.set_knob(0, "has_counter", 0.0)
    probe = _probe(driver, NO_STEPS)
    assert (None, None) == (probe.counter, probe.power_excess_ratio)
    assert probe.idle_power_w is not None
    assert probe.idle_power_w > 10.0
    assert CaveatKind.ENERGY_FROM_POWER in {caveat.kind for caveat in probe.caveats}


class PlainLease:
    """Sets points; nobody else wants to."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.point: OperatingPoint | None = None

    def apply(self, point: OperatingPoint) -> None:
        self._gpu.request(point)
        self.point = point

    def release(self) -> None:
        self._gpu.reset()


@pytest.mark.parametrize(
    ("slowdown_ratio", "kinds"), [(0.0, []), (0.16, [CaveatKind.MEMORY_LOCK_SLOWS])]
)
def test_memory_lock_costs_16_percent_though_the_clock_reads_its_highest(
    driver: FakeDriver, slowdown_ratio: float, kinds: list[CaveatKind]
) -> None:
    driver.set_knob(0, "memory_lock_slowdown_ratio", slowdown_ratio)
    session = open_fake(driver, (STREAM,))
    lease = PlainLease(session.gpu)
    caveats = check_memory_lock(session, lease, STREAM.kernel, MeasureSettings())
    assert kinds == [caveat.kind for caveat in caveats]
    assert AUTO == lease.point


def test_a_device_string_without_memory_locks_is_not_checked_for_them(driver: FakeDriver) -> None:
    session = open_fake(driver, (STREAM,), "nvml:0")
    lease = PlainLease(session.gpu)
    assert () == check_memory_lock(session, lease, STREAM.kernel, MeasureSettings())
    assert lease.point is None
