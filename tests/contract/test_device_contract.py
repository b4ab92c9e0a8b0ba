"""What every device owes to those who measure and set clocks, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Protocol

import pytest

from joulewise.domain.errors import (
    DeviceLost,
    InputError,
    MeasurementError,
    NotPermitted,
    NotSupported,
)
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import AUTO, OperatingPoint, PowerLimitRange, Touched
from joulewise.domain.ports import Gpu
from joulewise.domain.session import DeviceSession

SETTLED_S = 80.0


class Case(Protocol):
    @property
    def open_without_rights(self) -> Callable[[], DeviceSession]: ...

    @property
    def open_lost_after_10_s(self) -> Callable[[], DeviceSession]: ...


def _moderate_point(gpu: Gpu) -> OperatingPoint:
    """A third up the list: no regulator needs to lower it.

    A single memory clock need not be settable.
    """
    grid = gpu.clock_grid()
    return OperatingPoint(
        sm_clock_mhz=grid.sm_clocks_mhz[len(grid.sm_clocks_mhz) // 3],
        mem_clock_mhz=grid.mem_clocks_mhz[-1] if len(grid.mem_clocks_mhz) > 1 else None,
    )


def _period_s(gpu: Gpu) -> float:
    period_s = gpu.energy_counter_period_s
    if period_s is None:
        pytest.skip("this device has no energy counter")
    return period_s


def _is_held(sm_clock_mhz: int | None, asked_mhz: int | None) -> bool:
    """Whether a clock that was asked for is in force: one that is counted reads up to 3 % low."""
    assert sm_clock_mhz is not None
    assert asked_mhz is not None
    return 0.97 * asked_mhz <= sm_clock_mhz <= asked_mhz


def _least_limit(gpu: Gpu) -> OperatingPoint:
    """The lowest power limit: the compute kernel draws more than that."""
    return OperatingPoint(power_limit_w=_limits(gpu).least_w)


def _limits(gpu: Gpu) -> PowerLimitRange:
    limits = gpu.clock_grid().power_limits
    if limits is None:
        pytest.skip("this device has no power limit that can be set")
    return limits


def _under_load(session: DeviceSession, kernel: str = "compute") -> GpuSample:
    with session.runner.loop(kernel, run="contract") as loop:
        loop.run_for(SETTLED_S)
        return session.gpu.sample()


def _energy_j(sample: GpuSample) -> float:
    assert sample.energy_j is not None
    return sample.energy_j


def _power_w(sample: GpuSample) -> float:
    assert sample.power_w is not None
    return sample.power_w


def test_listed_clocks_ascend_without_repeats(session: DeviceSession) -> None:
    grid = session.gpu.clock_grid()
    # A device that takes no lock of its memory clock lists none.
    assert grid.sm_clocks_mhz
    for clocks in (grid.sm_clocks_mhz, grid.mem_clocks_mhz):
        assert list(clocks) == sorted(set(clocks))
        assert min(clocks, default=1) > 0


def test_the_identity_is_the_same_whenever_it_is_asked(session: DeviceSession) -> None:
    first = session.gpu.identity
    session.gpu.wait(1.0)
    assert first == session.gpu.identity
    assert first.name
    assert first.uuid


def test_waiting_moves_the_clock_of_the_device(session: DeviceSession) -> None:
    before = session.gpu.sample()
    session.gpu.wait(2.5)
    assert session.gpu.sample().time_s - before.time_s == pytest.approx(2.5, abs=1e-3)


def test_a_negative_duration_is_refused(session: DeviceSession) -> None:
    with pytest.raises(InputError, match="duration"):
        session.gpu.wait(-1.0)


def test_a_requested_point_shows_under_load(session: DeviceSession) -> None:
    point = _moderate_point(session.gpu)
    session.gpu.request(point)
    sample = _under_load(session)
    assert _is_held(sample.sm_clock_mhz, point.sm_clock_mhz)
    assert point.mem_clock_mhz in (None, sample.mem_clock_mhz)


def test_a_set_clock_is_never_exceeded(session: DeviceSession) -> None:
    clocks = session.gpu.clock_grid().sm_clocks_mhz
    for clock in clocks[:: max(1, len(clocks) // 5)]:
        session.gpu.request(OperatingPoint(sm_clock_mhz=clock))
        held = _under_load(session).sm_clock_mhz
        assert held is not None
        assert held <= clock


def test_reset_gives_the_clocks_back(session: DeviceSession) -> None:
    before = _under_load(session)
    session.gpu.request(_moderate_point(session.gpu))
    assert _under_load(session).sm_clock_mhz != before.sm_clock_mhz
    session.gpu.reset()
    after = _under_load(session)
    assert (after.sm_clock_mhz, after.mem_clock_mhz) == (before.sm_clock_mhz, before.mem_clock_mhz)


def test_a_reset_gives_back_no_knob_but_those_named(session: DeviceSession) -> None:
    gpu = session.gpu
    point = _moderate_point(gpu)
    gpu.request(point)
    gpu.reset(Touched(knobs=frozenset({"power_limit_w", "mem_clock_mhz"})))
    assert _is_held(_under_load(session).sm_clock_mhz, point.sm_clock_mhz)
    gpu.reset(Touched(knobs=frozenset({"sm_clock_mhz"})))
    assert _under_load(session).sm_clock_mhz != point.sm_clock_mhz


def test_requesting_auto_is_the_same_as_a_reset(session: DeviceSession) -> None:
    before = _under_load(session)
    session.gpu.request(_moderate_point(session.gpu))
    session.gpu.request(AUTO)
    assert _under_load(session).sm_clock_mhz == before.sm_clock_mhz


def test_a_clock_that_is_not_listed_is_refused_and_changes_nothing(
    session: DeviceSession,
) -> None:
    grid = session.gpu.clock_grid()
    point = _moderate_point(session.gpu)
    session.gpu.request(point)
    for wrong in (
        OperatingPoint(sm_clock_mhz=grid.sm_clocks_mhz[-1] + 1),
        OperatingPoint(mem_clock_mhz=max(grid.mem_clocks_mhz, default=1592) + 1),
    ):
        with pytest.raises(NotSupported):
            session.gpu.request(wrong)
    assert _is_held(_under_load(session).sm_clock_mhz, point.sm_clock_mhz)


def test_a_power_limit_reads_back_and_is_put_back_to_what_was_found(
    session: DeviceSession,
) -> None:
    gpu = session.gpu
    _limits(gpu)
    found = gpu.knob_state()
    gpu.request(_least_limit(gpu))
    assert gpu.knob_state().power_limit_w == _least_limit(gpu).power_limit_w
    limits_w = tuple(filter(None, [_least_limit(gpu).power_limit_w]))
    knobs = frozenset({"power_limit_w"})
    gpu.reset(Touched(knobs=knobs, found=found, asked_limits_w=limits_w))
    assert gpu.knob_state() == found
    gpu.request(_least_limit(gpu))
    gpu.request(AUTO)
    assert gpu.knob_state() == found
    gpu.request(_least_limit(gpu))
    gpu.reset()
    assert gpu.knob_state() == found


def test_a_lower_power_limit_slows_what_draws_more(session: DeviceSession) -> None:
    least = _least_limit(session.gpu)
    before = _under_load(session)
    session.gpu.request(least)
    capped = _under_load(session)
    assert (capped.sm_clock_mhz or 0) < (before.sm_clock_mhz or 0)
    assert _power_w(capped) < 0.9 * _power_w(before)
    assert (capped.power_capped_s or 0.0) > SETTLED_S / 2


def test_a_power_limit_above_the_one_found_is_refused_and_changes_nothing(
    session: DeviceSession,
) -> None:
    gpu = session.gpu
    found = gpu.knob_state()
    limits = _limits(gpu)
    for wrong_w in (limits.found_w + 1.0, limits.least_w - 1.0):
        with pytest.raises(NotSupported):
            gpu.request(OperatingPoint(power_limit_w=wrong_w))
    assert gpu.knob_state() == found


def test_without_rights_clocks_are_refused_and_sensors_still_read(case: Case) -> None:
    session = case.open_without_rights()
    before = _under_load(session)
    with pytest.raises(NotPermitted) as caught:
        session.gpu.request(_moderate_point(session.gpu))
    assert caught.value.hint
    # Nothing was set, so that nothing is to be given back.
    session.gpu.reset()
    with pytest.raises(NotPermitted):
        session.gpu.reset(Touched(knobs=frozenset({"sm_clock_mhz"})))
    assert _under_load(session).sm_clock_mhz == before.sm_clock_mhz


def test_a_lost_device_says_so_whatever_it_is_asked(case: Case) -> None:
    session = case.open_lost_after_10_s()
    gpu = session.gpu
    point = _moderate_point(gpu)
    gpu.wait(9.0)
    gpu.sample()
    # Waiting need not touch the device, so it need not tell.
    with suppress(DeviceLost):
        gpu.wait(5.0)
    asked: list[Callable[[], object]] = [
        gpu.sample,
        gpu.knob_state,
        lambda: gpu.reset(Touched(knobs=frozenset({"sm_clock_mhz"}))),
        lambda: gpu.request(point),
        lambda: gpu.wait_for_energy_tick(1.0),
        lambda: session.runner.loop("compute", run="contract").__enter__(),
    ]
    for ask in asked:
        with pytest.raises(DeviceLost):
            ask()


def test_a_device_lost_under_load_says_so_inside_the_loop(case: Case) -> None:
    session = case.open_lost_after_10_s()
    with session.runner.loop("compute", run="contract") as loop:
        loop.begin_window(0)
        asked: list[Callable[[], object]] = [
            lambda: loop.run_for(20.0),
            lambda: loop.run_for(0.0),
            loop.end_window,
            lambda: loop.begin_window(1),
        ]
        for ask in asked:
            with pytest.raises(DeviceLost):
                ask()


def test_the_energy_counter_never_falls_and_moves_once_per_period(
    session: DeviceSession,
) -> None:
    gpu = session.gpu
    period_s = _period_s(gpu)
    with session.runner.loop("memory", run="contract") as loop:
        readings = [_energy_j(gpu.sample())]
        for _ in range(200):
            loop.run_for(period_s / 4)
            readings.append(_energy_j(gpu.sample()))
    steps = [later - earlier for earlier, later in pairwise(readings)]
    assert min(steps) >= 0
    assert sum(step > 0 for step in steps) == pytest.approx(50, abs=1)


def test_waiting_for_a_tick_ends_right_when_the_counter_moves(session: DeviceSession) -> None:
    gpu = session.gpu
    period_s = _period_s(gpu)
    first = gpu.wait_for_energy_tick(1.0)
    second = gpu.wait_for_energy_tick(1.0)
    assert second.time_s - first.time_s == pytest.approx(period_s, rel=0.05)
    assert _energy_j(second) > _energy_j(first)


def test_a_counter_that_does_not_move_in_time_is_an_error(session: DeviceSession) -> None:
    gpu = session.gpu
    period_s = _period_s(gpu)
    gpu.wait_for_energy_tick(1.0)
    with pytest.raises(MeasurementError):
        gpu.wait_for_energy_tick(period_s / 10)


def test_the_energy_counter_agrees_with_power_over_time(session: DeviceSession) -> None:
    gpu = session.gpu
    _period_s(gpu)
    with session.runner.loop("compute", run="contract") as loop:
        loop.run_for(SETTLED_S)
        first = gpu.wait_for_energy_tick(1.0)
        powers_w = []
        for _ in range(10):
            loop.run_for(1.0)
            powers_w.append(_power_w(gpu.sample()))
        last = gpu.wait_for_energy_tick(1.0)
    by_counter_w = (_energy_j(last) - _energy_j(first)) / (last.time_s - first.time_s)
    assert by_counter_w == pytest.approx(sum(powers_w) / len(powers_w), rel=0.01)


def test_an_idle_gpu_draws_less_than_a_busy_one(session: DeviceSession) -> None:
    session.gpu.wait(SETTLED_S)
    idle_w = _power_w(session.gpu.sample())
    assert 0 < idle_w < _power_w(_under_load(session)) / 1.5


def test_load_warms_the_gpu_and_rest_cools_it(session: DeviceSession) -> None:
    cold_c = session.gpu.sample().temp_c
    if cold_c is None:
        pytest.skip("a recording does not tell how warm an idle GPU is")
    warm_c = _under_load(session).temp_c
    session.gpu.wait(3 * SETTLED_S)
    rested_c = session.gpu.sample().temp_c
    assert warm_c is not None
    assert rested_c is not None
    assert warm_c > cold_c + 5
    assert rested_c == pytest.approx(cold_c, abs=2)


def test_nobody_else_is_on_the_gpu(session: DeviceSession) -> None:
    assert _under_load(session).other_process_count in (0, None)


@pytest.mark.parametrize("kernel", ["compute", "memory"])
def test_a_window_counts_launches_and_their_time(session: DeviceSession, kernel: str) -> None:
    with session.runner.loop(kernel, run="contract") as loop:
        loop.run_for(SETTLED_S)
        loop.begin_window(0)
        loop.run_for(2.0)
        timing = loop.end_window()
    launch_s = timing.elapsed_s / timing.launch_count
    assert timing.launch_count > 0
    assert timing.elapsed_s > 0
    assert 2.0 - launch_s * 1.01 <= timing.elapsed_s <= 2.0 + launch_s * 1.01


def test_lower_clocks_make_computing_slower(session: DeviceSession) -> None:
    times_s = []
    for index in (-1, len(session.gpu.clock_grid().sm_clocks_mhz) // 3, 0):
        clock = session.gpu.clock_grid().sm_clocks_mhz[index]
        session.gpu.request(OperatingPoint(sm_clock_mhz=clock))
        with session.runner.loop("compute", run="contract") as loop:
            loop.run_for(SETTLED_S)
            loop.begin_window(0)
            loop.run_for(2.0)
            timing = loop.end_window()
        times_s.append(timing.elapsed_s / timing.launch_count)
    assert times_s == sorted(times_s)
    assert times_s[-1] > 1.5 * times_s[0]


def test_an_unknown_kernel_is_refused(session: DeviceSession) -> None:
    with (
        pytest.raises(InputError, match="no such kernel"),
        session.runner.loop("no such kernel", run="contract"),
    ):
        pass
