"""Files appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.store.files import file_error


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` beside `path`, flush it to disk, and rename it into place.

    Killed at any moment, `path` holds the old content or the new; at worst a hidden file
    `.NAME.*.tmp` stays behind. A link is followed, so that what it names is replaced.

    Raises:
        InputError: the folder is missing or cannot be written to, or `path` is a folder.
    """
    try:
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise InputError("this is a folder, not a file", file=str(path), hint="Name a file.")
        # A long name plus decoration may be longer than the file system takes.
        beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")
        _replace(target, beside, content)
    except (OSError, ValueError) as error:
        raise file_error(error, path, doing="written") from error


def sync_folder(folder: Path) -> None:
    """Make a rename or a new name in `folder` last, where the system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(target: Path, beside: Path, content: bytes) -> None:
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)
