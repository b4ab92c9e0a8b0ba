"""Laws of the surrogate: it has no units, no order and no memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rooflines import Noise, noisy_sweep, world

from joulewise.model.shrink import shrink
from joulewise.model.surrogate import fit_surrogate

NOISE = Noise(time_ratio=0.003, power_ratio=0.01, shift_ratio=0.0045)
seeds = st.integers(0, 10_000)


@settings(max_examples=8, deadline=None)
@given(seeds, st.sampled_from([1e-3, 40.0]), st.sampled_from([1e-2, 300.0]))
def test_other_units_scale_the_predictions_and_nothing_else(
    seed: int, slower: float, hungrier: float
) -> None:
    truth = world(kernel_count=6, seed=seed)
    scaled = replace(truth, time_s=truth.time_s * slower, power_w=truth.power_w * hungrier)
    one, other = (fit_surrogate(noisy_sweep(w, NOISE, seed=seed)) for w in (truth, scaled))
    assert other.held_out_time_s == pytest.approx(slower * one.held_out_time_s, rel=1e-3)
    assert other.held_out_energy_j == pytest.approx(
        slower * hungrier * one.held_out_energy_j, rel=1e-3
    )


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_shrinking_moves_no_cell_beyond_its_model_nor_far_beyond_its_noise(seed: int) -> None:
    truth = world(kernel_count=6, seed=seed)
    sweep = noisy_sweep(truth, NOISE, seed=seed, absent_ratio=0.2)
    surrogate = fit_surrogate(sweep)
    calmed = shrink(sweep, surrogate)
    present = sweep.is_present
    assert surrogate.scatter is not None
    seen = np.log(np.where(present, sweep.time_s, 1.0) / surrogate.visit_shift_ratio)
    moved = np.log(np.where(present, calmed.time_s, 1.0)) - seen
    away = np.log(surrogate.held_out_time_s) - seen
    assert (np.abs(moved) <= np.abs(away) + 1e-12)[present].all()
    assert (moved * away >= -1e-15)[present].all()
    assert (np.abs(moved) <= 2 * surrogate.scatter.time_ratio + 1e-12)[present].all()


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_the_same_sweep_gives_the_same_surrogate(seed: int) -> None:
    sweep = noisy_sweep(world(kernel_count=4, seed=seed), NOISE, seed=seed, absent_ratio=0.1)
    one, other = fit_surrogate(sweep), fit_surrogate(sweep)
    assert np.array_equal(one.time_s, other.time_s)
    assert np.array_equal(one.held_out_energy_j, other.held_out_energy_j)


@settings(max_examples=15, deadline=None)
@given(seeds, st.integers(1, 6), st.floats(0.0, 0.8))
def test_holes_never_lead_to_holes(seed: int, kernel_count: int, absent_ratio: float) -> None:
    truth = world(kernel_count=kernel_count, seed=seed)
    surrogate = fit_surrogate(noisy_sweep(truth, NOISE, seed=seed, absent_ratio=absent_ratio))
    for table in (
        surrogate.time_s,
        surrogate.energy_j,
        surrogate.held_out_time_s,
        surrogate.held_out_energy_j,
        surrogate.time_error_ratio,
        surrogate.power_error_ratio,
    ):
        assert np.isfinite(table).all()
        assert (table > 0).all()
