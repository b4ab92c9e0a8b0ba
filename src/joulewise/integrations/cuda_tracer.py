"""The SM clock of a real GPU, counted by a spinning micro-kernel.

Not yet run on hardware: no GPU was at hand when this was written. The kernels' PTX is known to
assemble, and what happens to the readings is tested on made ones.
"""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.errors import MeasurementError
from joulewise.domain.ports import ClockTrace, Timer

_S_PER_NS = 1e-9
_MHZ_PER_CYCLE_PER_NS = 1e3
_STEP_NS = 20_000
# Times are mapped by so many of the last readings, for the two clocks drift apart.
_MAPPED_COUNT = 10_000
_FEWEST_PAIRS_COUNT = 50
_START_TIMEOUT_S = 2.0
# A call that blocks for longer than this fills the room, and the trace is refused.
_LONGEST_CALL_S = 5.0
# SMs are numbered below this; those beyond are not looked at.
_MOST_SMS_COUNT = 512
_STAMPS_COUNT = 16


class MicroKernels(Protocol):
    """Launches the two kernels of `cuda_ptx`; see `CudaDriver`."""

    spin: object
    stamp: object

    def enter(self) -> None:
        """Make what this thread launches go to the GPU."""
        ...

    def new_stream(self) -> int:
        """A stream of its own."""
        ...

    def sm_count(self) -> int:
        """Streaming multiprocessors of the GPU."""
        ...

    def mapped_words(self, word_count: int) -> tuple[NDArray[np.uint64], int]:
        """Zeros that host and GPU both see, and their address on the GPU."""
        ...

    def free_words(self, words: NDArray[np.uint64]) -> None:
        """Give them back."""
        ...

    def launch(
        self, kernel: object, block_count: int, stream: int, arguments: Sequence[tuple[int, type]]
    ) -> None:
        """Queue so many blocks of one thread."""
        ...

    def wait(self, stream: int) -> None:
        """Wait for what is queued on a stream so far."""
        ...


class CudaTracer:
    """A `ClockTracer` by one thread that writes (globaltimer, clock64) into mapped memory."""

    def __init__(self, driver: MicroKernels, timer: Timer) -> None:
        """Nothing runs before the first trace; `timer` is the host's clock of the traces."""
        self._driver = driver
        self._timer = timer
        self._stream = driver.new_stream()
        self._flag, self._flag_address = driver.mapped_words(1)
        self._words: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._address = 0

    def trace(
        self, act: Callable[[], None], *, before_s: float, after_s: float, warm_up_s: float = 0.0
    ) -> ClockTrace:
        """Spin, call `act`, spin on.

        Raises what `act` raises; MeasurementError where the micro-kernel does not start or
        its readings ran out of room.
        """
        spin_s = warm_up_s + before_s
        records = self._room(spin_s + after_s + _START_TIMEOUT_S + _LONGEST_CALL_S)
        self._start(len(records))
        try:
            first_s = self._first_s(records, spin_s)
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
        is_warm = times_s >= asked_s - before_s
        return ClockTrace(
            times_s=times_s[is_warm],
            cycles=cycles[is_warm],
            asked_s=asked_s,
            returned_s=returned_s,
        )

    def _room(self, duration_s: float) -> NDArray[np.uint64]:
        """Zeroed room for the records of that long; (N, 2). Nothing writes there by now."""
        word_count = 2 * math.ceil(duration_s / (_STEP_NS * _S_PER_NS))
        if self._words.size < word_count:
            self._driver.enter()
            former, self._words = self._words, np.empty(0, dtype=np.uint64)
            if former.size:
                self._driver.free_words(former)
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

    def _first_s(self, records: NDArray[np.uint64], spin_s: float) -> float:
        """Look at records as they appear until `spin_s` is over: when the first was taken.

        The time comes after the look: taken before it, it could lie before the record's own
        where this thread was held up in between.
        """
        seen: deque[tuple[float, int]] = deque(maxlen=_MAPPED_COUNT)
        looked_count = latest_ns = 0
        begun_s = now_s = self._timer.now_s()
        while len(seen) < _FEWEST_PAIRS_COUNT or now_s - begun_s < spin_s:
            gpu_ns = int(records[looked_count, 0]) if looked_count < len(records) else 0
            now_s = self._timer.now_s()
            if gpu_ns:
                looked_count += 1
                begun_s = begun_s if seen else now_s
            elif now_s - begun_s > spin_s + _START_TIMEOUT_S:
                raise MeasurementError(
                    "the micro-kernel that traces the clock did not start",
                    hint="Look whether another program keeps the GPU busy.",
                )
            # Of records within one step of the GPU's timer only the first tells when it moved.
            if gpu_ns > latest_ns:
                latest_ns = gpu_ns
                seen.append((now_s, gpu_ns))
        return first_record_s(seen) - (seen[0][1] - int(records[0, 0])) * _S_PER_NS


