"""Laws that the virtual GPU keeps for any kernel at any point."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset, preset_names
from joulewise.simulator.spec import GpuSpec

CLOSE = 1e-9

specs = st.sampled_from([preset(name) for name in preset_names()])


@st.composite
def kernel_works(draw: st.DrawFn) -> KernelWork:
    ratio = st.floats(0.05, 1.2)
    return KernelWork(
        kernel="k",
        kind=draw(st.sampled_from(KernelKind)),
        dtype=Dtype.BF16,
        flop_count=draw(st.floats(1e6, 1e13)),
        traffic_bytes=draw(st.floats(1e4, 1e11)),
        compute_efficiency_ratio=draw(ratio),
        memory_efficiency_ratio=draw(ratio),
        core_activity_ratio=draw(st.floats(0.1, 2)),
        memory_activity_ratio=draw(st.floats(0.1, 2)),
        clock_offset_ratio=draw(st.floats(-0.02, 0.02)),
    )


@st.composite
def points_of(draw: st.DrawFn, spec: GpuSpec) -> OperatingPoint:
    limits = st.floats(spec.least_power_limit_w, spec.default_power_limit_w)
    return OperatingPoint(
        sm_clock_mhz=draw(st.sampled_from((None, *spec.grid.sm_clocks_mhz))),
        mem_clock_mhz=draw(st.sampled_from((None, *spec.grid.mem_clocks_mhz))),
        power_limit_w=draw(st.none() | limits),
    )


@given(spec=specs, work=kernel_works(), data=st.data())
def test_a_higher_set_clock_never_takes_longer(
    spec: GpuSpec, work: KernelWork, data: st.DataObject
) -> None:
    point = data.draw(points_of(spec))
    points = [
        dataclasses.replace(point, sm_clock_mhz=clock) for clock in (*spec.grid.sm_clocks_mhz, None)
    ]

    time_s = steady_state(spec, [work], points).time_s[0]

    assert (np.diff(time_s) <= CLOSE * time_s[1:]).all()


@given(spec=specs, work=kernel_works(), data=st.data())
def test_power_keeps_the_set_point_unless_the_clock_is_at_its_lowest(
    spec: GpuSpec, work: KernelWork, data: st.DataObject
) -> None:
    point = data.draw(points_of(spec))

    table = steady_state(spec, [work], [point])

    set_point_w = spec.auto_set_point_w if point.mem_clock_mhz is None else spec.locked_set_point_w
    limit_w = min(set_point_w, point.power_limit_w or set_point_w) * (1 + work.clock_offset_ratio)
    is_lowest = table.sm_clock_held_mhz[0, 0] <= spec.grid.sm_clocks_mhz[0] + 1e-6
    assert table.power_w[0, 0] <= limit_w * (1 + CLOSE) or is_lowest
    if table.is_power_capped[0, 0] and not is_lowest:
        assert table.power_w[0, 0] == pytest.approx(limit_w)


@given(spec=specs, work=kernel_works(), data=st.data())
def test_the_held_clock_is_never_above_what_was_set(
    spec: GpuSpec, work: KernelWork, data: st.DataObject
) -> None:
    point = data.draw(points_of(spec))

    held_mhz = steady_state(spec, [work], [point]).sm_clock_held_mhz[0, 0]

    ceiling_mhz = min(spec.sm_clock_max_mhz, point.sm_clock_mhz or spec.sm_clock_max_mhz)
    assert spec.grid.sm_clocks_mhz[0] - 1e-6 <= held_mhz <= ceiling_mhz + 1e-6


@given(spec=specs, work=kernel_works(), data=st.data())
def test_a_lower_power_limit_never_shortens_the_time(
    spec: GpuSpec, work: KernelWork, data: st.DataObject
) -> None:
    point = data.draw(points_of(spec))
    limits_w = np.linspace(spec.least_power_limit_w, spec.default_power_limit_w, 9)
    points = [dataclasses.replace(point, power_limit_w=float(limit)) for limit in limits_w]

    time_s = steady_state(spec, [work], points).time_s[0]

    assert (np.diff(time_s) <= CLOSE * time_s[1:]).all()


@given(spec=specs, works=st.lists(kernel_works(), min_size=1, max_size=4), data=st.data())
def test_a_cell_does_not_depend_on_its_neighbours(
    spec: GpuSpec, works: list[KernelWork], data: st.DataObject
) -> None:
    points = data.draw(st.lists(points_of(spec), min_size=1, max_size=5))

    whole = steady_state(spec, works, points)
    row = data.draw(st.integers(0, len(works) - 1))
    column = data.draw(st.integers(0, len(points) - 1))
    alone = steady_state(spec, [works[row]], [points[column]])

    assert whole.time_s[row, column] == pytest.approx(alone.time_s[0, 0], rel=CLOSE)
    assert whole.power_w[row, column] == pytest.approx(alone.power_w[0, 0], rel=CLOSE)
    assert whole.is_power_capped[row, column] == alone.is_power_capped[0, 0]


@given(spec=specs, work=kernel_works(), factor=st.floats(0.01, 100), data=st.data())
def test_more_of_the_same_work_takes_as_much_longer(
    spec: GpuSpec, work: KernelWork, factor: float, data: st.DataObject
) -> None:
    endless = dataclasses.replace(spec, launch_s=0.0)
    more = dataclasses.replace(
        work,
        flop_count=factor * work.flop_count,
        traffic_bytes=factor * work.traffic_bytes,
    )

    table = steady_state(endless, [work, more], [data.draw(points_of(spec))])

    assert table.time_s[1, 0] == pytest.approx(factor * table.time_s[0, 0], rel=1e-6)
    assert table.power_w[1, 0] == pytest.approx(table.power_w[0, 0], rel=1e-6)
