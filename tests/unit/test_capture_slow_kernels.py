"""Kernels that are slow for another reason than their arithmetic and their traffic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from joulewise.domain.gpu_peaks import gpu_peaks
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Dtype, KernelKind
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset
from joulewise.workload.capture.fitting import RawWork, fitted_kernel

A100 = gpu_peaks("NVIDIA A100-SXM4-40GB")
TIME_S = 100e-6
COPY = RawWork(kind=KernelKind.OTHER, dtype=Dtype.FP32, flop_count=0.0, traffic_bytes=1e6)
PRODUCT = RawWork(
    kind=KernelKind.GEMM, dtype=Dtype.BF16, flop_count=1e9, traffic_bytes=1e6, is_product=True
)


def slowdown_ratio(raw: RawWork) -> float:
    """Time at 705 MHz over that at 1410 MHz on the virtual board of the traced kind."""
    work = fitted_kernel("k", raw, TIME_S, A100)
    points = [OperatingPoint(sm_clock_mhz=mhz) for mhz in (705, 1410)]
    time_s = steady_state(preset("a100-sxm"), [work], points).time_s[0]
    assert TIME_S == pytest.approx(time_s[1], rel=0.02)
    return float(time_s[0] / time_s[1])


@pytest.mark.parametrize("raw", [COPY, PRODUCT], ids=["copy", "product"])
def test_a_lower_clock_is_not_free_where_neither_arithmetic_nor_traffic_takes_the_time(
    raw: RawWork,
) -> None:
    assert slowdown_ratio(raw) > 1.9


def test_a_copy_near_the_bandwidth_does_not_mind_the_clock() -> None:
    moved = replace(COPY, traffic_bytes=0.8 * 1555.2e9 * TIME_S)

    assert slowdown_ratio(moved) < 1.05


def test_a_waiting_sm_draws_less_than_one_that_works() -> None:
    slow = fitted_kernel("k", PRODUCT, TIME_S, A100)
    busy = fitted_kernel("k", replace(PRODUCT, flop_count=0.7 * 312e12 * TIME_S), TIME_S, A100)

    power_w = steady_state(preset("a100-sxm"), [slow, busy], [OperatingPoint()]).power_w[:, 0]

    assert 0.6 * power_w[1] > power_w[0]
