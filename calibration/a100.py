"""Fit of the A100: 14 applications at three SM clocks, the other 58 clocks predicted.

One voltage curve, base and clock-tree power are shared; each application has its own compute
cycles, traffic time and overlap (an application is a mixture of kernels) and its own core and
traffic power. Data: `a100-spec` under JOULEWISE_DATA; energy there is power x time, its column
of total energy is not used.
"""

from __future__ import annotations

import csv
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.conversion import rounded_spec
from calibration.evaluation import Figure
from joulewise.domain.points import ClockGrid, OperatingPoint
from joulewise.domain.workload import Dtype
from joulewise.simulator.physics import KernelLoad, SteadyTable, steady_state_of_load
from joulewise.simulator.presets import preset
from joulewise.simulator.spec import GpuSpec, MemoryState, PeakRate

FloatArray = NDArray[np.float64]

USED_CLOCKS_MHZ: Final = (510, 960, 1410)
_FILES: Final = (
    "a100_spec_accel_clock_sweep.csv",
    "GA100-dvfs-dgemm-dcgm.csv",
    "GA100-dvfs-stream-dcgm.csv",
)
_ANCHORS: Final = ("dgemm", "stream")
"""Not of SPEC ACCEL: they also give the power of a matrix product and the energy of a byte."""

# base W, clock tree W/GHz, knee GHz, slope, curve: three clocks say little about the curve's
# shape, so its priors are tight; they put the top of the curve at 1.6 times the floor.
_SHARED_CENTRES: Final = np.array([70.0, 10.0, 1.0, 0.4, 2.0])
_SHARED_SPREADS: Final = np.array([10.0, 10.0, 0.03, 0.1, 0.1])
_SHARED_LEAST: Final = np.array([20.0, 0.0, 0.6, 0.0, 0.0])
_SHARED_GREATEST: Final = np.array([90.0, 60.0, 1.3, 3.0, 5.0])
_CORE_SPREAD, _TRAFFIC_SPREAD = 1.0, 1.5
_TIME_SPREAD, _POWER_SPREAD = 0.01, 0.02
_OVERLAP_CENTRE, _OVERLAP_SPREAD = 0.7, 2.0

