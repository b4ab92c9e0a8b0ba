"""Whether time passes on a board: on a real one always, on a tree of files while somebody moves it.

A fake board says so in a file of its own (`simulator.jetson_layout_files.marker_text`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from joulewise.control.holder import is_alive
from joulewise.device.jetson_files import FolderFiles
from joulewise.device.jetson_nodes import FAKE_MARK
from joulewise.device.jetson_string import parse_jetson
from joulewise.domain.errors import NotPermitted, NotSupported


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeTree:
    """A tree of files that is no board: where it lies, and which board it is like.

    `pid` is the living process that moves it in real time; `None` where none does.
    """

    root: Path
    board: str | None = None
    pid: int | None = None


def fake_tree(device: str) -> FakeTree | None:
    """The tree that this device string names; `None` for a real board.

    Raises InputError for what is no device string of a board.
    """
    root = Path(parse_jetson(device, os.environ).root)
    files = FolderFiles(root)
    if not files.exists(FAKE_MARK):
        return None
    told = _told(files)
    board, pid = told.get("board"), told.get("pid")
    is_moved = told.get("time") == "real" and type(pid) is int and pid > 0 and is_alive(pid)
    return FakeTree(
        root=root,
        board=board if isinstance(board, str) else None,
        pid=pid if is_moved and isinstance(pid, int) else None,
    )


def passes_time(device: str) -> bool:
    """Whether this board lives in the time of the machine, so that others may reach it."""
    tree = fake_tree(device)
    return tree is None or tree.pid is not None


def refuse_standing_time(device: str) -> None:
    """See that time passes on this board. Raises NotSupported that says what to start."""
    tree = fake_tree(device)
    if tree is None or tree.pid is not None:
        return
    board = "" if tree.board is None else f" --board {tree.board}"
    raise NotSupported(
        f"time stands still on the fake board in {tree.root}, and a command takes real time",
        hint="Start what moves it, and leave it running: "
        f"python -m joulewise.simulator.fake_jetson {tree.root}{board}",
    )


def _told(files: FolderFiles) -> dict[str, object]:
    try:
        told = json.loads(files.read(FAKE_MARK) or "")
    except (NotPermitted, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
