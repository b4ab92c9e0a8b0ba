"""Shrinking calms noise and leaves what is sure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.rooflines import Noise, near, noisy_sweep, rms_ratio, world

from joulewise.domain.caveats import CaveatKind
from joulewise.model.shrink import remaining_error_ratio, shrink
from joulewise.model.surrogate import fit_surrogate


def test_shrunken_cells_lie_nearer_to_the_truth() -> None:
    truth = world(kernel_count=20)
    noise = Noise(time_ratio=0.008, power_ratio=0.015, shift_ratio=0.0045)
    sweep = noisy_sweep(truth, noise)
    calmed = shrink(sweep, fit_surrogate(sweep))
    cells = near(truth)
    assert rms_ratio(calmed.time_s, truth.time_s, cells) < 0.5 * rms_ratio(
        sweep.time_s, truth.time_s, cells
    )
    assert rms_ratio(calmed.energy_j, truth.energy_j, cells) < 0.5 * rms_ratio(
        sweep.energy_j, truth.energy_j, cells
    )


def test_cells_without_noise_stay_where_they_are_but_for_the_shift() -> None:
    truth = world()
    sweep = noisy_sweep(truth, Noise(time_ratio=0.0, power_ratio=0.0))
    surrogate = fit_surrogate(sweep)
    calmed = shrink(sweep, surrogate)
    assert calmed.time_s * surrogate.visit_shift_ratio == pytest.approx(sweep.time_s, rel=1e-9)
    power_w = calmed.energy_j / calmed.time_s
    assert power_w == pytest.approx(sweep.energy_j / sweep.time_s, rel=1e-9)


def test_a_kernel_that_the_physics_cannot_describe_keeps_its_own_numbers() -> None:
    truth = world(kernel_count=20)
    rng = np.random.default_rng(4)
    odd = truth.time_s.copy()
    odd[7] *= np.exp(0.2 * rng.normal(size=odd.shape[1]))
    sweep = noisy_sweep(replace(truth, time_s=odd), Noise())
    calmed = shrink(sweep, fit_surrogate(sweep))
    # Of 20 % the model gets only what noise of 0.13 % deserves.
    assert calmed.time_s[7] == pytest.approx(odd[7], rel=0.01)


def test_a_noisier_cell_is_pulled_further() -> None:
    truth = world(kernel_count=20)
    sweep = noisy_sweep(truth, Noise(time_ratio=0.004))
    surrogate = fit_surrogate(sweep)
    calmed = shrink(sweep, surrogate)
    trusted = replace(sweep, window_count=np.full(sweep.time_s.shape, 300))
    trusting = shrink(trusted, replace(surrogate, scatter=fit_surrogate(trusted).scatter))
    base = sweep.time_s / surrogate.visit_shift_ratio
    assert (
        np.abs(np.log(trusting.time_s / base)).mean()
        < 0.5 * np.abs(np.log(calmed.time_s / base)).mean()
    )


def test_absent_cells_stay_absent() -> None:
    sweep = noisy_sweep(world(), Noise(), absent_ratio=0.3)
    calmed = shrink(sweep, fit_surrogate(sweep))
    assert np.array_equal(calmed.is_present, sweep.is_present)
    assert np.isinf(calmed.time_s[~sweep.is_present]).all()
    assert np.isinf(calmed.energy_j[~sweep.is_present]).all()


def test_without_scatter_the_sweep_comes_back_with_a_caveat() -> None:
    sweep = world().exact_sweep()
    calmed = shrink(sweep, fit_surrogate(sweep))
    assert calmed.time_s is sweep.time_s
    assert calmed.energy_j is sweep.energy_j
    assert [caveat.kind for caveat in calmed.caveats] == [CaveatKind.NO_UNCERTAINTY]
    again = shrink(calmed, fit_surrogate(calmed))
    assert again.caveats == calmed.caveats


def test_what_remains_is_less_than_either_error() -> None:
    error = np.array([[0.003, 0.0, 0.004]])
    noise = np.array([[0.004, 0.004, 0.0]])
    assert remaining_error_ratio(error, noise) == pytest.approx(np.array([[0.0024, 0.0, 0.0]]))
