"""Text from the command line: what it means, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.cli.values import caveat_kinds, clock_list, power_w, slowdown_budget
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0.0), ("0.006", 0.006), ("0.6%", 0.006), ("5%", 0.05), ("150%", 1.5), ("-1%", -0.01)],
)
def test_a_share_and_a_percentage_mean_the_same(text: str, expected: float) -> None:
    assert pytest.approx(expected) == slowdown_budget(text)


@pytest.mark.parametrize(
    "text", ["5", "1.5", "fast", "", "%", "nan", "inf", "nan%", "-100%", "0,6", "1_0%", "\uff11%"]
)
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        slowdown_budget(text)

    assert "max-slowdown" == caught.value.field


def test_a_value_above_one_asks_for_a_percent_sign() -> None:
    with pytest.raises(InputError) as caught:
        slowdown_budget("5")

    assert "Write 5% if that is meant." == caught.value.hint


@given(st.text(max_size=12))
def test_any_text_is_a_budget_or_one_clear_error(text: str) -> None:
    try:
        value = slowdown_budget(text)
    except InputError:
        return

    assert -1 < value < float("inf")


def test_clocks_keep_their_order_and_lose_their_repeats() -> None:
    assert (None, 1680, 210) == clock_list("auto, 1680,210,1680", field="sm-clocks")


@pytest.mark.parametrize("text", ["", "1680;210", "-5", "0", "1.5", "fast", "1680,", "9" * 30, "²"])
def test_what_is_no_clock_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        clock_list(text, field="sm-clocks")

    assert "sm-clocks" == caught.value.field


def test_caveats_are_named_as_they_print() -> None:
    kinds = caveat_kinds("PowerCapped, SimulatedDevice")

    assert {CaveatKind.POWER_CAPPED, CaveatKind.SIMULATED_DEVICE} == kinds


def test_an_unknown_caveat_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        caveat_kinds("powercapped")

    assert "field 'fail-on': 'powercapped' is not a caveat" == str(caught.value)


@pytest.mark.parametrize("text", ["83.5", "83.5W", "83.5 W", " 83.5w", "8.35e1"])
def test_a_power_is_in_watts_with_or_without_their_sign(text: str) -> None:
    assert 83.5 == power_w(text, field="blocking-power")


@pytest.mark.parametrize(
    "text", ["", "W", "-1", "nan", "inf", "1e999", "80 kW", "80 J", "1_0", "\uff11", "80%"]
)
def test_what_is_no_power_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        power_w(text, field="blocking-power")

    assert "blocking-power" == caught.value.field
    assert "Write 80 or 80W, from 0 up, in W." == caught.value.hint
