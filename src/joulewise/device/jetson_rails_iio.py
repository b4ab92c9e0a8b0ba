"""Rails by iio: the INA3221 driver of JetPack 4 (Nano, TX2, Xavier)."""

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

_DRIVER = "/sys/bus/i2c/drivers/ina3221x"
_CHIP = re.compile(r"iio:device\d+|iio_device\d+", re.ASCII)
_CHANNELS = (0, 1, 2)


def iio_rails(files: BoardFiles) -> tuple[RailSource, ...]:
    """Every rail that the driver tells of, chip by chip in the order of their I2C addresses."""
    return tuple(
        rail
        for device in names(files, _DRIVER)
        if I2C_DEVICE.fullmatch(device)
        for chip in names(files, f"{_DRIVER}/{device}")
        if _CHIP.fullmatch(chip)
        for rail in _rails(files, f"{_DRIVER}/{device}/{chip}")
    )


def _rails(files: BoardFiles, folder: str) -> Iterator[RailSource]:
    for channel in _CHANNELS:
        label = text(files, f"{folder}/rail_name_{channel}")
        if label is None or label == NOT_CONNECTED:
            continue
        power = f"{folder}/in_power{channel}_input"
        if files.exists(power):
            yield PowerFile(rail=label, path=power, is_micro=False)
        else:
            yield VoltageTimesCurrent(
                rail=label,
                voltage=f"{folder}/in_voltage{channel}_input",
                current=f"{folder}/in_current{channel}_input",
                label=f"{folder}/rail_name_{channel}",
            )
