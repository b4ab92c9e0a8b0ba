"""The governor by load: its laws, and that whoever asks sees the same of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from joulewise.domain.plan import PlannedLaunch
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.workload import Dtype, KernelKind, KernelWork, Pass
from joulewise.finetune.jobs import training_jobs
from joulewise.finetune.step_work import step_work
from joulewise.simulator.load_governor import governed_level, governed_state
from joulewise.simulator.operations import Operations
from joulewise.simulator.oracle import Oracle, open_oracle
from joulewise.simulator.physics import kernel_load, steady_parts, steady_state
from joulewise.simulator.presets import preset
from joulewise.simulator.virtual import open_virtual

ORIN = preset("agx-orin")
CLOCKS = ORIN.grid.sm_clocks_mhz
GOVERNOR = ORIN.load_governor
assert GOVERNOR is not None
TARGET = GOVERNOR.busy_target_ratio
WORKS = tuple(step_work(job) for job in training_jobs())
PINNED = tuple(OperatingPoint(sm_clock_mhz=mhz) for mhz in CLOCKS)


def _work(wait_s: float, flop_count: float = 1e12, traffic_bytes: float = 1e10) -> KernelWork:
    return KernelWork(
        kernel="step",
        kind=KernelKind.OTHER,
        dtype=Dtype.FP32,
        flop_count=flop_count,
        traffic_bytes=traffic_bytes,
        compute_efficiency_ratio=0.6,
        memory_efficiency_ratio=0.7,
        core_activity_ratio=0.8,
        memory_activity_ratio=1.0,
        wait_s=wait_s,
    )


def _governed_mhz(work: KernelWork) -> int:
    return round(float(governed_state(ORIN, [work], [AUTO]).table.sm_clock_held_mhz[0, 0]))


@settings(max_examples=50)
@given(busy=st.lists(st.floats(0, 1), min_size=1, max_size=20), target=st.floats(0, 1))
def test_the_level_is_the_first_that_fits_and_else_the_last(
    busy: list[float], target: float
) -> None:
    level = governed_level(range(len(busy)), np.array(busy), target)

    fitting = [place for place, share in enumerate(busy) if share <= target]
    assert (fitting[0] if fitting else len(busy) - 1) == level


@settings(max_examples=25)
@given(wait_s=st.floats(0, 2), flop_count=st.floats(1e9, 1e13), traffic_bytes=st.floats(1e6, 1e11))
def test_the_governor_never_goes_below_what_the_load_needs(
    wait_s: float, flop_count: float, traffic_bytes: float
) -> None:
    work = _work(wait_s, flop_count, traffic_bytes)
    table = steady_state(ORIN, [work], PINNED)
    busy = steady_parts(ORIN, kernel_load(ORIN, [work]), PINNED, table).busy_ratio[0]

    level = CLOCKS.index(_governed_mhz(work))

    assert busy[level] <= TARGET or level == len(CLOCKS) - 1
    assert (busy[:level] > TARGET).all()


@settings(max_examples=25)
@given(wait_s=st.floats(1e-3, 2), shorter=st.floats(0, 1), flop_count=st.floats(1e9, 1e13))
def test_less_waiting_never_lowers_the_clock(
    wait_s: float, shorter: float, flop_count: float
) -> None:
    assert _governed_mhz(_work(wait_s, flop_count)) <= _governed_mhz(
        _work(wait_s * shorter, flop_count)
    )


@settings(max_examples=25)
@given(wait_s=st.floats(0, 2), flop_count=st.floats(1e9, 1e13), more=st.floats(1, 10))
def test_more_computing_never_lowers_the_clock(
    wait_s: float, flop_count: float, more: float
) -> None:
    assert _governed_mhz(_work(wait_s, flop_count)) <= _governed_mhz(
        _work(wait_s, flop_count * more)
    )


def test_what_only_waits_runs_at_the_bottom_and_what_never_waits_at_the_top() -> None:
    assert CLOCKS[0] == _governed_mhz(_work(0.1, 0.0, 0.0))
    assert CLOCKS[-1] == _governed_mhz(_work(0.0))


def test_each_kernel_has_a_clock_of_its_own() -> None:
    held = governed_state(ORIN, [_work(5.0), _work(0.0)], [AUTO]).table.sm_clock_held_mhz[:, 0]

    assert held[0] < held[1]


def test_auto_is_the_pinned_clock_that_the_governor_takes() -> None:
    auto, pinned = (governed_state(ORIN, WORKS, points) for points in ([AUTO], PINNED))

    for row, held in enumerate(auto.table.sm_clock_held_mhz[:, 0]):
        column = CLOCKS.index(round(float(held)))
        assert auto.table.time_s[row, 0] == pinned.table.time_s[row, column]
        assert auto.table.power_w[row, 0] == pinned.table.power_w[row, column]
        assert auto.parts.busy_ratio[row, 0] == pinned.parts.busy_ratio[row, column]


def test_without_a_governor_auto_is_that_of_the_physics_to_the_last_bit() -> None:
    plain = replace(ORIN, load_governor=None)
    points = (AUTO, *PINNED, OperatingPoint(mem_clock_mhz=2133))
    ours, physics = governed_state(plain, WORKS, points).table, steady_state(plain, WORKS, points)

    assert_array_equal(physics.time_s, ours.time_s)
    assert_array_equal(physics.power_w, ours.power_w)
    assert_array_equal(physics.sm_clock_held_mhz, ours.sm_clock_held_mhz)


def test_the_oracle_and_the_operations_see_the_same_governor() -> None:
    points = (AUTO, OperatingPoint(mem_clock_mhz=2133), PINNED[3])
    time_s, energy_j = open_oracle("virtual:agx-orin", WORKS).table(points)
    operations = Operations(ORIN, WORKS)

    for row, work in enumerate(WORKS):
        for column, point in enumerate(points):
            cell = operations.running(work.kernel, point)
            assert cell.time_s == time_s[row, column]
            assert cell.power_w * cell.time_s == energy_j[row, column]


def test_a_measured_window_without_noise_is_what_the_oracle_says() -> None:
    work = next(one for one in WORKS if one.kernel == "pythia-31m/sst2")
    session = open_virtual("virtual:agx-orin,noise=0", [work])
    launch = PlannedLaunch(kernel=work.kernel, pass_=Pass.FORWARD, point=AUTO)
    true_s, true_j = Oracle(ORIN, [work]).true_iteration([launch])

    with session.runner.loop(work.kernel, run="r") as loop:
        loop.run_for(100.0)
        loop.begin_window(0)
        loop.run_for(5.0)
        sample = session.gpu.sample()
        timing = loop.end_window()

    assert true_s * timing.launch_count == timing.elapsed_s
    assert sample.power_w is not None
    assert abs(sample.power_w * true_s / true_j - 1) < 1e-5
    assert (
        round(float(governed_state(ORIN, [work], [AUTO]).table.sm_clock_held_mhz[0, 0]))
        == sample.sm_clock_mhz
    )
