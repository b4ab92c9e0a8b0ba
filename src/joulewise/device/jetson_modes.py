"""nvpmodel's power mode: which one is in force, and what it allows.

Mode 0 is not the one without caps on every board: on an Orin Nano Super it is 15 W
(jetson-latency-lab, repro/nvpmodel.conf). Asking nvpmodel itself needs root.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_readings import text

_STATUS = "/var/lib/nvpmodel/status"
_TABLE = "/etc/nvpmodel.conf"
_MASKS = ("/sys/devices/platform/gpu.0/tpc_pg_mask", "/sys/devices/gpu.0/tpc_pg_mask")
_STATUS_LINE = re.compile(r"pmode:\s*(\d{1,4})", re.ASCII)
_MODE = re.compile(r"<\s*POWER_MODEL\s+ID\s*=\s*(\d{1,4})\s+NAME\s*=\s*([^\s>]+)\s*>", re.ASCII)
_SECTION = re.compile(r"<.*")
_NUMBER = re.compile(r"-?\d{1,12}|0x[0-9a-fA-F]{1,8}", re.ASCII)
# -1 is taken as INT_MAX, says the table's own comment.
_NO_CAPS = (-1, 2**31 - 1)
_LINK_COUNT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerMode:
    """The power mode in force.

    `gpu_cap` and `emc_cap` are the highest clocks that it allows, in Hz as the table has them;
    `None`: it allows all. `gated_tpc_count` are groups of SMs that are switched off here and are
    on in another mode of the board; `None`: the board does not tell.
    """

    index: int
    name: str
    gpu_cap: str | None = None
    emc_cap: str | None = None
    gated_tpc_count: int | None = None

    @property
    def gpu_cap_hz(self) -> int | None:
        """The highest GPU clock that it allows."""
        return None if self.gpu_cap is None else int(self.gpu_cap)

    @property
    def emc_cap_hz(self) -> int | None:
        """The highest memory clock that it allows."""
        return None if self.emc_cap is None else int(self.emc_cap)


@dataclass(slots=True)
class _Mode:
    """One section of the table: settings by parameter and argument."""

    name: str
    settings: dict[tuple[str, str], str] = field(default_factory=dict)


def power_mode(files: BoardFiles) -> PowerMode | None:
    """The mode in force; `None` where its number or its table cannot be read.

    A board whose number is not in its table, or whose table is no table, does not tell its mode.
    """
    status = _STATUS_LINE.search(text(files, _STATUS) or "")
    modes = _modes(_table(files) or "")
    mode = None if status is None else modes.get(int(status[1]))
    if status is None or mode is None:
        return None
    return PowerMode(
        index=int(status[1]),
        name=mode.name,
        gpu_cap=_cap(mode, "GPU"),
        emc_cap=_cap(mode, "EMC"),
        gated_tpc_count=_gated_tpc_count(files, mode, modes),
    )


def _table(files: BoardFiles) -> str | None:
    """The table, by the links that lead to it: absolute ones begin at the board's root."""
    path = _TABLE
    for _ in range(_LINK_COUNT):
        try:
            target = str(Path(files.place(path)).readlink())
        except OSError:
            return text(files, path)
        path = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), target))
    return None


def _modes(table: str) -> dict[int, _Mode]:
    modes: dict[int, _Mode] = {}
    mode: _Mode | None = None
    for line in table.splitlines():
        words = line.partition("#")[0].strip()
        begin = _MODE.fullmatch(words)
        if begin is not None:
            mode = modes.setdefault(int(begin[1]), _Mode(name=begin[2]))
        elif _SECTION.match(words):
            mode = None
        elif mode is not None and len(words.split()) == 3:  # noqa: PLR2004 - PARAM ARG VALUE
            parameter, argument, value = words.split()
            mode.settings[parameter, argument] = value
    return modes


def _cap(mode: _Mode, clock: str) -> str | None:
    value = mode.settings.get((clock, "MAX_FREQ"))
    if value is None or not _NUMBER.fullmatch(value) or int(value, 0) in _NO_CAPS:
        return None
    return str(int(value, 0)) if int(value, 0) > 0 else None


def _gated_tpc_count(files: BoardFiles, mode: _Mode, modes: Mapping[int, _Mode]) -> int | None:
    """Bits of the mask in force that not every mode has: those are of TPCs that are not there.

    An Orin Nano masks half of the eight in every mode, for it has four. The mask that reads is
    preferred to the table's: a change of it takes a reboot, and may fail (meta-tegra 1864).
    """
    masks = [mask for one in modes.values() if (mask := _mask(one)) is not None]
    live = next((mask for path in _MASKS if (mask := _number(text(files, path))) is not None), None)
    mask = _mask(mode) if live is None else live
    if mask is None or len(masks) < len(modes):
        return None
    never_there = masks[0]
    for one in masks:
        never_there &= one
    return (mask & ~never_there).bit_count()


def _mask(mode: _Mode) -> int | None:
    masks = (value for (_, name), value in mode.settings.items() if name.startswith("TPC_PG_MASK"))
    return next((mask for value in masks if (mask := _number(value)) is not None), None)


def _number(said: str | None) -> int | None:
    if said is None or not _NUMBER.fullmatch(said):
        return None
    value = int(said, 0) if said.startswith("0x") else int(said)
    return value if value >= 0 else None
