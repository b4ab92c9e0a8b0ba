"""An exclusive lock on a file that the operating system drops when its holder dies."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from joulewise.control.state import unusable
from joulewise.domain.errors import BusyError
from joulewise.store.lock import lock_exclusively

_LONGEST_NAME_BYTES = 64


class FileLock:
    """One holder at a time, across processes and within one.

    `is_kept` leaves the file behind when the lock is dropped, as it must be where processes
    meet at it: one could still lock the removed file while another makes a new one.
    """

    def __init__(self, path: Path, *, is_kept: bool = True) -> None:
        self._path = path
        self._is_kept = is_kept
        self._descriptor: int | None = None

    def acquire(self, what: str) -> None:
        """Take the lock at once or not at all; `what` names the thing it guards.

        Raises:
            BusyError: another holder has it; the message names its process id.
            InputError: the file cannot be opened.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise unusable(self._path, error) from error
        is_free = lock_exclusively(descriptor)
        os.lseek(descriptor, 0, os.SEEK_SET)
        if not is_free:
            holder = os.read(descriptor, _LONGEST_NAME_BYTES).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise BusyError(
                f"{what} is held by {f'process {holder}' if holder else 'another process'}",
                file=str(self._path),
                hint="Wait until it ends, or end it; one process at a time may set clocks.",
            )
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        self._descriptor = descriptor

    def release(self) -> None:
        """Drop the lock; harmless when repeated."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        # An emptied file names nobody, where the next holder has not written its name yet.
        os.ftruncate(descriptor, 0)
        _unlock(descriptor)
        os.close(descriptor)
        if not self._is_kept:
            self._path.unlink(missing_ok=True)


def _unlock(descriptor: int) -> None:
    """Drop the lock now, also where a forked child has inherited the open file.

    Windows has no forked children, and drops the lock when the file is closed.
    """
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415 - Unix only

        fcntl.flock(descriptor, fcntl.LOCK_UN)
