"""The control files of a fake board, read as its kernel would take them, and its sensor files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.board_state import HZ_PER_MHZ
from joulewise.simulator.jetson_layout import BoardLayout, EmcControl
from joulewise.simulator.jetson_layout_files import BWMGR_CLOCK

USERSPACE = "userspace"
PERFORMANCE = "performance"

_NUMBER = re.compile(r"\d{1,12}", re.ASCII)
_LONGEST_BYTES = 4096
_BESIDE = ".fake-board"
# A rate that is asked for and not locked soon is anybody's: the memory manager asks again.
_ASKED_FOR_S = 0.1
_LOCKED, _FREE = "1", "0"


class TreeFiles:
    """Files below a folder, written only where what they say changes.

    Sensors that another process may read meanwhile are replaced at once, so that it never sees
    half of one; control files belong to whoever writes them, and are written in place.
    """

    def __init__(self, root: Path, *, is_read_meanwhile: bool = False) -> None:
        """Look nowhere yet."""
        self._root = str(root).rstrip("/")
        self._is_read_meanwhile = is_read_meanwhile
        self._said: dict[str, str] = {}

    def place(self, path: str) -> Path:
        """Where a file of the board lies."""
        return Path(self._root + path)

    def read(self, path: str) -> str | None:
        """What a file says, without white space at its ends; `None` where there is none."""
        try:
            descriptor = os.open(self._root + path, os.O_RDONLY)
        except OSError:
            return None
        try:
            return os.read(descriptor, _LONGEST_BYTES).decode("utf-8", errors="replace").strip()
        finally:
            os.close(descriptor)

    def read_number(self, path: str) -> int | None:
        """A whole number; `None` for anything else, as while somebody writes."""
        text = self.read(path)
        return int(text) if text is not None and _NUMBER.fullmatch(text) else None

    def show(self, path: str, text: str) -> None:
        """Have a sensor say this from now on; where its folder is gone, nothing happens."""
        if self._said.get(path) == text:
            return
        try:
            if self._is_read_meanwhile:
                self._replace(path, f"{text}\n")
            else:
                self._overwrite(path, f"{text}\n")
        except OSError:
            return
        self._said[path] = text

    def put_back(self, path: str, text: str) -> None:
        """Have a control file say what is in force, and not what was written to it."""
        with suppress(OSError):
            self._overwrite(path, f"{text}\n")

    def _overwrite(self, path: str, text: str) -> None:
        content = text.encode()
        descriptor = os.open(self._root + path, os.O_WRONLY)
        try:
            os.write(descriptor, content)
            os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)

    def _replace(self, path: str, text: str) -> None:
        folder, _, name = path.rpartition("/")
        beside = f"{self._root}{folder}/.{name}{_BESIDE}"
        Path(beside).write_text(text, encoding="utf-8")
        os.replace(beside, self._root + path)  # noqa: PTH105 - its other half is a text


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What the control files ask for: clocks are labels of listed ones.

    `sm_asked_mhz` is the clock that the governor `userspace` is told; `mem_locked_mhz` the
    memory clock that somebody locked.
    """

    governor: str
    sm_least_mhz: int
    sm_most_mhz: int
    sm_asked_mhz: int | None
    mem_locked_mhz: int | None


class Bounds:
    """A devfreq node's `min_freq` and `max_freq`, as its kernel takes them.

    A clock that is not listed becomes the next one that is; a bound that would lie beyond the
    other one is refused, so that the file reads as before.
    """

    def __init__(self, files: TreeFiles, folder: str, listed_hz: Sequence[int]) -> None:
        """As the files read now, as far as they make sense."""
        self._files = files
        self._paths = (f"{folder}/min_freq", f"{folder}/max_freq")
        self._listed_hz = tuple(listed_hz)
        self.hz = (listed_hz[0], listed_hz[-1])
        """Both bounds in force."""
        self.read()

    def read(self) -> None:
        """Take in what was written meanwhile."""
        told = [self._files.read_number(path) for path in self._paths]
        wanted = [
            now if asked is None else listed_from(self._listed_hz, asked)
            for asked, now in zip(told, self.hz, strict=True)
        ]
        if wanted[0] <= wanted[1]:
            self.hz = (wanted[0], wanted[1])
        for path, asked, in_force in zip(self._paths, told, self.hz, strict=True):
            if asked is not None and asked != in_force:
                self._files.put_back(path, str(in_force))


