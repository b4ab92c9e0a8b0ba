"""Random sweeps, iterations and plan tables for the laws of the planner."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulewise.domain.plan import Granularity, Scope
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.plan.table import PlanTable

SOURCE = SweepSource(device="test", device_name="test", tool="test")

scopes = st.sampled_from(Scope)
# Regions have laws and a brute force of their own, in tests/chains.py.
granularities = st.sampled_from([g for g in Granularity if g is not Granularity.REGION])
# Whole numbers make ties and exactly met budgets; fractions make neither.
whole = st.integers(min_value=1, max_value=9).map(float)
# Rounded, for the planner takes sums that differ by rounding alone for equal.
fractions = st.floats(min_value=0.1, max_value=10.0).map(lambda number: round(number, 6))


def ratios(low: float, high: float) -> st.SearchStrategy[float]:
    """Budgets and the like, none of them a rounding error away from another."""
    return st.floats(low, high).map(lambda number: round(number, 9))


@st.composite
def cells(draw: st.DrawFn, kernel_count: int, point_count: int) -> NDArray[np.float64]:
    """A (K, P) table of positive numbers."""
    number = draw(st.sampled_from([whole, fractions]))
    rows = st.lists(number, min_size=point_count, max_size=point_count)
    return np.array(draw(st.lists(rows, min_size=kernel_count, max_size=kernel_count)))


@st.composite
def sweeps(draw: st.DrawFn, max_kernels: int = 4, max_points: int = 5) -> Sweep:
    """A small sweep, some of its cells absent, never one of the baseline's."""
    kernel_count = draw(st.integers(1, max_kernels))
    point_count = draw(st.integers(1, max_points))
    is_present = np.array(
        [
            [True] + [draw(st.integers(0, 9)) > 0 for _ in range(point_count - 1)]
            for _ in range(kernel_count)
        ]
    )
    return Sweep(
        kernels=tuple(f"k{i}" for i in range(kernel_count)),
        points=(AUTO, *(OperatingPoint(sm_clock_mhz=100 * p) for p in range(1, point_count))),
        baseline=AUTO,
        source=SOURCE,
        is_present=is_present,
        time_s=np.where(is_present, draw(cells(kernel_count, point_count)), np.inf),
        energy_j=np.where(is_present, draw(cells(kernel_count, point_count)), np.inf),
    )


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Sweep, Workload]:
    """A sweep and an iteration of its kernels, in any order, passes and number."""
    sweep = draw(sweeps())
    launch = st.builds(Launch, kernel=st.sampled_from(sweep.kernels), pass_=st.sampled_from(Pass))
    launches = tuple(draw(st.lists(launch, min_size=1, max_size=7)))
    return sweep, Workload(name="w", launches=launches)


def random_table(seed: int, class_count: int, point_count: int) -> PlanTable:
    """Rooflines over a voltage curve, with noise; the last point is the baseline."""
    rng = np.random.default_rng(seed)
    clock = np.linspace(0.1, 1.0, point_count)
    compute, traffic = rng.lognormal(0.0, 1.0, (2, class_count, 1))
    work = 10.0 ** rng.uniform(-4.0, -1.0, (class_count, 1))
    time_s = work * ((compute / clock) ** 4 + traffic**4) ** 0.25
    voltage = np.maximum(0.7, 0.5 + 0.5 * clock)
    power_w = 90.0 + 250.0 * voltage**2 * clock
    noise = 1.0 + 0.01 * rng.standard_normal((2, class_count, point_count))
    launches = tuple(
        Launch(kernel=f"k{i}", pass_=Pass.FORWARD if i % 2 else Pass.BACKWARD)
        for i in range(class_count)
    )
    return PlanTable(
        class_names=tuple(launch.kernel for launch in launches),
        points=tuple(OperatingPoint(sm_clock_mhz=p + 1) for p in range(point_count)),
        baseline_index=point_count - 1,
        time_s=time_s * noise[0],
        energy_j=power_w * time_s * noise[1],
        launch_classes=np.arange(class_count),
        launches=launches,
    )
