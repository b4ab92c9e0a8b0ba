"""Kernels of a workload on a real GPU, by stand-ins that PyTorch runs.

A kernel that waits, for a link or as a gap for the host, is launched no oftener than its wait
allows, and the GPU idles in between: its time is the longer of work and wait, where the virtual
GPUs join both smoothly. Waits shorter than a batch are held together: so many launches at once,
then as many waits in a row. What a link itself draws, and what kernels that poll it draw, is not
in it.

Not yet run on a GPU: none was at hand when this was written. On the CPU the same code runs in
the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError, MeasurementError, NotSupported
from joulewise.domain.measurement import LoopTiming
from joulewise.domain.ports import (
    ClockTracer,
    GpuIdentity,
    IterationRunner,
    KernelLoop,
    KernelRunner,
    Timer,
)
from joulewise.domain.workload import KernelWork, Workload
from joulewise.integrations.cuda_driver import CudaDriver
from joulewise.integrations.cuda_tracer import CudaTracer, SmClock
from joulewise.integrations.feeder import Feeder
from joulewise.integrations.stand_ins import NoStandIn, StandIn, stand_in
from joulewise.integrations.torch_lanes import CpuLane, CudaLane
from joulewise.integrations.torch_launches import arithmetic_of, copies_of, launch_of, paced

if TYPE_CHECKING:
    import torch

TorchLane = CudaLane | CpuLane

_HINT = 'Install it with pip install "joulewise[torch]".'
# Launches are queued in batches of about this length, so that the host is not what limits.
_BATCH_S = 0.01
_MOST_LAUNCHES_COUNT = 2000
_TRIAL_COUNT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Launches that are queued as one."""

    run: Callable[[], None]
    launch_count: int


class TorchRunners:
    """`HardwareRunners` by PyTorch; cuda-bindings, where installed, add what counts cycles."""

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """What is doubtful of kernels that run this way."""
        return (
            Caveat(
                kind=CaveatKind.KERNELS_STOOD_IN,
                seen="matrix products and vector passes of PyTorch ran in place of the kernels",
            ),
        )

    def open(
        self,
        identity: GpuIdentity,
        index: int,  # noqa: ARG002 - CUDA numbers GPUs in its own order
        workload: Workload,
        timer: Timer,
    ) -> tuple[KernelRunner, IterationRunner | None, ClockTracer | None]:
        """Runner and tracer on the GPU of this UUID; nothing runs whole iterations yet.

        Raises NotSupported where PyTorch is missing or does not see the GPU, InputError for a
        workload that does not say what its kernels do.
        """
        device = cuda_device(identity.uuid)
        driver = _driver_or_none(identity.uuid)
        lane = CudaLane(device, None if driver is None else SmClock(driver))
        runner = TorchRunner(works_of(workload), lane, timer)
        return runner, None, None if driver is None else CudaTracer(driver, timer)


