from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replays import launches_at

from joulewise.domain.points import AUTO
from joulewise.measure.replay_window import ReplayTask, Schedule, enough_iterations, measure_replay
from joulewise.measure.settings import MeasureSettings
from joulewise.simulator.virtual import open_virtual
from joulewise.simulator.virtual_time import UNITS_PER_S
from joulewise.workload.gpt3_xl import gpt3_xl

SETTINGS = MeasureSettings()


def _phase_ratio(count: int, iteration_s: float, period_s: float) -> float:
    """What a window of so many iterations misses of whole counter periods, against its length."""
    return abs(math.remainder(count * iteration_s, period_s)) / (count * iteration_s)


@given(iteration_s=st.floats(1e-3, 20.0), period_s=st.floats(0.01, 0.5))
@settings(max_examples=200, deadline=None)
def test_iterations_fill_a_window_and_end_near_the_phase_they_began_at(
    iteration_s: float, period_s: float
) -> None:
    count = enough_iterations(iteration_s, period_s, SETTINGS)
    fewest = max(3, math.ceil(max(5.0, 50 * period_s) / iteration_s))
    assert fewest <= count <= 4 * fewest
    phases = [_phase_ratio(n, iteration_s, period_s) for n in range(fewest, count + 1)]
    # Among all up to here none is better, and the search ends with the first that is good.
    assert phases[-1] <= min(phases) + 1e-9
    assert (
        count == 4 * fewest
        or phases[-1] <= 1e-3 + 1e-9
        or _is_best_of_all(count, fewest, iteration_s, period_s)
    )
    assert all(phase > 1e-3 - 1e-9 for phase in phases[:-1])


def _is_best_of_all(count: int, fewest: int, iteration_s: float, period_s: float) -> bool:
    rest = range(count + 1, 4 * fewest + 1)
    phase = _phase_ratio(count, iteration_s, period_s)
    return all(_phase_ratio(n, iteration_s, period_s) >= phase - 1e-9 for n in rest)


def test_without_a_counter_a_window_is_just_filled() -> None:
    assert enough_iterations(0.0371, None, SETTINGS) == math.ceil(5.0 / 0.0371)
    assert enough_iterations(10.0, None, SETTINGS) == 3


def test_iterations_that_keep_step_with_the_counter_need_no_more() -> None:
    assert enough_iterations(0.1, 0.1, SETTINGS) == 50
    assert enough_iterations(0.25, 0.1, SETTINGS) == 20


def test_iterations_that_nearly_keep_step_with_the_counter_need_many() -> None:
    assert enough_iterations(0.101, 0.1, SETTINGS) > 85


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.3, 0.45, 0.55, 0.9])
@pytest.mark.parametrize("is_short", [True, False])
def test_a_window_ends_wherever_its_end_lies_between_two_steps_of_the_clock(
    fraction: float, *, is_short: bool
) -> None:
    workload = gpt3_xl()
    session = open_virtual("virtual:a100-sxm", workload.works)
    assert session.iterations is not None
    launches = launches_at(workload.launches[:5], (AUTO,), 1)
    told = 0

    def give_up(_what: str, _done_count: int, _total_count: int) -> None:
        nonlocal told
        told += 1
        assert told < 1000, "the window does not end"

    with session.iterations.iterate(launches, (), session.gpu.request, run="replay") as loop:
        loop.run_iterations(1)
        # Begun and ended at ticks, which are half a period from where the watching ends.
        half = 0.5 * (session.gpu.energy_counter_period_s or 0.0) * UNITS_PER_S % 1.0
        window_s = (5 * UNITS_PER_S + half + fraction) / UNITS_PER_S
        count = 2**7 if is_short else 2**2
        task = ReplayTask(
            schedule=Schedule(launches=launches),
            window=0,
            iteration_count=count,
            iteration_s=window_s / count,
        )
        replay = measure_replay(session.gpu, loop, task, SETTINGS, give_up)

    assert replay.duration_s == pytest.approx(window_s, abs=0.2)
