from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulewise.measure.sensor_estimates import (
    averaging_window_s,
    counter_against_power,
    update_period_s,
)

FloatArray = NDArray[np.float64]


def _column(folder: Path, name: str, column: str) -> tuple[FloatArray, FloatArray]:
    """Times and one column of a log that nvidia-smi wrote in a loop."""
    with (folder / "smi-sensor" / name).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, skipinitialspace=True))
    moments = [datetime.strptime(row["timestamp"], "%Y/%m/%d %H:%M:%S.%f") for row in rows]  # noqa: DTZ007 - the log names no zone
    times_s = np.array([(moment - moments[0]).total_seconds() for moment in moments])
    return times_s, np.array([float(row[column]) for row in rows])


def _sensor(
    times_s: FloatArray, power_at: FloatArray, *, period_s: float, window_s: float, phase_s: float
) -> FloatArray:
    """A sensor that shows, once a period, the mean of the last window (power on a fine grid)."""
    grid_s = times_s
    integral_j = np.concatenate([[0.0], np.cumsum(power_at[:-1] * np.diff(grid_s))])
    updated_s = np.floor((times_s - phase_s) / period_s) * period_s + phase_s
    end_j = np.interp(updated_s, grid_s, integral_j)
    start_j = np.interp(updated_s - window_s, grid_s, integral_j)
    return np.asarray((end_j - start_j) / window_s)


@pytest.mark.data
@pytest.mark.parametrize("column", ["power.draw [W]", "power.draw.instant [W]"])
def test_a_published_a100_updates_its_power_ten_times_a_second(
    measured_data: Path, column: str
) -> None:
    period = update_period_s(*_column(measured_data, "A100_gpudata.csv", column))
    assert period is not None
    assert period.period_s == pytest.approx(0.1, rel=0.02)
    assert period.spread_s < 0.005


@pytest.mark.data
@pytest.mark.parametrize(
    "column", ["power.draw [W]", "power.draw.average [W]", "power.draw.instant [W]"]
)
def test_a_published_rtx_3090_updates_its_power_ten_times_a_second(
    measured_data: Path, column: str
) -> None:
    period = update_period_s(*_column(measured_data, "3090_step_response.csv", column))
    assert period is not None
    assert period.period_s == pytest.approx(0.1, rel=0.01)


@pytest.mark.data
@pytest.mark.parametrize("column", ["power.draw [W]", "power.draw.average [W]"])
@pytest.mark.parametrize(("from_s", "to_s", "step_s"), [(0.0, 6.9, 1.2), (6.0, 20.0, 7.05)])
def test_what_a_published_rtx_3090_calls_its_draw_is_a_mean_of_one_second(
    measured_data: Path, column: str, from_s: float, to_s: float, step_s: float
) -> None:
    times_s, power_w = _column(measured_data, "3090_step_response.csv", column)
    within = (times_s > from_s) & (times_s < to_s)
    window_s = averaging_window_s(times_s[within], power_w[within], step_s)
    # The load itself took two tenths of a second to rise, which adds to the ramp.
    assert window_s == pytest.approx(1.1, abs=0.1)


@pytest.mark.data
def test_the_instant_power_of_a_published_rtx_3090_follows_too_fast_to_tell_from_one_step(
    measured_data: Path,
) -> None:
    times_s, power_w = _column(measured_data, "3090_step_response.csv", "power.draw.instant [W]")
    assert averaging_window_s(times_s[times_s < 6.9], power_w[times_s < 6.9], 1.2) is None


@given(
    period_ms=st.integers(15, 300),
    phase_ratio=st.floats(0.0, 1.0),
    repeat_ratio=st.floats(0.0, 0.3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_an_update_period_is_found_though_some_updates_bring_the_same_value(
    period_ms: int, phase_ratio: float, repeat_ratio: float, seed: int
) -> None:
    period_s = period_ms * 1e-3
    times_s = np.arange(0.0, 60 * period_s, 0.001)
    update = np.floor(times_s / period_s + phase_ratio).astype(int)
    rng = np.random.default_rng(seed)
    is_new = rng.random(update.max() + 1) >= repeat_ratio
    values = np.cumsum(is_new)[update].astype(float)
    found = update_period_s(times_s, values)
    assert found is not None
    assert found.period_s == pytest.approx(period_s, rel=0.02, abs=2e-4)


def test_a_reading_that_moves_at_every_poll_has_no_period_that_could_be_seen() -> None:
    times_s = np.arange(0.0, 1.0, 0.01)
    assert update_period_s(times_s, times_s) is None
    assert update_period_s(times_s, np.zeros_like(times_s)) is None


@given(
    window_ms=st.integers(150, 1500),
    period_ms=st.sampled_from([20, 50, 100]),
    phase_ratio=st.floats(0.0, 1.0),
    is_down=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_window_of_a_mean_is_found_from_one_step(
    *, window_ms: int, period_ms: int, phase_ratio: float, is_down: bool
) -> None:
    window_s, period_s = window_ms * 1e-3, period_ms * 1e-3
    window_s = max(window_s, 5 * period_s)
    times_s = np.arange(0.0, 8.0, 0.002)
    low_w, high_w = (300.0, 60.0) if is_down else (60.0, 300.0)
    drawn_w = np.where(times_s < 3.0, low_w, high_w)
    shown_w = _sensor(
        times_s, drawn_w, period_s=period_s, window_s=window_s, phase_s=phase_ratio * period_s
    )
    after = times_s > 2.0
    found = averaging_window_s(times_s[after], shown_w[after], 3.0)
    assert found == pytest.approx(window_s, rel=0.03, abs=0.004)


@pytest.mark.parametrize("window_s", [0.025, 0.05, 0.1])
def test_a_window_shorter_than_the_update_period_is_found_from_many_steps(window_s: float) -> None:
    times_s = np.arange(0.0, 40.0, 0.001)
    steps_s = np.array([1.0 + 0.7 * k + 0.1 * (k * 0.618 % 1.0) for k in range(40)])
    drawn_w = np.where(np.searchsorted(steps_s, times_s, side="right") % 2 == 1, 300.0, 60.0)
    shown_w = _sensor(times_s, drawn_w, period_s=0.1, window_s=window_s, phase_s=0.03)
    assert averaging_window_s(times_s, shown_w, steps_s) == pytest.approx(window_s, rel=0.1)


def test_no_window_is_told_where_no_step_is_seen() -> None:
    times_s = np.arange(0.0, 10.0, 0.01)
    assert averaging_window_s(times_s, np.full_like(times_s, 50.0), 5.0) is None
    assert averaging_window_s(times_s, np.where(times_s < 5.0, 50.0, 200.0), 5.0) is None
    assert averaging_window_s(times_s, times_s, 20.0) is None
    assert averaging_window_s(times_s, times_s, []) is None


@given(excess_ratio=st.floats(-0.5, 0.5), power_w=st.floats(1.0, 1000.0))
@settings(max_examples=40, deadline=None)
def test_integrated_power_is_compared_with_what_was_counted(
    excess_ratio: float, power_w: float
) -> None:
    times_s = np.linspace(100.0, 110.0, 101)
    energy_j = 5e6 + power_w * (times_s - 100.0)
    found = counter_against_power(
        times_s, energy_j, np.full_like(times_s, power_w * (1.0 + excess_ratio))
    )
    assert found == pytest.approx(excess_ratio, abs=1e-6)


def test_a_counter_that_did_not_move_is_compared_with_nothing() -> None:
    assert counter_against_power([0.0, 1.0], [5.0, 5.0], [10.0, 10.0]) is None
