"""Reading whole files, and one clear sentence where that fails."""

from __future__ import annotations

import stat
from pathlib import Path

from joulewise.domain.errors import InputError

# A thousand times a large sweep; a stream without end (/dev/zero) stops here too.
MOST_BYTES_COUNT = 512 * 2**20


def read_bytes(path: Path) -> bytes:
    """All bytes of a file.

    Raises:
        InputError: it is missing, a folder, a pipe, not readable, or too large to be meant.
    """
    refuse_pipe(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES_COUNT + 1)
    except (OSError, ValueError) as error:
        raise file_error(error, path, doing="read") from error
    if len(raw) > MOST_BYTES_COUNT:
        raise InputError(
            f"the file is larger than {MOST_BYTES_COUNT // 2**20} MiB",
            file=str(path),
            hint="Check that this is the file that was meant.",
        )
    return raw


def refuse_pipe(path: Path) -> None:
    """Refuse what is a pipe or a socket: opening one may wait forever for its other end.

    A path that cannot be looked at is left to whoever opens it.

    Raises:
        InputError: it is a pipe or a socket.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        what = "a pipe" if stat.S_ISFIFO(mode) else "a socket"
        raise InputError(
            f"this is {what}, not a file", file=str(path), hint="Write it to a file first."
        )


def decode_text(raw: bytes, file: str) -> str:
    """Text of UTF-8 bytes, with or without a byte order mark.

    Raises:
        InputError: they are not UTF-8; `row` is then the data row below a header line.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line_count_above = raw[: error.start].count(b"\n")
        raise InputError(
            "the file is not UTF-8 text",
            file=file,
            row=line_count_above or None,
            hint="Save it as UTF-8.",
        ) from error


def file_error(error: OSError | ValueError, path: Path, *, doing: str) -> InputError:
    """Say what the operating system refused; `doing` is 'read' or 'written'."""
    verb = "read" if doing == "read" else "written"
    if isinstance(error, FileNotFoundError) and doing == "read":
        return InputError("there is no such file", file=str(path), hint="Check the path.")
    if isinstance(error, FileNotFoundError) and not path.parent.is_dir():
        return InputError(
            "the folder it should go to does not exist",
            file=str(path),
            hint=f"Make the folder {path.parent} first.",
        )
    if isinstance(error, IsADirectoryError):
        return InputError("this is a folder, not a file", file=str(path), hint="Name a file.")
    if isinstance(error, NotADirectoryError):
        return InputError(
            f"it cannot be {verb}: a part of its path is a file, not a folder",
            file=str(path),
            hint="Check the path.",
        )
    if isinstance(error, PermissionError):
        return InputError(
            f"it may not be {verb} by this account",
            file=str(path),
            hint="Change the permissions or choose another place.",
        )
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(
        f"it cannot be {verb}: {reason}", file=str(path), hint="Choose another place."
    )
