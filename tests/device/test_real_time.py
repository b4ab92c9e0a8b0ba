"""Time of the machine."""

from __future__ import annotations

import time

from joulewise.device.real_time import MonotonicTimer


def test_a_sleep_lets_at_least_that_much_of_the_machines_time_pass() -> None:
    timer = MonotonicTimer()
    before_s = time.monotonic()

    began_s = timer.now_s()
    timer.sleep(0.002)
    ended_s = timer.now_s()

    assert before_s <= began_s
    assert ended_s - began_s >= 0.002
    assert ended_s <= time.monotonic()


def test_no_time_and_less_than_none_pass_at_once() -> None:
    timer = MonotonicTimer()

    before_s = time.monotonic()
    timer.sleep(0.0)
    timer.sleep(-1.0)

    assert before_s <= timer.now_s() <= time.monotonic()
