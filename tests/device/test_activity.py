"""Cycles and time in GPM's activity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.device.nvml_gpm import time_ratio


@given(
    busy_ratio=st.floats(0, 1),
    busy_mhz=st.floats(200, 3000),
    idle_share=st.floats(0.05, 1),
)
def test_time_is_found_back_from_cycles(
    busy_ratio: float, busy_mhz: float, idle_share: float
) -> None:
    idle_mhz = idle_share * busy_mhz
    mean_mhz = busy_ratio * busy_mhz + (1 - busy_ratio) * idle_mhz
    cycle_ratio = busy_ratio * busy_mhz / mean_mhz

    assert busy_ratio == pytest.approx(time_ratio(cycle_ratio, mean_mhz, busy_mhz), abs=1e-9)


def test_a_tenth_of_the_time_at_1980_mhz_reads_as_39_percent_of_the_cycles() -> None:
    mean_mhz = 0.1 * 1980 + 0.9 * 345

    cycle_ratio = 0.1 * 1980 / mean_mhz

    assert "39 %" == f"{cycle_ratio:.0%}".replace("%", " %")
    assert 0.1 == pytest.approx(time_ratio(cycle_ratio, mean_mhz, 1980.0))


def test_without_a_clock_there_is_no_share_of_time() -> None:
    assert time_ratio(0.5, None, 1980.0) is None
    assert time_ratio(0.5, 1000.0, 0.0) is None
    assert time_ratio(None, 1000.0, 1980.0) is None


def test_a_mean_above_the_busy_clock_adds_no_activity() -> None:
    assert 0.5 == time_ratio(0.5, 2000.0, 1980.0)
