"""Laws of time that no clock shortens, on every virtual GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import exchange, gap

from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.workload import KernelKind, KernelWork
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset, preset_names
from joulewise.simulator.spec import GpuSpec

CLOSE = 1e-12

specs = st.sampled_from([preset(name) for name in preset_names()])
waits = st.floats(1e-7, 1.0)
works = st.builds(
    lambda kind, wait_s, flop_count, traffic_bytes: replace(
        exchange(wait_s, flop_count, traffic_bytes), kind=kind
    ),
    st.sampled_from([kind for kind in KernelKind if kind is not KernelKind.GAP]),
    st.just(0.0) | waits,
    st.just(0.0) | st.floats(1e6, 1e12),
    st.floats(1e4, 1e10),
)


def points_of(spec: GpuSpec) -> st.SearchStrategy[OperatingPoint]:
    limits = st.floats(spec.least_power_limit_w, spec.default_power_limit_w)
    return st.builds(
        OperatingPoint,
        sm_clock_mhz=st.sampled_from((None, *spec.grid.sm_clocks_mhz)),
        mem_clock_mhz=st.sampled_from((None, *spec.grid.mem_clocks_mhz)),
        power_limit_w=st.none() | limits,
    )


@given(spec=specs, wait_s=waits, data=st.data())
def test_a_gap_is_slowed_down_by_no_point(
    spec: GpuSpec, wait_s: float, data: st.DataObject
) -> None:
    points = data.draw(st.lists(points_of(spec), min_size=1, max_size=6))

    time_s = steady_state(spec, [gap(wait_s)], [AUTO, *points]).time_s[0]

    assert (time_s / time_s[0] == 1.0).all()
    assert wait_s == time_s[0]


@given(spec=specs, wait_s=waits, data=st.data())
def test_a_gap_at_a_lower_clock_never_costs_more(
    spec: GpuSpec, wait_s: float, data: st.DataObject
) -> None:
    mem_clock_mhz = data.draw(st.sampled_from((None, *spec.grid.mem_clocks_mhz)))
    points = [
        OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem_clock_mhz)
        for sm in (*spec.grid.sm_clocks_mhz, None)
    ]

    energy_j = steady_state(spec, [gap(wait_s)], points).energy_j[0]

    assert (np.diff(energy_j) >= -CLOSE * energy_j[1:]).all()


@given(spec=specs, work=works, more_s=waits, data=st.data())
def test_a_longer_wait_never_takes_less_time(
    spec: GpuSpec, work: KernelWork, more_s: float, data: st.DataObject
) -> None:
    """Nor under a power limit: a higher clock in less time would draw more, whatever the wait."""
    points = data.draw(st.lists(points_of(spec), min_size=1, max_size=4))
    longer = replace(work, wait_s=work.wait_s + more_s)

    time_s = steady_state(spec, [work, longer], points).time_s

    assert (time_s[1] >= time_s[0] * (1 - 1e-9)).all()


@given(spec=specs, work=works, data=st.data())
def test_time_lies_between_the_longer_of_work_and_wait_and_their_sum(
    spec: GpuSpec, work: KernelWork, data: st.DataObject
) -> None:
    point = replace(data.draw(points_of(spec)), power_limit_w=None)

    table = steady_state(spec, [work, replace(work, wait_s=0.0)], [point])

    if not table.is_power_capped.any():
        whole_s, work_s = (float(time_s) - spec.launch_s for time_s in table.time_s[:, 0])
        assert max(work_s, work.wait_s) * (1 - 1e-9) <= whole_s
        assert whole_s <= (work_s + work.wait_s) * (1 + 1e-9)


@given(spec=specs, work=works, data=st.data())
def test_a_regulator_finds_its_set_point_for_what_waits_too(
    spec: GpuSpec, work: KernelWork, data: st.DataObject
) -> None:
    point = replace(data.draw(points_of(spec)), power_limit_w=spec.least_power_limit_w)
    hot = replace(work, core_activity_ratio=3.0)

    table = steady_state(spec, [hot], [point])

    lowest_mhz = spec.grid.sm_clocks_mhz[0]
    if table.is_power_capped[0, 0] and table.sm_clock_held_mhz[0, 0] > lowest_mhz + 1e-6:
        assert spec.least_power_limit_w == pytest.approx(table.power_w[0, 0], rel=1e-6)
