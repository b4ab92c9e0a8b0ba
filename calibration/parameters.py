"""The numbers that a fit of the RTX 3080 Ti may move, and what they mean in the physics."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.points import ClockGrid
from joulewise.domain.workload import Dtype
from joulewise.simulator.physics import KernelLoad
from joulewise.simulator.spec import GpuSpec, MemoryState, PeakRate

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """One global parameter: its weak prior and the range it may not leave."""

    name: str
    centre: float
    spread: float
    least: float
    greatest: float


def _prior(name: str, centre: float, spread: float, least: float, greatest: float) -> Prior:
    return Prior(name=name, centre=centre, spread=spread, least=least, greatest=greatest)


PRIORS: Final = (
    _prior("base_w", 35, 15, 10, 90),
    _prior("clock_tree_w_per_ghz", 15, 15, 0, 80),
    _prior("voltage_knee_ghz", 1.05, 0.2, 0.6, 1.5),
    _prior("voltage_slope", 0.45, 0.3, 0, 3),
    _prior("voltage_curve", 0.3, 0.5, 0, 4),
    _prior("auto_voltage_knee_ghz", 1.55, 0.12, 1.4, 1.8),
    _prior("auto_voltage_slope", 0.35, 0.3, 0, 3),
    _prior("standby_810_w", 5, 10, 0, 40),
    _prior("standby_5001_w", 25, 15, 0, 80),
    _prior("standby_9501_w", 45, 20, 0, 110),
    _prior("bandwidth_405", 0.75, 0.15, 0.4, 1.2),
    _prior("bandwidth_810", 0.8, 0.2, 0.4, 1.2),
    _prior("bandwidth_5001", 1.0, 0.1, 0.7, 1.2),
    _prior("low_memory_energy", 1.0, 0.3, 0.3, 2),
    _prior("gemm_overlap", 3, 2, 1.2, 20),
    _prior("other_overlap", 4, 3, 1.2, 20),
    _prior("sm_clock_max_ghz", 1.9, 0.04, 1.83, 2.1),
    _prior("auto_set_point_w", 338.5, 3, 330, 350),
    _prior("locked_set_point_w", 321, 3, 300, 350),
    _prior("launch_us", 1.8, 0.3, 0.1, 2.2),
    _prior("exchange_rate", 1.4, 0.3, 0.8, 2.2),
)
"""20 parameters of the physics, and the planner's energy per time behind the chosen points."""

GLOBAL_COUNT: Final = len(PRIORS)
PER_KERNEL: Final = ("cycles", "traffic", "core_w_per_ghz", "traffic_w", "set_point")
"""Logarithms of compute cycles (1e9), of seconds of traffic at the top memory clock, of core
power per GHz and of power of full traffic; and how far the set-point lies off."""

CENTRES: Final = np.array([prior.centre for prior in PRIORS])
SPREADS: Final = np.array([prior.spread for prior in PRIORS])
LEAST: Final = np.array([prior.least for prior in PRIORS])
GREATEST: Final = np.array([prior.greatest for prior in PRIORS])

_INDEX = {prior.name: index for index, prior in enumerate(PRIORS)}
_BYTES_PER_CYCLE = 96  # 384 bits at two transfers per clock of the listed label
_TOP_MEM_CLOCK_MHZ = 9501
TOP_BANDWIDTH_BYTES_PER_S: Final = _BYTES_PER_CYCLE * _TOP_MEM_CLOCK_MHZ * 1e6
_SM_COUNT = 80
_MEM_CLOCKS_MHZ = (405, 810, 5001, 9251, 9501)
_HELD_AT_LOWEST_MEMORY_MHZ = 420

