"""Whole iterations on the fake driver, asking for points on the way.

In virtual time whoever lets time pass makes the requests that come due meanwhile; in real time
a thread does. Both look at the launches as a host can: by how far the program has come.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from joulewise.domain.errors import InputError, JoulewiseError, MeasurementError
from joulewise.domain.measurement import IterationTiming
from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import IterationLoop
from joulewise.simulator.fake_board import FakeBoard, in_a_thread
from joulewise.simulator.fake_driver import FakeProgress
from joulewise.simulator.fake_requests import RequestCounts, Requests
from joulewise.simulator.noise import QUIET, WindowNoise
from joulewise.simulator.virtual_iterations import check_iteration

# What is left up to the start of a launch is passed by launches rather than by time.
_NEAR_S = 1e-6
# A thread looks no more often than this.
_GLANCE_S = 1e-4
_LONGEST_GLANCE_S = 0.05


class FakeIterations:
    """An `IterationRunner` on one GPU of the fake driver."""

    def __init__(self, board: FakeBoard) -> None:
        """Run iterations of the kernels of this board."""
        self._board = board

    @contextmanager
    def iterate(
        self,
        launches: Sequence[PlannedLaunch],
        requests: Sequence[PlannedRequest],
        ask: Callable[[OperatingPoint], None],
        *,
        run: str,
    ) -> Iterator[IterationLoop]:
        """Run these launches over and over inside the block."""
        board = self._board
        check_iteration(board.operations, launches, requests)
        with board.running("the iteration", [launch.kernel for launch in launches]):
            loop = FakeIterationLoop(board, launches, requests, ask, run=run)
            with loop.opened():
                yield loop


class FakeIterationLoop:
    """An `IterationLoop` on one GPU of the fake driver.

    A window is blurred as a whole: its time and its mean power are those that its launches
    would have with the noise of their cells, and gaps none in their time.
    """

    def __init__(
        self,
        board: FakeBoard,
        launches: Sequence[PlannedLaunch],
        requests: Sequence[PlannedRequest],
        ask: Callable[[OperatingPoint], None],
        *,
        run: str,
    ) -> None:
        """Have these launches and requests ready; the first launch runs already."""
        self._board = board
        self._launches = tuple(launches)
        self._run = run
        self._requests = Requests(launches, requests, self._launch_time_s, board.change_times())
        self._ask = ask
        self._lock = threading.RLock()
        self._error: JoulewiseError | None = None
        self._is_asking = False
        self._is_open = False
        self._boundary = board.progress(), RequestCounts()
        """How far it was at the start of the running iteration, as last seen."""
        self._start: tuple[FakeProgress, RequestCounts] | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make requests inside the block."""
        with ExitStack() as stack:
            if self._board.driver.is_virtual_time:
                stack.enter_context(self._board.driver.timer.steered_by(self._pass_for))
            else:
                stack.enter_context(in_a_thread(self._keep_asking, "joulewise requests"))
            self._is_open = True
            self._look()
            try:
                yield
            finally:
                self._is_open = False

    def run_for(self, duration_s: float) -> None:
        """Keep the GPU loaded that long."""
        self._check()
        self._board.driver.timer.sleep(duration_s)
        self._check()

    def run_iterations(self, iteration_count: int) -> None:
        """Go on until so many more iterations have ended."""
        self._check()
        if iteration_count < 1:
            raise InputError(
                f"iterations must be at least 1, got {iteration_count}", field="iteration_count"
            )
        last = self._look().iteration_count + iteration_count
        if self._board.driver.is_virtual_time:
            self._pass_until(math.inf, last)
            self._check()
        else:
            while self._look().iteration_count < last:
                self._board.driver.timer.sleep(_GLANCE_S)
                self._check()

    def begin_window(self, window: int) -> None:
        """Start a window at the start of an iteration, with the noise of its number."""
        self._check()
        if self._start is not None:
            raise MeasurementError("a window is already open", hint="End it first.")
        progress = self._look()
        if progress.launch_done_ratio or progress.launch_start_s != progress.iteration_start_s:
            self.run_iterations(1)
        with self._lock:
            noise = self._window_noise(window)
            self._board.blur(noise)
            self._requests.reckon(noise.time_ratio)
            self._requests.forget_lateness()
            progress, counts = self._boundary
            counts = replace(counts, max_late_s=0.0, max_early_s=0.0)
            self._start = self._boundary = progress, counts

    def end_window(self) -> IterationTiming:
        """Iterations that ended and their time; waits for the first one where none has."""
        self._check()
        if self._start is None:
            raise MeasurementError("no window is open", hint="Begin one first.")
        begun, before = self._start
        if self._look().iteration_count == begun.iteration_count:
            self.run_iterations(1)
        with self._lock:
            ended, after = self._boundary
            self._start = None
            self._board.blur(None)
            self._requests.reckon(1.0)
        return IterationTiming(
            iteration_count=ended.iteration_count - begun.iteration_count,
            elapsed_s=ended.iteration_start_s - begun.iteration_start_s,
            request_count=after.request_count - before.request_count,
            late_count=after.late_count - before.late_count,
            skipped_count=after.skipped_count - before.skipped_count,
            max_late_s=after.max_late_s,
            early_count=after.early_count - before.early_count,
            max_early_s=after.max_early_s,
        )

    def _look(self) -> FakeProgress:
        """See how far it has come, and make the requests that are due. Raises DeviceLost.

        One iteration's at most: where a call takes longer than until the next request, one is
        always due, and nobody would get to see that iterations end.
        """
        with self._lock:
            for _ in range(max(1, len(self._requests))):
                progress = self._see()
                request = self._requests.due(progress, self._board.driver.now_s())
                if request is None or self._is_asking:
                    return progress
                asked_s = self._board.driver.now_s()
                self._is_asking = True
                try:
                    self._ask(request.point)
                finally:
                    self._is_asking = False
                self._requests.asked(asked_s, self._board.driver.now_s())
            return self._see()

    def _see(self) -> FakeProgress:
        progress = self._board.progress()
        if progress.iteration_count > self._boundary[0].iteration_count:
            self._boundary = progress, self._requests.counts
        self._requests.note(progress, self._board.driver.now_s())
        return progress

    def _pass_for(self, duration_s: float) -> None:
        """Let virtual time pass, requests included."""
        if self._is_asking:
            self._board.driver.advance(duration_s)
        else:
            self._pass_until(self._board.driver.now_s() + duration_s, None)

    def _pass_until(self, end_s: float, last_iteration: int | None) -> None:
        """Let virtual time pass until then, or until so many iterations have ended."""
        driver = self._board.driver
        while True:
            progress, now_s = self._look(), driver.now_s()
            if now_s >= end_s:
                return
            if last_iteration is not None and progress.iteration_count >= last_iteration:
                return
            launch = self._requests.next_launch(progress, now_s)
            stop_s = min(end_s, self._requests.next_moment_s(progress, now_s))
            self._pass_towards(stop_s, launch, progress, now_s)

    def _pass_towards(
        self, stop_s: float, launch: int, progress: FakeProgress, now_s: float
    ) -> None:
        """Let virtual time pass until then, or until a launch begins where that is sooner.

        When it begins is only expected: what slows the GPU down unasked makes it later.
        """
        begins_s = self._requests.begins_s(launch, progress, now_s)
        if begins_s > stop_s:
            self._board.driver.advance(stop_s - now_s)
        elif begins_s - now_s <= _NEAR_S:
            self._board.pass_launches(launch - progress.launch_count)
        else:
            # Short of it, so as not to miss the very start.
            self._board.driver.advance(begins_s - _NEAR_S / 2 - now_s)

    def _keep_asking(self, is_over: threading.Event) -> None:
        """Make requests in real time, whatever the main thread does."""
        try:
            while not is_over.wait(self._glance_s()):
                self._look()
        except JoulewiseError as error:
            self._error = error

    def _glance_s(self) -> float:
        """How long until there is something to do."""
        with self._lock:
            progress, now_s = self._see(), self._board.driver.now_s()
            moment_s = self._requests.next_moment_s(progress, now_s)
            launch = self._requests.next_launch(progress, now_s)
            moment_s = min(moment_s, self._requests.begins_s(launch, progress, now_s))
        return min(_LONGEST_GLANCE_S, max(_GLANCE_S, moment_s - now_s))

    def _launch_time_s(self, kernel: str, point: OperatingPoint) -> float:
        return self._board.operations.running(kernel, point).time_s

    def _window_noise(self, window: int) -> WindowNoise:
        """Of the whole iteration, from that of its cells."""
        if not self._board.is_noisy:
            return QUIET
        plain_s = plain_j = blurred_s = blurred_j = 0.0
        for launch in self._launches:
            operation = self._board.operations.running(launch.kernel, launch.point)
            noise = self._board.cell_noise(self._run, launch.kernel, launch.point, window)
            time_s = operation.time_s * noise.time_ratio
            plain_s += operation.time_s
            plain_j += operation.time_s * operation.power_w
            blurred_s += time_s
            blurred_j += time_s * operation.power_w * noise.power_ratio
        return WindowNoise(
            time_ratio=blurred_s / plain_s,
            power_ratio=(blurred_j / blurred_s) / (plain_j / plain_s),
        )

    def _check(self) -> None:
        if not self._is_open:
            raise MeasurementError(
                "the iterations run no more", hint="Use the loop inside its block."
            )
        self._board.check()
        error, self._error = self._error, None
        if error is not None:
            raise error
