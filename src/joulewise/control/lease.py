"""The lease: the right to set clocks on one GPU, which ends with its holder.

The order of steps is what makes it safe to be killed between any two of them: lock the GPU,
have it watched by a guard, undo what a dead holder left, see the guard confirm, write the journal,
set the device; then reset it, verify, delete the journal, drop the lock, and have it watched no
more.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from joulewise.control.gpu_lease import GpuLease, Hold
from joulewise.control.guard_port import Guard, NoGuard
from joulewise.control.holder import this_process
from joulewise.control.journal import refuse_living_author, replay
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
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.ports import AskedKeeper, Gpu

__all__ = ["GpuLease", "hold", "take_lease"]


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
    # This process may go to another folder meanwhile.
    state_dir = state_dir.absolute()
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
        if not identity.is_in_process:
            # The lock file of one that is goes with each lease, and the author lives as we do.
            refuse_living_author(journal, lock.mark)
        remove_half_written(journal)
        if isinstance(gpu, AskedKeeper):
            gpu.forget_asked()
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
