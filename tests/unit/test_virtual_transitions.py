"""What changes of the operating point do on a virtual board."""

from __future__ import annotations

import math

import pytest

from joulewise.domain.measurement import GpuSample, LoopTiming
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import (
    TransitionCost,
    TransitionDomain,
    TransitionModel,
    uniform_transition,
)
from joulewise.domain.transition_presets import (
    TRANSITION_PRESETS,
    transition_preset,
    transition_preset_names,
)
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual

WORKS = (
    KernelWork(
        kernel="copy",
        kind=KernelKind.OTHER,
        dtype=Dtype.FP16,
        flop_count=1e8,
        traffic_bytes=2e8,
        compute_efficiency_ratio=0.6,
        memory_efficiency_ratio=0.8,
        core_activity_ratio=1.0,
        memory_activity_ratio=0.5,
    ),
)
SLOW = OperatingPoint(sm_clock_mhz=600, mem_clock_mhz=9501)
FAST = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=9501)
LOW_MEMORY = OperatingPoint(sm_clock_mhz=600, mem_clock_mhz=5001)


def _open(options: str = "", model: TransitionModel | None = None) -> DeviceSession:
    return open_virtual(f"virtual:rtx3080ti,noise=0{options}", WORKS, model)


def _joules(sample: GpuSample) -> float:
    assert sample.energy_j is not None
    return sample.energy_j


def _changes(session: DeviceSession, *points: OperatingPoint) -> LoopTiming:
    """A window of 2 s in which each point is asked for, 0.1 s apart; SLOW is in force before."""
    session.gpu.request(SLOW)
    with session.runner.loop("copy", run="r") as loop:
        loop.run_for(1.0)
        loop.begin_window(0)
        for point in points:
            session.gpu.request(point)
            loop.run_for(0.1)
        loop.run_for(2.0 - 0.1 * len(points))
        return loop.end_window()


def _launch_s(point: OperatingPoint) -> float:
    time_s, _ = open_oracle("virtual:rtx3080ti", WORKS).table([point])
    return float(time_s[0, 0])


def test_launches_do_not_go_on_while_the_gpu_waits() -> None:
    timing = _changes(_open(",stall=5ms"), FAST, SLOW)
    launches = (0.1 - 0.005) / _launch_s(FAST) + (1.9 - 0.005) / _launch_s(SLOW)
    assert timing.launch_count == math.floor(launches)
    assert timing.elapsed_s / timing.launch_count == pytest.approx(2.0 / launches, rel=1e-6)


def test_lag_and_stall_follow_one_another() -> None:
    timing = _changes(_open(",stall=5ms,lag=20ms"), FAST)
    launches = 0.02 / _launch_s(SLOW) + (2.0 - 0.025) / _launch_s(FAST)
    assert timing.elapsed_s / timing.launch_count == pytest.approx(2.0 / launches, rel=1e-6)


def test_clocks_read_as_asked_for_from_the_lag_on_while_the_gpu_still_waits() -> None:
    session = _open(",stall=1s,lag=20ms")
    session.gpu.request(SLOW)
    with session.runner.loop("copy", run="r") as loop:
        loop.run_for(2.0)
        session.gpu.request(FAST)
        loop.run_for(0.019)
        assert session.gpu.sample().sm_clock_mhz == 600
        loop.run_for(0.002)
        assert session.gpu.sample().sm_clock_mhz == 1200
        loop.begin_window(0)
        loop.run_for(0.5)
        timing = loop.end_window()
    # Nothing runs before the stall is over, so the window waits for its first launch.
    assert timing.launch_count == 1
    assert timing.elapsed_s == pytest.approx(0.999 + _launch_s(FAST), abs=1e-4)


def test_changing_to_the_point_in_force_costs_nothing() -> None:
    still = _changes(_open(",stall=5ms"))
    assert still == _changes(_open(",stall=5ms"), SLOW, SLOW, SLOW)


def _change_idly(session: DeviceSession, turn_count: int) -> None:
    for _ in range(turn_count):
        session.gpu.request(FAST)
        session.gpu.wait(0.01)
        session.gpu.request(SLOW)
        session.gpu.wait(0.01)


def test_the_stall_draws_its_power_and_no_more() -> None:
    """A hundred changes a second without work: all else is the same at either power."""
    counted_j = {}
    for power in (40, 100):
        session = _open(f",stall=5ms,stall_power={power}W")
        _change_idly(session, 4000)
        start = session.gpu.wait_for_energy_tick(1.0)
        _change_idly(session, 50)
        counted_j[power] = _joules(session.gpu.wait_for_energy_tick(1.0)) - _joules(start)
    assert counted_j[100] - counted_j[40] == pytest.approx(100 * 0.005 * 60, rel=5e-3)


