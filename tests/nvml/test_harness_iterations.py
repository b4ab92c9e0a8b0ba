"""Iterations on the fake driver go as on the virtual GPU that has the same lag and stall."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fake_nvml import DriverMaker, open_fake
from tests.nvml.works import WORKS
from tests.replays import requests_for

from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.measurement import IterationTiming
from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.domain.workload import Pass
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.presets import preset
from joulewise.simulator.virtual import open_virtual

# Iterations neither begin nor end with a tick, so ticks come often.
TICK_S = 0.01
VIRTUAL = f"virtual:rtx3080ti,noise=0,counter_period={TICK_S}"
SM_CLOCKS_MHZ = preset("rtx3080ti").grid.sm_clocks_mhz
LOW, HIGH = (
    OperatingPoint(sm_clock_mhz=SM_CLOCKS_MHZ[len(SM_CLOCKS_MHZ) // part]) for part in (4, 2)
)
STALL_POWER_W = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One iteration as it went, in the mean."""

    timing: IterationTiming
    mean_w: float

    @property
    def time_s(self) -> float:
        return self.timing.elapsed_s / self.timing.iteration_count


def launches_of(*parts: tuple[str, OperatingPoint, int]) -> tuple[PlannedLaunch, ...]:
    return tuple(
        PlannedLaunch(kernel=kernel, pass_=Pass.FORWARD, point=point)
        for kernel, point, count in parts
        for _ in range(count)
    )


def fake_session(
    driver: FakeDriver, *, lag_s: float, stall_s: float = 0.0, dwell_s: float = 0.0
) -> DeviceSession:
    """A fake GPU whose calls return at once, as those of a virtual one do."""
    knobs = {
        "set_call_s": 0.0,
        "counter_period_s": TICK_S,
        "lag_s": lag_s,
        "stall_s": stall_s,
        "dwell_s": dwell_s,
        "stall_power_w": STALL_POWER_W,
    }
    for name, value in knobs.items():
        driver.set_knob(0, name, value)
    return open_fake(driver, WORKS)


def model_of(lag_s: float, stall_s: float = 0.0, dwell_s: float = 0.0) -> TransitionModel:
    return uniform_transition(
        "same",
        "a test",
        lag_s=lag_s,
        stall_s=stall_s,
        dwell_s=dwell_s,
        energy_j=STALL_POWER_W * stall_s,
    )


def replay(
    session: DeviceSession,
    launches: tuple[PlannedLaunch, ...],
    requests: tuple[PlannedRequest, ...],
    *,
    warm_s: float = 0.0,
    iteration_count: int = 20,
) -> Replay:
    """Iterations from the third on, begun `warm_s` after the first."""
    assert session.iterations is not None
    gpu = session.gpu
    gpu.request(launches[0].point)
    gpu.wait(1.0)
    with session.iterations.iterate(launches, requests, gpu.request, run="r") as loop:
        loop.run_for(warm_s)
        loop.run_iterations(2)
        loop.begin_window(0)
        start = gpu.sample()
        loop.run_iterations(iteration_count)
        end = gpu.sample()
        timing = loop.end_window()
    assert start.energy_j is not None
    assert end.energy_j is not None
    power_w = (end.energy_j - start.energy_j) / (end.time_s - start.time_s)
    return Replay(timing=timing, mean_w=power_w)


MIXED = launches_of(("gemm", LOW, 4), ("copy", HIGH, 30), ("short", HIGH, 40), ("gemm", LOW, 2))


