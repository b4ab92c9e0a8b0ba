"""Buckets of tokens: how often something may be done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.control.daemon.rate import TokenBucket, UserRates


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    bucket = TokenBucket(10.0)
    burst = [bucket.take(0.0) for _ in range(12)]
    later = [bucket.take(0.1), bucket.take(0.1), bucket.take(0.25)]

    assert 10 * [True] + 2 * [False] == burst
    assert [True, False, True] == later


@given(
    st.floats(0.5, 1000.0),
    st.lists(st.floats(0.0, 5.0), min_size=1, max_size=200),
)
def test_no_more_pass_than_the_burst_and_the_rate_allow(rate: float, gaps: list[float]) -> None:
    bucket = TokenBucket(rate)
    now_s, passed = 0.0, 0
    for gap_s in gaps:
        now_s += gap_s
        passed += bucket.take(now_s)

    assert passed <= max(1.0, rate) + rate * now_s + 1e-6


@given(st.floats(0.5, 1000.0), st.integers(0, 50))
def test_who_waits_as_long_as_told_may_pass(rate: float, used_count: int) -> None:
    bucket = TokenBucket(rate)
    for _ in range(used_count):
        bucket.take(0.0)
    wait_s = bucket.wait_s(0.0)

    assert bucket.take(wait_s + 1e-9 * (1.0 + wait_s))


def test_time_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(1.0)

    assert bucket.take(10.0)
    assert not bucket.take(5.0)
    assert not bucket.take(5.5)


def test_users_do_not_share_a_rate_and_rested_ones_are_forgotten() -> None:
    rates = UserRates(1.0)
    first = [rates.take(1000, 0.0), rates.take(1000, 0.0), rates.take(1001, 0.0)]
    crowd = [rates.take(uid, 10.0) for uid in range(2000, 3000)]

    assert [True, False, True] == first
    assert all(crowd)
    assert rates.take(1000, 10.0)
    assert not rates.take(1000, 10.0)


@pytest.mark.parametrize("rate", [1.0, 500.0])
def test_a_bucket_is_full_after_a_rest(rate: float) -> None:
    bucket = TokenBucket(rate)
    bucket.take(0.0)

    assert not bucket.is_full(0.0)
    assert bucket.is_full(1.0)