class SmClock:
    """The mean SM clock between two moments of a stream, from cycles and nanoseconds."""

    def __init__(self, driver: MicroKernels) -> None:
        """Nothing runs before the first stamp."""
        self._driver = driver
        self._block_count = driver.sm_count()
        words, self._address = driver.mapped_words(_STAMPS_COUNT * _MOST_SMS_COUNT * 2)
        self._stamps = words.reshape(_STAMPS_COUNT, _MOST_SMS_COUNT, 2)
        self._unused = list(range(_STAMPS_COUNT))

    def stamp(self, stream: int) -> int | None:
        """Queue a stamp, and return its number; `None` where too many are in use.

        It is there once what was queued after it is over.
        """
        if not self._unused:
            return None
        number = self._unused.pop()
        self._stamps[number] = 0
        self._driver.enter()
        arguments = (
            (self._address + number * self._stamps.strides[0], ctypes.c_uint64),
            (_MOST_SMS_COUNT, ctypes.c_uint32),
        )
        self._driver.launch(self._driver.stamp, self._block_count, stream, arguments)
        return number

    def mean_mhz(self, first: int, last: int) -> float | None:
        """Mean clock between two stamps that are there; `None` where no SM wrote both."""
        return mean_clock_mhz(self._stamps[first], self._stamps[last])

    def forget(self, number: int) -> None:
        """Drop a stamp that is there, and nobody asks for any more."""
        self._unused.append(number)


def first_record_s(pairs: Iterable[tuple[float, int]]) -> float:
    """When the first of these records was taken, on the host's clock.

    Args:
        pairs: For each record, the host time (s) at which it was seen and its own GPU time (ns).

    A record is seen some time after it was taken, never before: the one that was seen the
    soonest is the nearest to the truth. GPU times count from 1970, and have no digits left for
    microseconds in seconds; so only their differences are taken.
    """
    host_s, gpu_ns = zip(*pairs, strict=True)
    since_s = [(each_ns - gpu_ns[0]) * _S_PER_NS for each_ns in gpu_ns]
    return float(min(seen_s - own_s for seen_s, own_s in zip(host_s, since_s, strict=True)))


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


def mean_clock_mhz(begin: NDArray[np.uint64], end: NDArray[np.uint64]) -> float | None:
    """Cycles over time, the median of the SMs that wrote both; `None` where none did.

    Args:
        begin: GPU time (ns) and cycles of each SM, shape (SMs, 2); zero where it wrote nothing.
        end: The same, later.
    """
    is_there = (begin[:, 0] > 0) & (end[:, 0] > begin[:, 0])
    if not is_there.any():
        return None
    since = (end[is_there] - begin[is_there]).astype(np.float64)
    return float(np.median(_MHZ_PER_CYCLE_PER_NS * since[:, 1] / since[:, 0]))


def _written_count(records: NDArray[np.uint64]) -> int:
    missing = np.flatnonzero(records[:, 0] == 0)
    return int(missing[0]) if missing.size else len(records)
