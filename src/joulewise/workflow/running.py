"""Time and energy of any command, on the GPUs that it may use."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import TypeVar

from joulewise.device.nvml import stop
from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.clock_judgement import CAUSES
from joulewise.domain.errors import DeviceError, JoulewiseError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.ports import WatchedGpu
from joulewise.measure.held_down import held_down
from joulewise.measure.readings import Readings, held_under_load_mhz, is_idle_throughout
from joulewise.measure.span import POWER_SAMPLE_S, SpanEnergy, SpanMeter
from joulewise.workflow.lease_findings import lease_trace

# Every reading takes the driver's global lock for a moment, so a long command is read seldom.
_SAMPLE_S = 0.1
_LATER_SAMPLE_S = 0.5
_LATER_AFTER_S = 5.0
_LEAVE_S = 0.5
_HEAR_S = 0.2
# All GPUs get ready within so long, unless one of them has no counter that moves.
_SOON_S = 0.25
# What a GPU that answers takes before and after: two steps of the slowest counters, and calls.
_PATIENCE_S = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRun:
    """What one GPU did while a command ran.

    `uncertainty_j` is what the meter's coarseness leaves open; where that is all of the energy
    there is no mean power. `sm_clock_held_mhz` is the median
    while the GPU worked, `None` where it did not, or does not tell; `temp_c` is the highest.
    Where `trouble` says why there is no energy, there is none.
    """

    device: str
    device_name: str
    is_simulated: bool
    energy_j: float | None = None
    uncertainty_j: float | None = None
    mean_power_w: float | None = None
    sm_clock_held_mhz: float | None = None
    temp_c: float | None = None
    is_idle: bool = False
    """Whether it did nothing all the while, as far as readings tell."""
    caveats: tuple[Caveat, ...] = ()
    trouble: JoulewiseError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRun:
    """What a command took: its exit code, its time, and each GPU by itself."""

    code: int
    time_s: float
    gpus: tuple[GpuRun, ...]

    @property
    def energy_j(self) -> float | None:
        """Of all GPUs; `None` where one could not be measured."""
        return _sum(gpu.energy_j for gpu in self.gpus)

    @property
    def uncertainty_j(self) -> float | None:
        """Of all GPUs: what is left open of each may lie on the same side."""
        return _sum(gpu.uncertainty_j for gpu in self.gpus)

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """One of each kind, of whichever GPU comes first."""
        return first_of_each_kind(*(caveat for gpu in self.gpus for caveat in gpu.caveats))

    @property
    def trouble(self) -> JoulewiseError | None:
        """Why there is no energy of one of the GPUs."""
        return next((gpu.trouble for gpu in self.gpus if gpu.trouble is not None), None)


def run_measured(
    gpus: Sequence[WatchedGpu], run: Callable[[], int], *, patience_s: float = _PATIENCE_S
) -> CommandRun:
    """Measure what these GPUs take while `run` runs, which returns an exit code.

    The GPUs are read before and after, which takes some tenths of a second on either side, and
    now and then in between, each on a thread of its own: a slow one holds up no other, and one
    that does not answer any more is not waited for longer than `patience_s`.

    Raises:
        NotSupported: a GPU tells neither energy nor power; nothing was run.
        DeviceError: a GPU did not answer before; nothing was run.
    """
    begun, over = Event(), Event()
    watchers = [_Watcher(gpu, begun, over) for gpu in gpus]
    try:
        deadline_s = time.monotonic() + patience_s
        for watcher in watchers:
            watcher.wait_until_open(deadline_s)
        starts_s = [gpu.now_s() for gpu in gpus]
        begun.set()
        start_s = time.monotonic()
        code = run()
        time_s = time.monotonic() - start_s
        for watcher, gpu, begin_s in zip(watchers, gpus, starts_s, strict=True):
            watcher.span_s = (begin_s, gpu.now_s())
    except BaseException:
        over.set()
        begun.set()
        for watcher in watchers:
            watcher.leave()
        raise
    over.set()
    deadline_s = time.monotonic() + patience_s
    return CommandRun(
        code=code, time_s=time_s, gpus=tuple(one.result(deadline_s) for one in watchers)
    )


class _Watcher:
    """Looks at one GPU from before the command to after it, on a thread of its own.

    A daemon thread: a driver that never answers must not keep this process from ending.
    """

    def __init__(self, gpu: WatchedGpu, begun: Event, over: Event) -> None:
        """Start looking; without a `span_s` once it is `over`, there was no command."""
        self.span_s: tuple[float, float] | None = None
        self._gpu = gpu
        self._begun = begun
        self._over = over
        self._meter = SpanMeter(gpu)
        self._readings = Readings()
        self._trouble: JoulewiseError | None = None
        self._left_set: tuple[Caveat, ...] = ()
        self._opening: Future[None] = Future()
        self._closing: Future[GpuRun] = Future()
        self._thread = Thread(target=self._work, name=f"reads {gpu.identity.name}", daemon=True)
        self._thread.start()

    def wait_until_open(self, deadline_s: float) -> None:
        """Wait for the moment at which the command may begin. Raises what is in its way."""
        _answer(self._opening, deadline_s, f"{self._gpu.identity.name} does not answer")

    def result(self, deadline_s: float) -> GpuRun:
        """What the command took on this GPU, or why that cannot be told."""
        name = self._gpu.identity.name
        try:
            return _answer(self._closing, deadline_s, f"{name} stopped answering meanwhile")
        except DeviceError as error:
            return replace(self._nothing(), trouble=error)

    def leave(self) -> None:
        """See it end where nothing is to be told; one that hangs is left to itself."""
        self._thread.join(_LEAVE_S)

    def _work(self) -> None:
        _settle(self._opening, self._open)
        if self._opening.exception() is None:
            _settle(self._closing, self._look_on)

    def _open(self) -> None:
        self._left_set = _left_set(self._gpu)
        self._readings.add(self._meter.open())

    def _look_on(self) -> GpuRun:
        self._wait_for_command()
        self._watch()
        self._over.wait()
        return self._nothing() if self.span_s is None else self._close(*self.span_s)

    def _wait_for_command(self) -> None:
        """Other GPUs may take longer; readings have to be of the moment before the command."""
        pause_s = POWER_SAMPLE_S if self._meter.is_counter_missing else _SOON_S
        try:
            while not self._begun.wait(pause_s):
                sample = self._meter.next_before()
                # The command may have begun while it was read.
                see = self._meter.see if self._begun.is_set() else self._meter.see_before
                see(sample)
        except JoulewiseError as error:
            self._trouble = error
        self._begun.wait()

    def _watch(self) -> None:
        """Read until the command is over, or the GPU does not answer any more."""
        begin_s = time.monotonic()
        try:
            while not self._over.wait(self._pause_s(time.monotonic() - begin_s)):
                self._look()
        except JoulewiseError as error:
            self._trouble = error

    def _look(self) -> None:
        """Read once. A reading that fails is missing, and no more than that beside a counter."""
        try:
            self._see(self._gpu.sample())
        except DeviceError:
            if self._meter.is_counter_missing:
                raise

    def _pause_s(self, since_s: float) -> float:
        if self._meter.is_counter_missing:
            return POWER_SAMPLE_S
        return _SAMPLE_S if since_s < _LATER_AFTER_S else _LATER_SAMPLE_S

    def _close(self, start_s: float, end_s: float) -> GpuRun:
        """What the command took on this GPU."""
        try:
            if self._trouble is None:
                energy = self._meter.close(start_s, end_s)
                return self._measured(energy, end_s - start_s)
        except JoulewiseError as error:
            self._trouble = error
        return replace(self._nothing(), trouble=self._trouble)

    def _see(self, sample: GpuSample) -> None:
        self._meter.see(sample)
        self._readings.add(sample)

    def _measured(self, energy: SpanEnergy, duration_s: float) -> GpuRun:
        samples = self._readings.all
        is_told = energy.uncertainty_j < energy.energy_j
        mean_w = energy.energy_j / duration_s if is_told and duration_s > 0 else None
        temps_c = [one.temp_c for one in samples if one.temp_c is not None]
        return replace(
            self._nothing(),
            energy_j=energy.energy_j,
            uncertainty_j=energy.uncertainty_j,
            mean_power_w=mean_w,
            sm_clock_held_mhz=held_under_load_mhz(samples),
            temp_c=max(temps_c, default=None),
            is_idle=is_idle_throughout(samples),
            caveats=first_of_each_kind(
                *self._left_set,
                *_others_before(samples[0]),
                *energy.caveats,
                *held_down(samples, *CAUSES),
                *self._gpu.identity.caveats,
            ),
        )

    def _nothing(self) -> GpuRun:
        identity = self._gpu.identity
        return GpuRun(
            device=identity.spec,
            device_name=identity.name,
            is_simulated=identity.is_simulated,
            caveats=identity.caveats,
        )


def _left_set(gpu: WatchedGpu) -> tuple[Caveat, ...]:
    """ForeignControl where a holder that is gone left something set, for the command feels it."""
    left = lease_trace(gpu.identity.uuid).left_set
    if left is None:
        return ()
    advice = "Give it back before: joulewise restore."
    return (Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=left.removesuffix("."), advice=advice),)


def _others_before(sample: GpuSample) -> tuple[Caveat, ...]:
    """OtherProcessOnGpu; once the command runs its own processes cannot be told apart."""
    count = sample.other_process_count or 0
    if not count:
        return ()
    seen = f"{count} other process(es) were on the GPU when the command began"
    return (Caveat(kind=CaveatKind.OTHER_PROCESS_ON_GPU, seen=seen),)


def _sum(figures: Iterable[float | None]) -> float | None:
    known = list(figures)
    return None if None in known else sum(figure for figure in known if figure is not None)


def _settle(future: Future[T], act: Callable[[], T]) -> None:
    """Do it, and have the future tell what came of it."""
    try:
        future.set_result(act())
    except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
        future.set_exception(error)


def _answer(future: Future[T], deadline_s: float, trouble: str) -> T:
    """What another thread hears from a GPU. Raises that, or DeviceError where it hears nothing."""
    left_s = _HEAR_S
    while left_s > 0:
        left_s = deadline_s - time.monotonic()
        # In short waits: a signal that comes just before one is heard only after it.
        with suppress(TimeoutError):
            return future.result(min(_HEAR_S, max(0.0, left_s)))
    # At the end of this process that would wait for the call that hangs.
    atexit.unregister(stop)
    raise DeviceError(
        f"{trouble}: its driver hangs",
        hint="Look for Xid errors in the kernel log: dmesg | grep -i xid.",
    )
