"""Where PyTorch launches: a stream of a GPU, or the CPU, on which the same code is tried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from joulewise.domain.ports import Timer

if TYPE_CHECKING:
    import torch

_S_PER_MS = 1e-3


class CudaLane:
    """One stream of one GPU; marks are CUDA events."""

    def __init__(self, device: torch.device) -> None:
        """A stream of its own on this device."""
        import torch  # noqa: PLC0415 - optional, and heavy

        self.device = device
        new_stream: Callable[[torch.device], torch.cuda.Stream] = torch.cuda.Stream
        self._stream = new_stream(device)
        self._numbers = count()
        self._events: dict[int, torch.cuda.Event] = {}

    @property
    def handle(self) -> int | None:
        """The stream as CUDA knows it."""
        return int(self._stream.cuda_stream)

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
        """Queue an event."""
        import torch  # noqa: PLC0415

        # A thread that waits for a blocking event keeps no core busy.
        new_event: Callable[..., torch.cuda.Event] = torch.cuda.Event
        event = new_event(enable_timing=True, blocking=True)
        event.record(self._stream)
        number = next(self._numbers)
        self._events[number] = event
        return number

    def wait(self, mark: int) -> None:
        """Wait for an event."""
        self._events[mark].synchronize()

    def elapsed_s(self, first: int, last: int) -> float:
        """Time between two events, on the GPU's clock."""
        return float(self._events[first].elapsed_time(self._events[last])) * _S_PER_MS

    def forget(self, mark: int) -> None:
        """Drop an event."""
        self._events.pop(mark, None)


class CpuLane:
    """The calling thread; marks are moments."""

    def __init__(self, device: torch.device, timer: Timer) -> None:
        """Launches are over when they return."""
        self.device = device
        self._timer = timer
        self._numbers = count()
        self._moments_s: dict[int, float] = {}

    @property
    def handle(self) -> int | None:
        """There is no stream."""
        return None

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

    def forget(self, mark: int) -> None:
        """Drop a moment."""
        self._moments_s.pop(mark, None)


def _repeat(launch: Callable[[], None], launch_count: int) -> None:
    for _ in range(launch_count):
        launch()
