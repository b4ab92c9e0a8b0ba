"""Kernels and iterations on the fake driver, behind the same ports as on hardware."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import LoopTiming
from joulewise.domain.ports import KernelLoop
from joulewise.domain.workload import KernelWork
from joulewise.simulator.fake_board import FakeBoard, FakeNoise, fake_noise
from joulewise.simulator.fake_driver import FakeDriver, FakeProgress
from joulewise.simulator.fake_iterations import FakeIterations
from joulewise.simulator.fake_tracer import FakeTracer

NOISE_VARIABLE = "FAKE_NVML_NOISE"
"""Environment variable that says how windows on the fake driver are blurred; unset: not."""


def open_fake_session_parts(
    driver: FakeDriver,
    device_index: int,
    works: Sequence[KernelWork],
    *,
    noise: FakeNoise | None = None,
) -> tuple[FakeRunner, FakeIterations, FakeTracer]:
    """What runs on a GPU of the fake driver; at most one of the three at a time.

    Args:
        driver: the loaded fake driver.
        device_index: NVML index of the GPU.
        works: one work per kernel; may be empty where nothing shall run.
        noise: blur of windows; `None`: as the environment variable FAKE_NVML_NOISE says.

    Raises:
        InputError: no such GPU, a kernel with two works, or a noise that is none.
        NotSupported: a kernel computes what the GPU cannot.
    """
    chosen = fake_noise(os.environ.get(NOISE_VARIABLE, "0")) if noise is None else noise
    board = FakeBoard(driver, device_index, works, chosen)
    return FakeRunner(board), FakeIterations(board), FakeTracer(board)


class FakeRunner:
    """A `KernelRunner` on one GPU of the fake driver."""

    def __init__(self, board: FakeBoard) -> None:
        """Run the kernels of this board."""
        self._board = board

    @property
    def kernels(self) -> tuple[str, ...]:
        """Kernels that can run."""
        return self._board.operations.kernels

    @contextmanager
    def loop(self, kernel: str, *, run: str) -> Iterator[KernelLoop]:
        """Run `kernel` back to back inside the block."""
        with self._board.running(repr(kernel), (kernel,)):
            loop = FakeLoop(self._board, kernel, run)
            try:
                yield loop
            finally:
                loop.close()


class FakeLoop:
    """A `KernelLoop` whose windows reach from the start of a launch to that of another."""

    def __init__(self, board: FakeBoard, kernel: str, run: str) -> None:
        """Belong to a measuring run."""
        self._board = board
        self._kernel = kernel
        self._run = run
        self._is_open = True
        self._start: tuple[FakeProgress, float] | None = None

    def begin_window(self, window: int) -> None:
        """Start a window at the start of a launch, with the noise of its key."""
        self._check()
        if self._start is not None:
            raise MeasurementError("a window is already open", hint="End it first.")
        board = self._board
        noise = board.running_noise(self._run, self._kernel, window)
        board.next_launch()
        board.blur(noise)
        self._start = board.progress(), board.driver.now_s()

    def run_for(self, duration_s: float) -> None:
        """Keep the GPU loaded that long."""
        self._check()
        self._board.driver.timer.sleep(duration_s)
        self._check()

    def end_window(self) -> LoopTiming:
        """Launches finished and their time; waits for the first one where none has."""
        self._check()
        if self._start is None:
            raise MeasurementError("no window is open", hint="Begin one first.")
        begun, begun_s = self._start
        ended = self._board.progress()
        if ended.launch_count == begun.launch_count:
            ended = self._board.pass_launches(1)
        passed_s = self._board.driver.now_s() - begun_s
        cycle_count = ended.sm_cycle_count - begun.sm_cycle_count
        self._start = None
        self._board.blur(None)
        return LoopTiming(
            launch_count=ended.launch_count - begun.launch_count,
            elapsed_s=ended.launch_start_s - begun.launch_start_s,
            mean_sm_clock_mhz=cycle_count / passed_s / 1e6,
        )

    def close(self) -> None:
        """End with the block; an open window is dropped."""
        self._is_open = False

    def _check(self) -> None:
        if not self._is_open:
            raise MeasurementError(
                f"{self._kernel!r} runs no more", hint="Use the loop inside its block."
            )
        self._board.check()
