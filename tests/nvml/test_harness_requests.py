"""Requests on the fake driver: when each is made, and what becomes of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.fake_nvml import DriverMaker, open_fake
from tests.nvml.replaying import (
    HIGH,
    LOW,
    MIXED,
    VIRTUAL,
    asked_in,
    fake_session,
    launches_of,
    model_of,
    replay,
)
from tests.nvml.works import WORKS
from tests.replays import requests_for

from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Pass
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual


@pytest.mark.parametrize(
    ("lag_s", "lead_s", "stall_s", "dwell_s"),
    [
        (0.01, 0.0, 0.0, 0.0),
        (0.01, 0.01, 0.0, 0.12),
        (0.01, 0.2, 0.0, 0.0),
        (0.15, 0.15, 0.0, 0.0),
        (0.15, 0.15, 0.004, 0.0),
    ],
)
def test_requests_that_cannot_be_kept_fare_as_on_the_virtual_gpu(
    driver: FakeDriver, lag_s: float, lead_s: float, stall_s: float, dwell_s: float
) -> None:
    requests = requests_for(MIXED, model_of(lead_s))
    fake, virtual = (
        asked_in(session, MIXED, requests)
        for session in (
            fake_session(driver, lag_s=lag_s, stall_s=stall_s, dwell_s=dwell_s),
            open_virtual(VIRTUAL, WORKS, model_of(lag_s, stall_s, dwell_s)),
        )
    )
    assert [label for _, label in virtual.asked] == [label for _, label in fake.asked]
    expected_s = [at_s for at_s, _ in virtual.asked]
    assert expected_s == pytest.approx([at_s for at_s, _ in fake.asked], abs=1e-5)
    for fate in ("request_count", "late_count", "early_count", "skipped_count"):
        assert getattr(virtual.timing, fate) == pytest.approx(getattr(fake.timing, fate), abs=1)
    assert virtual.timing.max_late_s == pytest.approx(fake.timing.max_late_s, abs=1e-5)
    assert virtual.timing.max_early_s == pytest.approx(fake.timing.max_early_s, abs=1e-5)


POINTS = tuple(
    OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem)
    for sm in (900, 1200)
    for mem in (None, 5001, 9501)
)
LAUNCHES = st.lists(
    st.builds(
        PlannedLaunch,
        kernel=st.sampled_from([work.kernel for work in WORKS]),
        pass_=st.just(Pass.FORWARD),
        point=st.sampled_from(POINTS),
    ),
    min_size=1,
    max_size=8,
).map(tuple)
ORACLE = open_oracle(VIRTUAL, WORKS)
TIMES_S, _ = ORACLE.table(POINTS)
SLOWEST_S, FASTEST_S = TIMES_S.max(axis=1), TIMES_S.min(axis=1)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@FEW
@given(launches=LAUNCHES, share=st.floats(min_value=0.0, max_value=0.95))
def test_requests_their_lag_ahead_take_effect_at_their_launches(
    make_driver: DriverMaker, launches: tuple[PlannedLaunch, ...], share: float
) -> None:
    """A lag below the shortest launch can always be kept."""
    lag_s = share * float(FASTEST_S.min())
    requests = requests_for(launches, model_of(lag_s))
    seen = replay(fake_session(make_driver(), lag_s=lag_s), launches, requests)
    running_s, _ = ORACLE.true_iteration(launches)
    assert running_s == pytest.approx(seen.time_s, abs=1e-8 * len(launches), rel=1e-6)
    assert 20 * len(requests) == seen.timing.request_count
    assert 0 == seen.timing.late_count == seen.timing.early_count


@FEW
@example(
    launches=tuple(
        PlannedLaunch(
            kernel="copy",
            pass_=Pass.FORWARD,
            point=OperatingPoint(sm_clock_mhz=900, mem_clock_mhz=mem),
        )
        for mem in (None, 9501)
    ),
    lag_s=0.0,
    call_s=0.004,
    leads_s=[0.0] * 8,
)
@example(
    launches=tuple(
        PlannedLaunch(
            kernel="short",
            pass_=Pass.FORWARD,
            point=OperatingPoint(sm_clock_mhz=900, mem_clock_mhz=mem),
        )
        for mem in (5001, 9501)
    ),
    lag_s=0.0078125,
    call_s=0.004,
    leads_s=[0.0, 0.5] + [0.0] * 6,
)
@given(
    launches=LAUNCHES,
    lag_s=st.floats(min_value=0.0, max_value=0.05),
    call_s=st.sampled_from([0.0, 0.004]),
    leads_s=st.lists(st.floats(min_value=0.0, max_value=0.5), min_size=8, max_size=8),
)
def test_whatever_is_asked_for_an_iteration_lies_between_its_fastest_and_its_slowest(
    make_driver: DriverMaker,
    launches: tuple[PlannedLaunch, ...],
    lag_s: float,
    call_s: float,
    leads_s: list[float],
) -> None:
    requests = tuple(
        PlannedRequest(launch_index=one.launch_index, lead_s=lead_s, point=one.point)
        for one, lead_s in zip(requests_for(launches, None), leads_s, strict=False)
    )
    driver = make_driver()
    session = fake_session(driver, lag_s=lag_s)
    driver.set_knob(0, "set_call_s", call_s)
    seen = replay(session, launches, requests)
    rows = [[work.kernel for work in WORKS].index(one.kernel) for one in launches]
    assert seen.time_s <= math.fsum(SLOWEST_S[row] for row in rows) + 1e-6
    assert seen.time_s >= math.fsum(FASTEST_S[row] for row in rows) - 1e-6
    # By the end of the window the same leads have come due as by its start, give or take those
    # that had to wait until the one before was in force: its call and its lag.
    made = seen.timing.request_count + seen.timing.skipped_count
    waiting = 2 * len(requests) * (1 + round((call_s + lag_s) / seen.time_s))
    # Calls that take longer than an iteration let some more pass than were waited for.
    iterations = seen.timing.iteration_count
    assert iterations >= 20
    assert iterations * len(requests) == pytest.approx(made, abs=waiting)


def test_iterations_go_on_where_calls_take_longer_than_from_request_to_request(
    driver: FakeDriver,
) -> None:
    launches = launches_of(("short", LOW, 1), ("short", HIGH, 1))
    session = fake_session(driver, lag_s=0.001)
    driver.set_knob(0, "set_call_s", 0.004)
    seen = replay(session, launches, requests_for(launches, model_of(0.0)))
    assert seen.time_s < 0.004
    assert seen.timing.skipped_count > seen.timing.request_count > 0


def test_a_punctual_request_is_in_force_when_its_launch_begins(driver: FakeDriver) -> None:
    launches = launches_of(("gemm", LOW, 8), ("copy", HIGH, 40))
    session = fake_session(driver, lag_s=0.012)
    seen = replay(session, launches, requests_for(launches, model_of(0.012)))
    running_s, _ = ORACLE.true_iteration(launches)
    assert running_s == pytest.approx(seen.time_s, rel=1e-6)
    assert 0 == seen.timing.late_count == seen.timing.early_count
    assert 2 * seen.timing.iteration_count == seen.timing.request_count


def test_a_request_without_lead_is_late_by_its_lag(driver: FakeDriver) -> None:
    launches = launches_of(("gemm", LOW, 8), ("copy", HIGH, 40))
    seen = replay(
        fake_session(driver, lag_s=0.012), launches, requests_for(launches, model_of(0.0))
    )
    assert seen.timing.request_count == seen.timing.late_count
    assert 0.012 == pytest.approx(seen.timing.max_late_s, abs=1e-6)


def test_calls_that_block_delay_what_comes_after(driver: FakeDriver) -> None:
    """The next request waits for the call; the launches go on meanwhile."""
    launches = launches_of(("gemm", LOW, 8), ("copy", HIGH, 40))
    session = fake_session(driver, lag_s=0.012)
    driver.set_knob(0, "set_call_s", 0.005)
    seen = replay(session, launches, requests_for(launches, model_of(0.012 + 0.005)))
    assert 2 * seen.timing.iteration_count == pytest.approx(seen.timing.request_count, abs=2)
    assert seen.timing.max_late_s < 0.006


def test_requests_are_made_in_real_time_too(make_driver: DriverMaker) -> None:
    driver = make_driver(is_virtual_time=False)
    launches = launches_of(("gemm", LOW, 5), ("copy", HIGH, 20))
    requests = requests_for(launches, model_of(driver.knob(0, "lag_s")))
    session = open_fake(driver, WORKS)
    assert session.iterations is not None
    session.gpu.request(LOW)
    seen = set()
    with session.iterations.iterate(launches, requests, session.gpu.request, run="r") as loop:
        loop.begin_window(0)
        for _ in range(200):
            loop.run_for(0.002)
            seen.add(driver.true_sm_clock_mhz(0))
        timing = loop.end_window()
    assert {LOW.sm_clock_mhz, HIGH.sm_clock_mhz} <= seen
    assert timing.iteration_count > 1
    assert timing.request_count + timing.skipped_count >= 2 * (timing.iteration_count - 1)
