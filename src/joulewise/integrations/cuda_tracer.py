"""The SM clock of a real GPU, counted by a spinning micro-kernel.

Not yet run on hardware: no GPU was at hand when this was written. The kernels' PTX is known to
assemble, and what happens to the readings is tested on made ones.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.errors import MeasurementError
from joulewise.domain.ports import ClockTrace, Timer
from joulewise.integrations.cuda_driver import CudaDriver

_S_PER_NS = 1e-9
_MHZ_PER_CYCLE_PER_NS = 1e3
_STEP_NS = 20_000
_FEWEST_PAIRS_COUNT = 50
_START_TIMEOUT_S = 2.0
# A call that blocks for longer than this fills the room, and the trace is refused.
_LONGEST_CALL_S = 5.0
_STAMP_BLOCKS_PER_SM_COUNT = 4
_STAMP_TIMEOUT_S = 5.0
_STAMP_POLL_S = 0.001


class CudaTracer:
    """A `ClockTracer` by one thread that writes (globaltimer, clock64) into mapped memory."""

    def __init__(self, driver: CudaDriver, timer: Timer) -> None:
        """Nothing runs before the first trace; `timer` is the host's clock of the traces."""
        self._driver = driver
        self._timer = timer
        self._stream = driver.new_stream()
        self._flag, self._flag_address = driver.mapped_words(1)
        self._words: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._address = 0

    def trace(self, act: Callable[[], None], *, before_s: float, after_s: float) -> ClockTrace:
        """Spin, call `act`, spin on.

        Raises what `act` raises; MeasurementError where the micro-kernel does not start or
        its readings ran out of room.
        """
        records = self._room(before_s + after_s + _START_TIMEOUT_S + _LONGEST_CALL_S)
        self._start(len(records))
        try:
            first_s = self._first_s(records, before_s)
            asked_s = self._timer.now_s()
            act()
            returned_s = self._timer.now_s()
            self._timer.sleep(after_s)
        finally:
            self._flag[0] = 1
            self._driver.wait(self._stream)
        times_s, cycles = decoded(records, first_s)
        if times_s[-1] < returned_s + 0.9 * after_s:
            raise MeasurementError(
                "the micro-kernel that traces the clock ended too soon",
                hint=f"The call took {returned_s - asked_s:.1f} s; trace for less time.",
            )
        return ClockTrace(times_s=times_s, cycles=cycles, asked_s=asked_s, returned_s=returned_s)

    def _room(self, duration_s: float) -> NDArray[np.uint64]:
        """Zeroed room for the records of that long; (N, 2)."""
        word_count = 2 * int(duration_s / (_STEP_NS * _S_PER_NS))
        if self._words.size < word_count:
            self._words, self._address = self._driver.mapped_words(word_count)
        self._words[:] = 0
        return self._words.reshape(-1, 2)

    def _start(self, capacity: int) -> None:
        self._driver.enter()
        self._flag[0] = 0
        arguments = (
            (self._address, ctypes.c_uint64),
            (self._flag_address, ctypes.c_uint64),
            (capacity, ctypes.c_uint32),
            (_STEP_NS, ctypes.c_uint32),
        )
        self._driver.launch(self._driver.spin, 1, self._stream, arguments)

    def _first_s(self, records: NDArray[np.uint64], before_s: float) -> float:
        """Look at records as they appear until `before_s` is over: when the first was taken."""
        seen: list[tuple[float, int]] = []
        begun_s = now_s = self._timer.now_s()
        while len(seen) < _FEWEST_PAIRS_COUNT or now_s - begun_s < before_s:
            now_s = self._timer.now_s()
            if records[len(seen), 0]:
                seen.append((now_s, int(records[len(seen), 0])))
            elif now_s - begun_s > before_s + _START_TIMEOUT_S:
                raise MeasurementError(
                    "the micro-kernel that traces the clock did not start",
                    hint="Look whether another program keeps the GPU busy.",
                )
        return first_record_s(seen)


class SmClock:
    """The mean SM clock between two moments of a stream, from cycles and nanoseconds."""

    def __init__(self, driver: CudaDriver, timer: Timer) -> None:
        """Nothing runs before the first stamp."""
        self._driver = driver
        self._timer = timer
        self._block_count = _STAMP_BLOCKS_PER_SM_COUNT * driver.sm_count()
        words, self._address = driver.mapped_words(4)
        self._records = words.reshape(2, 2)

    def begin(self, stream: int) -> None:
        """Stamp the begin, in the order of the stream."""
        self._stamp(0, stream)

    def end_mhz(self, stream: int) -> float | None:
        """Stamp the end and wait for it; `None` where a stamp is missing."""
        self._stamp(1, stream)
        deadline_s = self._timer.now_s() + _STAMP_TIMEOUT_S
        while not self._records[1, 0] and self._timer.now_s() < deadline_s:
            self._timer.sleep(_STAMP_POLL_S)
        return mean_clock_mhz(self._records)

    def _stamp(self, number: int, stream: int) -> None:
        self._driver.enter()
        self._records[number] = 0
        address = self._address + number * self._records.strides[0]
        arguments = ((address, ctypes.c_uint64),)
        self._driver.launch(self._driver.stamp, self._block_count, stream, arguments)


def first_record_s(pairs: Sequence[tuple[float, int]]) -> float:
    """When the first record was taken, on the host's clock.

    Args:
        pairs: For each record from the first on, the host time (s) at which it was first seen
            and its own GPU time (ns).

    A record is seen some time after it was taken, never before: the one that was seen the
    soonest is the nearest to the truth. GPU times count from 1970, and have no digits left for
    microseconds in seconds; so only their differences are taken.
    """
    first_ns = pairs[0][1]
    return min(host_s - (gpu_ns - first_ns) * _S_PER_NS for host_s, gpu_ns in pairs)


def decoded(
    records: NDArray[np.uint64], first_s: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times (s, on the host's clock) and cycles of the records that were written, each (N,).

    Args:
        records: GPU time (ns) and cycles, shape (room, 2); zero where nothing was written.
        first_s: When the first was taken, on the host's clock.

    Raises:
        MeasurementError: there are none.
    """
    written = records[: _written_count(records)]
    if not len(written):
        raise MeasurementError(
            "the micro-kernel that traces the clock wrote nothing",
            hint="Look whether another program keeps the GPU busy.",
        )
    since = (written - written[0]).astype(np.float64)
    return first_s + since[:, 0] * _S_PER_NS, since[:, 1]


def mean_clock_mhz(records: NDArray[np.uint64]) -> float | None:
    """Cycles over time of two records, shape (2, 2); `None` where one is missing."""
    if not records[:, 0].all() or records[1, 0] <= records[0, 0]:
        return None
    time_ns, cycles = (int(records[1, column]) - int(records[0, column]) for column in (0, 1))
    return _MHZ_PER_CYCLE_PER_NS * cycles / time_ns


def _written_count(records: NDArray[np.uint64]) -> int:
    missing = np.flatnonzero(records[:, 0] == 0)
    return int(missing[0]) if missing.size else len(records)
