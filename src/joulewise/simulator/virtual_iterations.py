"""Whole iterations on a virtual board, behind the same port as on hardware."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.measurement import IterationTiming
from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.device_string import VirtualOptions
from joulewise.simulator.noise import WindowKey, WindowNoise, window_noise
from joulewise.simulator.operations import OperationTable
from joulewise.simulator.playback import CellNoise, PlannedRun, Playback, Progress, no_noise
from joulewise.simulator.virtual_board import VirtualBoard
from joulewise.simulator.virtual_time import duration_units, seconds, units


class VirtualIterationLoop:
    """An `IterationLoop` on one virtual board.

    Within a window every launch has the noise that its cell would have in a window of that
    number, so that iterations are blurred as the cells are that plans are made from.
    """

    def __init__(  # noqa: PLR0913 - where, how, what runs and what it asks for
        self,
        board: VirtualBoard,
        operations: OperationTable,
        options: VirtualOptions,
        launches: Sequence[PlannedLaunch],
        requests: Sequence[PlannedRequest],
        ask: Callable[[OperatingPoint], None],
        *,
        run: str,
    ) -> None:
        """Have these launches and requests ready."""
        self._board = board
        self._operations = operations
        self._options = options
        self._launches = tuple(launches)
        self._run = run
        self._playback = Playback(launches, requests, ask, board.now_units)
        self._start: Progress | None = None
        self._is_open = False

    def start(self) -> None:
        """Begin with the first launch."""
        self._reckon(no_noise)
        self._is_open = True
        self._board.play(self._playback)

    def run_for(self, duration_s: float) -> None:
        """Keep the GPU loaded that long."""
        self._check()
        self._board.advance(duration_units(duration_s))

    def run_iterations(self, iteration_count: int) -> None:
        """Go on until so many more iterations have ended."""
        self._check()
        if iteration_count < 1:
            raise InputError(
                f"iterations must be at least 1, got {iteration_count}", field="iteration_count"
            )
        last = self._playback.iteration_count + iteration_count
        while self._playback.iteration_count < last:
            self._board.advance_to_event()

    def begin_window(self, window: int) -> None:
        """Start a window at the start of an iteration, with the noise of its number."""
        self._check()
        if self._start is not None:
            raise MeasurementError("a window is already open", hint="End it first.")
        if self._board.now_units > self._playback.boundary.at_units:
            self.run_iterations(1)
        self._reckon(self._noise_of(window))
        self._playback.forget_lateness()
        self._start = self._playback.boundary

    def end_window(self) -> IterationTiming:
        """Iterations that ended and their time; waits for the first one where none has."""
        self._check()
        if self._start is None:
            raise MeasurementError("no window is open", hint="Begin one first.")
        if self._playback.iteration_count == self._start.iteration_count:
            self.run_iterations(1)
        timing = _between(self._start, self._playback.boundary)
        self._start = None
        self._reckon(no_noise)
        return timing

    def close(self) -> None:
        """Stop; an open window is dropped."""
        self._board.play(None)
        self._is_open = False

    def _reckon(self, noise_of: CellNoise) -> None:
        """Blur launches like this from now on, and expect those to come accordingly."""
        self._playback.noise_of = noise_of
        self._playback.expect(
            [
                self._planned_run(launch, self._launches[index - 1].point, noise_of)
                for index, launch in enumerate(self._launches)
            ]
        )
        if self._is_open:
            self._board.refresh()

    def _planned_run(
        self, launch: PlannedLaunch, before: OperatingPoint, noise_of: CellNoise
    ) -> PlannedRun:
        cost = self._board.driver.transition.cost(before, launch.point)
        operation = self._operations.running(launch.kernel, launch.point)
        noise = noise_of(launch.kernel, launch.point)
        time_s = operation.time_s * noise.time_ratio
        return PlannedRun(
            units=max(1, units(time_s)),
            wait_units=units(cost.stall_s) if cost is not None else 0,
            time_s=time_s,
            power_w=operation.power_w * noise.power_ratio,
            settled_w=operation.power_w,
            is_power_capped=operation.is_power_capped,
            is_hot=operation.power_w > self._board.slowdown_power_w,
        )

    def _noise_of(self, window: int) -> CellNoise:
        known: dict[tuple[str, OperatingPoint], WindowNoise] = {}

        def noise_of(kernel: str, point: OperatingPoint) -> WindowNoise:
            noise = known.get((kernel, point))
            if noise is None:
                operation = self._operations.running(kernel, point)
                key = WindowKey(
                    seed=self._options.seed,
                    run=self._run,
                    kernel=kernel,
                    point_label=point.label,
                    window=window,
                    is_power_capped=operation.is_power_capped,
                    is_host_time=operation.is_host_time,
                )
                noise = known[kernel, point] = window_noise(self._options.noise_level, key)
            return noise

        return noise_of

    def _check(self) -> None:
        self._board.check()
        if not self._is_open:
            raise MeasurementError(
                "the iterations run no more", hint="Use the loop inside its block."
            )


def check_iteration(
    operations: OperationTable,
    launches: Sequence[PlannedLaunch],
    requests: Sequence[PlannedRequest],
) -> None:
    """Refuse what cannot be played: no launches, an unknown kernel, a request for no launch."""
    if not launches:
        raise InputError("the iteration has no launches", field="launches")
    for kernel in dict.fromkeys(launch.kernel for launch in launches):
        operations.check_kernel(kernel)
    for request in requests:
        if not 0 <= request.launch_index < len(launches):
            raise InputError(
                f"a request is for launch {request.launch_index}, and the iteration has "
                f"{len(launches)}, counted from 0",
                field="launch_index",
            )
    points = [*(launch.point for launch in launches), *(one.point for one in requests)]
    for point in dict.fromkeys(points):
        operations.check_point(point)


def _between(start: Progress, end: Progress) -> IterationTiming:
    return IterationTiming(
        iteration_count=end.iteration_count - start.iteration_count,
        elapsed_s=seconds(end.at_units - start.at_units),
        request_count=end.request_count - start.request_count,
        late_count=end.late_count - start.late_count,
        skipped_count=end.skipped_count - start.skipped_count,
        max_late_s=seconds(end.late_units),
        early_count=end.early_count - start.early_count,
        max_early_s=seconds(end.early_units),
    )
