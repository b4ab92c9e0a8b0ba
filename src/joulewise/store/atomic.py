"""Files appear whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.store.files import file_error


def write_atomically(
    path: Path, content: bytes, *, follows_links: bool = True, is_private: bool = False
) -> None:
    """Write `content` beside `path`, flush it to disk, and rename it into place.

    Killed at any moment, `path` holds the old content or the new; at worst a hidden file
    `.NAME.*.tmp` stays behind. A link is followed, so that what it names is replaced; without
    `follows_links` the link itself is. With `is_private` the file is its owner's alone, whatever
    the umask of the process; else that decides.

    Raises:
        InputError: the folder is missing or cannot be written to, or `path` is a folder, a
            device or a pipe.
    """
    try:
        target = _target(path) if follows_links else path
        _replace(target, _beside(target), content, is_private=is_private)
    except (OSError, ValueError) as error:
        raise file_error(error, path, doing="written") from error


def require_place(path: Path, *, sources: Iterable[Path] = ()) -> None:
    """See that `path` can be written to, before the work that fills it begins.

    `sources` are the files that the work reads: a result must not take the place of one.

    Raises:
        InputError: as `write_atomically` would, or `path` is one of the sources.
    """
    try:
        target = _target(path)
        for source in sources:
            if target.exists() and source.exists() and target.samefile(source):
                raise InputError(
                    "this file is read here, so it is not written over",
                    file=str(path),
                    hint="Choose another place for the result.",
                )
        probe = _beside(target)
        probe.open("xb").close()
        probe.unlink()
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


def _target(path: Path) -> Path:
    """The file that a path stands for: links are followed, only plain files replaced.

    Renaming over a device or a pipe would do away with it, as root even with `/dev/null`.
    """
    if path.is_dir():
        raise InputError("this is a folder, not a file", file=str(path), hint="Name a file.")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise InputError(
            "this is a device or a pipe, not a file", file=str(path), hint="Name a file."
        )
    return Path(os.path.realpath(path))


def _beside(target: Path) -> Path:
    """A new hidden name; a long one plus decoration may be longer than the system takes."""
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")


def _replace(target: Path, beside: Path, content: bytes, *, is_private: bool) -> None:
    try:
        with open(beside, "xb", opener=_private if is_private else None) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def _private(name: str, flags: int) -> int:
    """Open a new file that is its owner's alone from the beginning."""
    descriptor = os.open(name, flags, 0o600)
    if os.name == "posix":
        # A umask may also have taken something from the owner.
        os.fchmod(descriptor, 0o600)
    return descriptor
