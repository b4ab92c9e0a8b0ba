"""How busy a Jetson's GPU is, as its driver says."""

from __future__ import annotations

from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_readings import number

# Orin and later; Xavier and older (autoware_universe 11326: the one is not where the other is).
_PATHS = ("/sys/devices/platform/gpu.0/load", "/sys/devices/gpu.0/load")
_PER_MILLE = 1000


def busy_ratio(files: BoardFiles, node: str | None = None) -> float | None:
    """Share of a recent time in which the GPU ran anything; `None` where the board tells none.

    Thor has no such file: that is not a GPU at rest (WendyOS 1316).

    Args:
        files: the board's.
        node: the GPU's devfreq folder, whose device has a `load` where the usual places have not.
    """
    paths = _PATHS if node is None else (*_PATHS, f"{node}/device/load")
    told = next((value for path in paths if (value := number(files, path)) is not None), None)
    return None if told is None or not 0 <= told <= _PER_MILLE else told / _PER_MILLE
