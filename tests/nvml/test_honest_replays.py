"""Windows of whole iterations on the fake driver, disturbed by others."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from tests.fake_nvml import open_fake

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.measurement import ReplayWindow
from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import no_progress
from joulewise.domain.workload import Pass
from joulewise.measure.replay_window import ReplayTask, Schedule, measure_replay
from joulewise.measure.settings import MeasureSettings
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.workload.gpt3_xl import gpt3_xl

WORKS = gpt3_xl().works
SLOW, FAST = OperatingPoint(sm_clock_mhz=900), OperatingPoint(sm_clock_mhz=1500)
LAUNCH_COUNT = 4


def schedule_at(first: OperatingPoint, second: OperatingPoint) -> Schedule:
    """Half of the launches at one point and half at another."""
    launches = tuple(
        PlannedLaunch(
            kernel=WORKS[14].kernel,
            pass_=Pass.FORWARD,
            point=first if number < LAUNCH_COUNT // 2 else second,
        )
        for number in range(LAUNCH_COUNT)
    )
    if first == second:
        return Schedule(launches=launches)
    asked = ((0, first), (LAUNCH_COUNT // 2, second))
    requests = tuple(
        PlannedRequest(launch_index=index, lead_s=0.015, point=point) for index, point in asked
    )
    return Schedule(launches=launches, requests=requests)


def replayed(
    driver: FakeDriver,
    schedule: Schedule,
    disturb: Callable[[], None],
    *,
    repeat_count: int = 0,
) -> ReplayWindow:
    session = open_fake(driver, WORKS, "nvml:0")
    gpu, runner = session.gpu, session.iterations
    assert runner is not None
    gpu.request(schedule.launches[0].point)
    assert gpu.energy_counter_period_s is not None
    with runner.iterate(schedule.launches, schedule.requests, gpu.request, run="r") as loop:
        loop.run_iterations(1)
        begin_s = driver.now_s()
        loop.run_iterations(1)
        iteration_s = driver.now_s() - begin_s
        loop.run_for(5.0)
        disturb()
        task = ReplayTask(
            schedule=schedule,
            window=0,
            iteration_count=math.ceil(6.0 / iteration_s),
            iteration_s=iteration_s,
        )
        settings = MeasureSettings(repeat_count=repeat_count)
        return measure_replay(gpu, loop, task, settings, no_progress)


def kinds(window: ReplayWindow) -> set[CaveatKind]:
    return {caveat.kind for caveat in window.caveats}


@pytest.mark.parametrize(
    "schedule", [schedule_at(AUTO, AUTO), schedule_at(FAST, FAST), schedule_at(SLOW, FAST)]
)
def test_an_undisturbed_replay_is_doubted_for_its_own_sake_only(
    driver: FakeDriver, schedule: Schedule
) -> None:
    window = replayed(driver, schedule, lambda: None)
    # The leads of the schedule are made up, and the board takes its own time.
    own = {CaveatKind.POWER_CAPPED, CaveatKind.CHANGES_LATE, CaveatKind.CHANGES_EARLY}
    assert kinds(window) <= own


@pytest.mark.parametrize("schedule", [schedule_at(AUTO, AUTO), schedule_at(FAST, FAST)])
def test_a_foreign_lock_within_a_replay_is_told(driver: FakeDriver, schedule: Schedule) -> None:
    def disturb() -> None:
        driver.foreign_lock(0, at_s=driver.now_s() + 2.0, min_clock_mhz=600, max_clock_mhz=600)

    assert CaveatKind.FOREIGN_CONTROL in kinds(replayed(driver, schedule, disturb))


def test_a_foreign_lock_outside_the_clocks_of_a_plan_is_told(driver: FakeDriver) -> None:
    def disturb() -> None:
        for number in range(12):
            at_s = driver.now_s() + 0.5 * number + 0.02
            driver.foreign_lock(0, at_s=at_s, min_clock_mhz=300, max_clock_mhz=300)

    window = replayed(driver, schedule_at(SLOW, FAST), disturb)
    assert CaveatKind.FOREIGN_CONTROL in kinds(window)


def test_a_foreign_power_limit_within_a_replay_is_told(driver: FakeDriver) -> None:
    def disturb() -> None:
        driver.set_knob(0, "enforced_limit_w", 250.0)

    window = replayed(driver, schedule_at(FAST, FAST), disturb)
    assert CaveatKind.FOREIGN_CONTROL in kinds(window)


def test_a_foreign_lock_that_passes_costs_a_replay_more_and_no_caveat(driver: FakeDriver) -> None:
    def disturb() -> None:
        now_s = driver.now_s()
        driver.foreign_lock(0, at_s=now_s + 2.0, min_clock_mhz=600, max_clock_mhz=600)
        driver.foreign_lock(0, at_s=now_s + 4.0, min_clock_mhz=210, max_clock_mhz=1500)

    window = replayed(driver, schedule_at(FAST, FAST), disturb, repeat_count=3)
    assert () == window.caveats
    assert window.window > 0


@pytest.mark.parametrize(
    ("knob", "value", "kind"),
    [
        ("power_brake_mhz", 600.0, CaveatKind.POWER_CAPPED),
        ("hw_thermal_mhz", 600.0, CaveatKind.THERMALLY_THROTTLED),
        ("other_process_count", 1.0, CaveatKind.OTHER_PROCESS_ON_GPU),
        ("sync_boost_mhz", 600.0, CaveatKind.CLOCK_NOT_HELD),
    ],
)
def test_what_holds_a_replay_down_is_told_by_its_own_name(
    driver: FakeDriver, knob: str, value: float, kind: CaveatKind
) -> None:
    window = replayed(driver, schedule_at(FAST, FAST), lambda: driver.set_knob(0, knob, value))
    assert {kind} == kinds(window)
