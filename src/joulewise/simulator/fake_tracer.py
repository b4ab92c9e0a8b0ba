"""SM cycles as a spinning micro-kernel would see them, on the fake driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from joulewise.domain.errors import InputError
from joulewise.domain.ports import ClockTrace
from joulewise.simulator.fake_board import FakeBoard, in_a_thread
from joulewise.simulator.fake_driver import FakeKernel

# How often the micro-kernel writes down its two clocks.
_STEP_S = 1.5e-5
_LONGEST_S = 60.0
_CALL_KNOB = "set_call_s"
_INSTANT_S = 1e-8
_MOST_CALL_COUNT = 16.5

SPIN: Final = FakeKernel(
    compute_cycle_count=1e-3,
    memory_bytes=1.0,
    core_j=5e-3,
    memory_j=1e-9,
    set_point_ratio=1.0,
    overlap_exponent_ratio=2.0,
)
"""A few warps that count cycles, a million per launch: next to no power, no traffic."""


class FakeTracer:
    """A `ClockTracer` on one GPU of the fake driver."""

    def __init__(self, board: FakeBoard) -> None:
        """Trace this board's clock; nothing is done before the first trace."""
        self._board = board
        self._spin: int | None = None

    def trace(
        self, act: Callable[[], None], *, before_s: float, after_s: float, warm_up_s: float = 0.0
    ) -> ClockTrace:
        """Spin, call `act`, spin on.

        Raises what `act` raises; InputError for times that are none; MeasurementError where
        something else runs; DeviceLost.
        """
        lengths_s = {"before_s": before_s, "after_s": after_s, "warm_up_s": warm_up_s}
        for name, duration_s in lengths_s.items():
            if not 0 <= duration_s <= _LONGEST_S:
                raise InputError(
                    f"{name} must lie between 0 and {_LONGEST_S:g} s, got {duration_s}",
                    field=name,
                )
        if self._spin is None:
            self._spin = self._board.driver.add_kernel(self._board.device_index, SPIN)
        watch = _Watch(self._board)
        spin = self._board.running_program("the clock tracer", [(self._spin, 1)])
        with spin:
            self._board.driver.timer.sleep(warm_up_s)
            with watch.in_real_time():
                watch.go_on(before_s)
                asked_s = watch.now_s()
                watch.see(act)
                returned_s = watch.now_s()
                watch.go_on(after_s)
        times_s, cycles = np.array(watch.seen, dtype=np.float64).T
        return ClockTrace(times_s=times_s, cycles=cycles, asked_s=asked_s, returned_s=returned_s)


class _Watch:
    """Writes down time and SM cycles: step by step in virtual time, else from a thread."""

    def __init__(self, board: FakeBoard) -> None:
        self._board = board
        self._is_virtual = board.driver.is_virtual_time
        self.seen: list[tuple[float, float]] = []

    def now_s(self) -> float:
        return self._board.driver.now_s()

    def go_on(self, duration_s: float) -> None:
        end_s = self.now_s() + duration_s
        if not self._is_virtual:
            self._board.driver.timer.sleep(duration_s)
            return
        self._look()
        while (left_s := end_s - self.now_s()) > 0:
            self._board.driver.advance(min(_STEP_S, left_s))
            self._look()

    def see(self, act: Callable[[], None]) -> None:
        """Call `act`, which blocks.

        In virtual time its calls take next to none, and what they should take passes step by
        step afterwards: the driver installs a request at the beginning of its call.
        """
        if not self._is_virtual:
            act()
            return
        driver, device_index = self._board.driver, self._board.device_index
        call_s, before_s = driver.knob(device_index, _CALL_KNOB), self.now_s()
        driver.set_knob(device_index, _CALL_KNOB, _INSTANT_S)
        try:
            act()
        finally:
            driver.set_knob(device_index, _CALL_KNOB, call_s)
        passed_s = self.now_s() - before_s
        if 0 < passed_s < _MOST_CALL_COUNT * _INSTANT_S:
            self.go_on(round(passed_s / _INSTANT_S) * call_s - passed_s)

    @contextmanager
    def in_real_time(self) -> Iterator[None]:
        """Look on as often as a thread can, the call included."""
        if self._is_virtual:
            yield
            return
        self._look()
        with in_a_thread(self._look_on, "joulewise clock tracer"):
            yield

    def _look_on(self, is_over: threading.Event) -> None:
        while not is_over.is_set():
            self._look()

    def _look(self) -> None:
        cycle_count = self._board.progress().sm_cycle_count
        now_s = self.now_s()
        if not self.seen or now_s > self.seen[-1][0]:
            self.seen.append((now_s, cycle_count))