class TreeControls:
    """All control files of one board."""

    def __init__(self, files: TreeFiles, layout: BoardLayout) -> None:
        """As the files read now."""
        self._files = files
        self._layout = layout
        node = layout.devfreq_folder
        self._governor_path = f"{node}/governor"
        self._asked_path = f"{node}/{USERSPACE}/set_freq"
        self._bounds = Bounds(files, node, layout.sm_clocks_hz)
        self._governor = layout.stock_governor
        self._memory = memory_lock(files, layout)

    def read(self, now_s: float, rate_hz: int) -> Controls:
        """What is asked for now; `rate_hz` is the memory clock in force.

        A file that is empty, torn or makes no sense changes nothing.
        """
        self._bounds.read()
        self._read_governor()
        least, most = (clock // HZ_PER_MHZ for clock in self._bounds.hz)
        locked_hz = self._memory.read(now_s, rate_hz)
        return Controls(
            governor=self._governor,
            sm_least_mhz=least,
            sm_most_mhz=most,
            sm_asked_mhz=self._read_asked() if self._governor == USERSPACE else None,
            mem_locked_mhz=None if locked_hz is None else locked_hz // HZ_PER_MHZ,
        )

    def show_rate(self, rate_hz: int) -> None:
        """Have the memory's files say this rate."""
        self._memory.show(rate_hz)

    def _read_governor(self) -> None:
        told = self._files.read(self._governor_path)
        if not told or told == self._governor:
            return
        if told not in self._layout.governors:
            self._files.put_back(self._governor_path, self._governor)
            return
        self._governor = told
        folder = self._files.place(self._asked_path).parent
        if told == USERSPACE:
            folder.mkdir(exist_ok=True)
            asked = folder / "set_freq"
            asked.write_text(f"{self._bounds.hz[1]}\n", encoding="utf-8")
        else:
            self._files.place(self._asked_path).unlink(missing_ok=True)
            if folder.is_dir():
                folder.rmdir()

    def _read_asked(self) -> int | None:
        asked_hz = self._files.read_number(self._asked_path)
        if asked_hz is None:
            return None
        return listed_from(self._layout.sm_clocks_hz, asked_hz) // HZ_PER_MHZ


class FlaggedLock:
    """A memory clock that stays where it was asked for while a flag is set."""

    def __init__(self, files: TreeFiles, layout: BoardLayout) -> None:
        """Nothing is asked for yet."""
        self._files = files
        self._listed_hz = layout.emc.rates_hz
        self._is_bpmp = layout.emc.control is EmcControl.BPMP
        folder = layout.emc.folder
        self._flag_path = (
            f"{folder}/mrq_rate_locked" if self._is_bpmp else f"{BWMGR_CLOCK}/clk_state"
        )
        self._ask_path = f"{folder}/rate" if self._is_bpmp else f"{BWMGR_CLOCK}/clk_update_rate"
        self._show_paths = (
            (f"{folder}/rate",)
            if self._is_bpmp
            else (f"{BWMGR_CLOCK}/clk_rate", f"{folder}/emc_rate")
        )
        self._told_hz = files.read_number(self._ask_path)
        self._is_locked = False
        self._asked_hz: int | None = None
        self._asked_s = 0.0

    def read(self, now_s: float, rate_hz: int) -> int | None:
        """The rate that is locked; `None` where none is."""
        told_hz = self._files.read_number(self._ask_path)
        if told_hz is not None and told_hz != self._told_hz:
            self._told_hz, self._asked_s = told_hz, now_s
            self._asked_hz = listed_from(self._listed_hz, told_hz)
        flag = self._files.read(self._flag_path)
        was_locked = self._is_locked
        if flag in {_LOCKED, _FREE}:
            self._is_locked = flag == _LOCKED
        if self._is_locked:
            self._asked_hz = self._asked_hz or listed_from(self._listed_hz, rate_hz)
            return self._asked_hz
        if was_locked or now_s > self._asked_s + _ASKED_FOR_S:
            self._asked_hz = None
        return None

    def show(self, rate_hz: int) -> None:
        """Have the files say this rate."""
        for path in self._show_paths:
            if path != self._ask_path:
                self._files.show(path, str(rate_hz))
        # Who asks in the very moment is heard next time, for what he wrote still stands.
        is_due = self._is_bpmp and self._told_hz != rate_hz
        if is_due and self._files.read_number(self._ask_path) == self._told_hz:
            self._files.put_back(self._ask_path, str(rate_hz))
            self._told_hz = rate_hz


class BoundsLock:
    """A memory clock that is a devfreq node, locked where both bounds are the same."""

    def __init__(self, files: TreeFiles, layout: BoardLayout) -> None:
        """As the files read now."""
        self._files = files
        self._folder = layout.emc.folder
        self._bounds = Bounds(files, layout.emc.folder, layout.emc.rates_hz)

    def read(self, now_s: float, rate_hz: int) -> int | None:  # noqa: ARG002 - as the other kind
        """The rate that is locked; `None` where none is."""
        self._bounds.read()
        least, most = self._bounds.hz
        return most if least == most else None

    def show(self, rate_hz: int) -> None:
        """Have the files say this rate."""
        for name in ("cur_freq", "target_freq"):
            self._files.show(f"{self._folder}/{name}", str(rate_hz))


def memory_lock(files: TreeFiles, layout: BoardLayout) -> FlaggedLock | BoundsLock:
    """How the memory clock of this board is locked."""
    if layout.emc.control is EmcControl.DEVFREQ:
        return BoundsLock(files, layout)
    return FlaggedLock(files, layout)


def listed_from(listed_hz: Sequence[int], asked_hz: int) -> int:
    """The lowest listed clock that is not below what was asked; the highest where none is.

    A rate of the Orins' memory that it cannot be locked at goes up as well: 408 MHz becomes
    665.6, 1600 MHz 2133 (dankang21/jetson-latency-lab, emc_lockable_set.txt).
    """
    return next((clock for clock in listed_hz if clock >= asked_hz), listed_hz[-1])
