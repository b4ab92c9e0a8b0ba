"""The lease: the right to set clocks on one GPU, which ends with its holder.

The order of steps is what makes it safe to be killed between any two of them: lock the GPU,
have it watched by a guard, undo what a dead holder left, see the guard confirm, write the journal,
set the device; then reset it, verify, delete the journal, drop the lock, and have it watched no
more.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.control.guard import Guard, NoGuard
from joulewise.control.holder import this_process
from joulewise.control.journal import (
    JournalEntry,
    check_given_back,
    delete_journal,
    knobs_of,
    refuse_too_many,
    replay,
    still_set,
    write_journal,
)
from joulewise.control.lock import FileLock
from joulewise.control.restoring import replay_former
from joulewise.control.signals import SignalGuard
from joulewise.control.state import (
    former_state_dirs,
    journal_file,
    lock_file,
    make_state_dir,
    remove_abandoned,
    remove_half_written,
    state_dir_for,
)
from joulewise.domain.control import Holder
from joulewise.domain.errors import DeviceError, JoulewiseError, NotPermitted
from joulewise.domain.points import CLOCK_KNOBS, OperatingPoint, Touched
from joulewise.domain.ports import Gpu

_NOTHING = Touched(knobs=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hold:
    """What makes a lease one: the lock, the journal's place, the guard and whose it is."""

    lock: FileLock
    journal: Path
    guard: Guard
    holder: Holder


