"""Where one rail is read, and texts of its sensor turned into watts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from joulewise.device.jetson_files import BoardFiles
from joulewise.domain.errors import NotPermitted

I2C_DEVICE = re.compile(r"\d+-00[0-9a-f]{2}", re.ASCII)
"""What a driver calls a chip on an I2C bus: bus and address."""
NOT_CONNECTED = "NC"
"""Label of a channel to which no rail is connected."""

_MICRO, _MILLI = 1e-6, 1e-3
# INA3221: 26 V and a shunt of at least 1 mΩ at 163.8 mV; an offset of 80 µV, at 2 mΩ, reads as
# that much current the wrong way (Texas Instruments, SBOS576, sections 6.5 and 7.3).
_HIGHEST_MV = 26_000
_HIGHEST_MA = 163_800
_LEAST_MA = -40
# Thor, the hungriest of these boards, takes 140 W at most; ten times that is no reading.
HIGHEST_W = 1_400.0
"""No power of a rail is above this."""
_NUMBER = re.compile(r"[+-]?\d{1,12}", re.ASCII)


class RailSource(Protocol):
    """One rail that can be read."""

    @property
    def rail(self) -> str:
        """As the board labels it."""
        ...

    def power_w(self, files: BoardFiles) -> float | None:
        """Power right now; `None` where the sensor is gone, or says what cannot be."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VoltageTimesCurrent:
    """A rail whose sensor tells mV and mA: no INA3221 has a power of its own in hwmon."""

    rail: str
    voltage: str
    current: str
    label: str | None = None
    """Where the rail's name is told."""
    enable: str | None = None
    """Where its channel may be switched off."""

    def power_w(self, files: BoardFiles) -> float | None:
        """Power in W: mV · mA · 1e-6; `None` as well where the channel is another's by now."""
        if self.label is not None and text(files, self.label) != self.rail:
            return None
        if self.enable is not None and text(files, self.enable) == "0":
            return None
        voltage_mv, current_ma = number(files, self.voltage), number(files, self.current)
        if voltage_mv is None or not 0 <= voltage_mv <= _HIGHEST_MV:
            return None
        if current_ma is None or not _LEAST_MA <= current_ma <= _HIGHEST_MA:
            return None
        if voltage_mv == 0 and current_ma > 0:
            return None
        return voltage_mv * current_ma * _MICRO


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFile:
    """A rail whose sensor tells its power."""

    rail: str
    path: str
    is_micro: bool
    """µW, as hwmon has it; else mW, as the iio driver of JetPack 4 does."""

    def power_w(self, files: BoardFiles) -> float | None:
        """Power in W."""
        told = number(files, self.path)
        power_w = None if told is None else told * (_MICRO if self.is_micro else _MILLI)
        return power_w if power_w is not None and 0 <= power_w <= HIGHEST_W else None


def text(files: BoardFiles, path: str) -> str | None:
    """What a file says; `None` where there is nothing, or this account may not read it."""
    try:
        return files.read(path) or None
    except NotPermitted:
        return None


def names(files: BoardFiles, folder: str) -> tuple[str, ...]:
    """Names in a folder; none where this account may not list it."""
    try:
        return files.names(folder)
    except NotPermitted:
        return ()


def number(files: BoardFiles, path: str) -> int | None:
    """A whole number; `None` for anything else."""
    said = text(files, path)
    return int(said) if said is not None and _NUMBER.fullmatch(said) else None
