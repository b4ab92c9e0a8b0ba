"""Fit of the Orin Nano Super: time of four inference loops by GPU and memory clock, and power.

Data: `jetson` under JOULEWISE_DATA, medians of dankang21/jetson-latency-lab (Apache-2.0): two
networks (MobileNet, ViT) and two single kernels (a decode and a compute proxy) at 8 x 3 clocks.
Each loop has cycles, traffic and a wait of its own. Networks are many kernels one after another,
so that computing and traffic blend; a single kernel is bound by one or the other: each pair has
one overlap exponent. Bandwidth goes in proportion to the memory clock.
"""

from __future__ import annotations

import csv
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration import orin_parts as known
from calibration.evaluation import Figure
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.simulator.physics import steady_state
from joulewise.simulator.spec import GpuSpec

FloatArray = NDArray[np.float64]

SM_CLOCKS_MHZ: Final = (306, 408, 510, 612, 714, 816, 918, 1020)
MEM_CLOCKS_MHZ: Final = (665, 2133, 3199)
PAIRS: Final = (("mobilenet", "vit"), ("proxy", "cproxyv2"))
"""Loops that share an overlap exponent: networks, single kernels."""
LOOPS: Final = (*PAIRS[0], *PAIRS[1])
HELD_DOWN: Final = ("cproxyv2", 1020, 3199)
"""Slower than at 918 MHz: something held the clock down, so the fit does not see it."""
_FILE: Final = "orin_nano_gpu_x_emc_latency.csv"
_SPREAD: Final = 0.02
_HIGHEST_W: Final = 25.0
"""The module's highest power mode but one, which stands in for MAXN_SUPER: that has no limit."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoopTimes:
    """What the four loops are made of; times in seconds at 1 GHz and at the top memory clock."""

    exponent_ratio: FloatArray
    """Of each loop, shape (4,); equal within a pair."""
    cycles_s: FloatArray
    traffic_s: FloatArray
    wait_s: FloatArray

    def time_s(self) -> FloatArray:
        """Times at all clocks, shape (4, 8, 3)."""
        ghz = np.array(SM_CLOCKS_MHZ)[None, :, None] / 1e3
        speed = np.array(MEM_CLOCKS_MHZ)[None, None, :] / MEM_CLOCKS_MHZ[-1]
        p = self.exponent_ratio[:, None, None]
        parts = (
            self.cycles_s[:, None, None] / ghz,
            self.traffic_s[:, None, None] / speed,
            self.wait_s[:, None, None] + np.zeros_like(ghz),
        )
        whole: FloatArray = sum((part**p for part in parts), np.zeros(1)) ** (1.0 / p)
        return whole


def read_latencies(data: Path) -> FloatArray | None:
    """Median times in seconds, shape (4, 8, 3), or None where the data are absent."""
    path = data / "jetson" / _FILE
    if not path.is_file():
        return None
    with path.open(newline="", encoding="utf-8") as file:
        cells = {
            (row["workload"], int(row["gpu_mhz"]), int(row["emc_mhz"])): 1e-6 * float(row["p50_us"])
            for row in csv.DictReader(file)
        }
    return np.array(
        [
            [[cells[loop, sm, mem] for mem in MEM_CLOCKS_MHZ] for sm in SM_CLOCKS_MHZ]
            for loop in LOOPS
        ]
    )


def fit_loops(measured_s: FloatArray) -> LoopTimes:
    """Least squares with a bounded influence of outliers, from three starts."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - heavy

    seen = _seen()

    def off(vector: FloatArray) -> FloatArray:
        return np.asarray((np.log(_loops(vector).time_s() / measured_s) / _SPREAD)[seen])

    own = np.log(
        [measured_s[:, 0, 2] * 0.306, 0.2 * measured_s[:, -1, 0], 0.2 * measured_s[:, -1, 2]]
    )
    starts = [np.concatenate([[one, one + 1.0], own.ravel()]) for one in (-0.5, 0.0, 1.0)]
    found = min((least_squares(off, x, loss="soft_l1") for x in starts), key=lambda r: r.cost)
    return _loops(found.x)


def latency_figures(loops: LoopTimes, measured_s: FloatArray) -> tuple[Figure, ...]:
    """Errors of time in per cent over all cells, and over those that the fit saw."""
    error = 100 * np.abs(loops.time_s() / measured_s - 1)
    seen = error[_seen()]
    return tuple(
        Figure(
            name=f"time error %, {name}", paper=None, value=float(value), least=0.0, greatest=top
        )
        for name, value, top in (
            ("median", np.median(error), 3.0),
            ("greatest but the one held down", seen.max(), 10.0),
        )
    )


