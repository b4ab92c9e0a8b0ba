"""What every device that runs whole iterations owes to those who replay plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

from joulewise.domain.errors import (
    DeviceLost,
    InputError,
    MeasurementError,
    NotPermitted,
    NotSupported,
)
from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import Gpu, IterationRunner
from joulewise.domain.session import DeviceSession
from joulewise.domain.workload import Pass


class Case(Protocol):
    @property
    def open_without_rights(self) -> Callable[[], DeviceSession]: ...

    @property
    def open_lost_after_10_s(self) -> Callable[[], DeviceSession]: ...


def _points(gpu: Gpu) -> tuple[OperatingPoint, OperatingPoint]:
    """Two points that no regulator needs to lower."""
    grid = gpu.clock_grid()
    clocks = grid.sm_clocks_mhz
    quarter = len(clocks) // 4
    low, high = clocks[quarter], clocks[max(quarter + 1, len(clocks) // 3)]
    mem = grid.mem_clocks_mhz[-1] if len(grid.mem_clocks_mhz) > 1 else None
    return (
        OperatingPoint(sm_clock_mhz=low, mem_clock_mhz=mem),
        OperatingPoint(sm_clock_mhz=high, mem_clock_mhz=mem),
    )


def _launches(*points: OperatingPoint, each_count: int = 40) -> tuple[PlannedLaunch, ...]:
    """Both kernels in turn, so many times at each point."""
    return tuple(
        PlannedLaunch(kernel=kernel, pass_=Pass.FORWARD, point=point)
        for point in points
        for _ in range(each_count)
        for kernel in ("compute", "memory")
    )


def _requests(launches: tuple[PlannedLaunch, ...]) -> tuple[PlannedRequest, ...]:
    return tuple(
        PlannedRequest(launch_index=index, lead_s=0.0, point=launch.point)
        for index, launch in enumerate(launches)
        if launches[index - 1].point != launch.point
    )


def _runner(session: DeviceSession) -> IterationRunner:
    assert session.iterations is not None
    return session.iterations


def test_windows_hold_whole_iterations_and_their_time(session: DeviceSession) -> None:
    launches = _launches(AUTO)
    with _runner(session).iterate(launches, (), session.gpu.request, run="contract") as loop:
        loop.run_iterations(2)
        loop.begin_window(0)
        loop.run_iterations(3)
        timing = loop.end_window()
        before_s = session.gpu.sample().time_s
        loop.run_iterations(5)
        after_s = session.gpu.sample().time_s
    assert timing.iteration_count == 3
    assert timing.elapsed_s / 3 == pytest.approx((after_s - before_s) / 5, rel=0.02)
    assert timing.request_count == 0


def test_a_window_waits_for_the_iteration_that_it_began_in(session: DeviceSession) -> None:
    launches = _launches(AUTO)
    with _runner(session).iterate(launches, (), session.gpu.request, run="contract") as loop:
        loop.run_for(0.003)
        loop.begin_window(0)
        timing = loop.end_window()
    assert timing.iteration_count == 1
    assert timing.elapsed_s > 0


def test_every_request_is_asked_for_once_per_iteration_in_order(session: DeviceSession) -> None:
    low, high = _points(session.gpu)
    launches = _launches(low, high, each_count=200)
    asked: list[OperatingPoint] = []

    def ask(point: OperatingPoint) -> None:
        asked.append(point)
        session.gpu.request(point)

    session.gpu.request(low)
    with _runner(session).iterate(launches, _requests(launches), ask, run="contract") as loop:
        loop.run_iterations(1)
        loop.begin_window(0)
        asked.clear()
        loop.run_iterations(2)
        timing = loop.end_window()
    assert timing.request_count == 4
    assert asked[:4] in ([high, low, high, low], [low, high, low, high])


def test_both_points_are_in_force_in_turn(session: DeviceSession) -> None:
    low, high = _points(session.gpu)
    launches = _launches(low, high, each_count=600)
    seen = set()
    session.gpu.request(low)
    session.gpu.wait(1.0)
    requests = _requests(launches)
    with _runner(session).iterate(launches, requests, session.gpu.request, run="contract") as loop:
        loop.begin_window(0)
        iteration_s = loop.end_window().elapsed_s
        for _ in range(100):
            loop.run_for(iteration_s / 40)
            seen.add(session.gpu.sample().sm_clock_mhz)
    # A clock that is counted reads up to 3 % low.
    assert sorted(clock or 0 for clock in seen) == [
        pytest.approx(0.985 * (point.sm_clock_mhz or 0), rel=0.02) for point in (low, high)
    ]


def test_iterations_and_kernels_take_turns(session: DeviceSession) -> None:
    launches = _launches(AUTO)
    with (
        _runner(session).iterate(launches, (), session.gpu.request, run="contract"),
        pytest.raises(MeasurementError),
        session.runner.loop("compute", run="contract"),
    ):
        pass
    with session.runner.loop("compute", run="contract") as loop:
        loop.run_for(0.1)


def test_iterations_end_with_their_block_and_windows_do_not_nest(session: DeviceSession) -> None:
    launches = _launches(AUTO)
    with _runner(session).iterate(launches, (), session.gpu.request, run="contract") as loop:
        with pytest.raises(MeasurementError):
            loop.end_window()
        loop.begin_window(0)
        with pytest.raises(MeasurementError):
            loop.begin_window(1)
    with pytest.raises(MeasurementError):
        loop.run_iterations(1)


@pytest.mark.parametrize("launch_index", [-1, 2])
def test_a_request_for_no_launch_is_refused(session: DeviceSession, launch_index: int) -> None:
    launches = _launches(AUTO, each_count=1)
    request = PlannedRequest(launch_index=launch_index, lead_s=0.0, point=AUTO)
    with (
        pytest.raises(InputError, match=str(launch_index)),
        _runner(session).iterate(launches, (request,), session.gpu.request, run="contract"),
    ):
        pass


def test_no_launches_and_unknown_kernels_are_refused(session: DeviceSession) -> None:
    unknown = PlannedLaunch(kernel="no such kernel", pass_=Pass.FORWARD, point=AUTO)
    for launches in ((), (unknown,)):
        with (
            pytest.raises(InputError),
            _runner(session).iterate(launches, (), session.gpu.request, run="contract"),
        ):
            pass


def test_a_clock_that_is_not_listed_is_refused_before_anything_runs(
    session: DeviceSession,
) -> None:
    wrong = OperatingPoint(sm_clock_mhz=session.gpu.clock_grid().sm_clocks_mhz[-1] + 1)
    before = session.gpu.sample().time_s
    with (
        pytest.raises(NotSupported),
        _runner(session).iterate(_launches(wrong), (), session.gpu.request, run="contract"),
    ):
        pass
    assert before == session.gpu.sample().time_s


def test_a_refused_request_comes_out_of_the_loop_and_the_device_stays_usable(
    case: Case,
) -> None:
    session = case.open_without_rights()
    low, high = _points(session.gpu)
    launches = _launches(low, high)
    requests = _requests(launches)
    with (
        pytest.raises(NotPermitted),
        _runner(session).iterate(launches, requests, session.gpu.request, run="contract") as loop,
    ):
        loop.run_iterations(2)
    with session.runner.loop("compute", run="contract") as kernel_loop:
        kernel_loop.run_for(0.1)


def test_a_device_lost_on_the_way_says_so_inside_the_loop(case: Case) -> None:
    session = case.open_lost_after_10_s()
    session.gpu.wait(9.5)
    launches = _launches(AUTO)
    with _runner(session).iterate(launches, (), session.gpu.request, run="contract") as loop:
        loop.begin_window(0)
        asked: list[Callable[[], object]] = [
            lambda: loop.run_for(20.0),
            lambda: loop.run_iterations(1),
            loop.end_window,
            lambda: loop.begin_window(1),
        ]
        for ask in asked:
            with pytest.raises(DeviceLost):
                ask()


def test_a_negative_time_and_no_iterations_are_refused(session: DeviceSession) -> None:
    launches = _launches(AUTO)
    with _runner(session).iterate(launches, (), session.gpu.request, run="contract") as loop:
        with pytest.raises(InputError):
            loop.run_for(-1.0)
        with pytest.raises(InputError):
            loop.run_iterations(0)
