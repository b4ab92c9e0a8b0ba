"""Sets the knobs of one GPU. Nothing here is called but under a lease, by `control`."""

from __future__ import annotations

import math
import threading

from joulewise.device.nvml import NvmlDevice
from joulewise.device.nvml_memory import MemoryClockSwitch
from joulewise.device.nvml_power_limit import PowerLimit
from joulewise.device.nvml_reply import LACKING
from joulewise.domain.errors import JoulewiseError, NotPermitted
from joulewise.domain.points import KNOBS, ClockGrid, OperatingPoint, Touched

# What goes down is set in this order, what goes up in the reverse one.
_ORDER = ("power_limit_w", "sm_clock_mhz", "mem_clock_mhz")
_DOMAINS = {"sm_clock_mhz": "Gpu", "mem_clock_mhz": "Memory"}


class NvmlKnobs:
    """The three knobs: SM clock and memory clock, as maxima, and the power limit."""

    def __init__(self, device: NvmlDevice, memory_switch: MemoryClockSwitch) -> None:
        """Touch nothing."""
        self._device = device
        self._memory_switch = memory_switch
        self._limit = PowerLimit(device)
        self._asked: dict[str, float | None] = dict.fromkeys(KNOBS)
        self._unsure: set[str] = set()
        self._lock = threading.Lock()

    @property
    def found_limit_w(self) -> float | None:
        """The power limit: as it reads, or as it read before it was set here. Raises DeviceLost."""
        return self._limit.found_w

    @property
    def is_set(self) -> bool:
        """Whether anything was set here and not given back."""
        return bool(self._touched())

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
                was_unsure = knob in self._unsure
                # Should it fail half way, nobody knows what is set.
                self._unsure.add(knob)
                try:
                    self._set(knob, setting, grid)
                except NotPermitted:
                    # The driver did not look at it, so all is as it was before.
                    if not was_unsure:
                        self._unsure.discard(knob)
                    raise
                self._unsure.discard(knob)
                self._asked[knob] = setting

    def reset(self, touched: Touched | None) -> None:
        """Give touched knobs back, the power limit last; without `touched` what was set here.

        Every knob is tried before the first failure is raised, with notes of the others.
        Raises NotPermitted, DeviceLost, DeviceError.
        """
        with self._lock:
            own = self._touched()
            knobs = own if touched is None else touched.knobs
            failures: list[JoulewiseError] = []
            for knob in reversed(_ORDER):
                if knob not in knobs:
                    continue
                try:
                    self._give_back(knob, touched)
                except JoulewiseError as error:
                    failures.append(error)
                    # What was never set here is as it was.
                    self._unsure.update(own & {knob})
                else:
                    self._unsure.discard(knob)
                    self._asked[knob] = None
        if failures:
            for other in failures[1:]:
                failures[0].add_note(f"Besides: {other}")
            raise failures[0]

    def forget(self) -> None:
        """Take nothing that is set for ours any more; nothing is given back."""
        with self._lock:
            self._asked = dict.fromkeys(KNOBS)
            self._unsure.clear()
            self._limit.forget()

    def _touched(self) -> frozenset[str]:
        """What was set here and not given back."""
        held = {knob for knob, setting in self._asked.items() if setting is not None}
        return frozenset(held | self._unsure)

    def _give_back(self, knob: str, touched: Touched | None) -> None:
        if knob in _DOMAINS:
            self._reset_clocks(knob)
            return
        found_w = None if touched is None or touched.found is None else touched.found.power_limit_w
        if touched is None or found_w is None or self._limit.is_touched:
            self._limit.give_back()
        else:
            self._limit.put_back(found_w, touched.asked_limits_w)

    def _reset_clocks(self, knob: str) -> None:
        """Give a clock back; a lock that the GPU cannot have needs no reset."""
        if knob == "mem_clock_mhz":
            self._memory_switch.pace()
        reply = self._device.call(f"nvmlDeviceReset{_DOMAINS[knob]}LockedClocks")
        if reply.code not in LACKING:
            reply.needed(self._device.title)

    def _order(self, point: OperatingPoint) -> list[str]:
        """Knobs to set, in this order."""
        settings = {knob: getattr(point, knob) for knob in _ORDER}
        changed = [
            knob for knob in _ORDER if settings[knob] != self._asked[knob] or knob in self._unsure
        ]
        changed = changed or [knob for knob in _ORDER if settings[knob] is not None]
        lowering = [knob for knob in changed if not self._is_raised(knob, settings[knob])]
        raising = [knob for knob in changed if self._is_raised(knob, settings[knob])]
        return [*lowering, *reversed(raising)]

    def _is_raised(self, knob: str, setting: float | None) -> bool:
        return _height(setting) > _height(self._asked[knob])

    def _set(self, knob: str, setting: float | None, grid: ClockGrid) -> None:
        if knob == "power_limit_w":
            if setting is None:
                self._limit.give_back()
            else:
                self._limit.ask(setting)
        elif setting is None:
            self._reset_clocks(knob)
        elif knob == "sm_clock_mhz":
            # From the lowest clock up, so that an idle GPU may still clock down.
            self._lock_clocks("Gpu", grid.sm_clocks_mhz[0], setting)
        else:
            self._memory_switch.pace()
            self._lock_clocks("Memory", setting, setting)

    def _lock_clocks(self, domain: str, lowest_mhz: float, highest_mhz: float) -> None:
        function = f"nvmlDeviceSet{domain}LockedClocks"
        self._device.call(function, lowest_mhz, highest_mhz).needed(self._device.title)


def _height(setting: float | None) -> float:
    """Auto is the highest: the driver goes as high as the found limit lets it."""
    return math.inf if setting is None else setting
