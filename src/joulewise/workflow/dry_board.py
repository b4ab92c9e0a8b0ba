"""What applying a point would write to the files of a board: its own code, on a copy in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from joulewise.device.jetson_files import BoardFiles, FolderFiles
from joulewise.device.jetson_string import parse_jetson
from joulewise.domain.points import OperatingPoint

if TYPE_CHECKING:
    from joulewise.domain.ports import Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWrite:
    """One text that is written to one file."""

    place: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWrites:
    """What sets a point, and what gives it back, each in order."""

    writes: tuple[FileWrite, ...]
    gives_back: tuple[FileWrite, ...]


class CopiedFiles:
    """The files of a board, of which what is written stays in memory and reads back from there."""

    def __init__(self, files: BoardFiles) -> None:
        """Nothing is written yet."""
        self.written: list[FileWrite] = []
        self._files = files
        self._texts: dict[str, str] = {}

    def read(self, path: str) -> str | None:
        """What was written last, else what the board tells; nobody works on a copy."""
        if path.endswith(_LOAD):
            return None
        return self._texts[path] if path in self._texts else self._files.read(path)

    def write(self, path: str, text: str) -> None:
        """Keep it; needs no rights."""
        self._texts[path] = text
        # Where a rate is asked for it reads otherwise than where it is in force.
        for asked, shown in _SHOWN:
            if path.endswith(asked):
                self._texts[path.removesuffix(asked) + shown] = text
        self.written.append(FileWrite(place=self._files.place(path), text=text))

    def names(self, path: str) -> tuple[str, ...]:
        """As on the board."""
        return self._files.names(path)

    def exists(self, path: str) -> bool:
        """As on the board."""
        return self._files.exists(path)

    def place(self, path: str) -> str:
        """As on the board."""
        return self._files.place(path)


# A pinned clock is seen in force on a GPU at work, and on a copy it never comes.
_LOAD = "/load"
_SHOWN = (("/clk_update_rate", "/clk_rate"), ("/max_freq", "/cur_freq"))


class _StandingTime:
    """A time that passes only where something waits: nothing comes later on a copy."""

    def __init__(self) -> None:
        self._time_s = 0.0

    def now_s(self) -> float:
        return self._time_s

    def sleep(self, duration_s: float) -> None:
        self._time_s += duration_s


def file_writes(device: str, point: OperatingPoint) -> FileWrites:
    """The writes that set this point on a board as it is now, and those that undo it.

    Args:
        device: the device string of the board.
        point: clocks that it lists.

    Raises:
        NotSupported: a clock that is not listed. InputError, DeviceError, NotPermitted: as opening
            and setting the board raise them.
    """
    from joulewise.device.jetson_gpu import open_jetson  # noqa: PLC0415 - only where there is one

    files = CopiedFiles(FolderFiles(Path(parse_jetson(device, os.environ).root)))
    timer: Timer = _StandingTime()
    gpu = open_jetson(device, files=files, timer=timer)
    gpu.request(point)
    writes = tuple(files.written)
    files.written.clear()
    gpu.reset()
    return FileWrites(writes=writes, gives_back=tuple(files.written))
