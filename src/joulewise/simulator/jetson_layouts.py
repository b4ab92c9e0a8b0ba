"""Trees of files as nine embedded boards have them, for adapters to be tried on.

A tree that is only written stands still; `jetson_board` moves one.
"""

from __future__ import annotations

import posixpath
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.simulator.jetson_boards import BOARDS
from joulewise.simulator.jetson_layout import BoardLayout
from joulewise.simulator.jetson_layout_files import MARKER_PATH, layout_files, layout_links

__all__ = ["MARKER_PATH", "BoardLayout", "layout", "layout_names", "write_layout"]


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


def write_layout(layout: BoardLayout, root: Path, *, power_mode: int | None = None) -> None:
    """Write the board's files below a folder, as they read at rest, in one of its power modes.

    Links are relative, so that the tree may be moved. `power_mode` is a number of nvpmodel;
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
    for path, text in layout_files(layout, layout.mode(power_mode)).items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text if text.endswith("\0") else f"{text}\n", encoding="utf-8")
    for path, target in layout_links(layout).items():
        link = root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(posixpath.relpath(target, posixpath.dirname(path)))
