from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.measure.replay_window import enough_iterations
from joulewise.measure.settings import MeasureSettings

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
