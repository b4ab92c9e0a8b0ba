"""How a GPU switches its memory clock: at once or not, and how often (fields 298 and 299)."""

from __future__ import annotations

import math
from functools import cached_property

from joulewise.device.nvml import NvmlDevice
from joulewise.device.nvml_meters import GPU_SCOPE, Field
from joulewise.domain.ports import Timer

_REFUSALS = {
    0: "never switches its memory clock",
    1: "switches its memory clock only when the driver is loaded anew",
}


class MemoryClockSwitch:
    """Whether locks of the memory clock take effect, and the least time between two of them."""

    def __init__(self, device: NvmlDevice, timer: Timer) -> None:
        """Read nothing yet."""
        self._device = device
        self._timer = timer
        self._last_s = -math.inf

    @property
    def refusal(self) -> str | None:
        """Why no lock of the memory clock would take effect; `None`: nothing speaks against it.

        Drivers that do not know the field do not tell.
        """
        way, _ = self._told
        return None if way is None else _REFUSALS.get(int(way))

    def pace(self) -> None:
        """Wait until the memory clock may change again, and count from here. Raises DeviceLost."""
        _, interval_ms = self._told
        due_s = self._last_s + (interval_ms or 0.0) / 1000
        wait_s = due_s - self._timer.now_s()
        if wait_s > 0:
            self._timer.sleep(wait_s)
        self._last_s = self._timer.now_s()

    @cached_property
    def _told(self) -> tuple[float | None, float | None]:
        wanted = ((Field.MEMORY_CLOCK_SWITCH, GPU_SCOPE), (Field.MEMORY_CLOCK_INTERVAL, GPU_SCOPE))
        values = self._device.fields(wanted).known(self._device.title)
        if values is None:
            return None, None
        way, interval = values
        return way.value, interval.value
