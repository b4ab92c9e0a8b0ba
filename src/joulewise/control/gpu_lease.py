"""A lease on one GPU once it is taken: what is asked, what is touched, and the giving back.

The order of steps is what makes it safe to be killed between any two of them: see the guard
confirm, write the journal, set the device; then reset it, verify, delete the journal, drop the
lock, and have it watched no more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.control.found_settings import found_now
from joulewise.control.giving_back import check_given_back
from joulewise.control.guard_port import Guard
from joulewise.control.holder import mark_of
from joulewise.control.journal import (
    JournalEntry,
    delete_journal,
    knobs_of,
    refuse_too_many,
    still_set,
    write_journal,
)
from joulewise.control.lock import FileLock
from joulewise.domain.control import Holder
from joulewise.domain.errors import DeviceError, NotPermitted
from joulewise.domain.points import CLOCK_KNOBS, FoundSetting, OperatingPoint, Touched
from joulewise.domain.ports import AskedKeeper, Gpu, ReadBackGpu

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
        # As they read since, where clocks are files: what reads otherwise is somebody else's.
        self._settings_set: tuple[FoundSetting, ...] | None = None
        self._yielded: frozenset[str] = frozenset()
        self._is_limit_ours = False
        # The one asked for last, and what may be set besides since the device failed.
        self._limits_set_w: frozenset[float] = frozenset()
        self._marks = (mark_of(self._owner_pid), hold.lock.mark)
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

    @property
    def unguarded(self) -> str | None:
        """Why nobody would give the clocks back at present, should this process be killed."""
        return self._hold.guard.trouble

    @property
    def taken_over(self) -> str | None:
        """That somebody removed the lock file, in a sentence, so that others could set clocks.

        `None`: the lease still keeps them out.
        """
        with self._steps:
            if self._is_over or self._hold.lock.is_in_place:
                return None
            other = self._hold.lock.successor()
        name = self._gpu.identity.name
        by = "others may set it meanwhile" if other is None else f"{other.text} has it now"
        return f"somebody removed the lock file of {name}: {by}"

    def apply(self, point: OperatingPoint) -> None:
        """Ask for a point; what it touches is on disk before the device hears of it.

        That is which knobs, every power limit, and the one found before it was touched. Before
        all that the guard says that it watches. A clock that was yielded stays somebody else's
        until it is asked for by name again.

        Clock locks that others left are dropped once the first point is taken.

        Raises:
            DeviceError: the lease is over, somebody else has the GPU by now, no guard can be had,
                or the GPU could not be put back as it is found; NotPermitted, NotSupported
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
            self._refuse_taken_over()
            if not point.is_auto:
                guard_pid = self._hold.guard.ensure(self._gpu.identity.uuid)
                self._hold.lock.tell_guard(guard_pid)
            yielded = self._yielded - knobs_of(point)
            self._write_down(point)
            self._yielded = yielded
            limit_w = point.power_limit_w
            limits_w = frozenset() if limit_w is None else frozenset({limit_w})
            self._is_limit_ours = self._is_limit_ours or limit_w is not None
            self._limits_set_w |= limits_w
            try:
                self._request(point)
            except NotPermitted:
                self._forget_what_was_refused()
                raise
            self._is_limit_ours, self._limits_set_w = limit_w is not None, limits_w
            self._has_set_clocks = True
            self._asked = point
            if not self._has_begun:
                self._has_begun = True
                self._free_clocks(point)

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
            is_settled = False
            try:
                self._leave_alone_or_give_back()
                is_settled = True
            except _TakenOverError:
                is_settled = True
                raise
            finally:
                self._hold.lock.release()
                uuid, guard = self._gpu.identity.uuid, self._hold.guard
                # What was refused now may be taken later: then the guard goes on trying, unless
                # somebody else holds the GPU.
                guard.unwatch(uuid) if is_settled else guard.give_back(uuid)
                # What was left to somebody else is nobody's to give back any more.
                if is_settled and isinstance(self._gpu, AskedKeeper):
                    self._gpu.forget_asked()

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

    def _refuse_taken_over(self) -> None:
        """Where somebody removed the lock file and another one has the GPU: it is theirs now."""
        other = self._hold.lock.successor()
        if other is not None:
            raise _TakenOverError(
                f"{other.text} has {self._gpu.identity.name} by now, for somebody removed the "
                "lock file of this lease; what is set there is left alone",
                hint="What ran here meanwhile did not run at the clocks asked for.",
            )

    def _leave_alone_or_give_back(self) -> None:
        if self._touched.knobs:
            self._refuse_taken_over()
        self._give_back()

    def _free_clocks(self, point: OperatingPoint) -> None:
        """Drop clock locks that others left, for they would pin what is left to the driver.

        They cannot be read, so they cannot be put back either. An account that may set nothing
        goes on, and so does whoever meets another refusal: what holds the clocks down shows in
        the windows. The memory clock is freed only where it may be set, and a GPU that no other
        process reaches has no such locks. Where clocks are read back, how they were found is
        told instead, and nothing is freed that is to be put back as found.
        """
        if self._gpu.identity.is_in_process or isinstance(self._gpu, ReadBackGpu):
            return
        memory = ("mem_clock_mhz",) if self._gpu.clock_grid().mem_clocks_mhz else ()
        free = frozenset(("sm_clock_mhz", *memory)) - knobs_of(point)
        if free:
            with suppress(DeviceError):
                self._gpu.reset(Touched(knobs=free))

    def _write_down(self, point: OperatingPoint) -> None:
        """Undoing needs no more than that, so points that touch nothing new cost no write."""
        touched = self._touched_with(point)
        if touched != self._touched:
            self._has_written = True
            write_journal(self._hold.journal, self._entry(touched))
            self._touched = touched

    def _touched_with(self, point: OperatingPoint) -> Touched:
        """What is touched once this point is asked for."""
        known, knobs = self._touched, knobs_of(point)
        found, asked_w = known.found, known.asked_limits_w or ()
        if knobs - known.knobs and isinstance(self._gpu, ReadBackGpu):
            found = found_now(self._gpu, found, known.knobs, knobs)
        if point.power_limit_w is not None:
            # Given back to the driver, it may have been set by somebody else since.
            now = None if self._is_limit_ours else self._gpu.knob_state()
            settings = () if found is None else found.settings
            found = found if now is None else replace(now, settings=settings or now.settings)
            refuse_too_many(point.power_limit_w, asked_w)
            asked_w = tuple(dict.fromkeys((*asked_w, point.power_limit_w)))
        return Touched(knobs=known.knobs | knobs, found=found, asked_limits_w=asked_w)

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
        if isinstance(self._gpu, ReadBackGpu):
            self._settings_set = self._gpu.knob_state().settings

    def _forget_what_was_refused(self) -> None:
        """An account that may set nothing leaves no journal that it could not undo either."""
        if self._has_set_clocks:
            return
        try:
            # Of several knobs the device may have taken one before it refused the next.
            self._gpu.reset()
            check_given_back(self._gpu, self._still_touched())
        except DeviceError:
            return
        delete_journal(self._hold.journal)
        self._touched, self._is_limit_ours = _NOTHING, False
        self._limits_set_w = frozenset()

    def _give_back(self) -> None:
        if not self._touched.knobs:
            if self._has_written:
                delete_journal(self._hold.journal)
            return
        self._is_left_set = True
        # The device knows best what it took of what was asked for.
        self._gpu.reset(self._touched if self._yielded else None)
        check_given_back(self._gpu, self._still_touched(), self._settings_set)
        self._is_left_set = False
        delete_journal(self._hold.journal)

    def _still_touched(self) -> Touched:
        """Without a power limit that was given back before the end.

        One that was asked for before the last is somebody else's, where it reads so now: only
        of a process that is gone nobody knows which was its last.
        """
        given_back = () if self._is_limit_ours else ("power_limit_w",)
        return replace(
            self._touched,
            knobs=self._touched.knobs.difference(given_back),
            asked_limits_w=tuple(sorted(self._limits_set_w)),
        )

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
            author=self._marks[0],
            lock=self._marks[1],
        )


class _TakenOverError(DeviceError):
    """Somebody else has the GPU by now."""
