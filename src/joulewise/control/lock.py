"""An exclusive lock on a file that the operating system drops when its holder dies.

A guard process is sent a copy of the open file, and the lock lasts until it lets go as well:
between the death of a holder and the giving back of its clocks nobody else gets the GPU.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
import time
import weakref
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from joulewise.control.holder import has_open, is_alive
from joulewise.control.state import unusable
from joulewise.domain.control import Holder
from joulewise.domain.errors import BusyError, InputError
from joulewise.store.lock import lock_exclusively

# Far more than a name ever takes: no part of it is longer than that, in bytes.
_LONGEST_NAME_BYTES = 4096
_LONGEST_PART_BYTES = 256
_UNKNOWN = "another process"
_OWN_MODE = 0o600
_LAST_STANDARD = 2
# A guard process gives back within a second; a living holder is not waited for.
_GIVING_BACK_S = 3.0
# Between taking a lock and writing its name nobody is named.
_NAMING_S = 0.5
_LOOK_AGAIN_S = 0.01


class Kind(StrEnum):
    """Who has a lock: the holder itself, or the guard process that gives back for it."""

    HOLDER = "holder"
    GUARD = "guard"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedHolder:
    """What stands in a lock file.

    `holder` is whose clocks are set, `None` where the file does not say so in a way that is
    understood, as that of an older joulewise. `pid` is the process that the lock ends with: the
    daemon of a holder that is leased through one, or a guard process. `guard_pid` is the guard
    process of a holder, where it has said that it watches.
    """

    holder: Holder | None = None
    pid: int | None = None
    kind: Kind = Kind.HOLDER
    guard_pid: int | None = None

    @property
    def text(self) -> str:
        """As errors name it."""
        name = _UNKNOWN if self.holder is None else self.holder.text
        return f"the guard of {name}" if self.is_giving_back else name

    @property
    def giver_pid(self) -> int | None:
        """The guard process that gives back now, where it is known and lives."""
        pid = self.pid if self.kind is Kind.GUARD else self.guard_pid
        return pid if pid is not None and self.is_giving_back and is_alive(pid) else None

    @property
    def is_dead(self) -> bool:
        """Whether the process that has the lock is known to have ended."""
        return self.pid is not None and not is_alive(self.pid)

    @property
    def is_giving_back(self) -> bool:
        """Whether the holder let go or died, and its guard process gives its clocks back."""
        return self.kind is Kind.GUARD or self.is_dead


class FileLock:
    """One holder at a time, across processes and within one; forked children have no part in it.

    `is_kept` leaves the file behind when the lock is dropped, as it must be where processes
    meet at it: one could still lock the removed file while another makes a new one.
    """

    def __init__(self, path: Path, *, is_kept: bool = True) -> None:
        self._path = path
        self._is_kept = is_kept
        self._descriptor: int | None = None
        self._holder: Holder | None = None
        self._guard_pid: int | None = None

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
            InputError: the file cannot be opened, or nothing can be written there.
        """
        self._descriptor = self._locked(what, holder)
        self._holder, self._guard_pid = holder, None
        _HELD.add(self)

    def _locked(self, what: str, holder: Holder) -> int:
        while True:
            descriptor = open_lock(self._path)
            try:
                _lock_or_wait(descriptor, self._path, what)
                # Whoever let go may have removed the file, and others meet at the new one.
                if is_in_place(descriptor, self._path):
                    name_holder(descriptor, holder)
                    return descriptor
                os.close(descriptor)
            except OSError as error:
                os.close(descriptor)
                raise unusable(self._path, error) from error
            except BaseException:
                os.close(descriptor)
                raise

    @property
    def mark(self) -> str:
        """What tells this very file from one that takes its place; only while it is locked."""
        return mark_of_file(self.descriptor)

    @property
    def is_in_place(self) -> bool:
        """Whether others still meet at this file; only while it is locked."""
        return is_in_place(self.descriptor, self._path)

    def successor(self) -> NamedHolder | None:
        """Who has the lock at this path where that is another file by now; `None`: nobody else.

        Somebody removed the file under its holder, and the next one made another.
        """
        return None if self.is_in_place else holder_at(self._path)

    def tell_guard(self, guard_pid: int | None) -> None:
        """Name the guard process that watches, for those whom it would keep waiting."""
        if self._holder is None or guard_pid in {None, self._guard_pid}:
            return
        with contextlib.suppress(OSError):
            name_holder(self.descriptor, self._holder, guard_pid)
            self._guard_pid = guard_pid

    def release(self) -> None:
        """Drop the lock; harmless when repeated."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        _HELD.discard(self)
        if not self._is_kept and os.name == "posix":
            # Whoever waits for it sees that it is gone, and makes another.
            with contextlib.suppress(OSError):
                self._path.unlink()
        unlock(descriptor)
        os.close(descriptor)
        if not self._is_kept and os.name != "posix":
            # An open file cannot be removed there.
            with contextlib.suppress(OSError):
                self._path.unlink()

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
    """Open a lock file, made where it is missing, its owner's alone; never through a link.

    Raises InputError where it cannot be opened, or is no plain file.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = above_standard(os.open(path, flags, _OWN_MODE))
    except OSError as error:
        raise unusable(path, error) from error
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode):
        _keep_to_owner(descriptor, found)
        return descriptor
    os.close(descriptor)
    raise InputError("a lock is a plain file, and this is none", file=str(path), hint="Remove it.")


