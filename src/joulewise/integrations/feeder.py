"""Keeping a device busy with one batch of launches after another, from a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from joulewise.domain.errors import MeasurementError

# So many batches are queued at most: the device never waits for the host, nor the host long
# for the device when it is to stop.
DEPTH_COUNT = 3
_LONGEST_BATCH_S = 120.0


class Lane(Protocol):
    """Where launches are queued in order, and how it is known when they are over."""

    def entered(self) -> AbstractContextManager[None]:
        """Make what this thread launches go this way."""
        ...

    def mark(self) -> int:
        """Queue a mark behind what was launched so far; returns its number."""
        ...

    def wait(self, mark: int) -> None:
        """Wait until all before the mark is over."""
        ...

    def elapsed_s(self, first: int, last: int) -> float:
        """Time between two marks that are over."""
        ...

    def mean_mhz(self, first: int, last: int) -> float | None:
        """Mean SM clock between two marks that are over, where it is counted."""
        ...

    def forget(self, mark: int) -> None:
        """Drop a mark that nobody asks for any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """Batches that ended in a window, and what they took; the clock is the mean over them."""

    batch_count: int
    elapsed_s: float
    mean_sm_clock_mhz: float | None


class Feeder:
    """Runs a batch over and over inside its block; windows begin and end between batches."""

    def __init__(self, lane: Lane, batch: Callable[[], None]) -> None:
        """Nothing runs before the block is entered."""
        self._lane = lane
        self._batch = batch
        self._changed = threading.Condition()
        self._is_stopping = False
        self._is_in_window = False
        self._first: int | None = None
        self._last: int | None = None
        self._count = 0
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="joulewise feeder", daemon=True)

    def __enter__(self) -> Self:
        """Begin to feed."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, and wait for what is queued."""
        self._is_stopping = True
        self._thread.join()
        self._drop_marks()

    def check(self) -> None:
        """Raise MeasurementError where the device failed meanwhile."""
        if self._failure is not None:
            raise MeasurementError(
                f"the kernel stopped: {self._failure}",
                hint="Look whether another program uses up the GPU's memory.",
            ) from self._failure

    def begin(self) -> None:
        """Start a window where the batch that runs now ends."""
        with self._changed:
            self._drop_marks()
            self._is_in_window = True

    def end(self) -> Fed:
        """What ended in the window; waits for the first batch.

        Raises MeasurementError where the device failed, or none ends.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._count or self._failure is not None, timeout=_LONGEST_BATCH_S
            )
            self._is_in_window = False
            self.check()
            first, last, count = self._first, self._last, self._count
        if first is None or last is None or not count:
            raise MeasurementError(
                f"not one launch ended within {_LONGEST_BATCH_S:.0f} s",
                hint="Look whether another program keeps the GPU busy.",
            )
        fed = Fed(
            batch_count=count,
            elapsed_s=self._lane.elapsed_s(first, last),
            mean_sm_clock_mhz=self._lane.mean_mhz(first, last),
        )
        self._drop_marks()
        return fed

    def _drop_marks(self) -> None:
        """Of the last window, whether it was ended or not."""
        for mark in (self._first, self._last):
            if mark is not None:
                self._lane.forget(mark)
        self._first = self._last = None
        self._count = 0

    def _run(self) -> None:
        try:
            with self._lane.entered():
                self._feed()
        # Whatever the framework raises must reach the caller, who is in another thread.
        except Exception as error:  # noqa: BLE001
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _feed(self) -> None:
        queued: deque[int] = deque()
        while not self._is_stopping:
            self._batch()
            queued.append(self._lane.mark())
            if len(queued) >= DEPTH_COUNT:
                self._pass(queued.popleft())
        while queued:
            self._pass(queued.popleft())

    def _pass(self, mark: int) -> None:
        """Keep the first and the last mark of a window, and no other."""
        self._lane.wait(mark)
        unneeded: int | None = mark
        with self._changed:
            if self._is_in_window and self._first is None:
                self._first, unneeded = mark, None
            elif self._is_in_window:
                self._last, unneeded = mark, self._last
                self._count += 1
                self._changed.notify_all()
        if unneeded is not None:
            self._lane.forget(unneeded)
