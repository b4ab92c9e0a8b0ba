"""The calibrated A100 against measured applications."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from calibration.a100 import a100_figures, fit_a100, predict, read_applications

from joulewise.simulator.presets import preset

pytestmark = pytest.mark.data


def test_an_absent_sweep_is_skipped(tmp_path: Path) -> None:
    assert read_applications(tmp_path) is None


def test_three_clocks_predict_the_other_58(measured_data: Path) -> None:
    applications = read_applications(measured_data)
    assert applications is not None
    assert (14, 61) == applications.time_s.shape

    spec, load = fit_a100(applications)
    lines = a100_figures(spec, load, applications)

    assert [] == [line.name for line in lines if not line.is_met(line.value)]
    assert 8 == len(lines)
    steady = predict(spec, load, applications)
    seen = np.abs(steady.time_s / applications.time_s - 1)[:, applications.used]
    assert seen.max() < 0.08
    assert not steady.is_power_capped.any()


def test_the_shipped_a100_is_the_fitted_one(measured_data: Path) -> None:
    applications = read_applications(measured_data)
    assert applications is not None
    shipped = preset("a100-sxm")

    spec, _ = fit_a100(applications)

    assert shipped.grid == spec.grid
    assert [
        pytest.approx(value, rel=1e-3)
        for value in (spec.base_w, spec.voltage_knee_mhz, spec.memory_j_per_byte)
    ] == [shipped.base_w, shipped.voltage_knee_mhz, shipped.memory_j_per_byte]
