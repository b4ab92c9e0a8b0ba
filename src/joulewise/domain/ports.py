"""The seams: what the stages ask of hardware, virtual hardware and files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from joulewise.domain.board_state import BoardState
from joulewise.domain.caveats import Caveat
from joulewise.domain.measurement import GpuSample, IterationTiming, LoopTiming
from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import ClockGrid, KnobState, OperatingPoint, Touched
from joulewise.domain.workload import Workload

if TYPE_CHECKING:
    # Processes that only set clocks start without it, which halves their start and their size.
    import numpy as np
    from numpy.typing import NDArray

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all); the CLI draws a bar from it."""


def no_progress(_what: str, _done_count: int, _total_count: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuIdentity:
    """Which GPU this is.

    `spec` is the device string that opens it again. `is_in_process` says that it lives in this
    process alone, so that no other can reach it.
    """

    spec: str
    name: str
    uuid: str
    is_simulated: bool
    is_in_process: bool = False
    caveats: tuple[Caveat, ...] = ()


class Timer(Protocol):
    """Time as a device lives it: of the machine for hardware, virtual for a virtual driver."""

    def now_s(self) -> float:
        """Monotonic time."""
        ...

    def sleep(self, duration_s: float) -> None:
        """Let time pass."""
        ...


class WatchedGpu(Protocol):
    """What may be seen of one GPU, which needs no rights: SI units, frozen records.

    There is no way to ask which clocks are locked, for NVML has none: a request can be made
    and reset, and whether it holds is seen only in samples under load.
    """

    @property
    def identity(self) -> GpuIdentity: ...

    @property
    def energy_counter_period_s(self) -> float | None:
        """How often the energy counter moves; `None` where there is none that moves."""
        ...

    def clock_grid(self) -> ClockGrid:
        """Clocks that the device lists, and power limits that it takes."""
        ...

    def knob_state(self) -> KnobState:
        """What can be read back of the knobs as they are now. Raises DeviceLost."""
        ...

    def sample(self) -> GpuSample:
        """Read everything once. Raises DeviceLost."""
        ...

    def now_s(self) -> float:
        """Time on the device's clock, by which samples are stamped."""
        ...

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        """The SM and the memory clock as a sample has them, and nothing else. Raises DeviceLost."""
        ...

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        """Wait until the energy counter moves and read right then.

        Raises MeasurementError if it does not move within `timeout_s`, NotSupported where there
        is no counter, DeviceLost.
        """
        ...

    def wait(self, duration_s: float) -> None:
        """Let time pass on the device's clock."""
        ...


@runtime_checkable
class FoundKeeper(Protocol):
    """A handle that can keep in mind how the GPU was found, while another process sets it for us.

    Whoever holds a lease through a daemon requests nothing by its own handle, so that this would
    take the limits that the daemon sets for those that were found.
    """

    def keep_found(self) -> None:
        """As it is now, it was found. Raises DeviceLost."""
        ...

    def forget_found(self) -> None:
        """It is set for us no more."""
        ...


@runtime_checkable
class ReadBackGpu(Protocol):
    """A device whose clock settings can all be read back, so that they are put back as found.

    Its `knob_state` has `settings`. *Auto* is what was found there, whoever set it: a baseline
    is one of the stock state only where `board_state` says so. Given `Touched` without what was
    found, `reset` puts those knobs into the stock state.
    """

    def board_state(self) -> BoardState:
        """How the board is set right now. Raises DeviceLost."""
        ...


@runtime_checkable
class AskedKeeper(Protocol):
    """A handle that keeps in mind what it set, to give that back without being told what it is.

    What one lease left to somebody else, or could not give back, is not the next one's: by then
    the journal alone says what is to be given back, or somebody has done so.
    """

    def forget_asked(self) -> None:
        """Take nothing that is set for one's own any more; nothing is given back."""
        ...


class Gpu(WatchedGpu, Protocol):
    """One GPU that may be set, too: no hidden change of state.

    Only `control` calls what is here, under a lease.
    """

    def request(self, point: OperatingPoint) -> None:
        """Ask for an operating point; a knob at `None` goes back to the driver.

        A knob that is refused with NotPermitted stays as it was. Success means 'request
        installed', not 'in force'. The power limit found is what it reads before this handle
        first sets it; none is set above that. Raises NotPermitted, NotSupported (a clock not in
        the grid, a power limit above the one found), DeviceLost.
        """
        ...

    def reset(self, touched: Touched | None = None) -> None:
        """Give touched knobs back: clocks to the driver, the power limit to what was found.

        No other knob is reset, for somebody else may have set it. A power limit is put back
        only while it reads as one of those asked for; else it is somebody else's by now.

        `touched` is what a journal says of a holder that is gone; `None` stands for what this
        handle touched itself, and does nothing where that is nothing. Raises NotPermitted,
        DeviceLost.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClockTrace:
    """SM cycles that a spinning micro-kernel counted, and when something was asked meanwhile.

    `times_s` and `cycles` have the shape (N,) and ascend; a gap in time without cycles is a
    time in which the GPU stood still. `asked_s` and `returned_s`, on the same clock, are the
    begin and the end of the call.
    """

    times_s: NDArray[np.float64]
    cycles: NDArray[np.float64]
    asked_s: float
    returned_s: float


class ClockTracer(Protocol):
    """Sees the clock in force from inside the GPU, finer than any reading of the driver."""

    def trace(
        self, act: Callable[[], None], *, before_s: float, after_s: float, warm_up_s: float = 0.0
    ) -> ClockTrace:
        """Spin for `before_s`, call `act`, spin for `after_s` more.

        Before all that it spins for `warm_up_s`, of which the trace tells nothing: a GPU that
        idled takes a while to leave its lowest clocks. Raises what `act` raises;
        MeasurementError where the micro-kernel cannot run.
        """
        ...


class KernelLoop(Protocol):
    """A kernel that runs back to back until the block ends."""

    def begin_window(self, window: int) -> None:
        """Start a window; its number labels raw records and seeds virtual noise."""
        ...

    def run_for(self, duration_s: float) -> None:
        """Keep the GPU loaded that long."""
        ...

    def end_window(self) -> LoopTiming:
        """Launches finished since `begin_window` and the time they took."""
        ...


class KernelRunner(Protocol):
    """Runs single kernels of a workload on one GPU."""

    @property
    def kernels(self) -> tuple[str, ...]: ...

    def loop(self, kernel: str, *, run: str) -> AbstractContextManager[KernelLoop]:
        """Run `kernel` back to back inside the block, as part of the measuring run `run`.

        Cells of one measuring run may be compared; a new label means a new run.
        """
        ...


class IterationLoop(Protocol):
    """Iterations that run back to back, with their requests, until the block ends."""

    def run_for(self, duration_s: float) -> None:
        """Keep the GPU loaded that long. Raises what asking for a point raised meanwhile."""
        ...

    def run_iterations(self, iteration_count: int) -> None:
        """Go on until so many more iterations have ended. Raises as `run_for` does."""
        ...

    def begin_window(self, window: int) -> None:
        """Start a window at the start of an iteration: now, or of the next one.

        Its number labels raw records and seeds virtual noise.
        """
        ...

    def end_window(self) -> IterationTiming:
        """Iterations that ended since `begin_window`; waits for the first one."""
        ...


class IterationRunner(Protocol):
    """Runs whole iterations of a workload on one GPU, changing points on the way.

    Apart from `KernelRunner`, for not every device that runs kernels alone can do this.
    """

    def iterate(
        self,
        launches: Sequence[PlannedLaunch],
        requests: Sequence[PlannedRequest],
        ask: Callable[[OperatingPoint], None],
        *,
        run: str,
    ) -> AbstractContextManager[IterationLoop]:
        """Run these launches in order, over and over, inside the block.

        `ask` is called with each request's point, in order of launches, `lead_s` before its
        launch is expected to begin, as long as the launches run at their planned points;
        usually it is `Lease.apply`. Requests are serial: one that comes due while the last is
        not in force waits for it, and falls away where the next comes due meanwhile. The
        point of the first launch should be in force at the start.

        Raises InputError for no launches, an unknown kernel, or a request outside the
        launches; MeasurementError where something else runs.
        """
        ...


class HardwareRunners(Protocol):
    """Runs the kernels of a workload on real GPUs, where an optional dependency can."""

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """What is doubtful of kernels that run this way; everything measured of them carries it."""
        ...

    def open(
        self, identity: GpuIdentity, index: int, workload: Workload, timer: Timer
    ) -> tuple[KernelRunner, IterationRunner | None, ClockTracer | None]:
        """What runs kernels and iterations on this GPU, and what sees its clock from inside.

        `index` is the GPU's number for the driver, and `timer` the time that it lives in.
        Raises NotSupported, with a hint, where the dependency is missing or does not see this
        GPU; InputError for a workload that does not say what its kernels do.
        """
        ...


class Lease(Protocol):
    """The right to set clocks on one GPU; ends with its holder, and the clocks go back."""

    def apply(self, point: OperatingPoint) -> None:
        """Ask for a point, journalled first. Raises NotPermitted, NotSupported, DeviceLost."""
        ...

    def release(self) -> None:
        """Reset, verify and drop the journal; harmless when repeated."""
        ...
