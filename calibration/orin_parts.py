"""What is known of the Orin modules without a fit: lists, rates, rails, memory, idle power.

Sources: NVIDIA's data sheets of the Jetson AGX Orin 64 GB (2048 CUDA cores, 204.8 GB/s) and the
Orin Nano Super (1024, 102 GB/s); clock lists of JetPack 6; logs of an Orin Nano Super
(dankang21/jetson-latency-lab, Apache-2.0): idle at 1017 MHz and memory at 2133 MHz 5.54 W, of
which GPU and CPU 1.45 W and SoC 1.44 W; memory at 3199 MHz adds 0.95 W, of it 0.85 W to the SoC;
a language model that reads 34 GB/s adds 1.36 W to the SoC and some 1.7 W beside GPU and SoC.
"""

from __future__ import annotations

from typing import Final

from joulewise.domain.points import ClockGrid
from joulewise.domain.workload import Dtype
from joulewise.simulator.spec import MemoryState, PeakRate, RailSpec

AGX_GRID: Final = ClockGrid(
    sm_clocks_mhz=(306, 408, 510, 612, 714, 816, 918, 1020, 1122, 1224, 1300),
    mem_clocks_mhz=(204, 665, 2133, 3199),
)
NANO_GRID: Final = ClockGrid(
    sm_clocks_mhz=(306, 408, 510, 612, 714, 816, 918, 1020),
    mem_clocks_mhz=(204, 665, 2133, 3199),
)
AGX_SM_COUNT, NANO_SM_COUNT = 16, 8
AGX_BYTES_PER_S, NANO_BYTES_PER_S = 204.8e9, 102.4e9

MEMORY_J_PER_BYTE: Final = 90e-12
"""3.06 W at 34 GB/s."""
SOC_MEMORY_RATIO: Final = 0.44
"""1.36 W of that 3.06 W."""
_STANDBY_W_PER_MHZ: Final = 0.95 / (3199 - 2133)
"""Of 128 bits; the AGX Orin has twice as many."""

# FLOPs per SM and cycle: 128 FP32 lanes and 2 of FP64 (Ampere, compute capability 8.7); dense
# tensor cores reach 42.5 TFLOP/s in FP16 at 1.3 GHz on 16 SMs, and half of it in TF32.
_FLOP_PER_SM: Final = {
    Dtype.FP64: 4,
    Dtype.FP32: 256,
    Dtype.TF32: 1024,
    Dtype.FP16: 2048,
    Dtype.BF16: 2048,
}
# Tensor cores draw more than the vector units; by how much is assumed.
_TENSOR_POWER_RATIO: Final = 1.5
_VECTOR: Final = frozenset({Dtype.FP64, Dtype.FP32})

AGX_CPU_BASE_W: Final = 1.0
"""VDD_CPU_CV in training (AmazingDD/Jetson-Energy-Monitor, MIT: 10.4, 1.0 and 7.0 W in all)."""
AGX_5V0_BASE_W: Final = 3.0
"""Of VIN_SYS_5V0 beside the memory: never below 2.6 W in the same logs, and 3 W make it 7 W."""
_VDDQ_RATIO: Final = 0.65
"""Of the memory's part of VIN_SYS_5V0: 2.9 of 4.4 W in the same logs. Inside it, so not counted."""


def peak_rates(sm_count: int, core_w_per_ghz: float) -> tuple[PeakRate, ...]:
    """Rates of all formats; `core_w_per_ghz` is that of the vector units, all SMs busy."""
    return tuple(
        PeakRate(
            dtype=dtype,
            flop_count_per_cycle=float(sm_count * per_sm),
            core_w_per_ghz=core_w_per_ghz * (1.0 if dtype in _VECTOR else _TENSOR_POWER_RATIO),
        )
        for dtype, per_sm in _FLOP_PER_SM.items()
    )


def memory_states(grid: ClockGrid, bytes_per_s: float) -> tuple[MemoryState, ...]:
    """Bandwidth in proportion to the clock, standby to clock and width."""
    top_mhz = grid.mem_clocks_mhz[-1]
    width_ratio = bytes_per_s / NANO_BYTES_PER_S
    return tuple(
        MemoryState(
            mem_clock_mhz=mhz,
            bandwidth_bytes_per_s=bytes_per_s * mhz / top_mhz,
            standby_w=width_ratio * _STANDBY_W_PER_MHZ * mhz,
        )
        for mhz in grid.mem_clocks_mhz
    )


def agx_rails(soc_base_w: float) -> tuple[RailSpec, ...]:
    """No rail carries the whole: GPU with SoC, CPU, and memory with I/O are counted."""
    return (
        RailSpec(
            rail="VDD_GPU_SOC",
            is_counted=True,
            base_w=soc_base_w,
            core_ratio=1.0,
            memory_ratio=SOC_MEMORY_RATIO,
            host_ratio=0.0,
        ),
        RailSpec(
            rail="VDD_CPU_CV",
            is_counted=True,
            base_w=AGX_CPU_BASE_W,
            core_ratio=0.0,
            memory_ratio=0.0,
            host_ratio=1.0,
        ),
        RailSpec(
            rail="VIN_SYS_5V0",
            is_counted=True,
            base_w=AGX_5V0_BASE_W,
            core_ratio=0.0,
            memory_ratio=1.0 - SOC_MEMORY_RATIO,
            host_ratio=0.0,
        ),
        RailSpec(
            rail="VDDQ_VDD2_1V8AO",
            is_counted=False,
            base_w=0.0,
            core_ratio=0.0,
            memory_ratio=_VDDQ_RATIO * (1.0 - SOC_MEMORY_RATIO),
            host_ratio=0.0,
        ),
    )


NANO_DECODING: Final = ((2133, 34e9, 15.0), (3199, 39e9, 18.1))
"""Memory clock, bytes per second and VDD_IN of a language model at a GPU clock of 1020 MHz:
means of the lines with a busy GPU (50 % of 68 GB/s; 38 % of 102 GB/s)."""
NANO_IDLE_W: Final = 5.54
"""VDD_IN at 1017 MHz with memory at 2133 MHz, nothing running."""
_NANO_CPU_BASE_W: Final = 0.5
"""Of the 1.45 W of VDD_CPU_GPU_CV at idle; the rest is the GPU's clock tree. Assumed."""
NANO_TREE_W: Final = 1.45 - _NANO_CPU_BASE_W


def nano_rails(base_w: float) -> tuple[RailSpec, ...]:
    """VDD_IN is the whole; the two others are parts of it, so they are not counted."""
    standby_w = _STANDBY_W_PER_MHZ * 2133  # where 1.435 W of VDD_SOC were read
    return (
        RailSpec(
            rail="VDD_IN",
            is_counted=True,
            base_w=base_w,
            core_ratio=1.0,
            memory_ratio=1.0,
            host_ratio=1.0,
        ),
        RailSpec(
            rail="VDD_CPU_GPU_CV",
            is_counted=False,
            base_w=_NANO_CPU_BASE_W,
            core_ratio=0.9,  # the regulators between VDD_IN and this rail lose a tenth: assumed
            memory_ratio=0.0,
            host_ratio=0.9,
        ),
        RailSpec(
            rail="VDD_SOC",
            is_counted=False,
            base_w=1.435 - SOC_MEMORY_RATIO * standby_w,
            core_ratio=0.0,
            memory_ratio=SOC_MEMORY_RATIO,
            host_ratio=0.0,
        ),
    )
