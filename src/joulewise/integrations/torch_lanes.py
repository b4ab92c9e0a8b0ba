"""Where PyTorch launches: a stream of a GPU, or the CPU, on which the same code is tried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from joulewise.domain.ports import Timer
from joulewise.integrations.cuda_tracer import SmClock

if TYPE_CHECKING:
    import torch

_S_PER_MS = 1e-3


class CudaLane:
    """One stream of one GPU; marks are CUDA events, with a stamp of the SM clock each."""

    def __init__(self, device: torch.device, clock: SmClock | None = None) -> None:
        """A stream of its own on this device; without `clock` no cycles are counted."""
        import torch  # noqa: PLC0415 - optional, and heavy

        self.device = device
        new_stream: Callable[[torch.device], torch.cuda.Stream] = torch.cuda.Stream
        self._stream = new_stream(device)
        self._numbers = count()
        self._events: dict[int, torch.cuda.Event] = {}
        self._clock = clock
        self._stamps: dict[int, int] = {}
        properties = torch.cuda.get_device_properties(device)
        self._cache_bytes = int(getattr(properties, "L2_cache_size", 0))

    @property
    def cache_bytes(self) -> int:
        """Size of the L2 cache; 0 where this PyTorch does not tell."""
        return self._cache_bytes

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Launch on this stream."""
        import torch  # noqa: PLC0415

        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            yield

    def repeated(self, launch: Callable[[], None], launch_count: int) -> Callable[[], None]:
        """So many launches as one CUDA graph, so that no gap of the host lies between them."""
        import torch  # noqa: PLC0415

        if launch_count == 1:
            return launch
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device), torch.cuda.graph(graph, stream=self._stream):
            _repeat(launch, launch_count)
        replay: Callable[[], None] = graph.replay
        return replay

    def mark(self) -> int:
        """Queue a stamp and an event."""
        import torch  # noqa: PLC0415

        number = next(self._numbers)
        if self._clock is not None:
            stamp = self._clock.stamp(int(self._stream.cuda_stream))
            if stamp is not None:
                self._stamps[number] = stamp
        # A thread that waits for a blocking event keeps no core busy.
        new_event: Callable[..., torch.cuda.Event] = torch.cuda.Event
        event = new_event(enable_timing=True, blocking=True)
        event.record(self._stream)
        self._events[number] = event
        return number

    def wait(self, mark: int) -> None:
        """Wait for an event."""
        self._events[mark].synchronize()

    def elapsed_s(self, first: int, last: int) -> float:
        """Time between two events, on the GPU's clock."""
        return float(self._events[first].elapsed_time(self._events[last])) * _S_PER_MS

    def mean_mhz(self, first: int, last: int) -> float | None:
        """Mean SM clock between two events; `None` where no cycles were counted."""
        begin, end = self._stamps.get(first), self._stamps.get(last)
        if self._clock is None or begin is None or end is None:
            return None
        return self._clock.mean_mhz(begin, end)

    def finish(self) -> None:
        """Wait for everything that was launched."""
        self._stream.synchronize()

    def forget(self, mark: int) -> None:
        """Drop an event."""
        self._events.pop(mark, None)
        stamp = self._stamps.pop(mark, None)
        if self._clock is not None and stamp is not None:
            self._clock.forget(stamp)


class CpuLane:
    """The calling thread; marks are moments."""

    def __init__(self, device: torch.device, timer: Timer) -> None:
        """Launches are over when they return."""
        self.device = device
        self._timer = timer
        self._numbers = count()
        self._moments_s: dict[int, float] = {}

    @property
    def cache_bytes(self) -> int:
        """None that counts: a CPU only tries the code out."""
        return 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Nothing has to be changed for that."""
        yield

    def repeated(self, launch: Callable[[], None], launch_count: int) -> Callable[[], None]:
        """So many launches in a row."""
        return partial(_repeat, launch, launch_count)

    def mark(self) -> int:
        """Take the moment at which all launches so far are over."""
        number = next(self._numbers)
        self._moments_s[number] = self._timer.now_s()
        return number

    def wait(self, mark: int) -> None:
        """All before a moment that was taken is over."""

    def elapsed_s(self, first: int, last: int) -> float:
        """Time between two moments."""
        return self._moments_s[last] - self._moments_s[first]

    def mean_mhz(self, first: int, last: int) -> float | None:  # noqa: ARG002
        """No cycles are counted."""
        return None

    def finish(self) -> None:
        """All launches are over."""

    def forget(self, mark: int) -> None:
        """Drop a moment."""
        self._moments_s.pop(mark, None)


def _repeat(launch: Callable[[], None], launch_count: int) -> None:
    for _ in range(launch_count):
        launch()
