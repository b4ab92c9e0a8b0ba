"""The memory clock (EMC) of a Jetson: what it runs at, who locked it, and locking it.

Locks go through debugfs of the BPMP, through the Nano's bandwidth manager, or through devfreq
(Thor). debugfs belongs to root: without it nothing is known, which is not the same as unlocked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from joulewise.device.jetson_devfreq import is_hz
from joulewise.device.jetson_emc_controls import find_control
from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_readings import number, text
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.board_state import HZ_PER_MHZ
from joulewise.domain.errors import DeviceError, DeviceLost, NotSupported
from joulewise.domain.points import FoundSetting
from joulewise.domain.ports import Timer

KNOB = "mem_clock_mhz"

_DEBUG = "/sys/kernel/debug"
_COMPATIBLE = "/proc/device-tree/compatible"
# Rates at which these SoCs stay when asked; others are rounded up (jetson-latency-lab,
# repro/emc_lockable_set.txt, an Orin Nano Super). What the board at hand takes is read back.
_MEASURED_HZ = {
    "nvidia,tegra234": (204_000_000, 665_600_000, 2_133_000_000, 3_199_000_000),
}
# JetPack 5; JetPack 6. What nvpmodel allows at most; none and all that there is mean no cap.
_CAPS = ("/sys/kernel/nvpmodel_emc_cap/emc_iso_cap", "/sys/kernel/nvpmodel_clk_cap/emc")
_NO_CAP_HZ = 2**31 - 1
# A new rate takes effect after 7.5 to 9.7 ms and reads back after 13 ms (jetson-latency-lab,
# analysis_trans.txt): what reads earlier may be what was asked instead of what is.
_SHOWN_AFTER_S = 0.02
_SHOWN_WITHIN_S = 0.06
_ASK_AGAIN_S = 0.005


class EmcControl(Protocol):
    """One way to read and to set the memory clock; frequencies in Hz."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that set it, in the order in which they are put back."""
        ...

    def listed_hz(self) -> tuple[int, ...]:
        """Rates that the board lists itself; none where it does not."""
        ...

    def bounds_hz(self) -> tuple[int, int] | None:
        """The lowest and the highest rate; `None` where they cannot be read."""
        ...

    def rate_hz(self) -> int | None:
        """The rate in force."""
        ...

    def is_locked(self) -> bool | None:
        """Whether somebody locked it; `None` where that cannot be read."""
        ...

    def lock(self, rate_hz: int) -> None:
        """Ask for this rate. Raises NotPermitted, DeviceError."""
        ...

    def unlock(self) -> None:
        """Leave it to the board. Raises NotPermitted, DeviceError."""
        ...

    def put_back(self, texts: Sequence[str | None]) -> None:
        """Write found texts of `paths`, in a safe order. Raises NotPermitted, DeviceError."""
        ...


