"""Time and energy of any command, on the GPUs that it may use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.ports import WatchedGpu
from joulewise.measure.held_down import (
    HEAT,
    POWER_BRAKE,
    POWER_LIMIT,
    SYNC_BOOST,
    held_down,
)
from joulewise.measure.readings import Readings, held_under_load_mhz, is_idle_throughout
from joulewise.measure.span import SpanEnergy, SpanMeter

# Every reading takes the driver's global lock for a moment, so a long command is read seldom.
_SAMPLE_S = 0.1
_LATER_SAMPLE_S = 0.5
_LATER_AFTER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRun:
    """What one GPU did while a command ran.

    `uncertainty_j` is what the meter's coarseness leaves open. `sm_clock_held_mhz` is the median
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


def run_measured(gpus: Sequence[WatchedGpu], run: Callable[[], int]) -> CommandRun:
    """Measure what these GPUs take while `run` runs, which returns an exit code.

    The GPUs are read before and after, which takes some tenths of a second on either side, and
    now and then in between, each on a thread of its own: a slow one holds up no other.

    Raises:
        NotSupported: a GPU tells neither energy nor power; nothing was run.
        DeviceError: a GPU did not answer before; nothing was run.
    """
    watchers = [_Watcher(gpu) for gpu in gpus]
    over = Event()
    with ThreadPoolExecutor(len(watchers), thread_name_prefix="joulewise run") as pool:
        for opening in [pool.submit(watcher.open) for watcher in watchers]:
            opening.result()
        starts_s = [gpu.now_s() for gpu in gpus]
        start_s = time.monotonic()
        watching = [pool.submit(watcher.watch, over) for watcher in watchers]
        try:
            code = run()
        finally:
            time_s = time.monotonic() - start_s
            ends_s = [gpu.now_s() for gpu in gpus]
            over.set()
        closing: list[Future[GpuRun]] = []
        for watcher, start, end in zip(watchers, starts_s, ends_s, strict=True):
            watching.pop(0).result()
            closing.append(pool.submit(watcher.close, start, end))
        return CommandRun(code=code, time_s=time_s, gpus=tuple(one.result() for one in closing))


class _Watcher:
    """Looks at one GPU from before the command to after it."""

    def __init__(self, gpu: WatchedGpu) -> None:
        self._gpu = gpu
        self._meter = SpanMeter(gpu)
        self._readings = Readings()
        self._trouble: JoulewiseError | None = None

    def open(self) -> None:
        """Wait for the moment at which the command may begin."""
        self._readings.add(self._meter.open())

    def watch(self, over: Event) -> None:
        """Read until the command is over, or the GPU does not answer any more."""
        begin_s = time.monotonic()
        try:
            while not over.wait(_pause_s(time.monotonic() - begin_s)):
                self._see(self._gpu.sample())
        except JoulewiseError as error:
            self._trouble = error

    def close(self, start_s: float, end_s: float) -> GpuRun:
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
        temps_c = [one.temp_c for one in samples if one.temp_c is not None]
        return replace(
            self._nothing(),
            energy_j=energy.energy_j,
            uncertainty_j=energy.uncertainty_j,
            mean_power_w=energy.energy_j / duration_s,
            sm_clock_held_mhz=held_under_load_mhz(samples),
            temp_c=max(temps_c, default=None),
            is_idle=is_idle_throughout(samples),
            caveats=first_of_each_kind(
                *_others_before(samples[0]),
                *energy.caveats,
                *held_down(samples, POWER_LIMIT, POWER_BRAKE, HEAT, SYNC_BOOST),
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


def _others_before(sample: GpuSample) -> tuple[Caveat, ...]:
    """OtherProcessOnGpu; once the command runs its own processes cannot be told apart."""
    count = sample.other_process_count or 0
    if not count:
        return ()
    seen = f"{count} other process(es) were on the GPU when the command began"
    return (Caveat(kind=CaveatKind.OTHER_PROCESS_ON_GPU, seen=seen),)


def _pause_s(since_s: float) -> float:
    return _SAMPLE_S if since_s < _LATER_AFTER_S else _LATER_SAMPLE_S


def _sum(figures: Iterable[float | None]) -> float | None:
    known = list(figures)
    return None if None in known else sum(figure for figure in known if figure is not None)
