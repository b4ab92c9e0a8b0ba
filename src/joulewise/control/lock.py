"""An exclusive lock on a file that the operating system drops when its holder dies.

A guard process is sent a copy of the open file, and the lock lasts until it lets go as well:
between the death of a holder and the giving back of its clocks nobody else gets the GPU.
"""

from __future__ import annotations

import os
import stat
import sys
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from joulewise.control.holder import is_alive
from joulewise.control.state import unusable
from joulewise.domain.control import Holder
from joulewise.domain.errors import BusyError, InputError
from joulewise.store.lock import lock_exclusively

_LONGEST_NAME_BYTES = 512
# A guard process gives back within a second; a living holder is not waited for.
_GIVING_BACK_S = 3.0
# Between taking a lock and writing its name nobody is named.
_NAMING_S = 0.5
_LOOK_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedHolder:
    """What stands in a lock file: a holder in words, and its process id where that is told."""

    text: str
    pid: int | None

    @property
    def is_dead(self) -> bool:
        """Whether that process is known to have ended."""
        return self.pid is not None and not is_alive(self.pid)


class FileLock:
    """One holder at a time, across processes and within one; forked children have no part in it.

    `is_kept` leaves the file behind when the lock is dropped, as it must be where processes
    meet at it: one could still lock the removed file while another makes a new one.
    """

    def __init__(self, path: Path, *, is_kept: bool = True) -> None:
        self._path = path
        self._is_kept = is_kept
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The open file that is locked; only while it is."""
        if self._descriptor is None:
            raise ValueError(f"{self._path} is not locked")
        return self._descriptor

    def acquire(self, what: str, holder: Holder) -> None:
        """Take the lock; `what` names the thing it guards, and `holder` who takes it.

        A living holder is not waited for; one that died is, for a moment, since its guard
        process gives its clocks back right then.

        Raises:
            BusyError: another holder has it; the message names it.
            InputError: the file cannot be opened.
        """
        descriptor = open_lock(self._path)
        try:
            _lock_or_wait(descriptor, self._path, what)
            name_holder(descriptor, holder)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _HELD.add(self)

    def release(self) -> None:
        """Drop the lock; harmless when repeated."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        _HELD.discard(self)
        unlock(descriptor)
        os.close(descriptor)
        if not self._is_kept:
            self._path.unlink(missing_ok=True)

    def forget_in_child(self) -> None:
        """Close a forked child's copy: the lock is its parent's, and ends with that."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_HELD: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _forget_all_in_child() -> None:
    for lock in list(_HELD):
        lock.forget_in_child()
    _HELD.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_all_in_child)


def open_lock(path: Path) -> int:
    """Open a lock file, made where it is missing; never through a link.

    Raises InputError where it cannot be opened, or is no plain file.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise unusable(path, error) from error
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise InputError("a lock is a plain file, and this is none", file=str(path), hint="Remove it.")


def name_holder(descriptor: int, holder: Holder) -> None:
    """Write who holds a locked file, for those who find it locked."""
    # The process that the lock ends with is not always the one that the words begin with.
    _write_name(descriptor, holder.text, os.getpid())


def name_guard(descriptor: int, client_pid: int) -> None:
    """Write whose guard process holds a locked file, where its client has not left its name."""
    if named_holder(descriptor) is None:
        _write_name(descriptor, f"the guard process of process {client_pid}", client_pid)


def _write_name(descriptor: int, text: str, pid: int) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f"{text}\n{pid}\n".encode())


def named_holder(descriptor: int) -> NamedHolder | None:
    """Who is named in a lock file; `None` where nobody is."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    lines = os.read(descriptor, _LONGEST_NAME_BYTES).decode("utf-8", "replace").split("\n")
    text = lines[0].strip()
    if not text:
        return None
    # An older joulewise wrote its process id, and nothing else.
    number = text if text.isdecimal() else lines[1].strip() if lines[1:] else ""
    pid = int(number) if number.isdecimal() and number.isascii() else None
    return NamedHolder(text=f"process {text}" if text.isdecimal() else text, pid=pid)


def unlock(descriptor: int) -> None:
    """Drop the lock now, also where others have a copy of the open file.

    Windows has no such copies, and drops the lock when the file is closed.
    """
    # An emptied file names nobody, where the next holder has not written its name yet.
    os.ftruncate(descriptor, 0)
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415 - Unix only

        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _lock_or_wait(descriptor: int, path: Path, what: str) -> None:
    """Lock, and wait for no living holder. Raises BusyError."""
    begin_s = time.monotonic()
    while not lock_exclusively(descriptor):
        holder = named_holder(descriptor)
        waited_s = time.monotonic() - begin_s
        patience_s = _NAMING_S if holder is None else _GIVING_BACK_S if holder.is_dead else 0.0
        if waited_s >= patience_s:
            raise _busy(what, holder, path)
        time.sleep(_LOOK_AGAIN_S)


def _busy(what: str, holder: NamedHolder | None, path: Path) -> BusyError:
    if holder is not None and holder.is_dead:
        return BusyError(
            f"{what} was held by {holder.text}, which ended, and its clocks are not given back yet",
            file=str(path),
            hint="Its guard process tries for a minute; try again then.",
        )
    return BusyError(
        f"{what} is held by {'another process' if holder is None else holder.text}",
        file=str(path),
        hint="Wait until it ends, or end it; one process at a time may set clocks.",
    )
