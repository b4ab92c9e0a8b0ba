"""Adding a sweep up to classes that share an operating point."""

from __future__ import annotations

import numpy as np
import pytest

from joulewise.domain.errors import PlanError
from joulewise.domain.plan import Granularity
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.plan.table import coarsened, plan_table

LOW = OperatingPoint(sm_clock_mhz=1000)
ITERATION = Workload(
    name="w",
    launches=(
        Launch(kernel="gemm"),
        Launch(kernel="gelu"),
        Launch(kernel="gemm"),
        Launch(kernel="gemm", pass_=Pass.BACKWARD),
    ),
)


def sweep(*, absent: tuple[int, int] | None = None) -> Sweep:
    is_present = np.ones((3, 2), dtype=np.bool_)
    time_s = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    energy_j = np.array([[10.0, 5.0], [30.0, 20.0], [50.0, 45.0]])
    if absent:
        is_present[absent] = False
        time_s[absent] = energy_j[absent] = np.inf
    return Sweep(
        kernels=("gelu", "gemm", "unused"),
        points=(AUTO, LOW),
        baseline=AUTO,
        source=SweepSource(device="test", device_name="test", tool="test"),
        is_present=is_present,
        time_s=time_s,
        energy_j=energy_j,
    )


def test_kernels_are_classes_in_order_of_first_launch_with_launch_counts_applied() -> None:
    table = plan_table(sweep(), ITERATION, Granularity.KERNEL)
    assert table.class_names == ("gemm", "gelu")
    assert table.time_s.tolist() == [[9.0, 12.0], [1.0, 2.0]]
    assert table.energy_j.tolist() == [[90.0, 60.0], [10.0, 5.0]]
    assert table.launch_classes.tolist() == [0, 1, 0, 0]
    assert (table.baseline_time_s, table.baseline_energy_j) == (10.0, 100.0)
    assert table.totals(np.array([1, 0])) == (13.0, 70.0)


def test_passes_are_classes() -> None:
    table = plan_table(sweep(), ITERATION, Granularity.PASS)
    assert table.class_names == ("forward", "backward")
    assert table.time_s.tolist() == [[7.0, 10.0], [3.0, 4.0]]
    assert table.launch_classes.tolist() == [0, 0, 0, 1]


def test_the_iteration_is_one_class() -> None:
    table = plan_table(sweep(), ITERATION, Granularity.ITERATION)
    assert table.class_names == ("iteration",)
    assert table.energy_j.tolist() == [[100.0, 65.0]]


def test_without_a_workload_each_kernel_runs_once_in_table_order() -> None:
    table = plan_table(sweep(), None, Granularity.KERNEL)
    assert table.class_names == ("gelu", "gemm", "unused")
    assert table.time_s.tolist() == sweep().time_s.tolist()
    assert [launch.kernel for launch in table.launches] == ["gelu", "gemm", "unused"]


@pytest.mark.parametrize("granularity", [Granularity.PASS, Granularity.ITERATION])
def test_joining_kernels_equals_planning_on_the_coarse_table(granularity: Granularity) -> None:
    coarse = coarsened(plan_table(sweep(), ITERATION, Granularity.KERNEL), granularity)
    expected = plan_table(sweep(), ITERATION, granularity)
    assert coarse.class_names == expected.class_names
    assert coarse.time_s == pytest.approx(expected.time_s)
    assert coarse.energy_j == pytest.approx(expected.energy_j)
    assert coarse.launch_classes.tolist() == expected.launch_classes.tolist()


def test_a_class_has_a_point_only_where_all_its_kernels_were_measured() -> None:
    hole = sweep(absent=(0, 1))
    assert plan_table(hole, ITERATION, Granularity.KERNEL).time_s.tolist() == [
        [9.0, 12.0],
        [1.0, np.inf],
    ]
    passes = plan_table(hole, ITERATION, Granularity.PASS)
    assert passes.time_s.tolist() == [[7.0, np.inf], [3.0, 4.0]]
    kernels = plan_table(hole, ITERATION, Granularity.KERNEL)
    assert coarsened(kernels, Granularity.PASS).energy_j.tolist() == [[70.0, np.inf], [30.0, 20.0]]


def test_a_kernel_without_its_baseline_cell_is_named() -> None:
    with pytest.raises(PlanError) as error:
        plan_table(sweep(absent=(1, 0)), ITERATION, Granularity.KERNEL)
    assert str(error.value) == "kernel 'gemm' was not measured at the baseline auto/auto"


def test_a_hole_in_a_kernel_that_does_not_run_matters_to_nobody() -> None:
    table = plan_table(sweep(absent=(2, 0)), ITERATION, Granularity.KERNEL)
    assert table.baseline_time_s == 10.0


def test_a_launched_kernel_that_the_sweep_lacks_is_named() -> None:
    workload = Workload(name="w", launches=(Launch(kernel="softmax"), Launch(kernel="norm")))
    with pytest.raises(PlanError) as error:
        plan_table(sweep(), workload, Granularity.PASS)
    assert str(error.value) == (
        "the sweep has no kernel 'softmax', which the workload launches (and 1 more)"
    )


def test_an_iteration_without_launches_is_refused() -> None:
    with pytest.raises(PlanError, match="no launches"):
        plan_table(sweep(), Workload(name="w", launches=()), Granularity.KERNEL)


def test_tables_cannot_be_written_to() -> None:
    table = plan_table(sweep(), ITERATION, Granularity.KERNEL)
    with pytest.raises(ValueError, match="read-only"):
        table.time_s[0, 0] = 0.0
