"""The tracer and the stamps on a GPU that is made of arithmetic, held-up threads included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from joulewise.domain.errors import MeasurementError
from joulewise.integrations.cuda_tracer import CudaTracer, SmClock
from joulewise.measure.clock_trace import time_step_s, traced_change

GPU_ZERO_NS = 1_790_000_000_123_456_000
STEP_S = 2e-5
FIRST_ADDRESS = 2**32


class ArithmeticGpu:
    """A GPU, and the time of its host, which passes at every look at the clock.

    The host is held up for `held_up_s` after some looks at the clock, and before others, once
    before a kernel has started. The
    GPU's timer moves every `timer_ns`. A change asked for comes `lag_s` later.
    """

    spin: object = "spin"
    stamp: object = "stamp"

    def __init__(
        self, *, timer_ns: int = 32, held_up_s: float = 0.0, is_busy: bool = False
    ) -> None:
        self.buffers: dict[int, NDArray[np.uint64]] = {}
        self.given_count = 0
        self._timer_ns = timer_ns
        self._held_up_s = held_up_s
        self._is_busy = is_busy
        self._time_s = 100.0
        self._look_count = 0
        self._changed_at_s = 1e9
        self._spin: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None = None
        self._written_count = 0
        self._next_s = 0.0

    # The host's clock.

    def now_s(self) -> float:
        self._look_count += 1
        held_up_s = self._held_up_s if self._look_count % 500 == 0 else 0.0
        if self._look_count % 1000 == 0:
            self._pass(held_up_s)
        self._pass(1e-6)
        now_s = self._time_s
        if self._look_count % 1000 == 500:
            self._pass(held_up_s)
        return now_s

    def sleep(self, duration_s: float) -> None:
        self._pass(duration_s)

    def ask(self) -> None:
        self._pass(0.004)
        self._changed_at_s = self._time_s - 0.004 + 0.012

    # What launches kernels.

    def enter(self) -> None:
        """One thread, one context."""

    def new_stream(self) -> int:
        return 7

    def sm_count(self) -> int:
        return 4

    def mapped_words(self, word_count: int) -> tuple[NDArray[np.uint64], int]:
        self.given_count += 1
        address = FIRST_ADDRESS * self.given_count
        self.buffers[address] = np.zeros(word_count, dtype=np.uint64)
        return self.buffers[address], address

    def free_words(self, words: NDArray[np.uint64]) -> None:
        (address,) = (one for one, known in self.buffers.items() if known is words)
        del self.buffers[address]

    def launch(
        self, kernel: object, block_count: int, stream: int, arguments: Sequence[tuple[int, type]]
    ) -> None:
        assert 7 == stream
        address, second, *rest = (value for value, _ in arguments)
        place = address // FIRST_ADDRESS * FIRST_ADDRESS
        words = self.buffers[place][(address - place) // 8 :]
        if kernel == self.stamp:
            words[: 2 * second].reshape(-1, 2)[:block_count] = self._pair(self._time_s)
            return
        capacity, step_ns = rest
        assert (1, 1e9 * STEP_S) == (block_count, step_ns)
        self._spin = words[: 2 * capacity].reshape(-1, 2), self.buffers[second]
        self._written_count = 0
        self._next_s = self._time_s + 0.003

    def wait(self, stream: int) -> None:
        assert 7 == stream
        assert self._spin is None or self._spin[1][0], "the kernel would spin for ever"
        self._spin = None

    def _pass(self, duration_s: float) -> None:
        self._time_s += duration_s
        if self._spin is None or self._is_busy:
            return
        records, _ = self._spin
        while self._next_s <= self._time_s and self._written_count < len(records):
            records[self._written_count] = self._pair(self._next_s)
            self._written_count += 1
            self._next_s += STEP_S

    def _pair(self, time_s: float) -> tuple[int, int]:
        time_ns = round(1e9 * time_s) // self._timer_ns * self._timer_ns
        former_s, later_s = min(time_s, self._changed_at_s), max(0.0, time_s - self._changed_at_s)
        return GPU_ZERO_NS + time_ns, round(1e6 * (1410.0 * former_s + 1005.0 * later_s))


@pytest.mark.parametrize("held_up_s", [0.0, 0.005])
def test_a_host_that_is_held_up_moves_no_trace(held_up_s: float) -> None:
    """Neither before it looks at its clock nor after."""
    gpu = ArithmeticGpu(held_up_s=held_up_s)

    trace = CudaTracer(gpu, gpu).trace(gpu.ask, before_s=0.02, after_s=0.04)

    change = traced_change(trace, within_mhz=7.5)
    assert change.call_s == pytest.approx(0.004, abs=1e-5)
    assert change.lag_s == pytest.approx(0.012, abs=1e-4)
    assert change.stall_s == 0.0


def test_what_was_seen_while_warming_up_is_no_part_of_a_trace() -> None:
    gpu = ArithmeticGpu()

    trace = CudaTracer(gpu, gpu).trace(gpu.ask, before_s=0.01, after_s=0.04, warm_up_s=0.1)

    assert trace.times_s[0] - trace.asked_s == pytest.approx(-0.01, abs=2 * STEP_S)
    assert trace.times_s[-1] - trace.returned_s == pytest.approx(0.04, abs=2 * STEP_S)
    assert traced_change(trace, within_mhz=7.5).lag_s == pytest.approx(0.012, abs=1e-4)


def test_a_timer_of_a_millisecond_is_mapped_by_the_moments_when_it_moves() -> None:
    gpu = ArithmeticGpu(timer_ns=1_000_000)

    trace = CudaTracer(gpu, gpu).trace(gpu.ask, before_s=0.1, after_s=0.2)

    assert time_step_s(trace) == pytest.approx(0.001)
    assert traced_change(trace, within_mhz=7.5).lag_s == pytest.approx(0.012, abs=0.0015)


def test_room_that_became_too_small_is_given_back() -> None:
    gpu = ArithmeticGpu()
    tracer = CudaTracer(gpu, gpu)
    for length_s in (0.01, 0.3, 0.02, 1.2):
        tracer.trace(gpu.ask, before_s=0.01, after_s=length_s)

    # The flag and one room for records, of the four that there were: one served twice.
    assert 2 == len(gpu.buffers)
    assert 4 == gpu.given_count


def test_a_kernel_that_does_not_start_is_an_error() -> None:
    gpu = ArithmeticGpu(is_busy=True, held_up_s=0.1)

    with pytest.raises(MeasurementError, match="did not start"):
        CudaTracer(gpu, gpu).trace(gpu.ask, before_s=0.01, after_s=0.01)


def test_stamps_tell_the_mean_clock_between_two_moments_and_are_used_again() -> None:
    gpu = ArithmeticGpu()
    clock = SmClock(gpu)
    for _ in range(100):
        first = clock.stamp(7)
        gpu.sleep(0.5)
        last = clock.stamp(7)
        assert first is not None
        assert last is not None
        assert clock.mean_mhz(first, last) == pytest.approx(1410.0, rel=1e-6)
        clock.forget(first)
        clock.forget(last)
    stamps = [clock.stamp(7) for _ in range(20)]
    assert None in stamps
    assert len(set(stamps)) == 1 + len([one for one in stamps if one is not None])
