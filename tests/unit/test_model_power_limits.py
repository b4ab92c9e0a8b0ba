"""The model of a sweep under power limits: a limit acts through the clock that it leaves."""

from __future__ import annotations

import numpy as np
import pytest

from joulewise.control.lease import hold
from joulewise.domain.sweep import BoolTable, FloatTable, Sweep
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.sweep import measure_sweep
from joulewise.model.conditions import power_capped_cells
from joulewise.model.shrink import shrink
from joulewise.model.surrogate import Surrogate, fit_surrogate
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual
from joulewise.workflow.workloads import load_workload

DEVICE = "virtual:rtx3080ti,seed=5,gain=0"
SLOW_RATIO = 1.3


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    workload = load_workload("gpt3-xl")
    session = open_virtual(DEVICE, workload.works)
    points = session.gpu.clock_grid().points((None, 1395, 1680), (9501,), (None, 250.0, 300.0))
    with hold(session.gpu, state_dir=tmp_path_factory.mktemp("state")) as lease:
        return measure_sweep(session, lease, workload.kernels, points, settings=MeasureSettings())


@pytest.fixture(scope="module")
def surrogate(sweep: Sweep) -> Surrogate:
    return fit_surrogate(sweep)


def _error_ratio(seen: FloatTable, true: FloatTable, cells: BoolTable) -> float:
    return float(np.sqrt(np.mean(np.log(seen / true)[cells] ** 2)))


def test_cells_under_a_power_limit_are_pulled_toward_the_truth(
    sweep: Sweep, surrogate: Surrogate
) -> None:
    true_s, true_j = open_oracle(DEVICE, load_workload("gpt3-xl").works).table(sweep.points)
    limited = np.array([point.power_limit_w is not None for point in sweep.points])
    is_near = true_s <= SLOW_RATIO * true_s[:, [sweep.baseline_index]]
    cells = power_capped_cells(sweep) & limited & is_near
    calmed = shrink(sweep, surrogate)

    assert cells.sum() > 100
    for measured, pulled, true in (
        (sweep.time_s, calmed.time_s, true_s),
        (sweep.energy_j, calmed.energy_j, true_j),
    ):
        assert _error_ratio(pulled, true, cells) < 0.75 * _error_ratio(measured, true, cells)


def test_what_was_left_out_under_a_limit_is_predicted_as_well_as_without(
    sweep: Sweep, surrogate: Surrogate
) -> None:
    true_s, _ = open_oracle(DEVICE, load_workload("gpt3-xl").works).table(sweep.points)
    limited = np.array([point.power_limit_w is not None for point in sweep.points])
    is_near = true_s <= SLOW_RATIO * true_s[:, [sweep.baseline_index]]
    under, without = (
        _error_ratio(surrogate.held_out_time_s, true_s, is_near & chosen)
        for chosen in (limited, ~limited)
    )

    assert under < 1.5 * without
