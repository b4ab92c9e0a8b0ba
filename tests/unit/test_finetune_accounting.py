"""Energy of training steps is what the module drew while they ran, and says how sure that is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.errors import MeasurementError
from joulewise.domain.finetuning import StepMark
from joulewise.domain.measurement import GpuSample
from joulewise.finetune.accounting import (
    ASSUMED_PERIOD_S,
    PowerLog,
    StepTimes,
    cost_of_steps,
    least_block_s,
)
from joulewise.finetune.step_marks import StepSpan, step_spans

EMPTY = GpuSample(
    time_s=0.0,
    energy_j=None,
    power_w=None,
    sm_clock_mhz=None,
    mem_clock_mhz=None,
    temp_c=None,
    power_capped_s=None,
    thermally_throttled_s=None,
    other_process_count=None,
)


def log_of(readings: Sequence[tuple[float, float]]) -> PowerLog:
    log = PowerLog()
    for time_s, power_w in readings:
        log.add(replace(EMPTY, time_s=time_s, power_w=power_w))
    return log


def steps_of(*spans: StepSpan) -> StepTimes:
    times = StepTimes()
    for span in spans:
        times.add(span)
    return times


TIMES = st.lists(st.integers(0, 500), min_size=2, max_size=30, unique=True).map(sorted)


@settings(max_examples=100)
@given(
    times=TIMES,
    powers=st.lists(st.floats(0.5, 60), min_size=30, max_size=30),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)).filter(lambda two: two[0] != two[1]),
)
def test_energy_is_the_trapezoid_interpolated_at_both_ends(
    times: list[int], powers: list[float], ends: tuple[float, float]
) -> None:
    readings = [(0.1 * time, power) for time, power in zip(times, powers, strict=False)]
    first, last = readings[0][0], readings[-1][0]
    start, end = sorted(first + share * (last - first) for share in ends)
    if not end > start:
        return
    # The oracle: fine steps of the broken line through the readings.
    inner = sorted({start, end, *(time for time, _ in readings if start < time < end)})
    expected = math.fsum(
        0.5 * (at(readings, a) + at(readings, b)) * (b - a) for a, b in pairwise(inner)
    )

    assert log_of(readings).energy(start, end).energy_j == pytest.approx(expected, rel=1e-9)


def at(readings: Sequence[tuple[float, float]], time_s: float) -> float:
    for (a, p), (b, q) in pairwise(readings):
        if a <= time_s <= b:
            return p + (q - p) * (time_s - a) / (b - a)
    raise AssertionError(time_s)


def test_steps_apart_are_counted_and_what_lies_between_them_is_not() -> None:
    log = log_of([(0.1 * tick, 50.0 if 40 <= tick <= 60 else 20.0) for tick in range(101)])
    steps = steps_of(
        StepSpan(start_s=1.0, end_s=3.0, step_count=2),
        StepSpan(start_s=7.0, end_s=9.0, step_count=2),
    )
    cost = cost_of_steps(612, steps, log)

    assert (cost.time_s, cost.energy_j, cost.step_count) == pytest.approx((1.0, 20.0, 4))


def test_readings_that_do_not_reach_over_the_steps_give_no_energy() -> None:
    log = log_of([(0.1 * tick, 20.0) for tick in range(10)])

    with pytest.raises(MeasurementError, match="do not reach"):
        cost_of_steps(612, steps_of(StepSpan(start_s=0.5, end_s=2.0, step_count=1)), log)


def test_no_step_gives_no_cost_but_a_hint() -> None:
    with pytest.raises(MeasurementError, match="no training step") as raised:
        cost_of_steps(None, StepTimes(), PowerLog())
    assert "JoulewiseCallback" in (raised.value.hint or "")


def test_reading_a_slow_sensor_more_often_makes_nothing_surer() -> None:
    shown = [20.0 + (index * 7 % 5) for index in range(100)]
    once = log_of([(0.2 * index, power) for index, power in enumerate(shown)])
    often = log_of([(0.02 * tick, shown[tick // 10]) for tick in range(990)])
    seen_once, seen_often = once.energy(2.0, 18.0), often.energy(2.0, 18.0)

    assert often.period_s() == pytest.approx(0.2, rel=0.1)
    assert seen_often.error_j == pytest.approx(seen_once.error_j, rel=0.05)
    assert seen_often.uncertainty_j > 0.5 * seen_once.uncertainty_j


@settings(max_examples=40, derandomize=True)
@given(phase=st.floats(0, 0.2), power=st.floats(5, 60), idle=st.floats(1, 5))
def test_a_burst_seen_late_by_the_sensor_lies_within_what_is_left_open(
    phase: float, power: float, idle: float
) -> None:
    # The sensor shows the mean of the last 0.2 s, and is read every 0.1 s.
    def drawn(time_s: float) -> float:
        return power if 2.0 <= time_s < 4.0 else idle

    def shown(time_s: float) -> float:
        end = math.floor((time_s - phase) / 0.2) * 0.2 + phase
        return sum(drawn(end - 0.2 * (part + 0.5) / 50) for part in range(50)) / 50

    energy = log_of([(0.1 * tick, shown(0.1 * tick)) for tick in range(61)]).energy(2.0, 4.0)

    assert abs(energy.energy_j - 2.0 * power) <= energy.uncertainty_j + 1e-6


def test_a_sensor_that_never_moved_is_taken_to_be_as_slow_as_those_known() -> None:
    log = log_of([(0.1 * tick, 20.0) for tick in range(50)])

    assert log.period_s() == ASSUMED_PERIOD_S
    assert least_block_s(log.period_s()) == pytest.approx(1.6)


def test_where_the_window_of_a_reading_is_unknown_a_change_is_waited_for_longer() -> None:
    unknown, short = log_of([(0.0, 20.0)]), PowerLog()
    short.add(replace(EMPTY, power_w=20.0, average_power_w=20.0))

    assert unknown.shown_within_s() - short.shown_within_s() == pytest.approx(1.0)
    assert short.shown_within_s() == pytest.approx(2 * ASSUMED_PERIOD_S)


def test_energy_stays_exact_where_old_readings_are_thrown_away() -> None:
    log, all_j = PowerLog(), 0.0
    for tick in range(70_000):
        log.add(replace(EMPTY, time_s=0.1 * tick, power_w=20.0 + tick % 2))
        all_j += 2.05 if tick else 0.0

    assert log.energy_j(0.0, log.last_s) == pytest.approx(all_j, rel=1e-9)


def test_scatter_of_steps_is_told_as_a_standard_error() -> None:
    marks = [StepMark(step=step, time_s=time_s) for step, time_s in enumerate((0, 1.0, 3.0, 4.0))]
    times = steps_of(*step_spans(marks))

    # 1, 2, 1: standard deviation sqrt(1/3), over the root of three.
    assert times.time_error_s == pytest.approx(1 / 3)
    assert steps_of(step_spans(marks)[0]).time_error_s is None


@settings(max_examples=50)
@given(
    durations_s=st.lists(st.floats(0.1, 10), min_size=2, max_size=12),
    merged_count=st.integers(1, 9),
)
def test_spans_whose_marks_were_lost_are_no_more_certain_than_there_are_of_them(
    durations_s: list[float], merged_count: int
) -> None:
    ends_s = [0.0, *accumulate(durations_s)]
    spans = [StepSpan(start_s=a, end_s=b, step_count=merged_count) for a, b in pairwise(ends_s)]
    times = steps_of(*spans)

    # Spans of equally many steps: the standard error of the mean of their means.
    means_s = [span.duration_s / merged_count for span in spans]
    expected_s = statistics.stdev(means_s) / math.sqrt(len(means_s))
    assert times.time_error_s == pytest.approx(expected_s, rel=1e-6, abs=1e-6)
    assert steps_of(spans[0]).time_error_s is None


def test_the_memory_clock_and_the_load_of_the_steps_are_kept() -> None:
    log = PowerLog()
    for tick in range(30):
        memory = 3199 if tick > 12 else 2133
        log.add(replace(EMPTY, time_s=0.1 * tick, power_w=20, mem_clock_mhz=memory, busy_ratio=0.9))
    cost = cost_of_steps(612, steps_of(StepSpan(start_s=1.0, end_s=2.5, step_count=3)), log)

    assert cost.mem_clock_mhz == 3199
    assert cost.busy_ratio == pytest.approx(0.9)
