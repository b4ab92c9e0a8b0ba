"""Plans whose points come late, against arithmetic by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan_tables import sweeps

from joulewise.domain.plan import Granularity
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep
from joulewise.domain.transition import uniform_transition
from joulewise.domain.workload import Launch, Workload
from joulewise.plan.table import PlanTable, plan_table
from joulewise.workflow.lagging import late_totals

FAST, SLOW = AUTO, OperatingPoint(sm_clock_mhz=1000)


def table(rows: list[list[tuple[float, float]]]) -> PlanTable:
    """One launch per row; time and power at each point."""
    times = np.array([[time_s for time_s, _ in row] for row in rows])
    powers = np.array([[power_w for _, power_w in row] for row in rows])
    launches = tuple(Launch(kernel=f"k{index}") for index in range(len(rows)))
    return PlanTable(
        class_names=tuple(launch.kernel for launch in launches),
        points=(FAST, SLOW),
        baseline_index=0,
        time_s=times,
        energy_j=times * powers,
        launch_classes=np.arange(len(rows)),
        launches=launches,
    )


TWO = table([[(1.0, 100.0), (2.0, 40.0)], [(4.0, 100.0), (8.0, 40.0)]])


def test_a_point_that_never_changes_is_never_late() -> None:
    assert pytest.approx((10.0, 400.0)) == late_totals(TWO, np.array([1, 1]), 5.0)


def test_half_of_each_launch_runs_at_the_point_before() -> None:
    # In force 0.5 s late: a quarter of the fast launch at the slow point, and an eighth back.
    time_s, energy_j = late_totals(TWO, np.array([0, 1]), 0.5) or (None, None)

    assert pytest.approx(0.5 + 0.75 * 1.0 + 0.5 + 0.875 * 8.0) == time_s
    assert pytest.approx(0.5 * 40 + 0.75 * 100 + 0.5 * 100 + 0.875 * 8.0 * 40) == energy_j


def test_requests_that_follow_too_fast_never_come_into_force() -> None:
    # Each request takes the place of the one before it, so the first point stays.
    even = table([[(1.0, 100.0), (1.0, 40.0)], [(1.0, 100.0), (1.0, 40.0)]])

    assert pytest.approx((2.0, 80.0)) == late_totals(even, np.array([0, 1]), 1.5)


def test_a_late_point_at_which_a_launch_was_never_measured_has_no_figures() -> None:
    holed = table([[(1.0, 100.0), (float("inf"), 1.0)], [(4.0, 100.0), (8.0, 40.0)]])

    assert late_totals(holed, np.array([0, 1]), 0.5) is None
    assert late_totals(holed, np.array([0, 0]), 0.5) is not None


@given(sweeps(), st.data())
def test_a_lag_that_is_next_to_nothing_changes_next_to_nothing(
    sweep: Sweep, data: st.DataObject
) -> None:
    workload = Workload(name="w", launches=tuple(Launch(kernel=kernel) for kernel in sweep.kernels))
    model = uniform_transition("late", "a test", lag_s=1e-9)
    made = plan_table(sweep, workload, Granularity.KERNEL, model)
    present = np.isfinite(made.time_s)
    if not present.all():
        return
    columns = st.integers(0, len(made.points) - 1)
    choice = np.array([data.draw(columns) for _ in made.launches])

    assert pytest.approx(made.totals(choice), rel=1e-6) == late_totals(made, choice, 1e-9)