@pytest.mark.parametrize("stall_s", [0.0, 0.004])
@pytest.mark.parametrize("lag_s", [0.0, 0.01, 0.05])
def test_a_replay_takes_the_time_and_energy_of_the_virtual_gpu(
    driver: FakeDriver, lag_s: float, stall_s: float
) -> None:
    model = model_of(lag_s, stall_s)
    requests = requests_for(MIXED, model)
    fake, virtual = (
        replay(session, MIXED, requests, warm_s=5.0, iteration_count=60)
        for session in (
            fake_session(driver, lag_s=lag_s, stall_s=stall_s),
            open_virtual(VIRTUAL, WORKS, model),
        )
    )
    assert virtual.time_s == pytest.approx(fake.time_s, rel=0.002)
    assert virtual.mean_w == pytest.approx(fake.mean_w, rel=0.002)
    assert virtual.timing.request_count == fake.timing.request_count == 2 * 60
    assert 0 == virtual.timing.late_count == fake.timing.late_count


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
    for fate in ("request_count", "late_count", "skipped_count"):
        assert getattr(virtual.timing, fate) == pytest.approx(getattr(fake.timing, fate), abs=1)
    assert virtual.timing.max_late_s == pytest.approx(fake.timing.max_late_s, abs=1e-5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked when, from the beginning on."""

    asked: tuple[tuple[float, str], ...]
    timing: IterationTiming


def asked_in(
    session: DeviceSession,
    launches: tuple[PlannedLaunch, ...],
    requests: tuple[PlannedRequest, ...],
) -> Asked:
    assert session.iterations is not None
    gpu = session.gpu
    gpu.request(launches[0].point)
    gpu.wait_for_energy_tick(1.0)
    # A virtual loop waits for a tick.
    gpu.wait(1.0 - 1e-9 if session.transition is None else 1.0)
    asked: list[tuple[float, str]] = []

    def ask(point: OperatingPoint) -> None:
        asked.append((gpu.sample().time_s, point.label))
        gpu.request(point)

    with session.iterations.iterate(launches, requests, ask, run="r") as loop:
        begun_s = gpu.sample().time_s
        loop.begin_window(0)
        loop.run_iterations(30)
        timing = loop.end_window()
    return Asked(
        asked=tuple((at_s - begun_s, label) for at_s, label in asked if at_s > begun_s),
        timing=timing,
    )


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
    assert 0 == seen.timing.late_count


@FEW
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
    # that had to wait.
    made = seen.timing.request_count + seen.timing.skipped_count
    waiting = 2 * len(requests) * (1 + round(call_s / seen.time_s))
    assert 20 * len(requests) == pytest.approx(made, abs=waiting)


def test_a_punctual_request_is_in_force_when_its_launch_begins(driver: FakeDriver) -> None:
    launches = launches_of(("gemm", LOW, 8), ("copy", HIGH, 40))
    session = fake_session(driver, lag_s=0.012)
    seen = replay(session, launches, requests_for(launches, model_of(0.012)))
    times_s = [
        math.fsum(
            driver.steady(0, number, launch.point).time_s
            for launch in launches
            for number, work in enumerate(WORKS)
            if work.kernel == launch.kernel
        )
    ]
    assert times_s[0] == pytest.approx(seen.time_s, rel=1e-6)
    assert 0 == seen.timing.late_count
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


def test_windows_begin_and_end_with_an_iteration(driver: FakeDriver) -> None:
    launches = launches_of(("gemm", AUTO, 3), ("copy", AUTO, 5))
    session = open_fake(driver, WORKS)
    assert session.iterations is not None
    with session.iterations.iterate(launches, (), session.gpu.request, run="r") as loop:
        loop.run_for(0.01)
        loop.begin_window(0)
        loop.run_for(0.2)
        first = loop.end_window()
        loop.begin_window(1)
        second = loop.end_window()
    time_s = first.elapsed_s / first.iteration_count
    assert 0.2 >= first.elapsed_s > 0.2 - time_s
    assert 1 == second.iteration_count
    assert time_s == pytest.approx(second.elapsed_s, rel=1e-6)
    assert 0 == first.request_count


def test_what_asking_raises_comes_out_of_whatever_lets_time_pass(driver: FakeDriver) -> None:
    launches = launches_of(("gemm", LOW, 3), ("copy", HIGH, 5))
    session = open_fake(driver, WORKS)
    assert session.iterations is not None

    def refuse(point: OperatingPoint) -> None:
        raise MeasurementError(f"nobody takes {point.label}")

    # The other one is due at once.
    requests = requests_for(launches, None)[1:]
    with session.iterations.iterate(launches, requests, refuse, run="r") as loop:
        ways: list[Callable[[], object]] = [
            lambda: loop.run_for(1.0),
            lambda: loop.run_iterations(1),
            lambda: session.gpu.wait(1.0),
        ]
        for let_pass in ways:
            with pytest.raises(MeasurementError, match="nobody takes"):
                let_pass()
    session.gpu.wait(1.0)


def test_noise_blurs_an_iteration_as_it_blurs_its_cells(driver: FakeDriver) -> None:
    from tests.nvml.test_harness_loops import AUTO_TIMES_S

    from joulewise.simulator.fake_board import fake_noise
    from joulewise.simulator.fake_runner import open_fake_session_parts

    noise = fake_noise("noise=stress,seed=2")
    runner, iterations, _ = open_fake_session_parts(driver, 0, WORKS, noise=noise)
    launches = launches_of(("gemm", AUTO, 3), ("copy", AUTO, 5))

    def ask(_point: OperatingPoint) -> None:
        raise InputError("nothing is asked for")

    with iterations.iterate(launches, (), ask, run="r") as loop:
        loop.begin_window(7)
        loop.run_iterations(10)
        timing = loop.end_window()
    virtual = open_virtual("virtual:rtx3080ti,noise=stress,seed=2", WORKS)
    assert virtual.iterations is not None
    with virtual.iterations.iterate(launches, (), ask, run="r") as loop:
        loop.begin_window(7)
        loop.run_iterations(10)
        expected = loop.end_window()
    plain_s = 3 * AUTO_TIMES_S["gemm"] + 5 * AUTO_TIMES_S["copy"]
    assert runner.kernels
    assert expected.elapsed_s == pytest.approx(timing.elapsed_s, rel=1e-6)
    assert plain_s != pytest.approx(timing.elapsed_s / 10, rel=1e-4)


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
