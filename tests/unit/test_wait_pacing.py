"""The host that waits between launches, so that a stand-in takes its time."""

from __future__ import annotations

import pytest

from joulewise.integrations.torch_launches import paced


class SteppedTimer:
    """A `Timer` that goes on when something sleeps, and by so much more each time."""

    def __init__(self, oversleep_s: float = 0.0) -> None:
        self.time_s = 0.0
        self.oversleep_s = oversleep_s

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        if duration_s > 0:
            self.time_s += duration_s + self.oversleep_s


def test_launches_come_one_period_apart_though_each_wait_ends_late() -> None:
    timer = SteppedTimer(oversleep_s=0.002)
    starts_s: list[float] = []
    launch = paced(lambda: starts_s.append(timer.time_s), 0.01, timer)

    for _ in range(100):
        launch()

    assert starts_s == pytest.approx([0.0, *(0.01 * i + 0.002 for i in range(1, 100))])


def test_work_within_the_period_costs_no_time() -> None:
    timer = SteppedTimer()

    def work() -> None:
        timer.time_s += 0.004

    launch = paced(work, 0.01, timer)
    for _ in range(10):
        launch()

    assert timer.time_s == pytest.approx(0.1)


def test_work_longer_than_the_period_hardly_waits() -> None:
    timer = SteppedTimer()

    def work() -> None:
        timer.time_s += 0.03

    launch = paced(work, 0.01, timer)
    for _ in range(100):
        launch()

    assert timer.time_s == pytest.approx(3.0)


def test_what_was_missed_in_a_pause_is_not_made_up_for() -> None:
    timer = SteppedTimer()
    launch = paced(lambda: None, 0.01, timer)
    launch()
    timer.time_s = 5.0
    for _ in range(10):
        launch()

    assert timer.time_s == pytest.approx(5.1)


def test_what_does_not_wait_is_the_launch_itself() -> None:
    def launch() -> None:
        raise AssertionError

    assert paced(launch, 0.0, SteppedTimer()) is launch
