"""A governor that moves clocks with the load is nobody's lock."""

from __future__ import annotations

import pytest

from joulewise.control.lease import hold
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.finetune.jobs import job
from joulewise.finetune.step_work import step_work
from joulewise.measure.cell import measure_cell
from joulewise.measure.settings import MeasureSettings
from joulewise.simulator.virtual import open_virtual

# Waits for its host half of the time, so that the governor lowers the clock.
HOST_BOUND = "pythia-31m/sst2"


@pytest.mark.parametrize("point", [AUTO, OperatingPoint(sm_clock_mhz=612)])
def test_a_clock_that_the_governor_lowered_is_no_foreign_control(point: OperatingPoint) -> None:
    session = open_virtual("virtual:agx-orin,seed=1", [step_work(job(HOST_BOUND))])

    with hold(session.gpu) as lease:
        cell = measure_cell(
            session, lease, HOST_BOUND, point, run="one", settings=MeasureSettings()
        )

    kinds = {caveat.kind for window in cell.windows for caveat in window.caveats}
    held_mhz = cell.windows[0].sm_clock_held_mhz
    assert held_mhz is not None
    assert held_mhz < 700
    assert CaveatKind.FOREIGN_CONTROL not in kinds
    assert session.gpu.clock_grid().is_governed
