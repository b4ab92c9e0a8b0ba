"""Call, lag and stall out of cycles that were counted on the GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.domain.errors import MeasurementError
from joulewise.domain.ports import ClockTrace
from joulewise.measure.clock_trace import (
    half_step_mhz,
    is_steady,
    pace_mhz,
    traced_change,
)

STEP_S = 1.7e-5
ASKED_S = 100.0


def made_trace(
    *,
    clocks_mhz: tuple[float, float] = (840.0, 1155.0),
    lag_s: float = 0.005,
    stall_s: float = 0.0,
    length_s: float = 0.03,
    call_s: float = 0.0,
    timer_s: float = 0.0,
) -> ClockTrace:
    """Cycles at one clock until the lag is over, none during the stall, at the other after it.

    `timer_s` is the step of the timer that the readings are taken with.
    """
    times_s = np.arange(ASKED_S - 0.01, ASKED_S + length_s, STEP_S)
    working_s = np.minimum(times_s - ASKED_S, lag_s)
    after_s = np.maximum(times_s - ASKED_S - lag_s - stall_s, 0.0)
    cycles = 1e6 * (clocks_mhz[0] * (working_s + 1.0) + clocks_mhz[1] * after_s)
    if timer_s:
        times_s = np.floor(times_s / timer_s) * timer_s
    return ClockTrace(times_s=times_s, cycles=cycles, asked_s=ASKED_S, returned_s=ASKED_S + call_s)


@given(
    clocks_mhz=st.tuples(
        st.integers(14, 130).map(lambda number: 15.0 * number),
        st.integers(14, 130).map(lambda number: 15.0 * number),
    ).filter(lambda pair: pair[0] != pair[1]),
    lag_s=st.floats(0.0, 0.02),
    stall_s=st.one_of(st.just(0.0), st.floats(0.0, 0.005)),
    call_s=st.floats(0.0, 0.01),
)
def test_what_was_put_into_a_trace_is_read_from_it(
    clocks_mhz: tuple[float, float], lag_s: float, stall_s: float, call_s: float
) -> None:
    """To within two of the readings; a lag of fewer than three may be taken for none."""
    trace = made_trace(
        clocks_mhz=clocks_mhz, lag_s=lag_s, stall_s=stall_s, call_s=call_s, length_s=0.05
    )

    change = traced_change(trace, within_mhz=7.5)

    assert change.lag_s is not None
    assert abs(change.lag_s - lag_s) <= (2 if lag_s > 4 * STEP_S else 4) * STEP_S
    assert abs(change.stall_s - stall_s) <= 2 * STEP_S
    assert change.call_s == pytest.approx(call_s)
    assert (change.before_mhz, change.after_mhz) == pytest.approx(clocks_mhz, abs=0.75)


def test_without_a_change_of_the_clock_there_is_neither_lag_nor_stall() -> None:
    change = traced_change(made_trace(clocks_mhz=(840.0, 840.0)), within_mhz=7.5)

    assert (0.0, 0.0) == (change.lag_s, change.stall_s)


def test_a_stall_without_a_change_of_the_clock_is_seen() -> None:
    trace = made_trace(clocks_mhz=(840.0, 840.0), stall_s=0.003)

    assert traced_change(trace, within_mhz=7.5).stall_s == pytest.approx(0.003, rel=0.01)


@pytest.mark.parametrize("timer_s", [3.2e-8, 1.024e-6])
@pytest.mark.parametrize("after_mhz", [1155.0, 855.0])
def test_a_coarse_timer_is_not_taken_for_a_wandering_clock(
    timer_s: float, after_mhz: float
) -> None:
    """A step of 15 MHz of 855 within 1 µs shows over 0.3 ms; lags are as fine as that."""
    trace = made_trace(clocks_mhz=(840.0, after_mhz), timer_s=timer_s, stall_s=0.001, length_s=0.05)

    change = traced_change(trace, within_mhz=7.5)

    assert change.lag_s == pytest.approx(0.005, abs=0.0005)
    assert change.stall_s == pytest.approx(0.001, abs=1e-5)


def test_a_reading_whose_time_was_taken_late_is_no_standstill() -> None:
    """As where a host reads cycles, is held up, and then reads the time."""
    made = made_trace(stall_s=0.002)
    times_s = made.times_s.copy()
    is_there = np.ones(times_s.size, dtype=bool)
    for number, held_up_count in ((100, 30), (600, 60), (1500, 300), (2000, 40)):
        times_s[number] = times_s[number + held_up_count]
        is_there[number + 1 : number + held_up_count + 1] = False
    trace = replace(made, times_s=times_s[is_there], cycles=made.cycles[is_there])

    change = traced_change(trace, within_mhz=7.5)

    assert change.stall_s == pytest.approx(0.002, abs=2 * STEP_S)
    assert change.lag_s == pytest.approx(0.005, abs=2 * STEP_S)


@pytest.mark.parametrize(
    "trace",
    [
        made_trace(lag_s=1.0),
        made_trace(lag_s=0.029),
        made_trace(stall_s=1.0),
        made_trace(stall_s=0.022),
    ],
    ids=["never", "at the very end", "standing still", "just awake"],
)
def test_a_trace_that_ends_too_soon_has_no_lag_or_the_old_clock(trace: ClockTrace) -> None:
    change = traced_change(trace, within_mhz=7.5)

    assert change.lag_s is None or change.after_mhz == pytest.approx(840.0)


def test_a_clock_that_moves_in_steps_has_come_when_the_last_step_is_done() -> None:
    first = made_trace(clocks_mhz=(600.0, 900.0), lag_s=0.002)
    second = made_trace(clocks_mhz=(0.0, 300.0), lag_s=0.006)
    trace = replace(first, cycles=first.cycles + second.cycles)

    change = traced_change(trace, within_mhz=7.5)

    assert change.lag_s == pytest.approx(0.006, abs=2 * STEP_S)
    assert change.after_mhz == pytest.approx(1200.0)
    assert change.stall_s == 0.0


def test_the_end_of_a_trace_is_steady_when_the_change_is_long_over() -> None:
    assert is_steady(made_trace(), within_mhz=7.5)
    assert not is_steady(made_trace(lag_s=0.02), within_mhz=7.5)
    assert pace_mhz(made_trace()) == pytest.approx(1155.0)


def test_half_a_step_is_that_of_the_list_there() -> None:
    listed = (210, 225, 240, 1000, 1012, 1025)

    assert [7.5, 7.5, 6.0, 6.5, 6.5] == [
        half_step_mhz(listed, clock) for clock in (100.0, 226.0, 1005.0, 1020.0, 2000.0)
    ]
    with pytest.raises(MeasurementError, match="single SM clock"):
        half_step_mhz((1000,), 1000.0)


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (replace(made_trace(), asked_s=ASKED_S + 1.0), "too few readings around"),
        (replace(made_trace(), cycles=np.zeros(3)), "one number of cycles for each"),
        (replace(made_trace(), cycles=-made_trace().cycles), "goes back"),
        (made_trace(timer_s=0.1), "too few readings"),
    ],
)
def test_a_trace_that_says_nothing_is_refused(trace: ClockTrace, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        traced_change(trace, within_mhz=7.5)
