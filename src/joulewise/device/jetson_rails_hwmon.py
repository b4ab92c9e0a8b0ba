"""Rails by hwmon: INA3221 (JetPack 5 and later), INA238 (Thor's input)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_readings import (
    I2C_DEVICE,
    NOT_CONNECTED,
    PowerFile,
    RailSource,
    VoltageTimesCurrent,
    names,
    text,
)

_DRIVERS = "/sys/bus/i2c/drivers"
_HWMON = "/sys/class/hwmon"
_THREE_CHANNELS = "ina3221"
# Drivers of sensors with one channel; a power supply of USB-C (`ucsi_source_psy_...`) has the
# same files and is no rail (jetson_stats 900).
_ONE_CHANNEL = ("ina238", "ina237", "ina2xx")
# hwmon/ina3221.rst: in4 to in6 are voltages over the shunts, in7 is their sum.
_CHANNELS = (1, 2, 3)
# The one INA238 of these boards measures Thor's input, and its driver names no channel.
_UNLABELLED = {"ina238": "VIN"}
_CHIP = re.compile(r"hwmon\d+", re.ASCII)


def hwmon_rails(files: BoardFiles) -> tuple[RailSource, ...]:
    """Every rail that hwmon tells of, chip by chip in the order of their I2C addresses.

    A chip is reached through its driver and through /sys/class/hwmon: it is taken once.
    """
    rails: list[RailSource] = []
    seen: set[str] = set()
    for kind, chip, folder in (*_by_driver(files), *_by_class(files)):
        if chip not in seen:
            seen.add(chip)
            rails += _three(files, folder) if kind == _THREE_CHANNELS else _one(files, kind, folder)
    return tuple(rails)


def _by_driver(files: BoardFiles) -> Iterator[tuple[str, str, str]]:
    for kind in (_THREE_CHANNELS, *_ONE_CHANNEL):
        for device in names(files, f"{_DRIVERS}/{kind}"):
            if I2C_DEVICE.fullmatch(device):
                hwmon = f"{_DRIVERS}/{kind}/{device}/hwmon"
                yield from ((kind, chip, f"{hwmon}/{chip}") for chip in _chips(files, hwmon))


def _by_class(files: BoardFiles) -> Iterator[tuple[str, str, str]]:
    for chip in _chips(files, _HWMON):
        kind = text(files, f"{_HWMON}/{chip}/name")
        if kind in {_THREE_CHANNELS, *_ONE_CHANNEL}:
            yield kind, chip, f"{_HWMON}/{chip}"


def _chips(files: BoardFiles, folder: str) -> tuple[str, ...]:
    return tuple(name for name in names(files, folder) if _CHIP.fullmatch(name))


def _three(files: BoardFiles, folder: str) -> Iterator[RailSource]:
    for channel in _CHANNELS:
        label = text(files, f"{folder}/in{channel}_label")
        if label is None or label == NOT_CONNECTED or _is_off(files, folder, channel):
            continue
        yield VoltageTimesCurrent(
            rail=label,
            voltage=f"{folder}/in{channel}_input",
            current=f"{folder}/curr{channel}_input",
            label=f"{folder}/in{channel}_label",
            enable=f"{folder}/in{channel}_enable",
        )


def _is_off(files: BoardFiles, folder: str, channel: int) -> bool:
    """Whether this channel of the chip was switched off."""
    return text(files, f"{folder}/in{channel}_enable") == "0"


def _one(files: BoardFiles, kind: str, folder: str) -> Iterator[RailSource]:
    labels = (text(files, f"{folder}/{name}") for name in ("power1_label", "in1_label", "label"))
    label = next((one for one in labels if one is not None), _UNLABELLED.get(kind))
    if label is not None and files.exists(f"{folder}/power1_input"):
        yield PowerFile(rail=label, path=f"{folder}/power1_input", is_micro=True)
