"""The physics of the virtual GPU on kernels whose answer is known by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from joulewise.domain.errors import NotSupported
from joulewise.domain.points import AUTO, ClockGrid, OperatingPoint
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.simulator.physics import idle_power_w, steady_state
from joulewise.simulator.spec import GpuSpec, MemoryState, PeakRate

# 1 GHz takes 1 s for 1e12 FLOP; the top memory clock takes 1 s for 1e11 bytes.
SPEC = GpuSpec(
    name="Test GPU",
    source="made up",
    is_calibrated=False,
    grid=ClockGrid(sm_clocks_mhz=(300, 420, 600, 1000, 1500, 2000), mem_clocks_mhz=(405, 5000)),
    memory_states=(
        MemoryState(
            mem_clock_mhz=405,
            bandwidth_bytes_per_s=1e10,
            standby_w=0.0,
            energy_ratio=2.0,
            sm_clock_ceiling_mhz=420,
        ),
        MemoryState(mem_clock_mhz=5000, bandwidth_bytes_per_s=1e11, standby_w=30.0),
    ),
    peak_rates=(PeakRate(dtype=Dtype.BF16, flop_count_per_cycle=1000.0, core_w_per_ghz=100.0),),
    sm_clock_max_mhz=1800.0,
    launch_s=0.0,
    gemm_overlap_exponent_ratio=2.0,
    other_overlap_exponent_ratio=4.0,
    voltage_knee_mhz=1200.0,
    voltage_slope_ratio_per_ghz=0.5,
    voltage_curve_ratio_per_ghz2=0.0,
    auto_voltage_knee_mhz=1600.0,
    auto_voltage_slope_ratio_per_ghz=1.0,
    base_w=20.0,
    clock_tree_w_per_ghz=0.0,
    memory_j_per_byte=1e-9,
    auto_set_point_w=1000.0,
    locked_set_point_w=900.0,
    default_power_limit_w=1000.0,
    least_power_limit_w=50.0,
)


def work(
    flop_count: float = 1e12, traffic_bytes: float = 0.0, kind: KernelKind = KernelKind.GEMM
) -> KernelWork:
    return KernelWork(
        kernel="k",
        kind=kind,
        dtype=Dtype.BF16,
        flop_count=flop_count,
        traffic_bytes=traffic_bytes,
        compute_efficiency_ratio=1.0,
        memory_efficiency_ratio=1.0,
        core_activity_ratio=1.0,
        memory_activity_ratio=1.0,
    )


def at(
    sm: int | None = None, mem: int | None = None, limit_w: float | None = None
) -> OperatingPoint:
    return OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem, power_limit_w=limit_w)


def test_computing_alone_takes_cycles_over_clock() -> None:
    table = steady_state(SPEC, [work()], [at(500 * 2), at(600), at(300)])

    assert [1.0, 1 / 0.6, 1 / 0.3] == pytest.approx(table.time_s[0].tolist())


def test_traffic_alone_takes_bytes_over_bandwidth_whatever_the_sm_clock() -> None:
    table = steady_state(SPEC, [work(0.0, 1e11)], [at(1000, 5000), at(300, 5000), at(300, 405)])

    assert [1.0, 1.0, 10.0] == pytest.approx(table.time_s[0].tolist())


def test_an_efficiency_of_half_takes_twice_as_long() -> None:
    slow = dataclasses.replace(work(), compute_efficiency_ratio=0.5)
    starved = dataclasses.replace(work(0.0, 1e11), memory_efficiency_ratio=0.5)

    table = steady_state(SPEC, [slow, starved], [at(1000)])

    assert [2.0, 2.0] == pytest.approx(table.time_s[:, 0].tolist())


def test_computing_and_traffic_overlap_by_the_exponent_of_the_kind() -> None:
    works = [work(1e12, 1e11, KernelKind.GEMM), work(1e12, 1e11, KernelKind.OTHER)]

    table = steady_state(SPEC, works, [at(1000)])

    assert [2 ** (1 / 2), 2 ** (1 / 4)] == pytest.approx(table.time_s[:, 0].tolist())


def test_launch_time_is_added_to_every_kernel() -> None:
    spec = dataclasses.replace(SPEC, launch_s=0.25)

    assert steady_state(spec, [work()], [at(1000)]).time_s[0, 0] == pytest.approx(1.25)


def test_below_the_knee_power_is_base_standby_and_switching_per_time() -> None:
    table = steady_state(SPEC, [work()], [at(600, 5000)])

    # The rounded knee leaves 0.01 % of voltage at half its clock.
    assert table.power_w[0, 0] == pytest.approx(20 + 30 + 100 * 0.6, rel=1e-3)


def test_energy_of_a_byte_grows_at_low_memory_clocks() -> None:
    table = steady_state(SPEC, [work(0.0, 1e10)], [at(300, 5000), at(300, 405)])

    assert [50 + 1e-9 * 1e11, 20 + 2e-9 * 1e10] == pytest.approx(table.power_w[0].tolist())


def test_voltage_above_the_knee_enters_power_squared() -> None:
    table = steady_state(SPEC, [work()], [at(1500, 5000)])

    voltage = 1 + 0.5 * 0.3
    assert table.power_w[0, 0] == pytest.approx(50 + 100 * 1.5 * voltage**2, rel=1e-3)


def test_auto_memory_costs_voltage_at_high_clocks_only() -> None:
    table = steady_state(SPEC, [work()], [at(None, 5000), AUTO, at(1000, 5000), at(1000)])
    locked, auto, low_locked, low_auto = table.power_w[0]

    assert auto > locked + 10
    assert low_auto == pytest.approx(low_locked, rel=1e-3)


def test_a_set_clock_is_a_maximum() -> None:
    table = steady_state(SPEC, [work()], [at(1000), at(2000), AUTO])

    assert [1000.0, 1800.0, 1800.0] == table.sm_clock_held_mhz[0].tolist()
    assert [False, True, False] == table.is_clock_not_held[0].tolist()
    assert not table.is_power_capped.any()


def test_the_lowest_memory_clock_holds_the_core_down() -> None:
    table = steady_state(SPEC, [work()], [at(1000, 405), at(420, 405), at(300, 405), at(None, 405)])

    assert [420.0, 420.0, 300.0, 420.0] == table.sm_clock_held_mhz[0].tolist()
    assert [True, False, False, False] == table.is_clock_not_held[0].tolist()


def test_the_regulator_lowers_the_clock_until_the_set_point_is_kept() -> None:
    spec = dataclasses.replace(SPEC, auto_set_point_w=150.0, locked_set_point_w=140.0)

    table = steady_state(spec, [work()], [AUTO, at(None, 5000), at(600)])

    assert [150.0, 140.0] == pytest.approx(table.power_w[0, :2].tolist(), abs=1e-9)
    assert [True, True, False] == table.is_power_capped[0].tolist()
    assert (table.sm_clock_held_mhz[0, :2] < 1800.0).all()
    assert not table.is_clock_not_held.any()


def test_the_regulator_stops_at_the_lowest_listed_clock() -> None:
    spec = dataclasses.replace(SPEC, auto_set_point_w=60.0)

    table = steady_state(spec, [work()], [AUTO])

    assert table.sm_clock_held_mhz[0, 0] == pytest.approx(300.0, abs=1e-6)
    assert table.power_w[0, 0] == pytest.approx(50 + 30, rel=1e-3)


def test_a_power_limit_lowers_the_set_point_and_never_lifts_it() -> None:
    table = steady_state(SPEC, [work()], [at(limit_w=120.0), at(limit_w=1000.0), AUTO])

    assert table.power_w[0, 0] == pytest.approx(120.0)
    assert table.power_w[0, 1] == table.power_w[0, 2]


def test_a_kernel_may_lie_off_the_set_point() -> None:
    off = dataclasses.replace(work(), clock_offset_ratio=0.02)

    table = steady_state(SPEC, [off], [at(limit_w=120.0)])

    assert table.power_w[0, 0] == pytest.approx(122.4)


def test_leakage_adds_to_power_and_lowers_a_capped_clock() -> None:
    points = [at(600), at(limit_w=120.0)]
    cool = steady_state(SPEC, [work()], points)
    hot = steady_state(SPEC, [work()], points, leakage_w=5.0)

    assert hot.power_w[0, 0] == pytest.approx(cool.power_w[0, 0] + 5.0)
    assert hot.power_w[0, 1] == pytest.approx(120.0)
    assert hot.sm_clock_held_mhz[0, 1] < cool.sm_clock_held_mhz[0, 1]


def test_energy_is_power_times_time() -> None:
    table = steady_state(SPEC, [work(1e12, 3e10)], [AUTO, at(600)])

    assert (table.power_w * table.time_s).tolist() == table.energy_j.tolist()


def test_tables_have_a_row_a_work_and_a_column_a_point() -> None:
    assert steady_state(SPEC, [work()] * 3, [AUTO] * 2).time_s.shape == (3, 2)
    assert steady_state(SPEC, [], [AUTO]).time_s.shape == (0, 1)


@pytest.mark.parametrize(
    ("point", "message", "hint"),
    [
        (at(1234), "does not list the SM clock 1234 MHz", "Nearest listed: 1000, 1500 MHz."),
        (at(None, 6000), "does not list the memory clock 6000 MHz", "Nearest listed: 405, 5000"),
        (at(limit_w=20.0), "takes power limits of 50 to 1000 W, not 20 W", ""),
    ],
)
def test_what_the_device_does_not_list_is_refused(
    point: OperatingPoint, message: str, hint: str
) -> None:
    with pytest.raises(NotSupported, match=message) as caught:
        steady_state(SPEC, [work()], [point])
    assert hint in (caught.value.hint or "")
    with pytest.raises(NotSupported):
        idle_power_w(SPEC, point)


def test_arithmetic_that_the_device_lacks_is_refused() -> None:
    with pytest.raises(NotSupported, match="has no fp8 arithmetic"):
        steady_state(SPEC, [dataclasses.replace(work(), dtype=Dtype.FP8)], [AUTO])


def test_idle_clocks_rest_at_their_lowest_unless_set() -> None:
    spec = dataclasses.replace(SPEC, clock_tree_w_per_ghz=10.0)

    assert idle_power_w(spec, AUTO) == pytest.approx(20 + 3, rel=1e-3)
    assert idle_power_w(spec, at(1000, 5000)) == pytest.approx(20 + 30 + 10, rel=1e-2)
    assert idle_power_w(spec, at(1000)) == pytest.approx(20 + 4.2, rel=1e-3)


def test_states_must_be_those_of_the_listed_memory_clocks() -> None:
    with pytest.raises(ValueError, match="not the listed memory clocks"):
        dataclasses.replace(SPEC, memory_states=SPEC.memory_states[:1])


def test_clocks_must_ascend() -> None:
    with pytest.raises(ValueError, match="ascend"):
        dataclasses.replace(
            SPEC, grid=dataclasses.replace(SPEC.grid, sm_clocks_mhz=(600, 300, 300))
        )


def test_held_clocks_are_finite_numbers() -> None:
    table = steady_state(SPEC, [work(), work(0.0, 1e11)], [AUTO, at(300, 405)])

    assert np.isfinite(table.sm_clock_held_mhz).all()