_BANDWIDTH_BYTES_PER_S: Final = 1555.2e9
_SM_COUNT = 108
_PER_SM: Final = {
    Dtype.FP64: 128,
    Dtype.FP32: 128,
    Dtype.TF32: 1024,
    Dtype.FP16: 2048,
    Dtype.BF16: 2048,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Applications:
    """Measured time and power, arrays of shape (14, 61)."""

    names: tuple[str, ...]
    sm_clocks_mhz: tuple[int, ...]
    time_s: FloatArray
    power_w: FloatArray
    stream_bytes: float
    """What STREAM moves in one run, from the activity of the memory interface."""

    @property
    def points(self) -> tuple[OperatingPoint, ...]:
        """The measured SM clocks; the memory clock cannot be set."""
        return tuple(OperatingPoint(sm_clock_mhz=clock) for clock in self.sm_clocks_mhz)

    @property
    def used(self) -> NDArray[np.int64]:
        """Columns of the three clocks that the fit may see."""
        return np.array([self.sm_clocks_mhz.index(clock) for clock in USED_CLOCKS_MHZ])


def read_applications(data: Path) -> Applications | None:
    """Read the sweep, or None where it is absent."""
    paths = [data / "a100-spec" / name for name in _FILES]
    if not all(path.is_file() for path in paths):
        return None
    cells: dict[str, dict[int, dict[str, str]]] = {}
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                cells.setdefault(row["application"], {})[int(row["sm_app_clock"])] = row
    names = tuple(sorted(cells))
    clocks = tuple(sorted(cells[names[0]]))

    def table(column: str) -> FloatArray:
        return np.array([[float(cells[n][clock][column]) for clock in clocks] for n in names])

    top = cells["stream"][clocks[-1]]
    moving = float(top["dram_active"]) * float(top["run_time"])
    return Applications(
        names=names,
        sm_clocks_mhz=clocks,
        time_s=table("run_time"),
        power_w=table("power_usage"),
        stream_bytes=moving * _BANDWIDTH_BYTES_PER_S,
    )


def fit_a100(applications: Applications) -> tuple[GpuSpec, KernelLoad]:
    """Device and application loads that three clocks imply."""
    timing = _fit_times(applications)
    shared, core, traffic = _fit_powers(applications, timing)
    dgemm, stream = (applications.names.index(name) for name in _ANCHORS)
    stream_j = traffic[stream] * np.exp(timing[1, stream])
    # DGEMM runs on tensor cores, SPEC ACCEL in FP32 and FP64 on vector units.
    vector = float(np.median(np.delete(core, [dgemm, stream])))
    base = _spec(shared)
    spec = rounded_spec(
        dataclasses.replace(
            base,
            peak_rates=tuple(
                dataclasses.replace(
                    rate,
                    core_w_per_ghz=vector if rate.dtype is Dtype.FP32 else float(core[dgemm]),
                )
                for rate in base.peak_rates
            ),
            memory_j_per_byte=float(stream_j / applications.stream_bytes),
        )
    )
    return spec, _load(timing, core, traffic)


def predict(spec: GpuSpec, load: KernelLoad, applications: Applications) -> SteadyTable:
    """Time and power at all 61 clocks."""
    return steady_state_of_load(spec, load, applications.points)


def a100_figures(spec: GpuSpec, load: KernelLoad, applications: Applications) -> tuple[Figure, ...]:
    """Errors in per cent at the 58 clocks that the fit did not see."""
    steady = predict(spec, load, applications)
    unseen = np.delete(np.arange(len(applications.sm_clocks_mhz)), applications.used)
    of_spec = np.array([name not in _ANCHORS for name in applications.names])
    lines = []
    for name, ours, measured, limit in (
        ("time", steady.time_s, applications.time_s, 1.3),
        ("power", steady.power_w, applications.power_w, 3.0),
    ):
        error = 100 * np.abs(ours / measured - 1)[:, unseen]
        for kind, rows in (
            ("12 SPEC", of_spec),
            ("all 14", np.full(len(of_spec), fill_value=True)),
        ):
            for label, value, greatest in (
                ("median", np.median(error[rows]), limit),
                ("95th percentile", np.quantile(error[rows], 0.95), 10.0),
            ):
                lines.append(
                    Figure(
                        name=f"{kind}, {name} error %, {label}",
                        paper=None,
                        value=float(value),
                        least=0.0,
                        greatest=greatest,
                    )
                )
    return tuple(lines)


def _fit_times(applications: Applications) -> FloatArray:
    """Logarithms of cycles, traffic seconds and overlap exponent - 1, shape (3, 14)."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - heavy

    spec = _spec(_SHARED_CENTRES)
    points = [applications.points[i] for i in applications.used]
    fitted = np.empty((3, len(applications.names)))
    for row, measured in enumerate(applications.time_s[:, applications.used]):

        def off(timing: FloatArray, measured: FloatArray = measured) -> FloatArray:
            load = _load(timing[:, None], np.ones(1), np.ones(1))
            time_s = steady_state_of_load(spec, load, points).time_s[0]
            prior = (timing[2] - _OVERLAP_CENTRE) / _OVERLAP_SPREAD
            return np.append(np.log(time_s / measured) / _TIME_SPREAD, prior)

        starts = [
            np.array([np.log(1.41 * share * measured[-1]), np.log((1 - share) * measured[-1]), 0.7])
            for share in (0.9, 0.5, 0.1)
        ]
        fitted[:, row] = min((least_squares(off, s) for s in starts), key=lambda r: r.cost).x
    return fitted


def _fit_powers(
    applications: Applications, timing: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shared parameters (5,), core power per GHz (14,) and traffic power (14,)."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - heavy

    points = [applications.points[i] for i in applications.used]
    measured = applications.power_w[:, applications.used]
    count = len(applications.names)

    def off(vector: FloatArray) -> FloatArray:
        shared, own = vector[:5], vector[5:].reshape(2, count)
        load = _load(timing, *np.exp(own))
        power_w = steady_state_of_load(_spec(shared), load, points).power_w
        return np.concatenate(
            [
                (np.log(power_w / measured) / _POWER_SPREAD).ravel(),
                (shared - _SHARED_CENTRES) / _SHARED_SPREADS,
                (own[0] - np.median(own[0])) / _CORE_SPREAD,
                (own[1] - np.median(own[1])) / _TRAFFIC_SPREAD,
            ]
        )

    least = np.concatenate([_SHARED_LEAST, np.full(2 * count, -5.0)])
    greatest = np.concatenate([_SHARED_GREATEST, np.full(2 * count, 9.0)])
    start = np.concatenate([_SHARED_CENTRES, np.full(count, 4.0), np.full(count, 3.0)])
    found = least_squares(off, start, bounds=(least, greatest)).x
    core, traffic = np.exp(found[5:].reshape(2, count))
    return found[:5], core, traffic


def _load(timing: FloatArray, core_w_per_ghz: FloatArray, traffic_w: FloatArray) -> KernelLoad:
    cycles, traffic_s, beyond = np.exp(timing)
    return KernelLoad(
        compute_cycle_count=cycles,
        memory_bytes=traffic_s * _BANDWIDTH_BYTES_PER_S,
        core_j=core_w_per_ghz * cycles,
        memory_j=traffic_w * traffic_s,
        set_point_ratio=np.ones_like(cycles),
        overlap_exponent_ratio=1 + beyond,
        wait_s=np.zeros_like(cycles),
    )


def _spec(shared: FloatArray) -> GpuSpec:
    base_w, tree, knee_ghz, slope, curve = (float(value) for value in shared)
    sibling = preset("rtx3080ti")
    return GpuSpec(
        name="NVIDIA A100-SXM4",
        source="fitted to GA100 runs of SPEC ACCEL, DGEMM and STREAM at 510, 960 and 1410 MHz; "
        "overlap of kernels as on the RTX 3080 Ti; see docs/calibration.md",
        is_calibrated=True,
        grid=ClockGrid(sm_clocks_mhz=tuple(range(210, 1411, 15)), mem_clocks_mhz=(1215,)),
        memory_states=(
            MemoryState(
                mem_clock_mhz=1215,
                bandwidth_bytes_per_s=_BANDWIDTH_BYTES_PER_S,
                standby_w=0.0,  # the only state: its standby is part of the base
            ),
        ),
        peak_rates=tuple(
            PeakRate(dtype=dtype, flop_count_per_cycle=_SM_COUNT * per_sm, core_w_per_ghz=1.0)
            for dtype, per_sm in _PER_SM.items()
        ),
        sm_clock_max_mhz=1410.0,
        launch_s=2e-6,
        gemm_overlap_exponent_ratio=sibling.gemm_overlap_exponent_ratio,
        other_overlap_exponent_ratio=sibling.other_overlap_exponent_ratio,
        voltage_knee_mhz=1e3 * knee_ghz,
        voltage_slope_ratio_per_ghz=slope,
        voltage_curve_ratio_per_ghz2=curve,
        auto_voltage_knee_mhz=1410.0,
        auto_voltage_slope_ratio_per_ghz=0.0,
        base_w=base_w,
        clock_tree_w_per_ghz=tree,
        memory_j_per_byte=1.0,
        # The measured card drew 476 W in DGEMM without being held back.
        auto_set_point_w=500.0,
        locked_set_point_w=500.0,
        default_power_limit_w=500.0,
        least_power_limit_w=100.0,
    )
