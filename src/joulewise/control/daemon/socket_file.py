"""The socket that `joulewised` listens at, as a file."""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from joulewise.control.daemon.trusted_file import checked_folder
from joulewise.control.lock import FileLock
from joulewise.domain.control import Holder
from joulewise.domain.errors import BusyError, InputError

_BACKLOG_COUNT = 128
# Anybody may connect: what they may do is told by who they are.
_UMASK_FOR_ALL = 0o111
_TRY_S = 1.0
# What the kernel's structure holds, but for the NUL at its end.
_LONGEST_PATH_BYTES = 107
_HINT = "Name another path with --socket; it may have about 100 characters."
_CREDENTIALS = struct.Struct("3i")


@contextmanager
def listening_at(path: Path) -> Iterator[socket.socket]:
    """Listen at a path for the length of a block; the file is removed at its end.

    Its folder is made where it is missing, and has to be one that others cannot change. What a
    daemon left there that is dead is replaced.

    Raises:
        BusyError: another daemon listens there; the message names it.
        InputError: something else is there, or no socket can be made.
    """
    _require_possible(path)
    folder = checked_folder(path.parent, is_shared_fine=True)
    path = folder / path.name
    # Before a lock is left beside it.
    _require_socket_or_nothing(path)
    lock = _locked(path)
    try:
        _clear_away(path)
        listening = _bound(path)
        ours = path.lstat()
        try:
            with listening:
                yield listening
        finally:
            _remove(path, ours)
    finally:
        lock.release()


@contextmanager
def sole_daemon(state_dir: Path) -> Iterator[None]:
    """Be the one joulewised that serves GPUs from this state folder, for the length of a block.

    Raises:
        BusyError: another one does; the message names it.
        InputError: the folder cannot be used.
    """
    lock = FileLock(state_dir / "joulewised.lock")
    try:
        lock.acquire(str(state_dir), Holder(pid=os.getpid(), command="joulewised"))
    except BusyError as error:
        raise BusyError(
            f"another joulewised serves the GPUs from this state folder: {error.message}",
            hint="One joulewised serves all GPUs: end that one first.",
        ) from error
    try:
        yield
    finally:
        lock.release()


def check_place(path: Path) -> None:
    """Raise InputError where no daemon could listen; makes and removes nothing."""
    _require_possible(path)
    if os.path.lexists(path.parent):
        checked_folder(path.parent, is_shared_fine=True)
        _require_socket_or_nothing(path)


def _require_possible(path: Path) -> None:
    """Raise InputError for a path that no socket can have."""
    if not path.name or len(os.fsencode(path.absolute())) > _LONGEST_PATH_BYTES:
        what = "it is too long" if path.name else "it names no file"
        raise InputError(f"joulewised cannot listen there: {what}", file=str(path), hint=_HINT)


def _locked(path: Path) -> FileLock:
    """Of two that start at once one waits for the other's socket, and then finds it alive."""
    beside = path.with_name(f"{path.name}.lock")
    lock = FileLock(beside)
    try:
        lock.acquire(str(path), Holder(pid=os.getpid(), command="joulewised"))
    except BusyError as error:
        raise BusyError(
            f"another joulewised starts or serves there: {error.message}",
            hint="One joulewised serves all GPUs: end that one first, or name another --socket.",
        ) from error
    except InputError as error:
        raise InputError(
            f"joulewised cannot keep others from listening there: {error.message}",
            file=str(beside),
            hint="Move that file away, or name another path with --socket.",
        ) from error
    return lock


def _clear_away(path: Path) -> None:
    """Remove a socket that nobody listens at. Raises BusyError, InputError for all else."""
    if not _require_socket_or_nothing(path):
        return
    pid = _listener(path)
    if pid is not None:
        raise BusyError(
            f"{path} is served by {f'process {pid}' if pid else 'another process'} already",
            hint="One joulewised serves all GPUs: end that one first, or name another --socket.",
        )
    with suppress(FileNotFoundError):
        path.unlink()


def _require_socket_or_nothing(path: Path) -> bool:
    """Whether a socket is there. Raises InputError where something else is."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unusable(path, error) from error
    if not stat.S_ISSOCK(found.st_mode):
        what = "a link" if stat.S_ISLNK(found.st_mode) else "no socket"
        raise InputError(
            f"{what} is in the place of the socket of joulewised",
            file=str(path),
            hint="Move it away, or name another path with --socket.",
        )
    return True


def _listener(path: Path) -> int | None:
    """Process id of who listens there; `None` where nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        trying.settimeout(_TRY_S)
        try:
            trying.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        except (BlockingIOError, TimeoutError):
            return 0
        except OSError as error:
            raise _unusable(path, error) from error
        told = trying.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid: int = _CREDENTIALS.unpack(told)[0]
        return pid


def _bound(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(_UMASK_FOR_ALL)
    try:
        listening.bind(str(path))
        listening.listen(_BACKLOG_COUNT)
    except OSError as error:
        listening.close()
        raise _unusable(path, error) from error
    finally:
        os.umask(mask)
    return listening


def _remove(path: Path, ours: os.stat_result) -> None:
    """Remove our own socket, and never one that came in its place."""
    with suppress(OSError):
        found = path.lstat()
        if (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino):
            path.unlink()


def _unusable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"joulewised cannot listen there: {error.strerror or error}", file=str(path), hint=_HINT
    )
