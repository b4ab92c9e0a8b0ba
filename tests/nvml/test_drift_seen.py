"""Drift on the fake driver, whose boards lag, dither, cap and have other masters."""

from __future__ import annotations

import pytest
from tests.fake_nvml import open_fake
from tests.nvml.works import WORKS

from joulewise.control.drift import Drift, DriftWatch
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.points import OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.simulator.fake_driver import FakeDriver

LOW = OperatingPoint(sm_clock_mhz=1005)


@pytest.fixture
def session(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> DeviceSession:
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    return open_fake(driver, WORKS)


def seen_under_load(
    session: DeviceSession, point: OperatingPoint, *, second_count: int = 10
) -> list[Drift]:
    """One reading a second, with rests in between."""
    gpu = session.gpu
    gpu.request(point)
    watch = DriftWatch(point, gpu.clock_grid(), asked_s=gpu.now_s())
    seen = []
    for second in range(second_count):
        if second % 4 == 3:
            gpu.wait(1.0)
            seen.append(watch.feed(gpu.sample()))
        else:
            with session.runner.loop("gemm", run="drift") as loop:
                loop.run_for(1.0)
                seen.append(watch.feed(gpu.sample()))
    return seen


@pytest.mark.parametrize(
    ("knob", "value"),
    [("dither_s", 0.3), ("wake_s", 0.5), ("lag_s", 0.5), ("enforced_limit_w", 340.0)],
)
@pytest.mark.parametrize("point", [LOW, OperatingPoint()])
def test_what_boards_do_by_themselves_is_no_drift(
    driver: FakeDriver, session: DeviceSession, point: OperatingPoint, knob: str, value: float
) -> None:
    driver.set_knob(0, knob, value)

    assert {Drift()} == set(seen_under_load(session, point))


def test_a_higher_lock_of_another_is_taken_over_within_four_readings(
    driver: FakeDriver, session: DeviceSession
) -> None:
    at_s = driver.now_s() + 2.0
    driver.foreign_lock(0, at_s=at_s, min_clock_mhz=1500, max_clock_mhz=1500)
    seen = seen_under_load(session, LOW)

    assert frozenset() == seen[2].taken_over
    assert frozenset({"sm_clock_mhz"}) == seen[6].taken_over


def test_a_lower_lock_of_another_is_foreign_though_it_proves_nothing(
    driver: FakeDriver, session: DeviceSession
) -> None:
    at_s = driver.now_s() + 5.0
    driver.foreign_lock(0, at_s=at_s, min_clock_mhz=600, max_clock_mhz=600)
    *_, last = seen_under_load(session, LOW)

    assert [CaveatKind.FOREIGN_CONTROL] == [caveat.kind for caveat in last.caveats]
    assert frozenset() == last.taken_over


@pytest.mark.parametrize(
    ("knob", "value", "kind"),
    [
        ("enforced_limit_w", 130.0, CaveatKind.POWER_CAPPED),
        ("power_brake_mhz", 900.0, CaveatKind.POWER_CAPPED),
        ("hw_thermal_mhz", 900.0, CaveatKind.THERMALLY_THROTTLED),
        ("silent_ceiling_mhz", 900.0, CaveatKind.CLOCK_NOT_HELD),
        ("sync_boost_mhz", 900.0, CaveatKind.CLOCK_NOT_HELD),
    ],
)
def test_what_holds_a_locked_clock_down_is_told(
    driver: FakeDriver, session: DeviceSession, knob: str, value: float, kind: CaveatKind
) -> None:
    driver.set_knob(0, knob, value)
    point = OperatingPoint(sm_clock_mhz=1680)
    kinds = {caveat.kind for drift in seen_under_load(session, point) for caveat in drift.caveats}

    assert {kind} == kinds
