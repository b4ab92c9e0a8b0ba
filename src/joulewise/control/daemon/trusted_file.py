"""Files and folders that nobody but root and the daemon's own user can change.

A path is walked one step at a time, each opened below the one before, and judged by what was
opened: there is no moment between looking and using in which a name could come to stand for
something else. A folder is trusted where root or the daemon's own user owns it and no other
may write to it; one of root that everybody writes to is passed through where it is sticky, as
/tmp is, for there nobody renames what is not theirs. Links are followed, each step of them
judged alike.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.errors import InputError

_MOST_LINKS_COUNT = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FOLDER_MODE = 0o755
_OWN_NAME = re.compile(r"\.lock$|\.journal\.json")
_STATE_MODE = 0o700


def read_trusted_file(path: Path, *, longest_bytes: int) -> bytes:
    """All bytes of a file that only root and the daemon's own user can have written.

    Raises:
        InputError: it is missing, no plain file, longer than that, or others can change it or
            a folder above it; names the file.
    """
    with _walked(path) as walk:
        found = os.fstat(walk.descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise InputError("this is a folder, not a file", file=str(path), hint="Name a file.")
        # Seen before it is opened: some devices act when they are, and a pipe waits.
        _require_plain(found, path)
        _require_trusted(found, walk.place, path)
        try:
            raw = _read(walk, found, longest_bytes + 1)
        except OSError as error:
            raise _unusable(error, path) from error
    if len(raw) > longest_bytes:
        raise InputError(
            f"the file is longer than {longest_bytes} bytes",
            file=str(path),
            hint="Check that this is the file that was meant.",
        )
    return raw


def checked_folder(path: Path, *, mode: int = _FOLDER_MODE, is_shared_fine: bool = False) -> Path:
    """Where this folder really is, made with `mode` where it is missing.

    `is_shared_fine` lets it be a sticky folder of root that everybody writes to.

    Raises:
        InputError: it cannot be made, is no folder, or others can change it or a folder above it.
    """
    with _walked(path, mode=mode) as walk:
        found = os.fstat(walk.descriptor)
        _require_folder(found, walk.place, path)
        _require_trusted(found, walk.place, path, is_shared_fine=is_shared_fine)
        return walk.place


def checked_state_dir(path: Path) -> Path:
    """Where the state folder of the daemon really is, made where it is missing.

    What is in it is looked at too: a journal or a lock that others can write, or that is a link,
    would let them say what is reset on which GPU.

    Raises:
        InputError: as `checked_folder` does, or for something in it.
    """
    with _walked(path, mode=_STATE_MODE) as walk:
        found = os.fstat(walk.descriptor)
        _require_folder(found, walk.place, path)
        _require_trusted(found, walk.place, path)
        for name in _names_in(walk, path):
            with contextlib.suppress(FileNotFoundError):
                entry = os.stat(name, dir_fd=walk.descriptor, follow_symlinks=False)
                _require_trusted(entry, walk.place / name, walk.place / name)
                # Such as lost+found, where it is a file system of its own.
                if not stat.S_ISDIR(entry.st_mode) or _OWN_NAME.search(name):
                    _require_plain(entry, walk.place / name)
        return walk.place


@dataclass(slots=True, kw_only=True)
class _Walk:
    """How far a path was walked: the open object, and the path without links that led there."""

    descriptor: int
    place: Path
    links_count: int = 0

    def stand_on(self, descriptor: int, place: Path) -> None:
        os.close(self.descriptor)
        self.descriptor, self.place = descriptor, place


@contextlib.contextmanager
def _walked(path: Path, *, mode: int | None = None) -> Iterator[_Walk]:
    """Open what `path` names, every step on the way judged; `mode` makes missing folders."""
    try:
        walk = _Walk(descriptor=os.open("/", os.O_PATH | os.O_CLOEXEC), place=Path("/"))
    except OSError as error:
        raise _unusable(error, path) from error
    try:
        try:
            # Steps upward stay in it: with links, `a/..` need not be where it began.
            _step_through(walk, list(reversed(path.absolute().parts[1:])), path, mode)
        except (OSError, ValueError) as error:
            raise _unusable(error, path) from error
        yield walk
    finally:
        os.close(walk.descriptor)


def _step_through(walk: _Walk, left: list[str], path: Path, mode: int | None) -> None:
    """Walk the parts in `left`, the next one last."""
    while left:
        above = os.fstat(walk.descriptor)
        _require_folder(above, walk.place, path)
        _require_trusted(above, walk.place, path, is_shared_fine=True)
        name = left.pop()
        descriptor = _opened(name, walk, mode)
        found = os.fstat(descriptor)
        place = walk.place.parent if name == ".." else walk.place / name
        if not stat.S_ISLNK(found.st_mode):
            walk.stand_on(descriptor, place)
            continue
        try:
            _require_trusted(found, place, path)
            target = os.readlink("", dir_fd=descriptor)
        finally:
            os.close(descriptor)
        walk.links_count += 1
        if walk.links_count > _MOST_LINKS_COUNT:
            raise InputError(
                "its links lead on and on", file=str(path), hint="Name the place itself."
            )
        if target.startswith("/"):
            walk.stand_on(os.open("/", os.O_PATH | os.O_CLOEXEC), Path("/"))
        left += [part for part in reversed(target.split("/")) if part not in {"", "."}]


def _opened(name: str, walk: _Walk, mode: int | None) -> int:
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=walk.descriptor)
    except FileNotFoundError:
        if mode is None:
            raise
    with contextlib.suppress(FileExistsError):
        # What is made is judged like what was found: somebody may have been faster.
        os.mkdir(name, mode, dir_fd=walk.descriptor)
    return os.open(name, flags, dir_fd=walk.descriptor)


def _read(walk: _Walk, found: os.stat_result, most_bytes: int) -> bytes:
    """Open the very file that was judged, and read it."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(f"/proc/self/fd/{walk.descriptor}", flags)
    with os.fdopen(descriptor, "rb") as file:
        again = os.fstat(descriptor)
        if (again.st_dev, again.st_ino) != (found.st_dev, found.st_ino):
            raise OSError("another file came in its place")
        return file.read(most_bytes)


