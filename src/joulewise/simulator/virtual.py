"""Virtual GPUs behind the same ports as hardware. Only virtual time passes in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import MeasurementError, NotPermitted
from joulewise.domain.measurement import GpuSample, LoopTiming
from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import KNOBS, ClockGrid, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import Gpu, GpuIdentity, IterationLoop, KernelLoop
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import TransitionModel
from joulewise.domain.workload import KernelWork
from joulewise.simulator.boards import board_of
from joulewise.simulator.clock_driver import board_transition
from joulewise.simulator.device_string import VirtualOptions, is_virtual, parse_device
from joulewise.simulator.noise import QUIET, WindowKey, window_noise
from joulewise.simulator.operations import Operations, OperationTable
from joulewise.simulator.presets import preset
from joulewise.simulator.rails import VirtualModule
from joulewise.simulator.spec import GpuSpec
from joulewise.simulator.virtual_board import VirtualBoard
from joulewise.simulator.virtual_iterations import VirtualIterationLoop, check_iteration
from joulewise.simulator.virtual_time import UNITS_PER_S, duration_units, seconds

__all__ = ["VirtualGpu", "VirtualLoop", "VirtualRunner", "is_virtual", "open_virtual"]


def open_virtual(
    device: str, works: Sequence[KernelWork], transition: TransitionModel | None = None
) -> DeviceSession:
    """Open a virtual GPU on which these works can run.

    Args:
        device: such as `virtual:rtx3080ti,noise=0,seed=7`; see `device_string.OPTIONS`.
        works: one work per kernel; may be empty where nothing shall run.
        transition: what changes of point cost where the device string says nothing of them;
            `None`: the board's own lag and no stall.

    Raises:
        InputError: unknown device, option or value, or a kernel with two works.
    """
    options = parse_device(device)
    spec = preset(options.preset)
    operations = Operations(spec, works)
    around = board_of(options)
    board = VirtualBoard(operations, around, options, board_transition(options, transition))
    runner = VirtualRunner(operations, board, options)
    gpu: Gpu = VirtualGpu(operations, board, options, _identity(spec, options))
    if around.rail_period_s is not None:
        gpu = VirtualModule(gpu, lambda: board.operation, around.rail_period_s)
    return DeviceSession(
        gpu=gpu, runner=runner, iterations=runner, transition=board.driver.transition
    )


class VirtualGpu:
    """A `Gpu` made of physics, or of what a table of operations says."""

    def __init__(
        self,
        operations: OperationTable,
        board: VirtualBoard,
        options: VirtualOptions,
        identity: GpuIdentity,
    ) -> None:
        """Show this board under its device string."""
        self._operations = operations
        self._board = board
        self._options = options
        self._identity = identity

    @property
    def identity(self) -> GpuIdentity:
        """Which virtual GPU this is."""
        return self._identity

    @property
    def energy_counter_period_s(self) -> float:
        """How often the energy counter moves."""
        return seconds(self._board.counter.period_units)

    def clock_grid(self) -> ClockGrid:
        """Clocks that are listed, and power limits."""
        return self._operations.grid()

    def knob_state(self) -> KnobState:
        """The power limit asked for, or else that found. Raises DeviceLost."""
        self._board.check()
        limits = self._operations.grid().power_limits
        found_w = None if limits is None else limits.found_w
        return KnobState(power_limit_w=self._board.driver.wanted.power_limit_w or found_w)

    def sample(self) -> GpuSample:
        """Read every sensor. Raises DeviceLost."""
        self._board.check()
        return self._board.sample()

    def now_s(self) -> float:
        """Virtual time."""
        return seconds(self._board.now_units)

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        """The SM and the memory clock. Raises DeviceLost."""
        sample = self.sample()
        return sample.sm_clock_mhz, sample.mem_clock_mhz

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        """Go to the counter's next movement. Raises MeasurementError if it is too far."""
        self._board.check()
        timeout_units = duration_units(timeout_s)
        board = self._board
        wait_units = board.counter.next_tick_units(board.now_units) - board.now_units
        if wait_units > timeout_units:
            board.advance(timeout_units)
            raise MeasurementError(
                f"the energy counter did not move within {timeout_s:g} s",
                hint=f"It moves every {self.energy_counter_period_s:g} s: wait longer.",
            )
        board.advance(wait_units)
        return board.sample()

    def wait(self, duration_s: float) -> None:
        """Let virtual time pass. Raises DeviceLost."""
        self._board.check()
        self._board.advance(duration_units(duration_s))

    def request(self, point: OperatingPoint) -> None:
        """Ask for a point. Raises NotPermitted, NotSupported, DeviceLost."""
        self._check_control()
        self._operations.check_point(point)
        self._board.want(point)

    def reset(self, touched: Touched | None = None) -> None:
        """Give touched knobs back; nobody else touches any. Raises NotPermitted, DeviceLost."""
        wanted = self._board.driver.wanted
        if touched is None and wanted.is_auto:
            self._board.check()
            return
        self._check_control()
        knobs = KNOBS if touched is None else touched.knobs
        self._board.want(replace(wanted, **dict.fromkeys(knobs)))

    def _check_control(self) -> None:
        self._board.check()
        if self._options.is_control_denied:
            raise NotPermitted(
                f"{self._identity.name}: this account may not set clocks",
                hint="Open the virtual device without control=denied; "
                "on hardware, run as root or through the control service.",
            )


