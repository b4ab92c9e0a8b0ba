"""Iterations on the fake driver go as on the virtual GPU that has the same lag and stall."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.fake_nvml import DriverMaker, open_fake
from tests.nvml.replaying import (
    HIGH,
    LOW,
    MIXED,
    VIRTUAL,
    fake_session,
    launches_of,
    model_of,
    replay,
)
from tests.nvml.works import WORKS
from tests.replays import requests_for

from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.simulator.fake_board import fake_noise
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.fake_runner import open_fake_session_parts
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual


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


def test_two_gpus_cannot_both_have_virtual_time_to_themselves(make_driver: DriverMaker) -> None:
    driver = make_driver(device_count=2)
    first, second = (open_fake(driver, WORKS, f"nvml:{index}").iterations for index in range(2))
    assert first is not None
    assert second is not None
    launches = launches_of(("gemm", AUTO, 3))

    def ask(_point: OperatingPoint) -> None:
        raise InputError("nothing is asked for")

    with first.iterate(launches, (), ask, run="r") as loop:
        with (
            pytest.raises(MeasurementError, match="another fake GPU"),
            second.iterate(launches, (), ask, run="r"),
        ):
            pass
        loop.run_iterations(1)
    with second.iterate(launches, (), ask, run="r") as loop:
        loop.run_iterations(1)


def test_noise_blurs_an_iteration_as_it_blurs_its_cells(driver: FakeDriver) -> None:
    noise = fake_noise("noise=stress,seed=2")
    _, iterations, _ = open_fake_session_parts(driver, 0, WORKS, noise=noise)
    virtual = open_virtual("virtual:rtx3080ti,noise=stress,seed=2", WORKS)
    assert virtual.iterations is not None
    launches = launches_of(("gemm", AUTO, 3), ("copy", AUTO, 5))
    plain_s, _ = open_oracle(VIRTUAL, WORKS).true_iteration(launches)

    def ask(_point: OperatingPoint) -> None:
        raise InputError("nothing is asked for")

    times_s = []
    for runner in (iterations, virtual.iterations):
        with runner.iterate(launches, (), ask, run="r") as loop:
            loop.begin_window(7)
            loop.run_iterations(10)
            times_s.append(loop.end_window().elapsed_s / 10)
    assert times_s[0] == pytest.approx(times_s[1], rel=1e-6)
    assert plain_s != pytest.approx(times_s[0], rel=1e-4)
