"""The files by which an embedded board tells and takes its settings, below one root folder.

A path is always the board's own (`/sys/class/devfreq/...`), wherever its tree lies: containers
mount `/sys` elsewhere, and fake trees lie in any folder.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Protocol

from joulewise.domain.errors import DeviceError, NotPermitted

_LARGEST_BYTES = 1 << 20


class BoardFiles(Protocol):
    """What an adapter asks of the files of a board; `path` begins with a slash."""

    def read(self, path: str) -> str | None:
        """All text of a file, without white space at its ends; `None` where there is none.

        A file that is there and cannot be read at present is `None` as well. Raises NotPermitted.
        """
        ...

    def write(self, path: str, text: str) -> None:
        """Put one setting. Raises NotPermitted; DeviceError where the kernel refuses it."""
        ...

    def names(self, path: str) -> tuple[str, ...]:
        """Names in a folder, sorted; none where there is no such folder. Raises NotPermitted."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder, as far as this account may see."""
        ...

    def place(self, path: str) -> str:
        """Where this process finds the file, for people who want to look at it."""
        ...


class FolderFiles:
    """The files below a folder; `/` on the board itself."""

    def __init__(self, root: Path) -> None:
        """Look nowhere yet."""
        self._root = root

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    def place(self, path: str) -> str:
        """The path below the root."""
        return str(self._root / path.lstrip("/"))

    def read(self, path: str) -> str | None:
        """All text of a file; drivers answer with errors where they cannot tell."""
        try:
            # Whoever opens a pipe waits for its other end, unless he says that he will not.
            descriptor = os.open(self.place(path), os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                if not _is_regular(descriptor):
                    return None
                content = file.read(_LARGEST_BYTES)
        except PermissionError as error:
            raise _denied(self.place(path), "read") from error
        except OSError:
            return None
        return content.decode("utf-8", errors="replace").strip("\0 \t\r\n")

    def write(self, path: str, text: str) -> None:
        """Write in one call, as sysfs wants it; a file that is not there is never made."""
        place = self.place(path)
        try:
            descriptor = os.open(place, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK)
            try:
                if not _is_regular(descriptor):
                    raise OSError(errno.EINVAL, "no regular file")
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)
        except PermissionError as error:
            raise _denied(place, "write") from error
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DeviceError(
                f"{text} could not be written to {place}: {reason}",
                hint="The kernel refused the value, or the driver is not ready.",
            ) from error

    def names(self, path: str) -> tuple[str, ...]:
        """Names in a folder, sorted."""
        try:
            return tuple(sorted(os.listdir(self.place(path))))  # noqa: PTH208 - names are asked for
        except PermissionError as error:
            raise _denied(self.place(path), "list") from error
        except OSError:
            return ()

    def exists(self, path: str) -> bool:
        """Whether there is one, as far as this account may see."""
        return os.path.exists(self.place(path))  # noqa: PTH110 - errors count as absent


def _is_regular(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _denied(place: str, what: str) -> NotPermitted:
    return NotPermitted(
        f"this account may not {what} {place}",
        hint="Run as root: clocks are set through sysfs and debugfs, which belong to root.",
    )
