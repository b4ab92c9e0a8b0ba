from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.domain.points import OperatingPoint
from joulewise.report import wording


def _read(text: str) -> str:
    """With the plain characters that a keyboard has."""
    return text.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.1464, "14.64 %"), (-0.02, "-2.00 %"), (0.0, "0.00 %"), (-0.00001, "0.00 %")],
)
def test_shares_read_as_percent_and_zero_has_no_sign(ratio: float, text: str) -> None:
    assert _read(wording.percent(ratio)) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.006, "+0.60 %"), (0.982, "-1.80 %"), (1.0, "+0.00 %")]
)
def test_ratios_to_the_baseline_read_as_signed_changes(ratio: float, text: str) -> None:
    assert _read(wording.change(ratio)) == text


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(5.3584, "5.358 s"), (0.01435, "14.35 ms"), (2.4e-6, "2.400 µs"), (0.0, "0.000 µs")],
)
def test_durations_have_four_digits_and_a_fitting_unit(time_s: float, text: str) -> None:
    assert _read(wording.duration(time_s)) == text


@pytest.mark.parametrize(
    ("energy_j", "text"),
    [
        (1815.5, "1 816 J"),
        (40.04, "40.04 J"),
        (0.0003, "0.300 mJ"),
        (-12.5, "-12.50 J"),
        (3.6e6, "3.600 MJ"),
        (25_000.0, "25.00 kJ"),
    ],
)
def test_energies_have_four_digits_and_a_fitting_unit(energy_j: float, text: str) -> None:
    assert _read(wording.energy(energy_j)) == text


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "launch", "1 launch"), (897, "launch", "897 launches"), (2, "pair", "2 pairs")],
)
def test_counts_agree_with_their_noun(number: int, noun: str, text: str) -> None:
    assert wording.counted(number, noun) == text


def test_a_setting_names_both_clocks_and_the_limit_only_where_set() -> None:
    point = OperatingPoint(sm_clock_mhz=1680, power_limit_w=300.0)
    assert wording.setting(point) == "SM 1680 MHz, memory auto, limit 300 W"


@given(st.text())
def test_no_name_can_hide_characters_or_reorder_a_line(name: str) -> None:
    shown = wording.plain(name)
    assert len(shown) == len(name)
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Co"}
    shown.encode("utf-8")


@given(st.text(), st.integers(min_value=3, max_value=50))
def test_a_shortened_name_fits_and_keeps_both_ends(name: str, length_count: int) -> None:
    short = wording.shortened(name, length_count)
    if len(name) <= length_count:
        assert short == name
    else:
        assert len(short) == length_count
        assert short[0] == name[0]
        assert short[-1] == name[-1]


def test_labels_of_figures_hold_no_markup() -> None:
    assert wording.figure_text("<b>a&b</b>") == "&lt;b&gt;a&amp;b&lt;/b&gt;"
