"""Waiting on the virtual GPUs, on kernels whose answer is known by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.replays import requests_for
from tests.waiting import exchange, gap

from joulewise.domain.plan import PlannedLaunch
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.transition import uniform_transition
from joulewise.domain.workload import Pass
from joulewise.simulator.operations import Operations
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.physics import idle_power_w, steady_state
from joulewise.simulator.presets import preset, preset_names
from joulewise.simulator.virtual import open_virtual

TWIN = preset("rtx3080ti")
TOP = OperatingPoint(sm_clock_mhz=1875, mem_clock_mhz=9501)
LOW = OperatingPoint(sm_clock_mhz=210, mem_clock_mhz=405)


@pytest.mark.parametrize("name", preset_names())
def test_a_gap_lasts_as_long_as_it_was_seen_to_at_every_point(name: str) -> None:
    spec = preset(name)
    clocks = (None, *spec.grid.sm_clocks_mhz[::7])
    points = spec.grid.points(clocks, (None, *spec.grid.mem_clocks_mhz))

    table = steady_state(spec, [gap(3e-6), gap(0.02)], points)

    assert {3e-6} == set(table.time_s[0].tolist())
    assert {0.02} == set(table.time_s[1].tolist())
    assert not table.is_power_capped.any()


@pytest.mark.parametrize("point", [TOP, LOW, replace(TOP, sm_clock_mhz=1200)])
def test_a_gap_costs_what_an_idle_gpu_costs_at_the_clocks_in_force(point: OperatingPoint) -> None:
    table = steady_state(TWIN, [gap(1e-3)], [point])

    assert idle_power_w(TWIN, point) == pytest.approx(table.power_w[0, 0], rel=1e-12)


def test_with_clocks_left_to_the_driver_a_gap_keeps_them_up() -> None:
    table = steady_state(TWIN, [gap(1e-3)], [AUTO, LOW])

    assert TWIN.sm_clock_max_mhz == pytest.approx(table.sm_clock_held_mhz[0, 0])
    assert table.power_w[0, 0] > 1.2 * table.power_w[0, 1]


def test_the_work_of_a_collective_overlaps_with_its_time_on_the_link() -> None:
    """Half the link's time for the traffic: the norm of both, with the exponent of its kind."""
    unlaunched = replace(TWIN, launch_s=0.0)
    bandwidth = TWIN.memory_states[-1].bandwidth_bytes_per_s
    work = replace(exchange(2e-3, 0.0, 0.8 * 1e-3 * bandwidth), memory_efficiency_ratio=0.8)

    time_s = float(steady_state(unlaunched, [work], [TOP]).time_s[0, 0])

    p = TWIN.other_overlap_exponent_ratio
    assert (1e-3**p + 2e-3**p) ** (1 / p) == pytest.approx(time_s, rel=1e-12)


def test_a_collective_is_launched_and_a_gap_is_not() -> None:
    slow = replace(TWIN, launch_s=1.0)

    table = steady_state(slow, [gap(0.5), exchange(0.5, traffic_bytes=1.0)], [TOP])

    assert [0.5, 1.5] == pytest.approx(table.time_s[:, 0].tolist(), rel=1e-3)


def test_a_long_wait_makes_a_kernel_deaf_to_clocks_but_not_its_energy() -> None:
    works = [exchange(0.05, 3e10), exchange(0.0, 3e10)]
    points = [TOP, replace(TOP, sm_clock_mhz=600)]

    table = steady_state(TWIN, works, points)

    assert table.time_s[0, 1] == pytest.approx(table.time_s[0, 0], rel=1e-3)
    assert table.time_s[1, 1] > 1.01 * table.time_s[1, 0]
    assert table.energy_j[0, 1] < 0.9 * table.energy_j[0, 0]


def test_a_regulated_kernel_that_waits_keeps_the_set_point() -> None:
    """The slope of time by clock leads the regulator there in a few steps."""
    # A wait as long as the work is where both terms bend.
    heavy = replace(exchange(0.1, 1.5e12, 1e9), core_activity_ratio=3.0)
    limit = replace(TOP, power_limit_w=200.0)

    table = steady_state(TWIN, [heavy], [limit])

    assert table.is_power_capped[0, 0]
    assert table.sm_clock_held_mhz[0, 0] > TWIN.grid.sm_clocks_mhz[0]
    assert table.power_w[0, 0] == pytest.approx(200.0, rel=1e-9)


def test_operations_of_a_gap_are_running_ones() -> None:
    operation = Operations(TWIN, [gap(1e-5)]).running("gap", TOP)

    assert 1e-5 == operation.time_s
    assert (1875, 9501) == (operation.sm_clock_mhz, operation.mem_clock_mhz)
    assert not operation.is_power_capped


def test_an_iteration_with_gaps_is_replayed_to_the_nanosecond() -> None:
    works = (gap(3e-6), exchange(2e-3), gap(0.011, "host gap"), exchange(0.0, kernel="copy"))
    points = (TOP, LOW, TOP, TOP)
    launches = tuple(
        PlannedLaunch(kernel=work.kernel, pass_=Pass.COMMUNICATION, point=point)
        for work, point in zip(works, points, strict=True)
    )
    device = "virtual:rtx3080ti,noise=0"
    true_s, true_j = open_oracle(device, works).true_iteration(launches)
    at_once = uniform_transition("at once", "a test", stall_s=0.0)
    session = open_virtual(device, works, at_once)
    assert session.iterations is not None
    requests = requests_for(launches, at_once)

    session.gpu.request(TOP)
    with session.iterations.iterate(launches, requests, session.gpu.request, run="r") as loop:
        loop.run_iterations(3)
        loop.begin_window(0)
        loop.run_iterations(5)
        timing = loop.end_window()

    assert true_s == pytest.approx(timing.elapsed_s / 5, abs=1e-9 * len(launches))
    assert 0 == timing.late_count == timing.early_count == timing.skipped_count
    assert math.isfinite(true_j)
    assert 0.011 + 3e-6 < true_s


def test_works_without_a_wait_are_as_they_were() -> None:
    """Adding a row that waits changes no bit of the other rows."""
    works = [exchange(0.0), exchange(0.0, 1e12, 1e7, "products")]

    alone = steady_state(TWIN, works, [AUTO, TOP, LOW])
    beside = steady_state(TWIN, [*works, gap(1e-3)], [AUTO, TOP, LOW])

    assert np.array_equal(alone.time_s, beside.time_s[:2])
    assert np.array_equal(alone.power_w, beside.power_w[:2])
