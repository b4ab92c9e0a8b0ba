"""Scatter is pooled, power-capped cells apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.rooflines import Noise, noisy_sweep, world

from joulewise.model.scatter import median_spread_ratio, scatter_of

NOISE = Noise(time_ratio=0.004, power_ratio=0.012)


def test_pooling_finds_the_noise_that_was_put_in() -> None:
    scatter = scatter_of(noisy_sweep(world(kernel_count=40), NOISE))
    assert scatter is not None
    assert scatter.window_time_ratio == pytest.approx(
        np.full(scatter.window_time_ratio.shape, 0.004), rel=0.1
    )
    assert scatter.window_power_ratio == pytest.approx(
        np.full(scatter.window_power_ratio.shape, 0.012), rel=0.1
    )


def test_power_capped_cells_have_a_scatter_of_their_own() -> None:
    truth = world(kernel_count=40)
    sweep = noisy_sweep(truth, NOISE)
    assert sweep.time_std_s is not None
    louder = sweep.time_std_s * np.where(truth.is_capped, 2.0, 1.0)
    scatter = scatter_of(replace(sweep, time_std_s=louder))
    assert scatter is not None
    capped, others = (
        np.unique(scatter.window_time_ratio[cells]) for cells in (truth.is_capped, ~truth.is_capped)
    )
    assert capped == pytest.approx([0.008], rel=0.15)
    assert others == pytest.approx([0.004], rel=0.1)


def test_one_wild_cell_does_not_blur_the_others() -> None:
    sweep = noisy_sweep(world(kernel_count=40), NOISE)
    assert sweep.time_std_s is not None
    wild = sweep.time_std_s.copy()
    wild[0, 1] = sweep.time_s[0, 1]
    scatter = scatter_of(replace(sweep, time_std_s=wild))
    assert scatter is not None
    assert scatter.window_time_ratio.max() < 0.005


def test_three_windows_are_surer_than_one() -> None:
    sweep = noisy_sweep(world(), NOISE)
    scatter = scatter_of(sweep)
    assert scatter is not None
    assert scatter.time_ratio == pytest.approx(0.663 * scatter.window_time_ratio, rel=0.01)


def test_the_spread_of_the_median_agrees_with_simulation() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 3, 5, 11, 31):
        simulated = np.median(rng.normal(size=(count, 40_000)), axis=0).std()
        assert median_spread_ratio(np.array(count)) == pytest.approx(simulated, rel=0.03)


def test_single_windows_show_no_scatter() -> None:
    sweep = noisy_sweep(world(), NOISE)
    assert scatter_of(replace(sweep, time_std_s=None)) is None
    assert scatter_of(replace(sweep, energy_std_j=None)) is None
    assert scatter_of(replace(sweep, window_count=sweep.is_present.astype(np.int64))) is None


def test_deviations_without_counts_are_taken_as_those_of_the_cell() -> None:
    scatter = scatter_of(replace(noisy_sweep(world(), NOISE), window_count=None))
    assert scatter is not None
    assert scatter.time_ratio == pytest.approx(scatter.window_time_ratio)
