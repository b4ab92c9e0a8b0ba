"""Exclusive locks on open files; they end with the process that holds them."""

from __future__ import annotations

import os
import sys

# Windows locks bytes and keeps others from reading them: lock one that no journal reaches.
_FAR_BYTE = 1 << 40


if sys.platform == "win32":

    def lock_exclusively(descriptor: int) -> bool:
        """Take the lock without waiting; whether it was free."""
        import msvcrt  # noqa: PLC0415 - Windows only

        os.lseek(descriptor, _FAR_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def lock_exclusively(descriptor: int) -> bool:
        """Take the lock without waiting; whether it was free."""
        import fcntl  # noqa: PLC0415 - Unix only

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