class TorchRunner:
    """A `KernelRunner`: stand-ins for single kernels, one at a time."""

    def __init__(self, works: Sequence[KernelWork], lane: TorchLane, timer: Timer) -> None:
        """Shapes are chosen at once; tensors are made when a kernel runs, and kept for the next.

        Raises InputError and NotSupported where there is no stand-in for a kernel.
        """
        self._stand_ins = {work.kernel: stand_in(work) for work in works}
        self._waits_s = {work.kernel: work.wait_s for work in works}
        self._lane = lane
        self._timer = timer
        self._is_running = False
        self._ready: tuple[str, _Batch] | None = None

    @property
    def kernels(self) -> tuple[str, ...]:
        """Kernels that can run."""
        return tuple(self._stand_ins)

    def loop(self, kernel: str, *, run: str) -> AbstractContextManager[KernelLoop]:  # noqa: ARG002
        """Run a stand-in for `kernel` back to back inside the block."""
        return self._loop(kernel)

    def launch_times_s(self, kernel: str, *, launch_count: int) -> tuple[float, ...]:
        """How long single launches take, from asking for one until the host knows its end.

        Raises InputError for an unknown kernel, MeasurementError where another one runs, or
        where the stand-in cannot run.
        """
        times_s = []
        with self._alone(kernel) as one, arithmetic_of(one), _failures_of(kernel, one):
            bare = launch_of(one, self._lane.device)
            launch = paced(bare, self._waits_s[kernel], self._timer)
            with self._lane.entered():
                launch()
                self._lane.finish()
                for _ in range(launch_count):
                    begun_s = self._timer.now_s()
                    launch()
                    self._lane.finish()
                    times_s.append(self._timer.now_s() - begun_s)
        return tuple(times_s)

    @contextmanager
    def _loop(self, kernel: str) -> Iterator[KernelLoop]:
        with self._alone(kernel) as one, arithmetic_of(one):
            batch = self._batch(kernel, one)
            with Feeder(self._lane, batch.run) as feeder:
                loop = TorchLoop(feeder, batch.launch_count, self._timer)
                try:
                    yield loop
                finally:
                    loop.close()

    def _batch(self, kernel: str, one: StandIn) -> _Batch:
        """The last kernel's is kept, so that it can be switched on and off quickly."""
        if self._ready is None or self._ready[0] != kernel:
            self._ready = None
            self._ready = kernel, self._prepared(kernel, one)
        return self._ready[1]

    def _prepared(self, kernel: str, one: StandIn) -> _Batch:
        """A batch of launches, warm; each set of tensors comes equally often."""
        lane, wait_s = self._lane, self._waits_s[kernel]
        with _failures_of(kernel, one):
            copy_count = copies_of(one, lane.cache_bytes)
            if wait_s > 0:
                # A batch of long waits must not last for ever; beside them the cache is nothing.
                copy_count = min(copy_count, math.ceil(_BATCH_S / wait_s))
            with lane.entered():
                launch = launch_of(one, lane.device, copy_count)
                launch()
                time_s = max(_trial_s(lane, launch), wait_s, _BATCH_S / _MOST_LAUNCHES_COUNT)
            launch_count = copy_count * math.ceil(_BATCH_S / time_s / copy_count)
            # Where nothing stands in, one touch keeps the GPU awake; more would be work.
            repeat_count = 1 if isinstance(one, NoStandIn) else launch_count
            run = paced(lane.repeated(launch, repeat_count), launch_count * wait_s, self._timer)
            return _Batch(run=run, launch_count=launch_count)

    @contextmanager
    def _alone(self, kernel: str) -> Iterator[StandIn]:
        if kernel not in self._stand_ins:
            raise InputError(
                f"there is no kernel {kernel!r} in the workload",
                field="kernel",
                hint=f"Its kernels begin with {', '.join(self.kernels[:3])}.",
            )
        if self._is_running:
            raise MeasurementError(
                f"another kernel is running; {kernel!r} has to wait",
                hint="Leave the block of the first loop before the next one.",
            )
        self._is_running = True
        try:
            yield self._stand_ins[kernel]
        finally:
            self._is_running = False


class TorchLoop:
    """A `KernelLoop`: a thread feeds the GPU, so that reading meters leaves no gap."""

    def __init__(
        self,
        feeder: Feeder,
        launches_per_batch_count: int,
        timer: Timer,
    ) -> None:
        """Belong to a feeder that runs."""
        self._feeder = feeder
        self._launches_per_batch_count = launches_per_batch_count
        self._timer = timer
        self._is_open = True
        self._is_in_window = False

    def begin_window(self, window: int) -> None:  # noqa: ARG002 - no noise has to be drawn
        """Start a window where the batch that runs now ends."""
        self._check()
        if self._is_in_window:
            raise MeasurementError("a window is already open", hint="End it first.")
        self._is_in_window = True
        self._feeder.begin()

    def run_for(self, duration_s: float) -> None:
        """Let time pass; the feeder goes on meanwhile."""
        self._check()
        self._timer.sleep(duration_s)
        self._feeder.check()

    def end_window(self) -> LoopTiming:
        """Launches of the batches that ended in the window, their time and their mean clock.

        Both are taken between the same two moments of the stream, by CUDA events and by stamps.
        """
        self._check()
        if not self._is_in_window:
            raise MeasurementError("no window is open", hint="Begin one first.")
        self._is_in_window = False
        fed = self._feeder.end()
        return LoopTiming(
            launch_count=fed.batch_count * self._launches_per_batch_count,
            elapsed_s=fed.elapsed_s,
            mean_sm_clock_mhz=fed.mean_sm_clock_mhz,
        )

    def close(self) -> None:
        """Nothing runs any more; an open window is dropped."""
        self._is_open = self._is_in_window = False

    def _check(self) -> None:
        self._feeder.check()
        if not self._is_open:
            raise MeasurementError("the kernel runs no more", hint="Use the loop in its block.")