def above_standard(descriptor: int) -> int:
    """The same open file under a number that no standard stream ever takes.

    A program that closed its streams gets their numbers for what it opens next, and loses that
    to whatever is started with streams of its own. Raises OSError; then it is closed.
    """
    if os.name != "posix" or descriptor > _LAST_STANDARD:
        return descriptor
    import fcntl  # noqa: PLC0415 - Unix only

    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LAST_STANDARD + 1)
    finally:
        os.close(descriptor)


def mark_of_file(descriptor: int) -> str:
    """What tells this very file from all others, as long as somebody has it open."""
    found = os.fstat(descriptor)
    return f"{found.st_dev}:{found.st_ino}"


def is_in_place(descriptor: int, path: Path) -> bool:
    """Whether this open file is still the one at that path."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def _keep_to_owner(descriptor: int, found: os.stat_result) -> None:
    """Whatever the umask was under which it was made, now or by an older joulewise."""
    if os.name != "posix" or found.st_uid != os.geteuid():
        return
    if stat.S_IMODE(found.st_mode) != _OWN_MODE:
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, _OWN_MODE)


def name_holder(descriptor: int, holder: Holder, guard_pid: int | None = None) -> None:
    """Write who holds a locked file, and who watches, for those who find it locked."""
    _write_name(descriptor, holder, Kind.HOLDER, guard_pid)


def name_guard(descriptor: int, client_pid: int) -> None:
    """Write that the guard process has a locked file now, and still for whom."""
    named = named_holder(descriptor)
    holder = None if named is None else named.holder
    _write_name(descriptor, holder or Holder(pid=client_pid), Kind.GUARD)


def _write_name(descriptor: int, holder: Holder, kind: Kind, guard_pid: int | None = None) -> None:
    """One line of JSON; the file is at no moment empty, and its first line always whole."""
    fields = {
        **asdict(holder),
        "user": _cut(holder.user),
        "command": _cut(holder.command),
        "kind": kind.value,
        # The process that the lock ends with is not always the one that sets clocks.
        "lock_pid": os.getpid(),
        **({} if guard_pid is None else {"guard_pid": guard_pid}),
    }
    line = f"{json.dumps(fields)}\n".encode()
    os.lseek(descriptor, 0, os.SEEK_SET)
    if os.write(descriptor, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(descriptor, len(line))


def _cut(text: str | None) -> str | None:
    """So much of it that it takes no more than its share of the line."""
    while text is not None and len(json.dumps(text)) > _LONGEST_PART_BYTES:
        text = text[: len(text) * 3 // 4]
    return text


def named_holder(descriptor: int) -> NamedHolder | None:
    """Who is named in a lock file; `None` where nobody is."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    line = os.read(descriptor, _LONGEST_NAME_BYTES).partition(b"\n")[0].strip()
    if not line:
        return None
    try:
        fields = json.loads(line)
        holder = Holder(
            pid=_pid(fields["pid"]),
            user=_words(fields["user"]),
            command=_words(fields["command"]),
            daemon_pid=None if fields["daemon_pid"] is None else _pid(fields["daemon_pid"]),
            is_idle_policy=fields["is_idle_policy"] is True,
        )
        return NamedHolder(
            holder=holder,
            pid=_pid(fields["lock_pid"]),
            kind=Kind(fields["kind"]),
            guard_pid=None if fields.get("guard_pid") is None else _pid(fields["guard_pid"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        # An older joulewise wrote words.
        return NamedHolder()


def _pid(told: object) -> int:
    if type(told) is not int or told < 1:
        raise ValueError(f"{told!r} is no process id")
    return told


def _words(told: object) -> str | None:
    if told is not None and not isinstance(told, str):
        raise ValueError(f"{told!r} is no name")
    return told


def holder_at(path: Path) -> NamedHolder | None:
    """Who has the lock at this path now; `None` where nobody does, or it cannot be looked at.

    A dead holder's name may still stand there. Only a file that names somebody is tried, so
    nobody who takes a free lock is in the way.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    try:
        named = named_holder(descriptor)
        return None if named is None or lock_exclusively(descriptor) else named
    except OSError:
        return None
    finally:
        os.close(descriptor)


def unlock(descriptor: int) -> None:
    """Drop the lock now, also where others have a copy of the open file.

    Windows has no such copies, and drops the lock when the file is closed.
    """
    # An emptied file names nobody, where the next holder has not written its name yet.
    with contextlib.suppress(OSError):
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
        patience_s = (
            _NAMING_S if holder is None else _GIVING_BACK_S if holder.is_giving_back else 0.0
        )
        if waited_s >= patience_s:
            raise _busy(what, holder, path)
        time.sleep(_LOOK_AGAIN_S)


def _busy(what: str, named: NamedHolder | None, path: Path) -> BusyError:
    if named is not None and named.is_giving_back:
        giver_pid = named.giver_pid
        # Its number may be another's by now, and nobody must be told to end that one.
        if giver_pid is not None and not has_open(giver_pid, path):
            giver_pid = None
        is_named = "" if giver_pid is None else f", process {giver_pid}"
        stuck = "" if giver_pid is None else f" If it does not end: kill -KILL {giver_pid}."
        return BusyError(
            f"{what} is being given back by {named.text}{is_named}",
            file=str(path),
            hint="It tries for a minute; try again then. joulewise restore tells what is left."
            f"{stuck}",
        )
    return BusyError(
        f"{what} is held by {_UNKNOWN if named is None else named.text}",
        file=str(path),
        hint="Wait until it ends, or end it; one process at a time may set clocks.",
    )