def test_energy_without_a_stall_is_spent_at_once() -> None:
    readings = []
    for energy_j in (0.0, 2.0):
        session = _open("", uniform_transition("m", "a test", energy_j=energy_j))
        session.gpu.request(SLOW)
        session.gpu.wait(10.0)
        session.gpu.request(FAST)
        session.gpu.request(SLOW)
        session.gpu.wait(1.0)
        readings.append(_joules(session.gpu.sample()))
    # Reaching the first point is a change too.
    assert readings[1] - readings[0] == pytest.approx(3 * 2.0, rel=1e-6)


def test_each_domain_and_target_has_its_own_cost() -> None:
    model = TransitionModel(
        name="m",
        source="a test",
        costs=(
            TransitionCost(domain=TransitionDomain.SM, lag_s=0.01),
            TransitionCost(domain=TransitionDomain.SM, target=FAST, lag_s=0.05),
            TransitionCost(domain=TransitionDomain.MEMORY, lag_s=0.1),
        ),
    )
    session = _open("", model)
    assert session.transition == model
    with session.runner.loop("copy", run="r") as loop:
        for before, after, lag_s in (
            (SLOW, FAST, 0.05),
            (FAST, SLOW, 0.01),
            (SLOW, LOW_MEMORY, 0.1),
        ):
            session.gpu.request(before)
            loop.run_for(1.0)
            session.gpu.request(after)
            loop.run_for(lag_s - 1e-3)
            early = session.gpu.sample()
            loop.run_for(2e-3)
            late = session.gpu.sample()
            assert (early.sm_clock_mhz, early.mem_clock_mhz) == (
                before.sm_clock_mhz,
                before.mem_clock_mhz,
            )
            assert (late.sm_clock_mhz, late.mem_clock_mhz) == (
                after.sm_clock_mhz,
                after.mem_clock_mhz,
            )


def test_a_change_that_the_model_does_not_know_takes_effect_at_once() -> None:
    model = TransitionModel(
        name="m",
        source="a test",
        costs=(TransitionCost(domain=TransitionDomain.MEMORY, lag_s=1.0, stall_s=1.0),),
    )
    session = _open("", model)
    with session.runner.loop("copy", run="r") as loop:
        loop.run_for(3.0)
        session.gpu.request(OperatingPoint(sm_clock_mhz=600))
        assert session.gpu.sample().sm_clock_mhz == 600


def test_a_request_replaces_the_one_on_its_way() -> None:
    session = _open(",lag=20ms")
    session.gpu.request(SLOW)
    with session.runner.loop("copy", run="r") as loop:
        loop.run_for(1.0)
        session.gpu.request(FAST)
        loop.run_for(0.01)
        session.gpu.request(OperatingPoint(sm_clock_mhz=900, mem_clock_mhz=9501))
        seen = set()
        for _ in range(40):
            loop.run_for(0.001)
            seen.add(session.gpu.sample().sm_clock_mhz)
    assert seen == {600, 900}


def test_a_request_within_the_dwell_waits_for_its_end() -> None:
    session = _open("", uniform_transition("m", "a test", dwell_s=0.05))
    session.gpu.request(SLOW)
    with session.runner.loop("copy", run="r") as loop:
        loop.run_for(1.0)
        session.gpu.request(FAST)
        assert session.gpu.sample().sm_clock_mhz == 1200
        session.gpu.request(SLOW)
        loop.run_for(0.049)
        assert session.gpu.sample().sm_clock_mhz == 1200
        loop.run_for(0.002)
        assert session.gpu.sample().sm_clock_mhz == 600


@pytest.mark.parametrize(
    ("options", "lag_s", "stall_s", "energy_j"),
    [
        ("", 0.01, 0.0, 0.0),
        (",lag=3ms", 0.003, 0.0, 0.0),
        (",stall=2ms", 0.0, 0.002, 0.12),
        (",stall=2ms,lag=3ms,stall_power=50", 0.003, 0.002, 0.1),
        (",transition=hopper", 0.0, 0.006, 0.36),
        (",transition=free", 0.0, 0.0, 0.0),
    ],
)
def test_the_device_string_says_what_changes_cost(
    options: str, lag_s: float, stall_s: float, energy_j: float
) -> None:
    model = _open(options).transition
    assert model is not None
    cost = model.cost(AUTO, FAST)
    assert cost is not None
    assert (lag_s, stall_s) == (cost.lag_s, cost.stall_s)
    assert energy_j == pytest.approx(cost.energy_j)


def test_a_model_given_counts_only_where_the_device_string_is_silent() -> None:
    given = uniform_transition("given", "a test", stall_s=0.007)
    assert _open("", given).transition == given
    for options in (",lag=3ms", ",stall=2ms", ",transition=ascend"):
        assert _open(options, given).transition == _open(options).transition


def test_presets_are_found_by_their_name_and_say_where_they_come_from() -> None:
    assert transition_preset("no such preset") is None
    stalls_s = []
    for name in transition_preset_names():
        model = transition_preset(name)
        assert model is TRANSITION_PRESETS[name]
        assert model is not None
        assert (model.device_name, model.is_simulated) == (None, False)
        assert len(model.source) > 20
        stalls_s.append(max(cost.stall_s for cost in model.costs))
    assert stalls_s == sorted(stalls_s)
