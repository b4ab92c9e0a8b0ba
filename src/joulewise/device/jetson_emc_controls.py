"""Ways to set a Jetson's memory clock: a rate with a flag in debugfs, or a devfreq node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_readings import names, number, text

_DEBUG = "/sys/kernel/debug"
_BPMP = f"{_DEBUG}/bpmp/debug/clk/emc"
_BWMGR = f"{_DEBUG}/tegra_bwmgr"
_OVERRIDE = f"{_DEBUG}/clk/override.emc"
_DEVFREQ = "/sys/class/devfreq"
_ON, _OFF = "1", "0"
# BPMP's lists are in kHz on some releases; no memory runs below 10 MHz.
_LEAST_HZ = 10_000_000
_HZ_PER_KHZ = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RateWithFlag:
    """A rate, and a flag that makes it stay (BPMP since TX2; the Nano's override)."""

    files: BoardFiles
    rate: str
    """Where a rate is asked for."""
    now: str
    """Where the rate in force reads."""
    flag: str
    listed: str
    lowest: str
    highest: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The rate first: once the flag is off it can be anybody's."""
        return (self.rate, self.flag)

    def listed_hz(self) -> tuple[int, ...]:
        """`possible_rates`, where the firmware has it."""
        return _rates(text(self.files, self.listed))

    def bounds_hz(self) -> tuple[int, int] | None:
        """`min_rate` and `max_rate`."""
        return _bounds(number(self.files, self.lowest), number(self.files, self.highest))

    def rate_hz(self) -> int | None:
        """The rate in force."""
        return number(self.files, self.now)

    def is_locked(self) -> bool | None:
        """Whether the flag is set."""
        said = text(self.files, self.flag)
        return None if said is None else said != _OFF

    def lock(self, rate_hz: int) -> None:
        """The flag first, so that nobody asks for another rate in between."""
        self.files.write(self.flag, _ON)
        self.files.write(self.rate, str(rate_hz))

    def unlock(self) -> None:
        """Take the flag off."""
        self.files.write(self.flag, _OFF)

    def put_back(self, texts: Sequence[str | None]) -> None:
        """The rate while it is locked, then the flag; a rate that is nobody's is left alone."""
        rate, flag = texts
        try:
            if rate is not None and (flag == _ON or self.is_locked()):
                if flag == _ON:
                    self.files.write(self.flag, _ON)
                self.files.write(self.rate, rate)
        finally:
            if flag == _OFF:
                self.files.write(self.flag, _OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevfreqEmc:
    """A devfreq node (Thor): locked where both bounds are the same."""

    files: BoardFiles
    folder: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The two bounds."""
        return (f"{self.folder}/min_freq", f"{self.folder}/max_freq")

    def listed_hz(self) -> tuple[int, ...]:
        """`available_frequencies`."""
        return _rates(text(self.files, f"{self.folder}/available_frequencies"))

    def bounds_hz(self) -> tuple[int, int] | None:
        """All that is listed."""
        listed = self.listed_hz()
        return (min(listed), max(listed)) if listed else None

    def rate_hz(self) -> int | None:
        """`cur_freq`."""
        return number(self.files, f"{self.folder}/cur_freq")

    def is_locked(self) -> bool | None:
        """Whether one rate is all that the bounds leave."""
        least, most = self._bounds()
        if least is None or most is None:
            return None
        return least == most and len(self.listed_hz()) > 1

    def lock(self, rate_hz: int) -> None:
        """Both bounds to this rate."""
        self._write(str(rate_hz), str(rate_hz))

    def unlock(self) -> None:
        """Both bounds to the ends of the list."""
        bounds = self.bounds_hz()
        if bounds is not None:
            self._write(str(bounds[0]), str(bounds[1]))

    def put_back(self, texts: Sequence[str | None]) -> None:
        """Both bounds as found; one alone is no state that was found."""
        least, most = texts
        if least is not None and most is not None:
            self._write(least, most)

    def _write(self, least: str, most: str) -> None:
        """Never the lower bound above the upper one."""
        low, high = self.paths
        now_least, _ = self._bounds()
        if now_least is None or int(most) >= now_least:
            self.files.write(high, most)
            self.files.write(low, least)
        else:
            self.files.write(low, least)
            self.files.write(high, most)

    def _bounds(self) -> tuple[int | None, int | None]:
        low, high = self.paths
        return number(self.files, low), number(self.files, high)


def find_control(files: BoardFiles) -> RateWithFlag | DevfreqEmc | None:
    """The way by which this board takes a memory clock; `None` where this account sees none."""
    if files.exists(f"{_BPMP}/rate"):
        return RateWithFlag(
            files=files,
            rate=f"{_BPMP}/rate",
            now=f"{_BPMP}/rate",
            flag=f"{_BPMP}/mrq_rate_locked",
            listed=f"{_BPMP}/possible_rates",
            lowest=f"{_BPMP}/min_rate",
            highest=f"{_BPMP}/max_rate",
        )
    if files.exists(f"{_OVERRIDE}/clk_state"):
        return RateWithFlag(
            files=files,
            rate=f"{_OVERRIDE}/clk_update_rate",
            now=f"{_OVERRIDE}/clk_rate",
            flag=f"{_OVERRIDE}/clk_state",
            listed=f"{_OVERRIDE}/clk_possible_rates",
            lowest=f"{_BWMGR}/emc_min_rate",
            highest=f"{_BWMGR}/emc_max_rate",
        )
    return next(
        (
            DevfreqEmc(files=files, folder=f"{_DEVFREQ}/{name}")
            for name in names(files, _DEVFREQ)
            if "emc" in name.lower()
        ),
        None,
    )


def _rates(said: str | None) -> tuple[int, ...]:
    rates = tuple(int(digits) for digits in re.findall(r"\d{1,12}", said or "", re.ASCII))
    in_hz = (rate if rate >= _LEAST_HZ else rate * _HZ_PER_KHZ for rate in rates if rate > 0)
    return tuple(sorted(in_hz))


def _bounds(least: int | None, most: int | None) -> tuple[int, int] | None:
    return None if least is None or most is None or least > most else (least, most)