_TEMPLATE = GpuSpec(
    name="NVIDIA GeForce RTX 3080 Ti",
    source="fitted to arXiv 2601.08539v1, table 1 and figures 3 to 5; see docs/calibration.md",
    is_calibrated=True,
    grid=ClockGrid(sm_clocks_mhz=tuple(range(210, 2101, 15)), mem_clocks_mhz=_MEM_CLOCKS_MHZ),
    memory_states=tuple(
        MemoryState(mem_clock_mhz=clock, bandwidth_bytes_per_s=1.0, standby_w=0.0)
        for clock in _MEM_CLOCKS_MHZ
    ),
    # Per SM and cycle: 128 FMA of FP32, 256 of FP16 on tensor cores with FP32 accumulation.
    peak_rates=(
        PeakRate(dtype=Dtype.FP64, flop_count_per_cycle=_SM_COUNT * 4, core_w_per_ghz=1.0),
        PeakRate(dtype=Dtype.FP32, flop_count_per_cycle=_SM_COUNT * 256, core_w_per_ghz=1.0),
        PeakRate(dtype=Dtype.TF32, flop_count_per_cycle=_SM_COUNT * 256, core_w_per_ghz=1.0),
        PeakRate(dtype=Dtype.FP16, flop_count_per_cycle=_SM_COUNT * 512, core_w_per_ghz=1.0),
        PeakRate(dtype=Dtype.BF16, flop_count_per_cycle=_SM_COUNT * 512, core_w_per_ghz=1.0),
    ),
    sm_clock_max_mhz=0.0,
    launch_s=0.0,
    gemm_overlap_exponent_ratio=1.0,
    other_overlap_exponent_ratio=1.0,
    voltage_knee_mhz=0.0,
    voltage_slope_ratio_per_ghz=0.0,
    voltage_curve_ratio_per_ghz2=0.0,
    auto_voltage_knee_mhz=0.0,
    auto_voltage_slope_ratio_per_ghz=0.0,
    base_w=0.0,
    clock_tree_w_per_ghz=0.0,
    memory_j_per_byte=1.0,
    auto_set_point_w=0.0,
    locked_set_point_w=0.0,
    default_power_limit_w=350.0,
    least_power_limit_w=100.0,
)


def value(parameters: FloatArray, name: str) -> float:
    """One global parameter by name."""
    return float(parameters[_INDEX[name]])


def spec_of(parameters: FloatArray) -> GpuSpec:
    """The RTX 3080 Ti that these global parameters (shape (21,)) describe."""
    of = {name: float(parameters[index]) for name, index in _INDEX.items()}
    return dataclasses.replace(
        _TEMPLATE,
        memory_states=_memory_states(of),
        sm_clock_max_mhz=1e3 * of["sm_clock_max_ghz"],
        launch_s=1e-6 * of["launch_us"],
        gemm_overlap_exponent_ratio=of["gemm_overlap"],
        other_overlap_exponent_ratio=of["other_overlap"],
        voltage_knee_mhz=1e3 * of["voltage_knee_ghz"],
        voltage_slope_ratio_per_ghz=of["voltage_slope"],
        voltage_curve_ratio_per_ghz2=of["voltage_curve"],
        auto_voltage_knee_mhz=1e3 * of["auto_voltage_knee_ghz"],
        auto_voltage_slope_ratio_per_ghz=of["auto_voltage_slope"],
        base_w=of["base_w"],
        clock_tree_w_per_ghz=of["clock_tree_w_per_ghz"],
        auto_set_point_w=of["auto_set_point_w"],
        locked_set_point_w=of["locked_set_point_w"],
    )


def _memory_states(of: dict[str, float]) -> tuple[MemoryState, ...]:
    """The two states near the top share one standby power per MHz and full bandwidth."""
    bandwidth = {405: of["bandwidth_405"], 810: of["bandwidth_810"], 5001: of["bandwidth_5001"]}
    standby_w = {405: 0.0, 810: of["standby_810_w"], 5001: of["standby_5001_w"]}
    low = {405, 810}
    return tuple(
        MemoryState(
            mem_clock_mhz=clock,
            bandwidth_bytes_per_s=_BYTES_PER_CYCLE * clock * 1e6 * bandwidth.get(clock, 1.0),
            standby_w=standby_w.get(clock, of["standby_9501_w"] * clock / _TOP_MEM_CLOCK_MHZ),
            energy_ratio=of["low_memory_energy"] if clock in low else 1.0,
            sm_clock_ceiling_mhz=_HELD_AT_LOWEST_MEMORY_MHZ if clock == min(low) else None,
        )
        for clock in _MEM_CLOCKS_MHZ
    )


def load_of(spec: GpuSpec, per_kernel: FloatArray, is_gemm: BoolArray) -> KernelLoad:
    """Kernel loads of per-kernel parameters of shape (5, K)."""
    cycles, traffic_s, core_w_per_ghz, traffic_w = np.exp(per_kernel[:4])
    return KernelLoad(
        compute_cycle_count=cycles,
        memory_bytes=traffic_s * TOP_BANDWIDTH_BYTES_PER_S,
        core_j=core_w_per_ghz * cycles,
        memory_j=traffic_w * traffic_s,
        set_point_ratio=1.0 + per_kernel[4],
        overlap_exponent_ratio=np.where(
            is_gemm, spec.gemm_overlap_exponent_ratio, spec.other_overlap_exponent_ratio
        ),
        wait_s=np.zeros_like(cycles),
    )