def cpu_runner(works: Sequence[KernelWork], timer: Timer) -> TorchRunner:
    """Stand-ins on this machine's CPU, to try the runner without a GPU.

    Raises NotSupported where PyTorch is missing, or as `TorchRunner` does.
    """
    _require_torch()
    import torch  # noqa: PLC0415

    return TorchRunner(works, CpuLane(torch.device("cpu"), timer), timer)


def cuda_device(uuid: str) -> torch.device:
    """The device of this UUID as PyTorch numbers it, which is not as NVML does.

    Raises NotSupported where PyTorch is missing or does not see the GPU.
    """
    _require_torch()
    import torch  # noqa: PLC0415

    for number in range(torch.cuda.device_count()):
        if bare_uuid(str(torch.cuda.get_device_properties(number).uuid)) == bare_uuid(uuid):
            return torch.device("cuda", number)
    raise NotSupported(
        f"PyTorch does not see {uuid}",
        hint="Look at CUDA_VISIBLE_DEVICES, and whether this PyTorch was built with CUDA.",
    )


def bare_uuid(uuid: str) -> str:
    """Without `GPU-`, which NVML writes and PyTorch does not."""
    return uuid.lower().removeprefix("gpu-")


def works_of(workload: Workload) -> tuple[KernelWork, ...]:
    """A work for every kernel. Raises InputError naming the first that has none."""
    works = {work.kernel: work for work in workload.works}
    lacking = [kernel for kernel in workload.kernels if kernel not in works]
    if lacking:
        raise InputError(
            f"the workload {workload.name!r} does not say what kernel {lacking[0]!r} computes "
            "and moves, so nothing can run in its place",
            field="workload",
            hint='Add its entry to "works" in the workload file.',
        )
    return tuple(works[kernel] for kernel in workload.kernels)


def _require_torch() -> None:
    try:
        import torch  # noqa: F401, PLC0415 - whether it is there at all
    except ImportError as error:
        raise NotSupported("PyTorch, which runs the kernels, is missing", hint=_HINT) from error


def _driver_or_none(uuid: str) -> CudaDriver | None:
    """What counts cycles is a gain, not a need."""
    try:
        return CudaDriver(uuid)
    except (NotSupported, MeasurementError):
        return None


def _trial_s(lane: TorchLane, launch: Callable[[], None]) -> float:
    """Time of a launch, roughly."""
    first = lane.mark()
    for _ in range(_TRIAL_COUNT):
        launch()
    last = lane.mark()
    lane.wait(last)
    time_s = lane.elapsed_s(first, last) / _TRIAL_COUNT
    lane.forget(first)
    lane.forget(last)
    return time_s


@contextmanager
def _failures_of(kernel: str, one: StandIn) -> Iterator[None]:
    """Say which kernel it was that PyTorch could not run."""
    try:
        yield
    except RuntimeError as error:
        raise MeasurementError(
            f"the stand-in for kernel {kernel!r} cannot run: {error}",
            hint=f"It needs {one.traffic_bytes / 1e9:.1f} GB of the GPU's memory; take a smaller "
            "batch, or end what else runs there.",
        ) from error
