"""The surrogate predicts cells, knows its own error and separates shifts of visits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.rooflines import Noise, near, noisy_sweep, rms_ratio, world

from joulewise.domain.errors import MeasurementError
from joulewise.domain.points import AUTO
from joulewise.domain.sweep import Sweep
from joulewise.model.surrogate import fit_surrogate

QUIET = Noise(time_ratio=1e-5, power_ratio=1e-5)
LOUD = Noise(time_ratio=0.008, power_ratio=0.015, shift_ratio=0.0045)


@pytest.mark.parametrize("noise", [Noise(), Noise(shift_ratio=0.0045), LOUD])
def test_predictions_of_left_out_cells_beat_the_cells_as_measured(noise: Noise) -> None:
    truth = world()
    sweep = noisy_sweep(truth, noise)
    surrogate = fit_surrogate(sweep)
    cells = near(truth)
    assert rms_ratio(surrogate.held_out_time_s, truth.time_s, cells) < 0.6 * rms_ratio(
        sweep.time_s, truth.time_s, cells
    )
    assert rms_ratio(surrogate.held_out_energy_j, truth.energy_j, cells) < 0.6 * rms_ratio(
        sweep.energy_j, truth.energy_j, cells
    )


@pytest.mark.parametrize("noise", [Noise(shift_ratio=0.0045), LOUD])
def test_the_error_it_states_is_the_error_it_makes(noise: Noise) -> None:
    truth = world(kernel_count=30)
    surrogate = fit_surrogate(noisy_sweep(truth, noise))
    cells = near(truth)
    stated = np.sqrt(np.mean(surrogate.energy_error_ratio[cells] ** 2))
    made = rms_ratio(surrogate.held_out_energy_j, truth.energy_j, cells)
    assert 0.5 * made < stated < 2.0 * made


def test_a_shift_that_all_kernels_share_is_told_from_their_times() -> None:
    truth = world(kernel_count=30)
    clean = noisy_sweep(truth, Noise())
    column = 5
    factor = np.where(np.arange(len(truth.points)) == column, 1.01, 1.0)
    surrogate = fit_surrogate(
        replace(clean, time_s=clean.time_s * factor, energy_j=clean.energy_j * factor)
    )
    shifts = surrogate.visit_shift_ratio
    assert shifts[column] == pytest.approx(1.01, abs=0.002)
    assert np.delete(shifts, column) == pytest.approx(np.ones(len(shifts) - 1), abs=0.002)
    assert surrogate.held_out_time_s[:, column] == pytest.approx(truth.time_s[:, column], rel=0.01)


def test_cells_that_were_never_measured_are_predicted() -> None:
    truth = world(kernel_count=40)
    sweep = noisy_sweep(truth, Noise(), absent_ratio=0.3)
    surrogate = fit_surrogate(sweep)
    # Where the power limit sets the clock, nobody knows the clock of an unmeasured kernel.
    absent = ~sweep.is_present & near(truth) & ~truth.is_capped.any(axis=0)
    assert absent.sum() > 20
    assert rms_ratio(surrogate.time_s, truth.time_s, absent) < 0.005
    assert rms_ratio(surrogate.energy_j, truth.energy_j, absent) < 0.015


def test_a_sweep_over_the_sm_clock_alone_is_fitted_too() -> None:
    truth = world(sm_clocks_mhz=(None, *range(510, 1801, 30)), mem_clocks_mhz=(None,))
    surrogate = fit_surrogate(noisy_sweep(truth, Noise()))
    cells = near(truth)
    assert rms_ratio(surrogate.held_out_time_s, truth.time_s, cells) < 0.002
    assert rms_ratio(surrogate.held_out_energy_j, truth.energy_j, cells) < 0.005


def test_without_held_clocks_the_set_clocks_serve() -> None:
    truth = world(power_limit_w=1000.0)
    told = noisy_sweep(truth, Noise())
    untold = fit_surrogate(replace(told, sm_clock_held_mhz=None))
    assert untold.held_out_time_s == pytest.approx(fit_surrogate(told).held_out_time_s, rel=1e-6)


def test_without_scatter_it_fits_and_says_that_noise_is_unknown() -> None:
    truth = world()
    surrogate = fit_surrogate(truth.exact_sweep())
    assert surrogate.scatter is None
    assert rms_ratio(surrogate.time_s, truth.time_s, near(truth)) < 0.002


@pytest.mark.parametrize(
    ("kernel_count", "sm_clocks_mhz", "mem_clocks_mhz"),
    [
        (1, (None,), (None,)),
        (1, (None, 1000), (None,)),
        (2, (None, 1000), (None, 4000)),
        (5, (None,), (None,)),
    ],
)
def test_very_small_sweeps_are_fitted_without_pretending_to_know(
    kernel_count: int, sm_clocks_mhz: tuple[int | None, ...], mem_clocks_mhz: tuple[int | None, ...]
) -> None:
    truth = world(kernel_count, sm_clocks_mhz, mem_clocks_mhz)
    surrogate = fit_surrogate(noisy_sweep(truth, QUIET))
    assert np.isfinite(surrogate.time_s).all()
    assert np.isfinite(surrogate.energy_j).all()
    assert (surrogate.time_error_ratio > 1e-3).all()


def test_points_that_differ_in_the_power_limit_alone_are_not_mistaken_for_known() -> None:
    truth = world(kernel_count=3, sm_clocks_mhz=(None, 900, 1200), mem_clocks_mhz=(None,))
    limits = tuple(
        replace(AUTO, power_limit_w=None if p == AUTO else 100.0 + 0.1 * (p.sm_clock_mhz or 0))
        for p in truth.points
    )
    sweep = replace(noisy_sweep(truth, QUIET), points=limits, sm_clock_held_mhz=None)
    surrogate = fit_surrogate(sweep)
    wrong = np.abs(np.log(surrogate.held_out_time_s / truth.time_s))
    assert wrong.max() > 0.05
    assert surrogate.time_error_ratio.max() > 0.05


def test_a_kernel_measured_nowhere_is_refused_by_name() -> None:
    truth = world(kernel_count=3)
    sweep = noisy_sweep(truth, Noise())
    present = sweep.is_present.copy()
    present[1] = False
    with pytest.raises(MeasurementError, match="'kernel-1' was measured at no point"):
        fit_surrogate(_with_present(sweep, present))


def _with_present(sweep: Sweep, present: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Sweep:
    return replace(
        sweep,
        is_present=present,
        time_s=np.where(present, sweep.time_s, np.inf),
        energy_j=np.where(present, sweep.energy_j, np.inf),
    )
