"""Waiting for the energy counter, on counters whose steps are known exactly."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.device.nvml_ticks import EnergyTicks
from joulewise.domain.errors import MeasurementError, NotSupported

POLL_S = 0.001
# One poll, and the float error of a clock that has run for minutes.
FRESH_S = POLL_S + 1e-6


@dataclass(slots=True)
class SteppingCounter:
    """A counter that moves at phase_s + k period_s, and a clock that only sleeping moves."""

    period_s: float
    phase_s: float = 0.0
    is_there: bool = True
    stuck_at_s: float = float("inf")
    wakes_at_s: float = float("-inf")
    time_s: float = 1000.0
    read_count: int = 0
    sleeps_s: list[float] = field(default_factory=list)

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        assert duration_s >= 0
        self.time_s += duration_s
        self.sleeps_s.append(duration_s)

    def read_energy_j(self) -> float | None:
        self.read_count += 1
        return float(self.step()) if self.is_there else None

    def step(self) -> int:
        return int(
            (max(self.wakes_at_s, min(self.time_s, self.stuck_at_s)) - self.phase_s)
            // self.period_s
        )

    def since_step_s(self) -> float:
        return (self.time_s - self.phase_s) % self.period_s


def ticks_of(counter: SteppingCounter) -> EnergyTicks:
    return EnergyTicks(counter.read_energy_j, counter, gpu="GPU 0")


@given(period_s=st.floats(0.004, 0.5), phase_ratio=st.floats(0, 1), idle_s=st.floats(0, 20))
@settings(max_examples=60, deadline=None)
def test_a_wait_ends_within_a_poll_after_a_step(
    period_s: float, phase_ratio: float, idle_s: float
) -> None:
    counter = SteppingCounter(period_s=period_s, phase_s=phase_ratio * period_s)
    ticks = ticks_of(counter)
    if phase_ratio > 0.5:
        assert ticks.period_s

    for gap_s in (0.0, idle_s, idle_s / 7, 0.0):
        counter.sleep(gap_s)
        before = counter.step()
        ticks.wait(2.0)
        assert counter.step() > before
        assert counter.since_step_s() <= FRESH_S


@given(period_s=st.floats(0.01, 1.0), phase_ratio=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_the_period_is_measured_to_a_poll_in_eight_steps(
    period_s: float, phase_ratio: float
) -> None:
    counter = SteppingCounter(period_s=period_s, phase_s=phase_ratio * period_s)

    measured_s = ticks_of(counter).period_s

    assert measured_s is not None
    assert abs(measured_s - period_s) <= FRESH_S / 8


def test_the_period_is_asked_of_the_counter_once() -> None:
    counter = SteppingCounter(period_s=0.1)
    ticks = ticks_of(counter)

    first_s = ticks.period_s
    reads = counter.read_count

    assert first_s == ticks.period_s
    assert reads == counter.read_count


def test_a_known_period_saves_most_polls() -> None:
    counter = SteppingCounter(period_s=0.1)
    ticks = ticks_of(counter)
    counter.read_count = 0
    ticks.wait(1.0)
    ticks.wait(1.0)
    blind = counter.read_count
    assert ticks.period_s
    counter.read_count = 0
    ticks.wait(1.0)
    ticks.wait(1.0)

    assert counter.read_count < blind / 4


def test_a_counter_that_went_still_has_no_period_and_stays_bounded_in_time() -> None:
    counter = SteppingCounter(period_s=0.1, stuck_at_s=1000.0)

    assert ticks_of(counter).period_s is None
    assert counter.time_s < 1003.0


def test_a_counter_that_slept_at_the_first_question_is_measured_once_it_is_awake() -> None:
    counter = SteppingCounter(period_s=0.1, wakes_at_s=1050.0)
    ticks = ticks_of(counter)

    assert ticks.period_s is None
    asked_s = counter.time_s
    for _ in range(20):
        assert ticks.period_s is None
    # Asking again costs a reading and no time.
    assert asked_s == counter.time_s
    counter.time_s = 1060.0
    assert 0.1 == pytest.approx(ticks.period_s, abs=FRESH_S / 8)


def test_waiting_for_a_stuck_counter_ends_at_the_timeout() -> None:
    counter = SteppingCounter(period_s=0.1, stuck_at_s=1002.0)
    ticks = ticks_of(counter)
    assert ticks.period_s
    counter.sleep(5.0)
    began_s = counter.time_s

    with pytest.raises(MeasurementError, match=r"did not move within 0\.5 s"):
        ticks.wait(0.5)

    assert 0.5 <= counter.time_s - began_s <= 0.5 + FRESH_S


def test_no_counter_is_no_period_and_no_wait() -> None:
    counter = SteppingCounter(period_s=0.1, is_there=False)
    ticks = ticks_of(counter)

    assert ticks.period_s is None
    with pytest.raises(NotSupported, match="has no energy counter"):
        ticks.wait(1.0)


def test_a_step_that_came_during_a_sleep_is_not_taken_for_a_fresh_one() -> None:
    counter = SteppingCounter(period_s=0.1)
    ticks = ticks_of(counter)
    assert ticks.period_s
    # The counter is re-phased, as a driver reload does: steps now come when none is foreseen.
    counter.phase_s += 0.05

    ticks.wait(1.0)

    assert counter.since_step_s() <= FRESH_S
