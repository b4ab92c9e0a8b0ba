"""The noise of the virtual GPU: how much, of what, and keyed by what."""

from __future__ import annotations

import math
import statistics

import pytest

from joulewise.domain.points import OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
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


WORKS = (_work("compute", 3e10, 1e7), _work("memory", 1e8, 2e8))


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
    assert start.energy_j is not None
    assert end.energy_j is not None
    power_w = (end.energy_j - start.energy_j) / (end.time_s - start.time_s)
    return timing.elapsed_s / timing.launch_count, power_w


def test_the_gain_error_belongs_to_the_board_and_leaves_ratios_alone() -> None:
    exact, board_3, board_4 = (
        _open(),
        _open("noise=0,gain=5%,seed=3"),
        _open("noise=0,gain=5%,seed=4"),
    )
    gains = []
    for session in (board_3, board_4):
        ratios = [
            _launch(session, kernel)[1] / _launch(exact, kernel)[1]
            for kernel in ("compute", "memory")
        ]
        assert ratios[0] == pytest.approx(ratios[1], rel=1e-5)
        gains.append(ratios[0])
    assert abs(gains[0] - gains[1]) > 1e-3
    assert all(abs(gain - 1) < 0.25 for gain in gains)


def _log_ratios(options: str, cells: list[tuple[str, int]]) -> tuple[list[float], list[float]]:
    """Log of measured over true time and power, windows (run, window) of 'memory' at MODERATE."""
    session, exact = _open(options), _open()
    for each in (session, exact):
        each.gpu.request(MODERATE)
    true_time_s, true_w = _launch(exact, "memory")
    times, powers = [], []
    for run, window in cells:
        time_s, power_w = _launch(session, "memory", window, run)
        times.append(math.log(time_s / true_time_s))
        powers.append(math.log(power_w / true_w))
    return times, powers


def test_windows_of_one_run_scatter_as_the_noise_level_says() -> None:
    times, powers = _log_ratios("gain=0", [("r", window) for window in range(400)])
    assert statistics.stdev(times) == pytest.approx(0.0005, rel=0.15)
    assert statistics.stdev(powers) == pytest.approx(0.01, rel=0.15)
    assert statistics.mean(powers) == pytest.approx(0, abs=0.002)


def test_runs_are_shifted_against_each_other_in_time_only() -> None:
    times, powers = _log_ratios("noise=0,shift=0.45%", [(f"run {n}", 0) for n in range(400)])
    assert statistics.stdev(times) == pytest.approx(0.0045, rel=0.15)
    assert max(abs(power) for power in powers) < 1e-5


def test_capped_windows_scatter_more() -> None:
    session = _open("shift=0,gain=0")
    point = OperatingPoint(power_limit_w=0.8 * _launch(_open(), "compute")[1])
    session.gpu.request(point)
    times = [math.log(_launch(session, "compute", window)[0]) for window in range(200)]
    assert statistics.stdev(times) == pytest.approx(0.0025, rel=0.2)


def test_noise_ends_with_the_window() -> None:
    session = _open("noise=stress,gain=0")
    exact = _open()
    with (
        session.runner.loop("memory", run="r") as loop,
        exact.runner.loop("memory", run="r") as other,
    ):
        for each in (loop, other):
            each.run_for(SETTLED_S)
            each.begin_window(0)
            each.run_for(1.0)
            each.end_window()
            each.run_for(5.0)
        assert session.gpu.sample().power_w == pytest.approx(exact.gpu.sample().power_w, rel=1e-12)