def _names_in(walk: _Walk, path: Path) -> list[str]:
    try:
        descriptor = os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=walk.descriptor)
        try:
            return sorted(entry.name for entry in os.scandir(descriptor))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unusable(error, path) from error


def _require_folder(found: os.stat_result, place: Path, path: Path) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise InputError(
            f"{place} is not a folder", file=str(path), hint="Check the path, or move it away."
        )


def _require_plain(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InputError(
            "this is a link, a folder, a device or a pipe, not a plain file",
            file=str(path),
            hint="Put a plain file there, or take it away.",
        )


def _require_trusted(
    found: os.stat_result, place: Path, path: Path, *, is_shared_fine: bool = False
) -> None:
    """Refuse what another than root and the daemon's own user may change."""
    if found.st_uid not in {0, os.geteuid()}:
        raise InputError(
            f"{place} belongs to user {found.st_uid}, who could change it at any time",
            file=str(path),
            hint=f"Give it to root: chown root {place}",
        )
    if stat.S_ISLNK(found.st_mode) or not found.st_mode & _OTHERS_WRITE:
        return
    if is_shared_fine and found.st_mode & stat.S_ISVTX:
        return
    raise InputError(
        f"{place} may be written to by others than its owner (mode {found.st_mode & 0o7777:04o})",
        file=str(path),
        hint=f"Take that right away: chmod go-w {place}",
    )


def _unusable(error: OSError | ValueError, path: Path) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError("there is no such file", file=str(path), hint="Check the path.")
    if isinstance(error, PermissionError):
        return InputError(
            "it may not be used by this account",
            file=str(path),
            hint="Change the permissions or choose another place.",
        )
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(f"it cannot be used: {reason}", file=str(path), hint="Choose another place.")