class VirtualRunner:
    """A `KernelRunner` and an `IterationRunner` on one virtual board."""

    def __init__(
        self, operations: OperationTable, board: VirtualBoard, options: VirtualOptions
    ) -> None:
        """Run the kernels of these operations."""
        self._operations = operations
        self._board = board
        self._options = options
        self._is_looping = False

    @property
    def kernels(self) -> tuple[str, ...]:
        """Kernels that can run."""
        return self._operations.kernels

    def loop(self, kernel: str, *, run: str) -> AbstractContextManager[KernelLoop]:
        """Run `kernel` back to back inside the block, from the next counter tick on."""
        return self._loop(kernel, run)

    def iterate(
        self,
        launches: Sequence[PlannedLaunch],
        requests: Sequence[PlannedRequest],
        ask: Callable[[OperatingPoint], None],
        *,
        run: str,
    ) -> AbstractContextManager[IterationLoop]:
        """Run these launches over and over inside the block, from the next counter tick on."""
        return self._iterate(launches, requests, ask, run)

    @contextmanager
    def _loop(self, kernel: str, run: str) -> Iterator[KernelLoop]:
        self._operations.check_kernel(kernel)
        with self._alone(repr(kernel)):
            loop = VirtualLoop(self._board, self._options, kernel, run)
            try:
                self._board.load(kernel)
                yield loop
            finally:
                loop.close()

    @contextmanager
    def _iterate(
        self,
        launches: Sequence[PlannedLaunch],
        requests: Sequence[PlannedRequest],
        ask: Callable[[OperatingPoint], None],
        run: str,
    ) -> Iterator[IterationLoop]:
        check_iteration(self._operations, launches, requests)
        with self._alone("the iteration"):
            loop = VirtualIterationLoop(
                self._board, self._operations, self._options, launches, requests, ask, run=run
            )
            try:
                loop.start()
                yield loop
            finally:
                loop.close()

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        board = self._board
        board.check()
        if self._is_looping:
            raise MeasurementError(
                f"another kernel is running; {what} has to wait",
                hint="Leave the block of the first loop before the next one.",
            )
        # Begun on a tick, every loop meets the counter in the same phase.
        board.advance(-board.now_units % board.counter.period_units)
        self._is_looping = True
        try:
            yield
        finally:
            self._is_looping = False


class VirtualLoop:
    """A `KernelLoop` on one virtual board."""

    def __init__(self, board: VirtualBoard, options: VirtualOptions, kernel: str, run: str) -> None:
        """Belong to a measuring run."""
        self._board = board
        self._options = options
        self._kernel = kernel
        self._run = run
        self._is_open = True
        self._is_in_window = False

    def begin_window(self, window: int) -> None:
        """Start a window, with the noise of its key, at the start of a launch."""
        self._check()
        if self._is_in_window:
            raise MeasurementError("a window is already open", hint="End it first.")
        board = self._board
        key = WindowKey(
            seed=self._options.seed,
            run=self._run,
            kernel=self._kernel,
            point_label=board.point.label,
            window=window,
            is_power_capped=board.operation.is_power_capped,
            is_host_time=board.operation.is_host_time,
        )
        board.blur(window_noise(self._options.noise_level, key))
        board.start_pacing()
        self._is_in_window = True

    def run_for(self, duration_s: float) -> None:
        """Keep the GPU loaded that long."""
        self._check()
        self._board.advance(duration_units(duration_s))

    def end_window(self) -> LoopTiming:
        """Launches finished and their time; waits for the first one where none has."""
        self._check()
        if not self._is_in_window:
            raise MeasurementError("no window is open", hint="Begin one first.")
        board = self._board
        missing_launches = 1.0 - _launches(board)
        if missing_launches > 0:
            board.wait_out_stall()
            missing_s = missing_launches * board.launch_time_s()
            board.advance(math.ceil(missing_s * UNITS_PER_S))
        timing = _timing(board)
        self._close_window()
        return timing

    def close(self) -> None:
        """Stop the kernel; an open window is dropped."""
        self._close_window()
        self._board.load(None)
        self._is_open = False

    def _close_window(self) -> None:
        self._board.blur(QUIET)
        self._board.stop_pacing()
        self._is_in_window = False

    def _check(self) -> None:
        self._board.check()
        if not self._is_open:
            raise MeasurementError(
                f"{self._kernel!r} runs no more", hint="Use the loop inside its block."
            )


def _identity(spec: GpuSpec, options: VirtualOptions) -> GpuIdentity:
    caveats = [Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=f"virtual {spec.name}")]
    if not spec.is_calibrated:
        caveats.append(
            Caveat(kind=CaveatKind.UNCALIBRATED, seen=f"parameters of {spec.name} are estimates")
        )
    if spec.rails:
        counted = " + ".join(one.rail for one in spec.rails if one.is_counted)
        caveats.append(
            Caveat(
                kind=CaveatKind.ENERGY_OF_MODULE,
                seen=f"energy is of {counted}; the carrier board is not measured",
            )
        )
    return GpuIdentity(
        spec=options.spec,
        name=spec.name,
        uuid=f"GPU-virtual-{options.preset}-{options.seed}",
        is_simulated=True,
        is_in_process=True,
        caveats=tuple(caveats),
    )


def _launches(board: VirtualBoard) -> float:
    return sum(seconds(pace.duration_units) / pace.time_s for pace in board.paces())


def _timing(board: VirtualBoard) -> LoopTiming:
    """Whole launches; at a constant pace their time is exactly so many times one launch."""
    paces = board.paces()
    launches = _launches(board)
    launch_count = max(1, math.floor(launches))
    if len(paces) == 1:
        return LoopTiming(launch_count=launch_count, elapsed_s=launch_count * paces[0].time_s)
    duration_s = seconds(sum(pace.duration_units for pace in paces))
    return LoopTiming(launch_count=launch_count, elapsed_s=duration_s * launch_count / launches)