class EmcClock:
    """The memory clock of one board. Every answer is read anew: drivers come late, and go."""

    def __init__(self, files: BoardFiles, timer: Timer | None = None) -> None:
        """Touch nothing; `timer` is the time that the board lives in."""
        self._files = files
        self._timer: Timer = MonotonicTimer() if timer is None else timer

    @property
    def is_present(self) -> bool:
        """Whether this account sees a way to set it."""
        return find_control(self._files) is not None

    @property
    def listed_mhz(self) -> tuple[int, ...]:
        """Labels of the rates that it can be locked at, ascending; none where nothing is known."""
        return tuple(self._listed())

    @property
    def highest_mhz(self) -> int | None:
        """Label of the highest rate of this board, whatever its power mode allows.

        Without debugfs that of its SoC, where one was measured; else `None`.
        """
        control = find_control(self._files)
        rates = self._measured_hz() if control is None else self._rates_hz(control)
        return _label(max(rates)) if rates else None

    def exact_hz(self, label_mhz: int) -> int:
        """The rate behind a label. Raises NotSupported for one that is not listed."""
        listed = self._listed()
        if label_mhz not in listed:
            raise NotSupported(
                f"the memory of this board has no clock of {label_mhz} MHz"
                f"{_nearest(listed, label_mhz)}",
                hint=f"Listed: {', '.join(map(str, listed)) or 'none'}.",
            )
        return listed[label_mhz]

    def current_mhz(self) -> int | None:
        """Label of the rate in force; `None` where it cannot be read."""
        control = find_control(self._files)
        rate_hz = None if control is None else control.rate_hz()
        return None if rate_hz is None else _label(rate_hz) or None

    @property
    def is_lock_known(self) -> bool:
        """Whether it can be read that somebody locked the memory clock, or nobody did."""
        control = find_control(self._files)
        return control is not None and control.is_locked() is not None

    def locked_mhz(self) -> int | None:
        """Label of the rate that somebody locked; `None`: nobody did, or it is not known."""
        control = find_control(self._files)
        if control is None or not control.is_locked():
            return None
        return self.current_mhz()

    def settings(self) -> tuple[FoundSetting, ...]:
        """Files that set it as they read now, in the order in which they are to be put back."""
        control = find_control(self._files)
        if control is None:
            return ()
        read = ((path, text(self._files, path)) for path in control.paths)
        return tuple(
            FoundSetting(knob=KNOB, path=self._files.place(path), text=said)
            for path, said in read
            if said is not None
        )

    def lock(self, label_mhz: int) -> None:
        """Lock it at a listed rate, and see that it runs there.

        Raises:
            NotSupported: it is not listed, or there is nothing to lock.
            NotPermitted: this account may not.
            DeviceError: another rate reads back; the lock is undone by then.
        """
        control = self._control()
        rate_hz, found = self.exact_hz(label_mhz), self.settings()
        try:
            control.lock(rate_hz)
            self._see_rate(control, rate_hz)
        except DeviceLost:
            raise
        except DeviceError as error:
            self._undo(found, error)
            raise

    def unlock(self) -> None:
        """Leave it to the board, whoever locked it; nothing happens where there is none.

        Raises NotPermitted, DeviceError.
        """
        control = find_control(self._files)
        if control is not None:
            control.unlock()
            self._see_lock(control, is_wanted=False)

    def put_back(self, settings: Sequence[FoundSetting]) -> None:
        """Set it as it was found; other files, and texts that are no numbers, are passed over.

        A board that changed its memory clock by itself does so again: then no rate is put back
        but the lock taken off.

        Paths are as they were seen by whoever found them. Raises NotPermitted; DeviceError where
        none of them is a file of this board.
        """
        control = find_control(self._files)
        if control is None:
            return
        if not settings:
            return
        ours = [
            (path, one.text)
            for one in settings
            for path in control.paths
            if one.path.endswith(path)
        ]
        told = {path: said for path, said in ours if is_hz(said)}
        texts = [told.get(path) for path in control.paths]
        if not ours:
            raise DeviceError(
                f"{settings[0].path}, which set the memory clock, is no file of this board",
                hint="What was found there cannot be put back here, so nothing was set.",
            )
        if any(text is not None for text in texts):
            control.put_back(texts)
            self._see_put_back(control, texts)

    def _control(self) -> EmcControl:
        """The way to set it. Raises NotPermitted where debugfs is closed to this account."""
        control = find_control(self._files)
        if control is None:
            self._files.names(_DEBUG)
            raise NotSupported(
                "the memory clock of this board cannot be set",
                hint="It is set through debugfs: see that /sys/kernel/debug is mounted.",
            )
        return control

    def _listed(self) -> dict[int, int]:
        """Hz by label, ascending."""
        control = find_control(self._files)
        if control is None:
            return {}
        cap_hz = self._cap_hz()
        rates = self._rates_hz(control)
        return {_label(rate): rate for rate in rates if cap_hz is None or rate <= cap_hz}

    def _rates_hz(self, control: EmcControl) -> tuple[int, ...]:
        """Rates at which this board stays, ascending, whatever its power mode allows."""
        bounds = control.bounds_hz()
        rates = control.listed_hz() or self._measured_hz() or bounds or ()
        return tuple(
            rate for rate in sorted(rates) if bounds is None or bounds[0] <= rate <= bounds[1]
        )

    def _measured_hz(self) -> tuple[int, ...]:
        compatible = text(self._files, _COMPATIBLE) or ""
        return next((rates for soc, rates in _MEASURED_HZ.items() if soc in compatible), ())

    def _cap_hz(self) -> int | None:
        caps = (number(self._files, path) for path in _CAPS)
        cap_hz = next((cap for cap in caps if cap is not None), None)
        return None if cap_hz is None or cap_hz <= 0 or cap_hz == _NO_CAP_HZ else cap_hz

    def _see_rate(self, control: EmcControl, rate_hz: int) -> None:
        self._timer.sleep(_SHOWN_AFTER_S)
        until_s = self._timer.now_s() + _SHOWN_WITHIN_S - _SHOWN_AFTER_S
        while (now_hz := control.rate_hz()) != rate_hz and self._timer.now_s() < until_s:
            self._timer.sleep(_ASK_AGAIN_S)
        if now_hz != rate_hz:
            raise DeviceError(
                f"the memory clock was asked for {_exactly(rate_hz)}, and {_exactly(now_hz)} "
                "reads back",
                hint="This board rounds what it cannot run at, or its power mode caps it; see "
                "`nvpmodel -q`.",
            )
        self._see_lock(control, is_wanted=True)

    def _see_lock(self, control: EmcControl, *, is_wanted: bool) -> None:
        if control.is_locked() is not is_wanted:
            raise DeviceError(
                f"the memory clock was to be {'locked' if is_wanted else 'unlocked'}, and is not",
                hint="Another controller (nvpmodel, jetson_clocks) may set it too; stop it.",
            )

    def _see_put_back(self, control: EmcControl, texts: Sequence[str | None]) -> None:
        """A rate counts only where it was found locked: else the board moves it by itself."""
        if control.is_locked() is False:
            return
        self._timer.sleep(_SHOWN_AFTER_S)
        now = [text(self._files, path) for path in control.paths]
        if any(wanted not in {None, said} for said, wanted in zip(now, texts, strict=True)):
            raise DeviceError(
                f"the memory clock could not be set back to what was found: {texts} was written, "
                f"and {now} reads",
                hint="Another controller (nvpmodel, jetson_clocks) may set it too; stop it.",
            )

    def _undo(self, found: Sequence[FoundSetting], error: DeviceError) -> None:
        if self.settings() == found:
            return
        try:
            self.put_back(found)
        except DeviceError as other:
            error.add_note(f"Besides: the memory clock could not be set back: {other}")


def _label(rate_hz: int) -> int:
    return rate_hz // HZ_PER_MHZ


def _exactly(rate_hz: int | None) -> str:
    return "nothing" if rate_hz is None else f"{rate_hz / HZ_PER_MHZ:g} MHz"


def _nearest(listed: Sequence[int] | dict[int, int], label_mhz: int) -> str:
    nearest = min(listed, key=lambda one: abs(one - label_mhz), default=None)
    return "" if nearest is None else f"; the nearest is {nearest} MHz"
