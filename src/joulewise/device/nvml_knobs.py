"""Sets the knobs of one GPU. Nothing here is called but under a lease, by `control`."""

from __future__ import annotations

import math
import threading

from joulewise.device.nvml import NvmlDevice
from joulewise.device.nvml_clocks import current_power_limit_w
from joulewise.device.nvml_reply import LACKING, LOST
from joulewise.domain.errors import DeviceError, NotSupported
from joulewise.domain.points import ClockGrid, KnobState, OperatingPoint

# What goes down is set in this order, what goes up in the reverse one.
_KNOBS = ("power_limit_w", "sm_clock_mhz", "mem_clock_mhz")
_LEAST_DIFFERENCE_W = 0.001
# Drivers may round to whole watts.
_ROUNDING_W = 0.5


class NvmlKnobs:
    """The three knobs: SM clock and memory clock, as maxima, and the power limit."""

    def __init__(self, device: NvmlDevice, found: KnobState) -> None:
        """Touch nothing; `found` is what the knobs read before."""
        self._device = device
        self._found = found
        self._asked: dict[str, float | None] = dict.fromkeys(_KNOBS)
        self._unsure: set[str] = set()
        self._lock = threading.Lock()

    @property
    def found(self) -> KnobState:
        """What the knobs read before anybody here touched them."""
        return self._found

    def request(self, point: OperatingPoint, grid: ClockGrid) -> None:
        """Ask for a point within the grid; knobs that are as last asked for stay untouched.

        A point that was asked for last is installed anew, for somebody else may have set
        another one meanwhile. What lowers power goes first and what raises it last, the power
        limit outermost, so that at no moment more may be drawn than at the higher of two points.

        Raises:
            NotPermitted, NotSupported, DeviceLost, DeviceError.
        """
        with self._lock:
            for knob in self._order(point):
                setting = getattr(point, knob)
                # Should it fail half way, nobody knows what is set.
                self._unsure.add(knob)
                self._set(knob, setting, grid)
                self._unsure.discard(knob)
                self._asked[knob] = setting

    def reset(self, found: KnobState | None) -> None:
        """Give the clocks back to the driver and put the power limit back to what was found.

        Every knob is tried before the first failure is raised.
        Raises NotPermitted, DeviceLost, DeviceError.
        """
        with self._lock:
            if found is not None and found.power_limit_w is not None:
                self._found = found
            replies = [
                self._device.call("nvmlDeviceResetGpuLockedClocks"),
                self._device.call("nvmlDeviceResetMemoryLockedClocks"),
            ]
            self._asked = dict.fromkeys(_KNOBS)
            self._unsure.clear()
            limit_w = self._found.power_limit_w
            for reply in replies:
                # A lock that the GPU cannot have needs no reset.
                if reply.code and reply.code not in LACKING:
                    if reply.code not in LOST:
                        self._put_back(limit_w)
                    raise reply.error(self._device.title)
            self._put_back(limit_w)

    def _put_back(self, limit_w: float | None) -> None:
        now_w = None if limit_w is None else current_power_limit_w(self._device)
        if limit_w is None or now_w is None or abs(now_w - limit_w) < _LEAST_DIFFERENCE_W:
            return
        self._set_power_limit(limit_w)

    def _order(self, point: OperatingPoint) -> list[str]:
        """Knobs to set, in this order."""
        settings = {knob: getattr(point, knob) for knob in _KNOBS}
        changed = [
            knob for knob in _KNOBS if settings[knob] != self._asked[knob] or knob in self._unsure
        ]
        changed = changed or [knob for knob in _KNOBS if settings[knob] is not None]
        lowering = [knob for knob in changed if not self._is_raised(knob, settings[knob])]
        raising = [knob for knob in changed if self._is_raised(knob, settings[knob])]
        return [*lowering, *reversed(raising)]

    def _is_raised(self, knob: str, setting: float | None) -> bool:
        return _height(setting) > _height(self._asked[knob])

    def _set(self, knob: str, setting: float | None, grid: ClockGrid) -> None:
        if knob == "power_limit_w":
            self._limit(setting)
        elif knob == "sm_clock_mhz":
            # From the lowest clock up, so that an idle GPU may still clock down.
            self._set_clocks("Gpu", setting, grid.sm_clocks_mhz[0])
        else:
            self._set_clocks("Memory", setting, setting)

    def _set_clocks(self, domain: str, highest_mhz: float | None, lowest_mhz: float | None) -> None:
        if highest_mhz is None:
            reply = self._device.call(f"nvmlDeviceReset{domain}LockedClocks")
        else:
            reply = self._device.call(f"nvmlDeviceSet{domain}LockedClocks", lowest_mhz, highest_mhz)
        reply.needed(self._device.title)

    def _limit(self, limit_w: float | None) -> None:
        wanted_w = self._found.power_limit_w if limit_w is None else limit_w
        if wanted_w is None:
            raise NotSupported(
                f"{self._device.title} has no power limit that can be set",
                hint="Leave the power limit at auto.",
            )
        self._set_power_limit(wanted_w)

    def _set_power_limit(self, limit_w: float) -> None:
        """Set it and read it back: of the three knobs it is the one that can be."""
        self._device.set_power_limit(round(limit_w * 1000)).needed(self._device.title)
        now_w = current_power_limit_w(self._device)
        if now_w is not None and abs(now_w - limit_w) > _ROUNDING_W:
            raise DeviceError(
                f"{self._device.title}: asked for a power limit of {limit_w:g} W, and "
                f"{now_w:g} W is set",
                hint="Another controller (DCGM, a cluster's agent) may set it too; stop it.",
            )


def _height(setting: float | None) -> float:
    """Auto is the highest: the driver goes as high as the found limit lets it."""
    return math.inf if setting is None else setting
