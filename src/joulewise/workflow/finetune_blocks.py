"""Carrying out a schedule of blocks on one GPU: reads marks and power, and sets clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Protocol

from joulewise.control.drift import DriftWatch
from joulewise.control.lease import GpuLease
from joulewise.domain.board_state import BoardState
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import DeviceError, JoulewiseError
from joulewise.domain.finetuning import StepMark
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Gpu, Lease, ReadBackGpu
from joulewise.finetune.accounting import PowerLog
from joulewise.finetune.learning_cost import LOOK_S
from joulewise.finetune.live_schedule import Purpose, StepScheduler
from joulewise.measure.readings import Readings
from joulewise.workflow.daemon_lease import DaemonLease
from joulewise.workflow.governed_state import changed_since, governed_state
from joulewise.workflow.point_watch import Notice

_READ_BACK_S = 1.0
# A new setting shows up to some milliseconds later, and none is measured before.
_SHOWN_WITHIN_S = 0.1
_PATIENCE_S = 3.0
_KNOB = "sm_clock_mhz"


class MarkSource(Protocol):
    """Where step marks come from."""

    @property
    def doubt(self) -> str | None:
        """The first thing about the marks that was not as it should be."""
        ...

    @property
    def planned_count(self) -> int | None:
        """Steps that the program means to take, where it says so."""
        ...

    @property
    def is_ambiguous(self) -> bool:
        """Whether several programs may have written marks that nothing tells apart."""
        ...

    def read(self, now_s: float) -> tuple[StepMark, ...]:
        """Marks that came since the last look."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Set:
    """What was set last, and when."""

    sm_clock_mhz: int | None
    time_s: float


