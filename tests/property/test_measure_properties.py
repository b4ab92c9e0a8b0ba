from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.measurement import CellMeasurement, Window
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.measure.fresh import interleaved
from joulewise.measure.order import shuffled
from joulewise.measure.statistics import log_ratio_interval, median, median_interval
from joulewise.measure.table import sweep_from_cells

SOURCE = SweepSource(device="test", device_name="Test", tool="joulewise")
POINTS = (AUTO, OperatingPoint(sm_clock_mhz=1200), OperatingPoint(mem_clock_mhz=5001))
KERNELS = ("a", "b", "c")
positive = st.floats(1e-6, 1e6)
cell_keys = st.lists(
    st.tuples(st.sampled_from(KERNELS), st.sampled_from(POINTS)), unique=True, max_size=9
)


@st.composite
def measured_cells(draw: st.DrawFn) -> list[CellMeasurement]:
    return [
        CellMeasurement(
            kernel=kernel,
            point=point,
            run="r",
            idle_power_w=draw(positive),
            windows=tuple(
                Window(
                    window=number,
                    time_s=draw(positive),
                    energy_j=draw(positive),
                    duration_s=5.0,
                    launch_count=1,
                    sm_clock_held_mhz=None,
                    temp_c=None,
                )
                for number in range(draw(st.integers(2, 5)))
            ),
        )
        for kernel, point in draw(cell_keys)
    ]


def _bytes(sweep: Sweep) -> list[bytes]:
    names = ("is_present", "time_s", "energy_j", "time_std_s", "energy_std_j", "window_count")
    return [getattr(sweep, name).tobytes() for name in names]


@given(items=st.lists(st.integers(), max_size=20), seed=st.integers(0), label=st.text())
@settings(max_examples=40, deadline=None)
def test_a_random_order_keeps_every_item_and_repeats_itself(
    items: list[int], seed: int, label: str
) -> None:
    order = shuffled(items, seed=seed, label=label)
    assert sorted(order) == sorted(items)
    assert shuffled(items, seed=seed, label=label) == order


@given(cells=cell_keys, seed=st.integers(0), number=st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_a_round_visits_every_cell_once_and_keeps_the_points_of_a_kernel_together(
    cells: list[tuple[str, OperatingPoint]], seed: int, number: int
) -> None:
    order = interleaved(cells, seed=seed, label="r", round_number=number)
    assert len(order) == len(cells)
    assert set(order) == set(cells)
    changes = sum(a[0] != b[0] for a, b in itertools.pairwise(order))
    assert changes == max(0, len({kernel for kernel, _ in cells}) - 1)


@given(cells=measured_cells(), seed=st.integers(0))
@settings(max_examples=40, deadline=None)
def test_the_order_of_cells_changes_no_table(cells: list[CellMeasurement], seed: int) -> None:
    mixed = shuffled(cells, seed=seed, label="cells")
    assert _bytes(sweep_from_cells(mixed, KERNELS, POINTS, SOURCE)) == _bytes(
        sweep_from_cells(cells, KERNELS, POINTS, SOURCE)
    )


@given(cells=measured_cells(), cut=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_windows_of_a_cell_may_come_in_parts(cells: list[CellMeasurement], cut: int) -> None:
    parts = [
        replace(cell, windows=windows)
        for cell in cells
        for windows in (cell.windows[:cut], cell.windows[cut:])
        if windows
    ]
    assert _bytes(sweep_from_cells(parts, KERNELS, POINTS, SOURCE)) == _bytes(
        sweep_from_cells(cells, KERNELS, POINTS, SOURCE)
    )


@given(cells=measured_cells())
@settings(max_examples=40, deadline=None)
def test_cells_that_were_not_measured_can_win_no_minimum(cells: list[CellMeasurement]) -> None:
    sweep = sweep_from_cells(cells, KERNELS, POINTS, SOURCE)
    measured = {(cell.kernel, cell.point) for cell in cells}
    for row, kernel in enumerate(KERNELS):
        for column, point in enumerate(POINTS):
            is_measured = (kernel, point) in measured
            assert bool(sweep.is_present[row, column]) is is_measured
            assert math.isinf(float(sweep.time_s[row, column])) is not is_measured


@given(values=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), seed=st.integers(0))
@settings(max_examples=40, deadline=None)
def test_an_interval_holds_the_median(values: list[float], seed: int) -> None:
    low, high = median_interval(values, seed=seed)
    assert low <= median(values) <= high


@given(
    pairs=st.lists(st.tuples(positive, positive), min_size=2, max_size=12),
    scale=st.sampled_from([2.0**-8, 0.25, 8.0, 2.0**10]),
)
@settings(max_examples=40, deadline=None)
def test_units_do_not_reach_a_ratio(pairs: list[tuple[float, float]], scale: float) -> None:
    tops, bottoms = [top for top, _ in pairs], [bottom for _, bottom in pairs]
    scaled = [scale * top for top in tops], [scale * bottom for bottom in bottoms]
    assert log_ratio_interval(*scaled) == log_ratio_interval(tops, bottoms)


@given(pairs=st.lists(st.tuples(positive, positive), min_size=6, max_size=12))
@settings(max_examples=40, deadline=None)
def test_turning_a_ratio_around_turns_its_interval_around(
    pairs: list[tuple[float, float]],
) -> None:
    tops, bottoms = [top for top, _ in pairs], [bottom for _, bottom in pairs]
    ratio, interval = log_ratio_interval(tops, bottoms)
    turned, turned_interval = log_ratio_interval(bottoms, tops)
    assert turned == pytest.approx(1.0 / ratio)
    assert turned_interval.low_ratio == pytest.approx(1.0 / interval.high_ratio)
    assert turned_interval.high_ratio == pytest.approx(1.0 / interval.low_ratio)
