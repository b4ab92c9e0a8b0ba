"""What a fake board tells of itself: clocks, load, heat and rails, as files."""

from __future__ import annotations

import math

from joulewise.domain.measurement import RailPower
from joulewise.simulator.jetson_layout import BoardLayout
from joulewise.simulator.jetson_layout_files import (
    measured_clock_path,
    rail_figures,
    zone_folder,
)
from joulewise.simulator.jetson_tree import TreeFiles
from joulewise.simulator.operations import Operation

_PER_MILLE = 1000
_MILLI = 1000
_CLUSTER_COUNT = 2
# Pinned clocks read up to 3 % low: 990 to 1019 at 1020 MHz (dankang21/jetson-latency-lab, logs).
_MEASURED_RATIO = 0.995


class TreeSensors:
    """Writes the sensor files of one board."""

    def __init__(self, files: TreeFiles, layout: BoardLayout) -> None:
        """Write nothing yet."""
        self._files = files
        self._layout = layout
        self._sm_hz = dict(zip(layout.sm_clocks_mhz, layout.sm_clocks_hz, strict=True))
        self._mem_hz = dict(zip(layout.mem_clocks_mhz, layout.emc.rates_hz, strict=True))

    def show_clock(self, sm_clock_mhz: int | None) -> None:
        """Tell the GPU clock in force."""
        layout = self._layout
        clock_hz = self._sm_hz[layout.sm_clocks_mhz[0] if sm_clock_mhz is None else sm_clock_mhz]
        for name in ("cur_freq", "target_freq"):
            self._files.show(f"{layout.devfreq_folder}/{name}", str(clock_hz))
        if layout.has_measured_clock:
            # Counted in kHz by the BPMP, and a little below what was set.
            counted_hz = int(clock_hz * _MEASURED_RATIO)
            for cluster in range(_CLUSTER_COUNT):
                self._files.show(measured_clock_path(cluster), str(counted_hz))

    def rate_hz(self, mem_clock_mhz: int | None) -> int:
        """The memory rate behind a label; the lowest where none is told."""
        layout = self._layout
        return self._mem_hz[layout.mem_clocks_mhz[0] if mem_clock_mhz is None else mem_clock_mhz]

    def show_load(self, busy_ratio: float | None) -> None:
        """Tell how busy the GPU is, where the board does."""
        if self._layout.load_path is not None:
            load = round(_PER_MILLE * (busy_ratio or 0.0))
            self._files.show(f"{self._layout.gpu_folder}/load", str(load))

    def show_heat(self, temp_c: float | None) -> None:
        """Tell the temperature of the GPU."""
        if temp_c is not None:
            zone = zone_folder(self._layout, self._layout.gpu_zone)
            self._files.show(f"{zone}/temp", str(round(_MILLI * temp_c)))

    def show_rails(self, power_w: float, operation: Operation) -> None:
        """Tell what every rail carries of the module's power."""
        parts = _parts(operation.rails)
        for rail in self._layout.rails:
            share_ratio = parts.get(rail.rail, rail.share_ratio)
            for path, text in rail_figures(self._layout, rail, power_w * share_ratio).items():
                self._files.show(path, text)


def _parts(rails: tuple[RailPower, ...]) -> dict[str, float]:
    """Every rail as a share of the module's power; none where the physics tells of no rails."""
    whole_w = math.fsum(rail.power_w for rail in rails if rail.is_counted)
    return {rail.rail: rail.power_w / whole_w for rail in rails} if whole_w else {}
