"""The physics of the fake driver is the physics of the virtual GPUs."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fake_nvml import DriverMaker

from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.simulator.boards import board
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel
from joulewise.simulator.physics import idle_power_w, kernel_load, steady_state
from joulewise.simulator.presets import nvml_preset_names, preset
from joulewise.simulator.spec import GpuSpec
from joulewise.simulator.thermal import Drift

CLOSE = 1e-9
IDLE = 2**32 - 1


def work_of(
    kind: KernelKind, flop_count: float, traffic_bytes: float, busy: float, wait_s: float = 0.0
) -> KernelWork:
    return KernelWork(
        kernel="any",
        kind=kind,
        dtype=Dtype.FP16,
        flop_count=flop_count,
        traffic_bytes=traffic_bytes,
        compute_efficiency_ratio=busy,
        memory_efficiency_ratio=0.5 + 0.5 * busy,
        core_activity_ratio=busy,
        memory_activity_ratio=1.0 - 0.5 * busy,
        clock_offset_ratio=0.05 * (busy - 0.5),
        wait_s=wait_s,
    )


WORKS = st.builds(
    work_of,
    st.sampled_from(list(KernelKind)),
    st.floats(1e6, 1e13),
    st.floats(1e4, 1e11),
    st.floats(0.05, 1.0),
)
WAITS = st.floats(1e-7, 0.1)
# Beside work, and alone.
WAITING = st.builds(
    lambda work, wait_s: dataclasses.replace(work, wait_s=wait_s), WORKS, WAITS
) | st.builds(lambda wait_s: work_of(KernelKind.GAP, 0.0, 0.0, 0.5, wait_s), WAITS)


def kernel_of(spec: GpuSpec, work: KernelWork) -> FakeKernel:
    load = kernel_load(spec, [work])
    fields = dataclasses.fields(FakeKernel)
    return FakeKernel(**{field.name: float(getattr(load, field.name)[0]) for field in fields})


def points_of(spec: GpuSpec) -> st.SearchStrategy[OperatingPoint]:
    limits = st.floats(spec.least_power_limit_w, spec.default_power_limit_w)
    return st.builds(
        OperatingPoint,
        sm_clock_mhz=st.one_of(st.none(), st.sampled_from(spec.grid.sm_clocks_mhz)),
        mem_clock_mhz=st.one_of(st.none(), st.sampled_from(spec.grid.mem_clocks_mhz)),
        power_limit_w=st.one_of(st.none(), limits),
    )


@pytest.mark.parametrize("name", nvml_preset_names())
def test_steady_states_are_those_of_the_virtual_gpu(make_driver: DriverMaker, name: str) -> None:
    driver, spec = make_driver(name), preset(name)

    @settings(max_examples=80, deadline=None)
    @given(work=WORKS | WAITING, point=points_of(spec))
    def check(work: KernelWork, point: OperatingPoint) -> None:
        table = steady_state(spec, [work], [point])
        seen = driver.steady(0, driver.add_kernel(0, kernel_of(spec, work)), point)

        assert table.time_s[0, 0] == pytest.approx(seen.time_s, rel=CLOSE)
        assert table.power_w[0, 0] == pytest.approx(seen.power_w, rel=CLOSE)
        assert table.sm_clock_held_mhz[0, 0] == pytest.approx(seen.sm_clock_mhz, rel=CLOSE)
        assert bool(table.is_power_capped[0, 0]) == seen.is_power_capped
        assert bool(table.is_clock_not_held[0, 0]) == seen.is_clock_not_held

    check()


@pytest.mark.parametrize("name", nvml_preset_names())
def test_idle_power_is_that_of_the_virtual_gpu(make_driver: DriverMaker, name: str) -> None:
    driver, spec = make_driver(name), preset(name)
    sm_clocks = (None, *spec.grid.sm_clocks_mhz[::9])
    points = spec.grid.points(sm_clocks, (None, *spec.grid.mem_clocks_mhz))

    seen = [driver.steady(0, IDLE, point).power_w for point in points]

    assert [idle_power_w(spec, point) for point in points] == pytest.approx(seen, rel=CLOSE)


def test_the_driver_tells_the_oracle_what_runs_and_what_rests(driver: FakeDriver) -> None:
    spec = preset("rtx3080ti")
    work = work_of(KernelKind.GEMM, 1e11, 1e8, 0.6)
    kernel = driver.add_kernel(0, kernel_of(spec, work))

    assert idle_power_w(spec, OperatingPoint()) == pytest.approx(driver.true_power_w(0), rel=CLOSE)
    driver.run(0, [(kernel, 1)])
    driver.advance(400.0)

    table = steady_state(spec, [work], [OperatingPoint()])
    assert table.power_w[0, 0] == pytest.approx(driver.true_power_w(0), rel=CLOSE)
    held_mhz = driver.true_sm_clock_mhz(0)
    assert table.sm_clock_held_mhz[0, 0] == pytest.approx(held_mhz, rel=CLOSE)


@pytest.mark.parametrize("name", nvml_preset_names())
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(work=WORKS, duration_s=st.floats(0.001, 60.0))
def test_warming_follows_the_law_of_the_virtual_gpu(
    make_driver: DriverMaker, name: str, work: KernelWork, duration_s: float
) -> None:
    driver, spec, thermal = make_driver(name), preset(name), board(name).thermal
    table = steady_state(spec, [work], [OperatingPoint()])
    power_w, idle_w = float(table.power_w[0, 0]), idle_power_w(spec, OperatingPoint())
    drift = Drift(
        from_c=thermal.equilibrium_c(idle_w),
        equilibrium_c=thermal.equilibrium_c(power_w),
        time_constant_s=thermal.drift_time_constant_s(),
    )
    before_j = driver.true_energy_j(0)
    start_s = driver.now_s()
    driver.run(0, [(driver.add_kernel(0, kernel_of(spec, work)), 1)])
    driver.advance(duration_s)
    elapsed_s = driver.now_s() - start_s

    warming_j = thermal.leakage_w_per_c * drift.excess_integral(0.0, elapsed_s)
    drawn_j = driver.true_energy_j(0) - before_j

    if thermal.equilibrium_c(power_w) < thermal.slowdown_temp_c:
        assert power_w * elapsed_s + warming_j == pytest.approx(drawn_j, rel=1e-8)
    leakage_w = thermal.leakage_w_per_c * (drift.temp_c(elapsed_s) - drift.equilibrium_c)
    if thermal.equilibrium_c(power_w) < thermal.slowdown_temp_c:
        assert power_w + leakage_w == pytest.approx(driver.true_power_w(0), rel=1e-8)


def test_the_sources_of_the_driver_stay_small() -> None:
    from tests.fake_nvml import SOURCES

    sources = [*SOURCES.glob("*.c"), *SOURCES.glob("*.h")]
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in sources}

    assert lengths
    assert {} == {name: length for name, length in lengths.items() if length >= 400}
