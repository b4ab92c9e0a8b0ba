"""Trees of files as nine embedded boards have them, for adapters to be tried on.

A tree that is only written stands still; `jetson_board` moves one.
"""

from __future__ import annotations

import hashlib
import posixpath
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from joulewise.domain.errors import InputError
from joulewise.simulator.jetson_boards import BOARDS
from joulewise.simulator.jetson_layout import BoardLayout
from joulewise.simulator.jetson_layout_files import MARKER_PATH, layout_files, layout_links

__all__ = [
    "MARKER_PATH",
    "BoardLayout",
    "TreeMarker",
    "layout",
    "layout_names",
    "read_marker",
    "tree_layout",
    "tree_serial",
    "write_layout",
    "write_marker",
]


# Of the 13 digits of a serial number, those that count boards (assumed).
_TREE_DIGIT_COUNT = 9


class TreeMarker(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree says of itself: which board it is, and which process moves it in real time.

    `pid` is `None` where none does: the tree stands still, or its time is virtual.
    """

    board: str
    time: Literal["real", "virtual"]
    pid: int | None = None


def layout_names() -> tuple[str, ...]:
    """Names that `layout` takes."""
    return tuple(BOARDS)


def layout(name: str) -> BoardLayout:
    """The board of that name. Raises InputError naming the known ones."""
    if name not in BOARDS:
        raise InputError(
            f"no fake board is called {name!r}",
            field="board",
            hint=f"Known: {', '.join(BOARDS)}.",
        )
    return BOARDS[name]


def tree_serial(layout: BoardLayout, root: Path) -> str:
    """The serial number of the tree below this folder: two trees are two boards."""
    number = int.from_bytes(hashlib.sha256(str(root.resolve()).encode()).digest()[:8])
    kept = layout.serial[:-_TREE_DIGIT_COUNT]
    return f"{kept}{number % 10**_TREE_DIGIT_COUNT:0{_TREE_DIGIT_COUNT}d}"


def read_marker(root: Path) -> TreeMarker | None:
    """What the tree below this folder says of itself; `None` where there is none.

    Raises InputError for a marker that cannot be read.
    """
    file = root / MARKER_PATH.lstrip("/")
    try:
        return msgspec.json.decode(_content(file), type=TreeMarker)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"it does not say which fake board this is: {error}",
            file=str(file),
            hint="Write the tree anew, into an empty folder.",
        ) from error


def _content(file: Path) -> bytes:
    """All of a file. Raises OSError, for a pipe as well, whose reader would wait for ever."""
    if file.exists() and not file.is_file():
        raise OSError("it is no regular file")
    return file.read_bytes()


def write_marker(root: Path, marker: TreeMarker) -> None:
    """Have the tree say this of itself, all at once."""
    file = root / MARKER_PATH.lstrip("/")
    beside = file.with_name(f".{file.name}.new")
    beside.write_bytes(msgspec.json.encode(marker) + b"\n")
    beside.replace(file)


def tree_layout(root: Path) -> BoardLayout | None:
    """Which board the tree below this folder is; `None` where there is no tree.

    Raises InputError for a marker that cannot be read, or that names no board known here.
    """
    marker = read_marker(root)
    return None if marker is None else layout(marker.board)


def write_layout(layout: BoardLayout, root: Path, *, power_mode: int | None = None) -> None:
    """Write the board's files below a folder, as they read at rest, in one of its power modes.

    What is there already is set back to that. Links are relative, so that the tree may be moved.
    `power_mode` is a number of nvpmodel;
    `None`: the layout's own. Raises InputError for a mode that the board has not, and for `/`.
    """
    if root.resolve() == Path("/"):
        raise InputError("a fake board is never written over a machine's own files", field="root")
    known = [one.index for one in layout.modes]
    if power_mode is not None and power_mode not in known:
        raise InputError(
            f"{layout.board} has no power mode {power_mode}",
            field="power_mode",
            hint=f"Known: {', '.join(map(str, known))}.",
        )
    placed = replace(layout, serial=tree_serial(layout, root))
    files, links = layout_files(placed, layout.mode(power_mode)), layout_links(layout)
    for folder in {posixpath.dirname(path) for path in (*files, *links)}:
        (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        _write_file(root / path.lstrip("/"), text if text.endswith("\0") else f"{text}\n")
    write_marker(root, TreeMarker(board=layout.name, time="virtual"))
    for path, target in links.items():
        _write_link(root / path.lstrip("/"), posixpath.relpath(target, posixpath.dirname(path)))


def _write_file(file: Path, text: str) -> None:
    """Write what does not say so already: trees are written anew more often than changed."""
    content = text.encode()
    if not file.is_file():
        file.unlink(missing_ok=True)
    try:
        is_there = file.read_bytes() == content
    except OSError:
        is_there = False
    if not is_there:
        file.write_bytes(content)


def _write_link(link: Path, target: str) -> None:
    if link.is_symlink():
        if str(link.readlink()) == target:
            return
        link.unlink()
    link.symlink_to(target)
