"""What a virtual GPU measures does not depend on when, nor on what came before."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernel_works import kernel_works

from joulewise.domain.points import OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.simulator.boards import board
from joulewise.simulator.thermal import SNAP_C, Drift
from joulewise.simulator.virtual import open_virtual

WARM_UP_S = 80.0
WORKS = kernel_works(
    {"gemm": (3e10, 1e7), "copy": (1e8, 2e8), "both": (4e9, 3e7)}, core_activity_ratio=0.9
)


@dataclass(frozen=True, slots=True)
class Cell:
    kernel: str
    sm_clock_mhz: int | None
    mem_clock_mhz: int | None
    run: str


CELLS = tuple(
    Cell(kernel, sm, mem, f"sweep/{sm}/{mem}")
    for kernel in ("gemm", "copy", "both")
    for sm, mem in ((None, None), (1680, 9501), (600, 5001), (1200, 405))
)
Bits = tuple[str, ...]


def _measure(session: DeviceSession, cell: Cell) -> Bits:
    """Two settled windows: time per launch, energy, length and temperature, to the last bit."""
    gpu = session.gpu
    gpu.request(OperatingPoint(sm_clock_mhz=cell.sm_clock_mhz, mem_clock_mhz=cell.mem_clock_mhz))
    bits: list[str] = []
    with session.runner.loop(cell.kernel, run=cell.run) as loop:
        loop.run_for(WARM_UP_S)
        for window in range(2):
            start = gpu.wait_for_energy_tick(1.0)
            loop.begin_window(window)
            loop.run_for(5.0)
            end = gpu.wait_for_energy_tick(1.0)
            timing = loop.end_window()
            assert start.energy_j is not None
            assert end.energy_j is not None
            assert end.temp_c is not None
            values = (
                timing.elapsed_s / timing.launch_count,
                end.energy_j - start.energy_j,
                end.time_s - start.time_s,
                end.temp_c,
            )
            bits += [value.hex() for value in values]
    return tuple(bits)


def _device(options: str) -> DeviceSession:
    return open_virtual(f"virtual:rtx3080ti,{options}", WORKS)


REFERENCE = {
    options: {cell: _measure(_device(options), cell) for cell in CELLS}
    for options in ("seed=7", "noise=stress,seed=3,counter_period=20ms")
}


@settings(max_examples=30, deadline=None)
@given(
    order=st.lists(st.sampled_from(CELLS), min_size=1, max_size=8),
    options=st.sampled_from(sorted(REFERENCE)),
    late_s=st.floats(min_value=0, max_value=3e6),
)
def test_a_cell_has_the_same_bits_whatever_was_measured_before_and_however_late(
    order: list[Cell], options: str, late_s: float
) -> None:
    session = _device(options)
    session.gpu.wait(late_s)
    for cell in order:
        assert _measure(session, cell) == REFERENCE[options][cell]


def test_other_seeds_runs_and_windows_have_other_noise() -> None:
    cell = CELLS[0]
    seen = {
        _measure(_device("seed=1"), cell),
        _measure(_device("seed=2"), cell),
        _measure(_device("seed=1"), Cell(cell.kernel, None, None, "remeasure")),
    }
    assert len(seen) == 3
    bits = _measure(_device("seed=1"), cell)
    assert bits[0] != bits[4]


@settings(max_examples=50, deadline=None)
@given(pieces=st.lists(st.floats(min_value=1e-6, max_value=3.0), min_size=1, max_size=20))
def test_cutting_time_up_changes_neither_the_counter_nor_the_clock(pieces: list[float]) -> None:
    cut, whole = _device("seed=7"), _device("seed=7")
    for session in (cut, whole):
        session.gpu.wait(WARM_UP_S)
    for piece in pieces:
        cut.gpu.wait(piece)
    total_s = cut.gpu.sample().time_s - whole.gpu.sample().time_s
    whole.gpu.wait(total_s)
    assert cut.gpu.sample().time_s == whole.gpu.sample().time_s
    assert cut.gpu.sample().energy_j == whole.gpu.sample().energy_j


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(st.integers(min_value=1, max_value=300), min_size=1, max_size=12),
    busy=st.lists(st.sampled_from(["gemm", "copy", None]), min_size=12, max_size=12),
)
def test_the_counter_agrees_with_an_integration_in_small_steps(
    steps: list[int], busy: list[str | None]
) -> None:
    """Explicit integration of the heat equation, ten steps per counter period."""
    session = _device("noise=0,lag=0")
    thermal = board("rtx3080ti").thermal
    period_s = session.gpu.energy_counter_period_s
    assert period_s is not None
    temp_c = thermal.equilibrium_c(SETTLED_POWER_W[None])
    energy_j = 0.0
    for period_count, kernel in zip(steps, busy, strict=False):
        _run(session, kernel, period_count * period_s)
        power_w = SETTLED_POWER_W[kernel]
        goal_c = thermal.equilibrium_c(power_w)
        step_s = period_s / 10
        for _ in range(10 * period_count):
            drawn_w = power_w + thermal.leakage_w_per_c * (temp_c - goal_c)
            energy_j += drawn_w * step_s
            warmth_c = thermal.resistance_c_per_w * drawn_w + thermal.ambient_c - temp_c
            temp_c += warmth_c * step_s / thermal.time_constant_s
    counted_j = session.gpu.sample().energy_j
    assert counted_j is not None
    # Each step may settle a degree early and so begin the next one a degree off.
    settling_j = 2 * SNAP_C * thermal.leakage_w_per_c * thermal.drift_time_constant_s()
    assert counted_j == pytest.approx(energy_j, abs=settling_j * len(steps), rel=1e-4)


def _run(session: DeviceSession, kernel: str | None, duration_s: float) -> None:
    if kernel is None:
        session.gpu.wait(duration_s)
        return
    with session.runner.loop(kernel, run="r") as loop:
        loop.run_for(duration_s)


def _settled_power_w(kernel: str | None) -> float:
    session = _device("noise=0")
    if kernel is None:
        session.gpu.wait(WARM_UP_S)
        power_w = session.gpu.sample().power_w
    else:
        with session.runner.loop(kernel, run="r") as loop:
            loop.run_for(WARM_UP_S)
            power_w = session.gpu.sample().power_w
    assert power_w is not None
    return power_w


SETTLED_POWER_W = {kernel: _settled_power_w(kernel) for kernel in ("gemm", "copy", None)}


@given(
    from_c=st.floats(min_value=-40, max_value=200),
    equilibrium_c=st.floats(min_value=-40, max_value=200),
    share=st.floats(min_value=0.01, max_value=0.99),
)
def test_a_drift_passes_every_temperature_on_its_way_when_it_says(
    from_c: float, equilibrium_c: float, share: float
) -> None:
    drift = Drift(from_c=from_c, equilibrium_c=equilibrium_c, time_constant_s=12.0)
    between_c = from_c + share * (equilibrium_c - from_c)
    if abs(from_c - equilibrium_c) < 1e-3:
        return
    passed_s = drift.reaches_after_s(between_c)
    assert drift.temp_c(passed_s) == pytest.approx(between_c, abs=1e-6)
    beyond_c = equilibrium_c + (equilibrium_c - from_c)
    assert drift.reaches_after_s(beyond_c) == math.inf