def _seen() -> NDArray[np.bool_]:
    seen = np.ones((len(LOOPS), len(SM_CLOCKS_MHZ), len(MEM_CLOCKS_MHZ)), dtype=np.bool_)
    loop, sm, mem = HELD_DOWN
    seen[LOOPS.index(loop), SM_CLOCKS_MHZ.index(sm), MEM_CLOCKS_MHZ.index(mem)] = False
    return seen


def _loops(vector: FloatArray) -> LoopTimes:
    exponents = 1.0 + np.exp(vector[:2])
    cycles, traffic, wait = np.exp(vector[2:]).reshape(3, len(LOOPS))
    return LoopTimes(
        exponent_ratio=np.repeat(exponents, 2), cycles_s=cycles, traffic_s=traffic, wait_s=wait
    )


def power_figures(spec: GpuSpec, loops: LoopTimes) -> tuple[Figure, ...]:
    """Power of decoding, whose core power nothing was fitted to, against logs of a language model.

    Its time is that of the decode proxy, its traffic that of the logs, with all cores active.
    """
    place = LOOPS.index("proxy")
    lines = []
    for mem_mhz, bytes_per_s, logged_w in known.NANO_DECODING:
        work = KernelWork(
            kernel="decode",
            kind=KernelKind.GEMM,
            dtype=Dtype.FP32,
            flop_count=loops.cycles_s[place]
            * 1e9
            * spec.peak_rate(Dtype.FP32).flop_count_per_cycle,
            traffic_bytes=loops.traffic_s[place] * known.NANO_BYTES_PER_S,
            compute_efficiency_ratio=1.0,
            memory_efficiency_ratio=1.0,
            core_activity_ratio=1.0,
            memory_activity_ratio=1.0,
        )
        point = OperatingPoint(sm_clock_mhz=SM_CLOCKS_MHZ[-1], mem_clock_mhz=mem_mhz)
        seconds = float(steady_state(spec, [work], [point]).time_s[0, 0])
        activity = bytes_per_s * seconds / work.traffic_bytes
        work = dataclasses.replace(work, memory_activity_ratio=activity)
        ours_w = float(steady_state(spec, [work], [point]).power_w[0, 0])
        lines.append(
            Figure(
                name=f"decoding at {mem_mhz} MHz, W",
                paper=logged_w,
                value=ours_w,
                least=0.9 * logged_w,
                greatest=1.1 * logged_w,
            )
        )
    return tuple(lines)


def nano_spec(agx: GpuSpec) -> GpuSpec:
    """Half an AGX Orin: its voltage curve, cores and governor, idle power as logged."""
    clock_ghz, memory = 1.017, known.memory_states(known.NANO_GRID, known.NANO_BYTES_PER_S)
    square = _voltage_square(agx, clock_ghz)
    standby_w = next(state.standby_w for state in memory if state.mem_clock_mhz == 2133)
    base_w = known.NANO_IDLE_W - known.NANO_TREE_W - standby_w
    vector = next(rate for rate in agx.peak_rates if rate.dtype is Dtype.FP32)
    return dataclasses.replace(
        agx,
        name="NVIDIA Jetson Orin Nano Super",
        source="latencies and power of dankang21/jetson-latency-lab; voltage and power of cores "
        "as on the virtual AGX Orin; see docs/calibration.md",
        grid=known.NANO_GRID,
        memory_states=memory,
        peak_rates=known.peak_rates(
            known.NANO_SM_COUNT,
            vector.core_w_per_ghz * known.NANO_SM_COUNT / known.AGX_SM_COUNT,
        ),
        sm_clock_max_mhz=float(known.NANO_GRID.sm_clocks_mhz[-1]),
        auto_voltage_knee_mhz=float(known.NANO_GRID.sm_clocks_mhz[-1]),
        base_w=base_w,
        clock_tree_w_per_ghz=known.NANO_TREE_W / (square * clock_ghz),
        auto_set_point_w=_HIGHEST_W,
        locked_set_point_w=_HIGHEST_W,
        default_power_limit_w=_HIGHEST_W,
        least_power_limit_w=5.0,
        rails=known.nano_rails(base_w),
    )


def _voltage_square(spec: GpuSpec, clock_ghz: float) -> float:
    """By the module of the physics, well above the knee, where its rounding is gone."""
    above = clock_ghz - spec.voltage_knee_mhz / 1e3
    slope, curve = spec.voltage_slope_ratio_per_ghz, spec.voltage_curve_ratio_per_ghz2
    return (1.0 + (slope + curve * above) * above) ** 2
