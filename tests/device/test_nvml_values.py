"""From NVML's units and marks to SI values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.device.nvml_values import (
    architecture,
    clock_mhz,
    duration_s,
    energy_j,
    event_reasons,
    power_w,
    temperature_c,
)
from joulewise.domain.measurement import EventReason

MARKS = [0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x7FFFFFFF]


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_for_not_known_is_none_in_every_unit(mark: int) -> None:
    readers = (power_w, energy_j, duration_s, clock_mhz, temperature_c, architecture)

    assert [None] * 6 == [read(mark) for read in readers]


def test_what_the_driver_does_not_tell_stays_untold() -> None:
    readers = (power_w, energy_j, duration_s, clock_mhz, temperature_c, architecture)

    assert [None] * 7 == [*(read(None) for read in readers), event_reasons(None)]


def test_units_of_nvml_become_si() -> None:
    assert 349.512 == power_w(349_512)
    assert 1234.567 == energy_j(1_234_567)
    assert 2.5e-3 == duration_s(2_500_000)
    assert 1695 == clock_mhz(1695)
    assert 61.0 == temperature_c(61)


def test_zero_power_and_a_counter_at_zero_are_readings_but_a_clock_of_zero_is_none() -> None:
    assert 0.0 == power_w(0)
    assert 0.0 == energy_j(0)
    assert 0.0 == duration_s(0)
    assert clock_mhz(0) is None


def test_a_board_may_draw_twice_its_limit_for_a_moment_but_not_megawatts() -> None:
    assert 700.0 == power_w(700_000, 350.0)
    assert power_w(1_100_000, 350.0) is None
    assert power_w(3_690_000_000_000) is None


@given(st.integers(0, 10**7))
def test_power_keeps_every_milliwatt(power_mw: int) -> None:
    assert power_mw == round((power_w(power_mw) or 0.0) * 1000)


@given(st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**63), 2**64 - 1))
def test_no_power_leaves_as_nan_infinite_or_negative(raw: float) -> None:
    value_w = power_w(raw)

    assert value_w is None or (math.isfinite(value_w) and value_w >= 0)


def test_every_bit_of_the_mask_has_its_name() -> None:
    names = [
        "GpuIdle",
        "ApplicationsClocksSetting",
        "SwPowerCap",
        "HwSlowdown",
        "SyncBoost",
        "SwThermalSlowdown",
        "HwThermalSlowdown",
        "HwPowerBrakeSlowdown",
        "DisplayClockSetting",
    ]

    assert [{name} for name in names] == [set(event_reasons(1 << bit) or ()) for bit in range(9)]


def test_no_bit_means_that_nothing_holds_the_clock_down() -> None:
    assert frozenset() == event_reasons(0)


def test_a_new_bit_is_unknown_and_hides_no_other() -> None:
    expected = frozenset({EventReason.POWER_CAP, EventReason.UNKNOWN})

    assert expected == event_reasons(0x4 | 0x400)


def test_an_architecture_that_is_newer_than_this_code_is_told_by_its_number() -> None:
    assert "Ampere" == architecture(7)
    assert "architecture 77" == architecture(77)
