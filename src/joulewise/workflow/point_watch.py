"""Looking at a GPU while a command runs at a point that was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

from joulewise.control.drift import Drift, DriftWatch
from joulewise.control.lease import GpuLease
from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.clock_judgement import CAUSES
from joulewise.domain.errors import DeviceError, JoulewiseError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import CLOCK_KNOBS, ClockGrid, OperatingPoint
from joulewise.domain.ports import Gpu, Lease, ReadBackGpu
from joulewise.measure.held_down import held_down
from joulewise.measure.readings import Readings
from joulewise.workflow.daemon_lease import DaemonLease
from joulewise.workflow.settings_watch import SettingsWatch

Notice = Callable[[str], None]
"""Called with each sentence that cannot wait, from the thread that watches."""

# A short command is looked at more often, so that it is seen under load at all.
_SAMPLE_S = 1.0
_EARLY_SAMPLE_S = 0.25
_EARLY_S = 5.0
_PATIENCE_S = 3.0
# A GPU that is lost for a moment at the end may be there again.
_LAST_LOOKS_COUNT = 3
_AGAIN_S = 0.1


class PointWatch:
    """Looks at a GPU now and then on a thread of its own, and leaves alone what others set."""

    def __init__(self, gpu: Gpu, notice: Notice) -> None:
        """Nothing is read yet."""
        self._gpu = gpu
        self._notice = notice
        self._readings = Readings()
        self._settings: SettingsWatch | None = None
        self._drifts: list[Caveat] = []
        self._begin_s = 0.0
        self.taken_over: frozenset[str] = frozenset()
        """Knobs that somebody else has set since, for sure."""
        self.lost_after_s: float | None = None
        """So long after the beginning joulewised ended the lease; `None`: it did not."""
        self._is_takeover_told = False
        self._is_unguarded = False
        self._hang: JoulewiseError | None = None
        self._failure: JoulewiseError | None = None

    @property
    def trouble(self) -> JoulewiseError | None:
        """Why it could not be read in the end; readings that fail in between are missing only."""
        return self._hang or self._failure

    @property
    def samples(self) -> Sequence[GpuSample]:
        """What was read while the lease lived, in order."""
        return self._readings.all

    def caveats(self) -> tuple[Caveat, ...]:
        """Of the whole time: what held the clock down for how much of it, and what drifted."""
        samples = self.samples
        lowered = held_down(samples, *CAUSES) if samples else ()
        return first_of_each_kind(*lowered, *self._drifts)

    @contextmanager
    def watching(self, lease: Lease, point: OperatingPoint, grid: ClockGrid) -> Iterator[None]:
        """Look at it inside the block, and once more at its end."""
        over = Event()
        is_board = isinstance(self._gpu, ReadBackGpu)
        drift = DriftWatch(point, grid, asked_s=self._gpu.now_s(), is_board=is_board)
        self._settings = SettingsWatch(self._gpu, point)
        self._begin_s = time.monotonic()
        # A daemon thread that is not waited for long: a driver that never answers must not keep
        # the clocks from being given back.
        thread = Thread(target=self._watch, args=(over, drift, lease), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_PATIENCE_S)
            if thread.is_alive():
                self._hang = DeviceError(
                    f"{self._gpu.identity.name} stopped answering meanwhile: its driver hangs",
                    hint="Look for Xid errors in the kernel log: dmesg | grep -i xid.",
                )

    def _watch(self, over: Event, drift: DriftWatch, lease: Lease) -> None:
        left_count = _LAST_LOOKS_COUNT
        while left_count:
            is_early = time.monotonic() - self._begin_s < _EARLY_S
            if over.wait(_EARLY_SAMPLE_S if is_early else _SAMPLE_S):
                left_count -= 1
            # Asked first: what runs without the lease is nobody's drift.
            if self._is_lost(lease):
                return
            try:
                self._look(drift, lease)
            except JoulewiseError as error:
                self._failure = error
                time.sleep(_AGAIN_S)
                continue
            self._failure = None
            if over.is_set():
                return

    def _is_lost(self, lease: Lease) -> bool:
        """Whether joulewised holds it no more; that is told at once."""
        ended = lease.ended() if isinstance(lease, DaemonLease) else None
        if ended is None:
            return False
        self.lost_after_s = time.monotonic() - self._begin_s
        self._notice(
            f"the lease is over: {ended.why}. The command goes on without it, at whatever clocks "
            "the driver gives"
        )
        return True

    def _look(self, drift: DriftWatch, lease: Lease) -> None:
        sample = self._gpu.sample()
        self._readings.add(sample)
        seen = _both(drift.feed(sample), self._settings)
        if seen.new and isinstance(lease, DaemonLease):
            lease.ask_whether_it_lives()
            if lease.ended() is not None:
                # Without the lease these are the driver's own clocks, and nobody's drift.
                return
        self.taken_over = seen.taken_over or self.taken_over
        self._drifts.extend(seen.new)
        # What is somebody else's is left to them before anything else, which may fail.
        _yield_clocks(lease, seen)
        for caveat in (*seen.new, *self._seen_of_lease(lease)):
            self._notice(f"{caveat.kind.value}: {caveat.seen}. {caveat.helps}")

    def _seen_of_lease(self, lease: Lease) -> Iterator[Caveat]:
        """What became of the lease of this process itself; each is told once."""
        if not isinstance(lease, GpuLease):
            return
        taken_over, unguarded = lease.taken_over, lease.unguarded
        if taken_over is not None and not self._is_takeover_told:
            self._is_takeover_told = True
            caveat = Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=taken_over)
            self._drifts.append(caveat)
            yield caveat
        if unguarded is not None and not self._is_unguarded:
            self._notice(
                f"{unguarded}: should this process be killed now, its clocks stay set until the "
                "next lease or joulewise restore"
            )
        self._is_unguarded = unguarded is not None


def _both(seen: Drift, settings: SettingsWatch | None) -> Drift:
    """What readings tell, and what files that set clocks do, where they can be read."""
    if settings is None:
        return seen
    read = settings.look()
    return Drift(
        caveats=(*seen.caveats, *read.caveats),
        new=(*seen.new, *read.new),
        taken_over=seen.taken_over | read.taken_over,
    )


def _yield_clocks(lease: Lease, seen: Drift) -> None:
    """Where joulewised holds the lease it sees this by itself."""
    if isinstance(lease, GpuLease):
        for knob in seen.taken_over.intersection(CLOCK_KNOBS):
            lease.yield_knob(knob)
