"""Heat of a Jetson's GPU, and how often its supply drew too much."""

from __future__ import annotations

import re

from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_readings import names, number, text

_THERMAL = "/sys/class/thermal"
_HWMON = "/sys/class/hwmon"
# Thor prints `gpu` in tegrastats, JetPack 4 and 5 call the zone GPU-therm, JetPack 6 gpu-thermal.
_GPU_ZONES = frozenset({"gpu", "gpu-therm", "gpu-thermal"})
_MILLI = 1e-3
# A sensor whose domain is off, or that is not there, reads -256 °C.
_COLDEST_C, _HOTTEST_C = -60.0, 200.0
_EVENTS = tuple(f"oc{index}_event_cnt" for index in (1, 2, 3))
_ZONE = re.compile(r"thermal_zone\d+", re.ASCII)


def gpu_temp_c(files: BoardFiles) -> float | None:
    """Temperature of the GPU's thermal zone in °C; `None` where it is dead or not told."""
    for zone in names(files, _THERMAL):
        if not _ZONE.fullmatch(zone):
            continue
        kind = text(files, f"{_THERMAL}/{zone}/type")
        if kind is not None and kind.lower() in _GPU_ZONES:
            return living_temp_c(number(files, f"{_THERMAL}/{zone}/temp"))
    return None


def living_temp_c(temp_mc: float | None) -> float | None:
    """Thousandths of a degree in °C; `None` for what only a dead sensor reads."""
    temp_c = None if temp_mc is None else temp_mc * _MILLI
    return temp_c if temp_c is not None and _COLDEST_C < temp_c < _HOTTEST_C else None


def over_current_count(files: BoardFiles) -> int | None:
    """Over-current events since the board started; `None` where it does not count them.

    A supply that sags below its voltage counts as one, too: often the cable is to blame.
    """
    counts = [
        number(files, f"{_HWMON}/{chip}/{event}")
        for chip in names(files, _HWMON)
        for event in _EVENTS
        if files.exists(f"{_HWMON}/{chip}/{event}")
    ]
    told = [count for count in counts if count is not None and count >= 0]
    return sum(told) if told and len(told) == len(counts) else None