class BlockSteering:
    """Sets the clock that a schedule asks for, and tells it what steps took.

    What somebody else sets meanwhile is told by `notice` and left alone: then the schedule ends,
    and nothing more is set. The block at hand is dropped.
    """

    def __init__(
        self,
        gpu: Gpu,
        lease: Lease,
        scheduler: StepScheduler,
        marks: MarkSource,
        notice: Notice,
        found: BoardState | None = None,
    ) -> None:
        """Nothing is read or set yet; `found` is how the board was before anything was set.

        Where that is `None`, how it is when this begins.
        """
        self.log = PowerLog()
        self._readings = Readings()
        self.caveats: list[Caveat] = []
        self.is_hands_off = False
        """Whether nothing is set any more, for somebody else has the clock."""
        self._gpu = gpu
        self._lease = lease
        self._scheduler = scheduler
        self._marks = marks
        self._notice = notice
        self._found = found
        self._set: _Set | None = None
        self._drift: DriftWatch | None = None
        self._read_back_s = 0.0
        self._is_over = False
        self._has_read = False
        self._unread: JoulewiseError | None = None
        self._unset: JoulewiseError | None = None
        self._failure: Exception | None = None

    @property
    def trouble(self) -> JoulewiseError | None:
        """Why the GPU could not be set, or read in the end; the command goes on all the same."""
        return self._unset or self._unread

    @property
    def samples(self) -> Sequence[GpuSample]:
        """What was read while the job ran: all of it, and ever less of a long one."""
        return self._readings.all if self._has_read else ()

    def begin(self) -> None:
        """Set the first clock. Raises what setting it raises; the command has not begun."""
        self.log.add(self._gpu.sample())
        self._found = self._found or governed_state(self._gpu)
        self._set_clock(self._scheduler.asked_mhz)

    def look(self) -> None:
        """Read marks and power once, and set what the schedule then asks for."""
        marks = self._marks.read(self._gpu.now_s())
        try:
            sample = self._gpu.sample()
        except JoulewiseError as error:
            self._unread = error
            return
        self._unread = None
        self.log.add(sample)
        self._readings.add(sample)
        self._has_read = True
        # Before steps are counted: those of a clock that was not ours are of no block.
        if not self.is_hands_off:
            self._judge(sample, has_marks=bool(marks))
        self._scheduler.see(marks, self.log)
        self._scheduler.wait(self._gpu.now_s())
        if not self._is_over:
            self._follow()

    @contextmanager
    def looking(self, after_each: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Look now and then inside the block, on a thread of its own; then call `after_each`.

        A daemon thread that is not waited for long: a driver that never answers must not keep the
        clocks from being given back.
        """
        over = Event()
        thread = Thread(target=self._look_until, args=(over, after_each), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_PATIENCE_S)
            if thread.is_alive():
                self._unread = DeviceError(
                    f"{self._gpu.identity.name} stopped answering meanwhile: its driver hangs"
                )
        if self._failure is not None:
            raise self._failure

    def _look_until(self, over: Event, after_each: Callable[[], None]) -> None:
        try:
            while not over.wait(LOOK_S):
                self.look()
                after_each()
            # The last marks came since.
            self._is_over = True
            self.look()
        except Exception as error:  # noqa: BLE001 - raised once the command has ended
            self._failure = error

    def _follow(self) -> None:
        asked_mhz = self._scheduler.asked_mhz
        if self.is_hands_off or (self._set is not None and self._set.sm_clock_mhz == asked_mhz):
            return
        try:
            self._set_clock(asked_mhz)
        except JoulewiseError as error:
            self._unset = error
            self._stop_setting()
            self._notice(f"{error}: the command goes on at whatever clock there is")

    def _set_clock(self, sm_clock_mhz: int | None) -> None:
        point = OperatingPoint(sm_clock_mhz=sm_clock_mhz)
        self._lease.apply(point)
        now_s = self._gpu.now_s()
        self._set = _Set(sm_clock_mhz=sm_clock_mhz, time_s=now_s)
        self._drift = DriftWatch(point, self._gpu.clock_grid(), asked_s=now_s)
        self._scheduler.applied(now_s, self.log.shown_within_s())

    def _judge(self, sample: GpuSample, *, has_marks: bool) -> None:
        """Whether the clock is still ours, or the governor's where it has it."""
        seen = (
            *self._seen_of_lease(),
            *self._seen_of_board(has_marks=has_marks),
            *self._seen_of_clocks(sample),
        )
        if not seen:
            return
        self._stop_setting()
        if isinstance(self._lease, GpuLease):
            # What is somebody else's by now is not given back either.
            self._lease.yield_knob(_KNOB)
        self.caveats.extend(seen)
        for caveat in seen:
            if caveat.kind is not CaveatKind.FOREIGN_CONTROL:
                continue
            self._notice(f"{caveat.kind.value}: {caveat.seen}. The clock is left alone from now on")

    def _seen_of_lease(self) -> Sequence[Caveat]:
        ended = self._lease.ended() if isinstance(self._lease, DaemonLease) else None
        taken_over = self._lease.taken_over if isinstance(self._lease, GpuLease) else None
        why = taken_over if ended is None else f"the lease is over: {ended.why}"
        return () if why is None else (Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=why),)

    def _seen_of_board(self, *, has_marks: bool) -> Sequence[Caveat]:
        """Where clock settings can be read back they say for sure whose they are."""
        ours, is_learning = self._set, self._scheduler.purpose not in {Purpose.RUN, None}
        if not isinstance(self._gpu, ReadBackGpu) or ours is None:
            return ()
        # At every step that a block may end with: else it could end just before it is noticed.
        is_due = self._is_over or (has_marks and is_learning)
        due_s = 0.0 if is_due else self._read_back_s + _READ_BACK_S
        now_s = self._gpu.now_s()
        if now_s < max(due_s, ours.time_s + _SHOWN_WITHIN_S):
            return ()
        self._read_back_s = now_s
        try:
            state = self._gpu.board_state()
        except JoulewiseError:
            return ()
        if ours.sm_clock_mhz is not None:
            return _not_ours(state, ours.sm_clock_mhz)
        # Once nothing is compared with the governor any more, its bounds are nobody's claim.
        if self._found is None or self._scheduler.is_over:
            return ()
        return changed_since(self._found, state)

    def _seen_of_clocks(self, sample: GpuSample) -> Sequence[Caveat]:
        """Elsewhere a clock above ours does; all that holds a clock down is told in the end.

        Under the driver's own choice it is one far below the highest, while nothing tells why.
        """
        ours = self._set
        if self._drift is None or ours is None or isinstance(self._gpu, ReadBackGpu):
            return ()
        drift = self._drift.feed(sample)
        is_governed = ours.sm_clock_mhz is None and not self._scheduler.is_over
        if not (is_governed or _KNOB in drift.taken_over):
            return ()
        return [one for one in drift.caveats if one.kind is CaveatKind.FOREIGN_CONTROL]

    def _stop_setting(self) -> None:
        self.is_hands_off = True
        self._scheduler.end()


def _not_ours(state: BoardState, asked_mhz: int) -> Sequence[Caveat]:
    """ForeignControl where the bounds of the clock are not both the one that was set."""
    found = (state.sm_clock_min_mhz, state.sm_clock_max_mhz)
    if None in found or found == (asked_mhz, asked_mhz):
        return ()
    seen = (
        f"the GPU clock of {state.board} is set to {found[0]} to {found[1]} MHz, not to the "
        f"{asked_mhz} MHz that were set: somebody else has set it since"
    )
    return (Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=seen),)