class GpuLease:
    """A lease on one GPU; made by `take_lease` and `hold`. Threads may share it.

    Nothing reaches the device before the first `apply`, and nothing is given back at the end
    that was never touched.
    """

    def __init__(
        self,
        gpu: Gpu,
        hold: Hold,
        undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Touch nothing; `undisturbed` is entered while the clocks are given back."""
        self._gpu = gpu
        self._hold = hold
        self._undisturbed = undisturbed
        self._owner_pid = os.getpid()
        self._steps = threading.RLock()
        self._touched = _NOTHING
        self._asked: OperatingPoint | None = None
        self._requested: OperatingPoint | None = None
        self._yielded: frozenset[str] = frozenset()
        self._is_limit_ours = False
        self._has_begun = False
        self._has_written = False
        self._has_set_clocks = False
        self._is_over = False
        self._is_left_set = False

    @property
    def touched(self) -> Touched:
        """What is to be given back at the end, as the journal says."""
        return self._touched

    @property
    def asked(self) -> OperatingPoint | None:
        """The point that was asked for last and taken; `None` before the first."""
        return self._asked

    def apply(self, point: OperatingPoint) -> None:
        """Ask for a point; what it touches is on disk before the device hears of it.

        That is which knobs, every power limit, and the one found before it was touched. Before
        all that the guard says that it watches. A clock that was yielded stays somebody else's
        until it is asked for by name again.

        Raises:
            DeviceError: the lease is over, or no guard can be had; NotPermitted, NotSupported
                or DeviceLost come from the device.
            InputError: the journal cannot be written; the device was not asked.
            BusyError: more power limits than a journal may name; the device was not asked.
        """
        self._refuse_in_child()
        with self._steps:
            if self._is_over:
                raise DeviceError(
                    "the lease on this GPU is over", hint="Take a new one before setting clocks."
                )
            if not point.is_auto:
                self._hold.guard.ensure(self._gpu.identity.uuid)
            if not self._has_begun:
                self._has_begun = True
                self._free_clocks()
            yielded = self._yielded - knobs_of(point)
            self._write_down(point)
            self._yielded = yielded
            self._is_limit_ours = self._is_limit_ours or point.power_limit_w is not None
            try:
                self._request(point)
            except NotPermitted:
                self._forget_what_was_refused()
                raise
            self._is_limit_ours = point.power_limit_w is not None
            self._has_set_clocks = True
            self._asked = point

    def yield_knob(self, knob: str) -> None:
        """Leave a clock alone from here on: somebody else has set it, and keeps it.

        Raises ValueError for a knob that is no clock: of a power limit it shows by itself whose
        it is. Raises InputError where the journal cannot be written; then it is given back.
        Raises DeviceError in a forked child.
        """
        if knob not in CLOCK_KNOBS:
            raise ValueError(f"{knob!r} is no clock that could be yielded")
        self._refuse_in_child()
        with self._steps:
            if self._is_over or knob not in self._touched.knobs:
                return
            left = replace(self._touched, knobs=self._touched.knobs - {knob})
            if left.knobs:
                write_journal(self._hold.journal, self._entry(left))
            else:
                delete_journal(self._hold.journal)
            self._touched, self._yielded = left, self._yielded | {knob}

    def release(self) -> None:
        """Reset, verify, drop the journal, let go; harmless when repeated.

        Raises:
            DeviceError: the device did not take its clocks back; the journal stays, so that
                the guard and the next lease try again.
        """
        # A forked child inherits the lease by accident; it is its parent's to end.
        if os.getpid() != self._owner_pid:
            return
        with self._undisturbed(), self._steps:
            if self._is_over:
                return
            self._is_over = True
            is_given_back = False
            try:
                self._give_back()
                is_given_back = True
            finally:
                self._hold.lock.release()
                # What was refused now may be taken later: then the guard goes on trying once
                # this process is done with it, unless somebody else holds the GPU.
                if is_given_back:
                    self._hold.guard.unwatch(self._gpu.identity.uuid)

    def still_set(self) -> str | None:
        """What the lease could not give back, where it could not; `None` elsewhere."""
        if not self._is_left_set:
            return None
        return still_set(self._entry(self._touched), self._hold.journal)

    def _refuse_in_child(self) -> None:
        """Before any lock is taken: a thread of the parent may have held it at the fork."""
        if os.getpid() != self._owner_pid:
            raise DeviceError(
                f"the lease on this GPU is of process {self._owner_pid}, not of its forked child",
                hint="Take the lease in the process that sets clocks.",
            )

    def _free_clocks(self) -> None:
        """Drop clock locks that others left, for they would pin what is left to the driver.

        They cannot be read, so they cannot be put back either. An account that may set nothing
        goes on, and so does whoever meets another refusal: what holds the clocks down shows in
        the windows. The memory clock is freed only where it may be set, and a GPU that no other
        process reaches has no such locks.
        """
        if self._gpu.identity.is_in_process:
            return
        memory = ("mem_clock_mhz",) if self._gpu.clock_grid().mem_clocks_mhz else ()
        with suppress(DeviceError):
            self._gpu.reset(Touched(knobs=frozenset(("sm_clock_mhz", *memory))))

    def _write_down(self, point: OperatingPoint) -> None:
        """Undoing needs no more than that, so points that touch nothing new cost no write."""
        touched = self._touched_with(point)
        if touched != self._touched:
            self._has_written = True
            write_journal(self._hold.journal, self._entry(touched))
            self._touched = touched

    def _touched_with(self, point: OperatingPoint) -> Touched:
        """What is touched once this point is asked for."""
        known = self._touched
        found, asked_w = known.found, known.asked_limits_w or ()
        if point.power_limit_w is not None:
            # Given back to the driver, it may have been set by somebody else since.
            found = found if self._is_limit_ours else self._gpu.knob_state()
            refuse_too_many(point.power_limit_w, asked_w)
            asked_w = tuple(dict.fromkeys((*asked_w, point.power_limit_w)))
        return Touched(knobs=known.knobs | knobs_of(point), found=found, asked_limits_w=asked_w)

    def _request(self, point: OperatingPoint) -> None:
        """Ask the device, but for clocks that were yielded: as last asked for they stay as is."""
        last = self._requested
        if last is not None:
            kept = {knob: getattr(last, knob) for knob in self._yielded}
            point = replace(point, **kept)
            # A device installs anew what it hears twice in a row, and that would be all of it.
            if kept and point == last:
                return
        self._gpu.request(point)
        self._requested = point

    def _forget_what_was_refused(self) -> None:
        """An account that may set nothing leaves no journal that it could not undo either."""
        if self._has_set_clocks:
            return
        with suppress(NotPermitted):
            self._gpu.reset()
        delete_journal(self._hold.journal)
        self._touched, self._is_limit_ours = _NOTHING, False

    def _give_back(self) -> None:
        if not self._touched.knobs:
            if self._has_written:
                delete_journal(self._hold.journal)
            return
        self._is_left_set = self._has_set_clocks
        try:
            # The device knows best what it took of what was asked for.
            self._gpu.reset(self._touched if self._yielded else None)
            check_given_back(self._gpu, self._still_touched())
        except NotPermitted:
            if self._has_set_clocks:
                raise
        self._is_left_set = False
        delete_journal(self._hold.journal)

    def _still_touched(self) -> Touched:
        """Without a power limit that was given back before the end."""
        given_back = () if self._is_limit_ours else ("power_limit_w",)
        return replace(self._touched, knobs=self._touched.knobs.difference(given_back))

    def _entry(self, touched: Touched) -> JournalEntry:
        identity = self._gpu.identity
        return JournalEntry(
            device=identity.spec,
            device_name=identity.name,
            uuid=identity.uuid,
            holder=self._hold.holder.text,
            touched=tuple(sorted(touched.knobs)),
            found=touched.found,
            asked_limits_w=touched.asked_limits_w,
        )


def take_lease(
    gpu: Gpu,
    *,
    state_dir: Path,
    guard: Guard,
    holder: Holder | None = None,
    undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> GpuLease:
    """Take the GPU's lock, undo what a dead holder left behind, and have it watched.

    Whoever calls this sees to it that the lease is released; `hold` does so by itself. A GPU
    that lives in this process alone needs no guard.

    Args:
        gpu: The device.
        state_dir: Folder of locks and journals.
        guard: Gives the clocks back where this process cannot.
        holder: As others are told who holds it; `None` for this process.
        undisturbed: Entered while the clocks are given back.

    Raises:
        BusyError: another holder has the GPU; the message names it.
        InputError: the state folder cannot be used.
        DeviceError: clocks left behind by a dead holder could not be given back.
    """
    make_state_dir(state_dir)
    identity = gpu.identity
    guard = NoGuard() if identity.is_in_process else guard
    holder = this_process() if holder is None else holder
    journal = journal_file(identity, state_dir)
    lock = FileLock(lock_file(identity, state_dir), is_kept=not identity.is_in_process)
    if identity.is_in_process:
        remove_abandoned(state_dir)
    lock.acquire(identity.name, holder)
    try:
        remove_half_written(journal)
        # Asked first: killed while it undoes what others left, this process needs it, too.
        guard.watch(identity, journal, lock.descriptor)
        replay(journal, gpu)
        replay_former(gpu, former_state_dirs(state_dir))
    except BaseException:
        lock.release()
        guard.unwatch(identity.uuid)
        raise
    return GpuLease(gpu, Hold(lock=lock, journal=journal, guard=guard, holder=holder), undisturbed)


@contextmanager
def hold(
    gpu: Gpu,
    *,
    state_dir: Path | None = None,
    guard: Guard | None = None,
    holder: Holder | None = None,
) -> Iterator[GpuLease]:
    """Hold one GPU for the length of a `with` block.

    Takes the GPU's lock, undoes what a dead holder left behind, and yields the lease. Leaving
    the block in any way but SIGKILL gives the clocks back: at its end, by an exception, SIGINT
    or SIGTERM, or at the latest when the interpreter exits. After SIGKILL the guard does, and
    where there is none the next `hold`. An error inside the block is the one that leaves it; a
    failure to give the clocks back is then added to it as a note.

    A GPU that other processes reach is locked by UUID for all processes that share the state
    folder; one that lives in this process within it only.

    Args:
        gpu: The device.
        state_dir: Folder of locks and journals; `None` for the usual one.
        guard: Gives the clocks back where this process cannot; `None` for nobody.
        holder: As others are told who holds it; `None` for this process.

    Raises:
        BusyError: another holder has the GPU; the message names it.
        InputError: the state folder cannot be used.
        DeviceError: clocks left behind by a dead holder could not be given back.
    """
    folder = state_dir_for(gpu.identity) if state_dir is None else nullcontext(state_dir)
    signals = SignalGuard()
    with folder as place:
        lease = take_lease(
            gpu,
            state_dir=place,
            guard=NoGuard() if guard is None else guard,
            holder=holder,
            undisturbed=signals.deferred,
        )
        atexit.register(lease.release)
        try:
            signals.install()
            yield lease
            lease.release()
        except BaseException as first:
            _release_after(lease, first)
            raise
        finally:
            atexit.unregister(lease.release)


def _release_after(lease: GpuLease, first: BaseException) -> None:
    """Release without hiding the error that ended the block."""
    try:
        lease.release()
    except JoulewiseError as error:
        first.add_note(f"The clocks could not be given back ({error}).")
    left = lease.still_set()
    if left is not None:
        first.add_note(left)
