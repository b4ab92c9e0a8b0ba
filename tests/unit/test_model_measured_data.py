"""The surrogate on measured A100 data: 12 applications at 61 SM clocks, one run each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from joulewise.model.shrink import shrink
from joulewise.model.surrogate import fit_surrogate
from joulewise.store.importers import import_csv


@pytest.mark.data
def test_left_out_clocks_of_measured_applications_are_predicted(measured_data: Path) -> None:
    path = measured_data / "a100-spec" / "a100_spec_accel_clock_sweep.csv"
    if not path.exists():
        pytest.skip(f"no measured A100 sweep at {path}")
    sweep = import_csv(
        path, kernel="application", sm_clock="sm_app_clock", time="run_time", power="power_usage"
    )
    surrogate = fit_surrogate(sweep)
    time = np.abs(np.log(surrogate.held_out_time_s / sweep.time_s))
    power_w = surrogate.held_out_energy_j / surrogate.held_out_time_s
    power = np.abs(np.log(power_w / (sweep.energy_j / sweep.time_s)))
    assert np.median(time) < 0.012
    assert np.median(power) < 0.006
    assert np.quantile(power, 0.95) < 0.02
    # The stated error covers the noise too, for the table has no scatter to take out.
    assert 0.5 < np.sqrt(np.mean(surrogate.time_error_ratio**2)) / np.sqrt(np.mean(time**2)) < 2.0
    assert shrink(sweep, surrogate).time_s is sweep.time_s
