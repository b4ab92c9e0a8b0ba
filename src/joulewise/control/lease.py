"""The lease: the right to set clocks on one GPU, which ends with its holder."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from joulewise.control.journal import (
    JournalEntry,
    check_given_back,
    delete_journal,
    knobs_of,
    replay,
    still_set,
    write_journal,
)
from joulewise.control.lock import FileLock
from joulewise.control.signals import SignalGuard
from joulewise.control.state import (
    default_state_dir,
    make_state_dir,
    remove_abandoned,
    state_file,
)
from joulewise.domain.errors import DeviceError, JoulewiseError, NotPermitted
from joulewise.domain.points import OperatingPoint, Touched
from joulewise.domain.ports import Gpu, Lease


class GpuLease:
    """A lease on one GPU; made by `hold`, which also takes the lock.

    Nothing reaches the device before the first `apply`, and nothing is given back at the end
    that was never touched.
    """

    def __init__(self, gpu: Gpu, journal: Path, lock: FileLock, signals: SignalGuard) -> None:
        self._gpu = gpu
        self._journal = journal
        self._lock = lock
        self._signals = signals
        self._holder_pid = os.getpid()
        self._touched = Touched(knobs=frozenset())
        self._is_limit_ours = False
        self._has_begun = False
        self._has_set_clocks = False
        self._is_over = False
        self._is_left_set = False

    def apply(self, point: OperatingPoint) -> None:
        """Ask for a point; what it touches is on disk before the device hears of it.

        That is which knobs, every power limit, and the one found before it was touched.

        Raises:
            DeviceError: the lease is over; NotPermitted, NotSupported or DeviceLost come from
                the device.
            InputError: the journal cannot be written; the device was not asked.
        """
        if self._is_over:
            raise DeviceError(
                "the lease on this GPU is over", hint="Take a new one before setting clocks."
            )
        if not self._has_begun:
            self._has_begun = True
            self._free_clocks()
        touched = self._touched_with(point)
        # Undoing needs no more than that, so points that touch nothing new cost no write.
        if touched != self._touched:
            write_journal(self._journal, self._entry(touched))
            self._touched = touched
        self._is_limit_ours = self._is_limit_ours or point.power_limit_w is not None
        self._gpu.request(point)
        self._is_limit_ours = point.power_limit_w is not None
        self._has_set_clocks = True

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

    def _touched_with(self, point: OperatingPoint) -> Touched:
        """What is touched once this point is asked for."""
        known = self._touched
        found, asked_w = known.found, known.asked_limits_w or ()
        if point.power_limit_w is not None:
            # Given back to the driver, it may have been set by somebody else since.
            found = found if self._is_limit_ours else self._gpu.knob_state()
            asked_w = tuple(dict.fromkeys((*asked_w, point.power_limit_w)))
        return Touched(knobs=known.knobs | knobs_of(point), found=found, asked_limits_w=asked_w)

    def release(self) -> None:
        """Reset, verify, drop the journal, let go; harmless when repeated.

        Raises:
            DeviceError: the device did not take its clocks back; the journal stays, so that
                the next lease tries again.
        """
        # A forked child inherits the lease by accident; it is its parent's to end.
        if self._is_over or os.getpid() != self._holder_pid:
            return
        self._signals.defer()
        self._is_over = True
        try:
            if self._touched.knobs:
                self._give_back()
        finally:
            self._lock.release()
            atexit.unregister(self.release)
            self._signals.restore()

    def still_set(self) -> str | None:
        """What the lease could not give back, where it could not; `None` elsewhere."""
        return still_set(self._entry(self._touched), self._journal) if self._is_left_set else None

    def _give_back(self) -> None:
        self._is_left_set = self._has_set_clocks
        try:
            # The device knows best what it took of what was asked for.
            self._gpu.reset()
            check_given_back(self._gpu, self._still_touched())
        except NotPermitted:
            if self._has_set_clocks:
                raise
            # An account that may set nothing has set nothing.
        self._is_left_set = False
        delete_journal(self._journal)

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
            holder=f"process {self._holder_pid}",
            touched=tuple(sorted(touched.knobs)),
            found=touched.found,
            asked_limits_w=touched.asked_limits_w,
        )


@contextmanager
def hold(gpu: Gpu, *, state_dir: Path | None = None) -> Iterator[Lease]:
    """Hold one GPU for the length of a `with` block.

    Takes the GPU's lock, undoes what a dead holder left behind, and yields the lease. Leaving
    the block in any way but SIGKILL gives the clocks back: at its end, by an exception, SIGINT
    or SIGTERM, or at the latest when the interpreter exits. After SIGKILL the next `hold` does.
    An error inside the block is the one that leaves it; a failure to give the clocks back is
    then added to it as a note.

    A GPU that other processes reach, real or of the fake driver, is locked by UUID for all
    processes that share the state folder; one that lives in this process within it only.

    Args:
        gpu: The device.
        state_dir: Folder of locks and journals; `None` for `default_state_dir()`.

    Raises:
        BusyError: another holder has the GPU; the message names its process id.
        InputError: the state folder cannot be used.
        DeviceError: clocks left behind by a dead holder could not be given back.
    """
    state_dir = default_state_dir() if state_dir is None else state_dir
    make_state_dir(state_dir)
    identity = gpu.identity
    journal = state_file(identity, state_dir, ".journal.json")
    lock = FileLock(state_file(identity, state_dir, ".lock"), is_kept=not identity.is_in_process)
    if identity.is_in_process:
        remove_abandoned(identity, state_dir)
    lock.acquire(identity.name)
    try:
        replay(journal, gpu)
    except BaseException:
        lock.release()
        raise
    signals = SignalGuard()
    lease = GpuLease(gpu, journal, lock, signals)
    atexit.register(lease.release)
    try:
        signals.install()
        yield lease
        lease.release()
    except BaseException as first:
        _release_after(lease, first)
        raise


def _release_after(lease: GpuLease, first: BaseException) -> None:
    """Release without hiding the error that ended the block."""
    try:
        lease.release()
    except JoulewiseError as error:
        first.add_note(f"The clocks could not be given back ({error}).")
    left = lease.still_set()
    if left is not None:
        first.add_note(left)
