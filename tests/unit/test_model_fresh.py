"""Fresh windows are pooled, checked, and carried over to cells that have none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.rooflines import Bench, Noise, World, world

from joulewise.domain.errors import MeasurementError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import FloatTable
from joulewise.model.fresh import FreshCells, Prior, believe, fresh_cells


def _all_cells(truth: World) -> list[tuple[str, OperatingPoint]]:
    return [(kernel, point) for kernel in truth.kernels for point in truth.points]


def _fresh(truth: World, bench: Bench, batch_count: int = 1) -> FreshCells:
    cells = [cell for _ in range(batch_count) for cell in bench(_all_cells(truth), 10)]
    return fresh_cells(cells, truth.kernels, truth.points)


def _prior(log_time: FloatTable, log_power: FloatTable, error: float, shift: float) -> Prior:
    same = np.full(log_time.shape, error)
    return Prior(
        log_time=log_time,
        log_power=log_power,
        time_error_ratio=same,
        power_error_ratio=same,
        shift_error_ratio=np.full(log_time.shape[1], shift),
        is_unshaken=np.zeros(len(log_time), dtype=np.bool_),
    )


def test_batches_of_one_run_are_pooled() -> None:
    truth = world(kernel_count=6)
    noise = Noise(time_ratio=0.004, power_ratio=0.01)
    once, twice = (_fresh(truth, Bench(truth, noise), batches) for batches in (1, 2))
    assert (once.window_count == 10).all()
    assert (twice.window_count == 20).all()
    assert twice.time_error_ratio.max() < 0.8 * once.time_error_ratio.min()
    assert twice.window_time_ratio == pytest.approx(np.full(twice.log_time.shape, 0.004), rel=0.1)
    assert twice.window_power_ratio == pytest.approx(np.full(twice.log_time.shape, 0.01), rel=0.1)
    assert np.exp(twice.log_time) == pytest.approx(truth.time_s, rel=0.005)


def test_a_window_that_comes_twice_is_refused() -> None:
    truth = world(kernel_count=2)
    bench = Bench(truth, Noise())
    cells = bench(_all_cells(truth)[:1], 3)
    with pytest.raises(MeasurementError, match=r"a window of 'kernel-0' at auto/auto came twice"):
        fresh_cells([*cells, *cells], truth.kernels, truth.points)


def test_windows_of_two_runs_are_refused() -> None:
    truth = world(kernel_count=2)
    (first,) = Bench(truth, Noise())(_all_cells(truth)[:1], 3)
    (second,) = Bench(truth, Noise())(_all_cells(truth)[1:2], 3)
    with pytest.raises(MeasurementError, match="2 measuring runs"):
        fresh_cells([first, replace(second, run="another")], truth.kernels, truth.points)


def test_a_cell_outside_the_sweep_is_refused() -> None:
    truth = world(kernel_count=2)
    (cell,) = Bench(truth, Noise())(_all_cells(truth)[:1], 3)
    with pytest.raises(MeasurementError, match="not in the sweep"):
        fresh_cells([replace(cell, kernel="other")], truth.kernels, truth.points)


def test_nothing_measured_leaves_the_prior() -> None:
    truth = world(kernel_count=3)
    prior = _prior(np.log(truth.time_s), np.log(truth.power_w), 0.01, 0.0)
    belief = believe(prior, fresh_cells([], truth.kernels, truth.points))
    assert belief.time_s == pytest.approx(truth.time_s)
    assert belief.energy_j == pytest.approx(truth.energy_j)


def test_what_some_kernels_show_of_a_point_corrects_the_others() -> None:
    truth = world(kernel_count=12)
    baseline = truth.baseline_index
    # The sweep saw one point 1 % too fast; half of the kernels are measured there again.
    column = 3
    seen = np.log(truth.time_s)
    seen[:, column] -= 0.01
    again = [(kernel, truth.points[p]) for kernel in truth.kernels[:6] for p in (baseline, column)]
    quiet = Noise(time_ratio=1e-4, power_ratio=1e-4)
    fresh = fresh_cells(Bench(truth, quiet)(again, 10), truth.kernels, truth.points)
    belief = believe(_prior(seen, np.log(truth.power_w), 0.001, 0.005), fresh)
    assert belief.time_s[6:, column] == pytest.approx(truth.time_s[6:, column], rel=0.001)


def test_the_shift_of_the_fresh_run_moves_points_that_it_did_not_visit() -> None:
    truth = world(kernel_count=12)
    again = [(kernel, truth.points[truth.baseline_index]) for kernel in truth.kernels]
    shifted = replace(truth, time_s=truth.time_s * 1.02)
    quiet = Noise(time_ratio=1e-4, power_ratio=1e-4)
    fresh = fresh_cells(Bench(shifted, quiet)(again, 10), truth.kernels, truth.points)
    prior = _prior(np.log(truth.time_s), np.log(truth.power_w), 0.001, 0.0)
    belief = believe(prior, fresh)
    assert belief.time_s == pytest.approx(shifted.time_s, rel=0.001)


def test_a_sure_prior_and_noisy_windows_meet_in_between() -> None:
    truth = world(kernel_count=30)
    noise = Noise(time_ratio=0.02, power_ratio=0.02)
    fresh = _fresh(truth, Bench(truth, noise))
    rng = np.random.default_rng(0)
    off = 0.005 * rng.normal(size=truth.time_s.shape)
    belief = believe(_prior(np.log(truth.time_s) + off, np.log(truth.power_w), 0.005, 0.0), fresh)
    wrong = np.log(belief.time_s / truth.time_s).std()
    assert wrong < 0.9 * off.std()
    assert wrong < 0.9 * (fresh.log_time - np.log(truth.time_s)).std()
