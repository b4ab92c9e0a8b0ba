"""Sets the clocks of one Jetson. Nothing here is called but under a lease, by `control`.

Everything can be read back, so a knob goes back to what was found before it was first set here,
but for what somebody else has set since, which stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from joulewise.device.jetson_clock import measured_mhz, see_in_force
from joulewise.device.jetson_devfreq import (
    GOVERNOR,
    LEAST,
    MOST,
    ClockRange,
    Devfreq,
    FindNode,
    is_hz,
    is_same_hz,
)
from joulewise.device.jetson_emc import EmcClock
from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_modes import power_mode
from joulewise.device.jetson_nodes import gpu_folders
from joulewise.device.jetson_state import sm_clock_ceiling_mhz
from joulewise.domain.errors import DeviceError, JoulewiseError, NotPermitted
from joulewise.domain.points import FoundSetting, OperatingPoint, Touched
from joulewise.domain.ports import Timer

Undo = Callable[[], None]
_SM, _MEMORY = "sm_clock_mhz", "mem_clock_mhz"


class _Knob(Protocol):
    """One clock: asked for, given back, put back for somebody who is gone."""

    @property
    def is_touched(self) -> bool: ...

    def give_back(self) -> None: ...

    def put_back(self, found: Sequence[FoundSetting]) -> None: ...

    def forget(self) -> None: ...


class JetsonKnobs:
    """Both clocks. Threads may share it."""

    def __init__(self, gpu: GpuClockKnob, memory: MemoryClockKnob) -> None:
        """Touch nothing."""
        self._gpu, self._memory = gpu, memory
        # What is given back first comes first.
        self._knobs: dict[str, _Knob] = {_MEMORY: memory, _SM: gpu}
        self._lock = threading.Lock()

    def request(self, point: OperatingPoint, listed: Mapping[int, str]) -> None:
        """Ask for a point that was checked; all of it, or nothing.

        `listed` has the GPU clocks that may be asked for: Hz as listed, by label. Raises
        NotPermitted, NotSupported, DeviceLost, DeviceError.
        """
        with self._lock:
            clock_mhz = point.sm_clock_mhz
            undo = self._gpu.move(clock_mhz, None if clock_mhz is None else listed[clock_mhz])
            try:
                self._memory.move(point.mem_clock_mhz)
            except DeviceError as error:
                try:
                    undo()
                except DeviceError as other:
                    error.add_note(f"Besides: the GPU clock could not be put back: {other}")
                raise

    def reset(self, touched: Touched | None) -> None:
        """Give touched knobs back; without `touched` what was set here.

        Every knob is tried before the first failure is raised, with notes of the others.
        Raises NotPermitted, DeviceLost, DeviceError.
        """
        with self._lock:
            found = () if touched is None or touched.found is None else touched.found.settings
            failures: list[JoulewiseError] = []
            for name, knob in self._knobs.items():
                if touched is not None and name not in touched.knobs:
                    continue
                try:
                    if touched is None or knob.is_touched:
                        knob.give_back()
                    else:
                        knob.put_back([one for one in found if one.knob == name])
                except JoulewiseError as error:
                    failures.append(error)
        if failures:
            for other in failures[1:]:
                failures[0].add_note(f"Besides: {other}")
            raise failures[0]

    def forget(self) -> None:
        """Take nothing that is set for ours any more; nothing is given back."""
        with self._lock:
            for knob in self._knobs.values():
                knob.forget()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pin:
    """What was found before a clock was first set, and what was asked for last.

    `is_sure` is false where a failure left nobody knows what.
    """

    found: ClockRange
    asked: ClockRange
    is_sure: bool = True

    def found_by_now(self, now: ClockRange | None, devfreq: Devfreq) -> ClockRange:
        """What is to be put back: a bound that somebody else set since the last request is theirs.

        One that reads lower while the kernel cools is ours all the same.
        """
        if now is None or not self.is_sure or now.is_same(self.asked):
            return self.found
        if now.is_below(self.asked) and devfreq.is_held_down_by_heat:
            return self.found
        is_least_ours = is_same_hz(now.least, self.asked.least)
        is_most_ours = is_same_hz(now.most, self.asked.most)
        return ClockRange(
            least=self.found.least if is_least_ours else now.least,
            most=self.found.most if is_most_ours else now.most,
        )


class GpuClockKnob:
    """The GPU clock as one number: both bounds of the devfreq node; the governor stays as it is."""

    def __init__(self, files: BoardFiles, node: FindNode, timer: Timer) -> None:
        """Touch nothing."""
        self._files = files
        self._node = node
        self._timer = timer
        self._pin: _Pin | None = None

    @property
    def is_touched(self) -> bool:
        """Whether it was set here and not given back."""
        return self._pin is not None

    def move(self, clock_mhz: int | None, text: str | None) -> Undo:
        """Pin a clock, listed as `text` in Hz, or give back; what this returns undoes that.

        Raises NotPermitted, DeviceLost, DeviceError; then all is as it was before.
        """
        before = self._pin
        if clock_mhz is None and before is None:
            return _undo_nothing
        devfreq = self._node()
        bounds = devfreq.clock_range
        if clock_mhz is None or text is None:
            self.give_back()
        else:
            self._ask(devfreq, bounds, clock_mhz, text)
        return lambda: self._undo(bounds, before)

    def give_back(self) -> None:
        """Put back what was found, but for a bound that reads otherwise than asked for.

        Raises NotPermitted, DeviceLost, DeviceError; then nothing is forgotten.
        """
        pin = self._pin
        if pin is None:
            return
        devfreq = self._node()
        now = devfreq.clock_range
        wanted = pin.found_by_now(now, devfreq)
        # Should it fail, whatever reads then is not somebody else's.
        self._pin = replace(pin, is_sure=False)
        if now is None or wanted != now:
            devfreq.set_range(wanted.in_order)
        self._pin = None

    def put_back(self, found: Sequence[FoundSetting]) -> None:
        """Put back what somebody who is gone found; what is not told goes to the stock state.

        Only the files of this GPU are written, whatever a journal names. Raises NotPermitted,
        NotSupported, DeviceLost, DeviceError.
        """
        devfreq = self._node()
        told = self._told(devfreq, found)
        governor = told.get(GOVERNOR)
        if governor not in devfreq.governors:
            governor = devfreq.stock_governor if not told else None
        failure: DeviceError | None = None
        try:
            if governor is not None:
                devfreq.set_governor(governor)
        except DeviceError as error:
            failure = error
        try:
            devfreq.set_range(self._bounds(devfreq, told))
        except DeviceError as error:
            if failure is not None:
                error.add_note(f"Besides: {failure}")
            raise
        if failure is not None:
            raise failure

    def forget(self) -> None:
        """Take what is set for ours no more."""
        self._pin = None

    def _ask(self, devfreq: Devfreq, bounds: ClockRange | None, clock_mhz: int, text: str) -> None:
        if bounds is None:
            raise DeviceError(
                f"{devfreq.title}: {devfreq.place(LEAST)} and {MOST} tell no clocks",
                hint="What cannot be read cannot be put back, so nothing was set.",
            )
        asked = ClockRange(least=text, most=text)
        # A bound that somebody else set since our last request is what goes back.
        found = bounds if self._pin is None else self._pin.found_by_now(bounds, devfreq)
        pin = _Pin(found=found, asked=asked)
        before_mhz = measured_mhz(self._files, devfreq)
        try:
            devfreq.set_range(asked)
            see_in_force(
                self._files, devfreq, self._timer, asked_mhz=clock_mhz, before_mhz=before_mhz
            )
        except DeviceError as error:
            self._after_failure(devfreq, bounds, pin, error)
            raise
        self._pin = pin

    def _after_failure(
        self, devfreq: Devfreq, bounds: ClockRange, pin: _Pin, error: DeviceError
    ) -> None:
        """Put the bounds back; where that fails, too, keep in mind that something is set."""
        try:
            if devfreq.clock_range != bounds:
                devfreq.set_range(bounds.in_order)
        except DeviceError as other:
            error.add_note(f"Besides: {other}")
            self._pin = replace(pin, is_sure=False)

    def _undo(self, bounds: ClockRange | None, pin: _Pin | None) -> None:
        unsure = self._pin or pin
        if unsure is not None:
            self._pin = replace(unsure, is_sure=False)
        if bounds is not None:
            self._node().set_range(bounds.in_order)
        self._pin = pin

    def _told(self, devfreq: Devfreq, found: Sequence[FoundSetting]) -> dict[str, str]:
        """What was found in this GPU's own files, by their names; what cannot be is left out.

        Paths are as they were seen by whoever found them, whose root may have been another name
        of this one. Raises DeviceError where something was found, and none of it here.
        """
        ours = {
            f"{folder}/{name}": name
            for folder in gpu_folders(self._files)
            for name in (GOVERNOR, LEAST, MOST)
        }
        told = {
            name: one.text
            for one in found
            for path, name in ours.items()
            if one.path.endswith(path)
        }
        if found and not told:
            raise DeviceError(
                f"{found[0].path}, which set a clock, is no file of {devfreq.title}",
                hint="What was found there cannot be put back here, so nothing was set.",
            )
        return {name: text for name, text in told.items() if name == GOVERNOR or is_hz(text)}

    def _bounds(self, devfreq: Devfreq, told: dict[str, str]) -> ClockRange:
        least, most = told.get(LEAST), told.get(MOST)
        if least is None or most is None:
            stock = _stock_range(self._files, devfreq)
            least, most = least or stock.least, most or stock.most
        return ClockRange(least=least, most=most).in_order


class MemoryClockKnob:
    """The memory clock, locked at one rate."""

    def __init__(self, emc: EmcClock) -> None:
        """Touch nothing."""
        self._emc = emc
        self._found: tuple[FoundSetting, ...] | None = None
        self._asked_mhz: int | None = None

    @property
    def is_touched(self) -> bool:
        """Whether it was locked here and not given back."""
        return self._found is not None

    def move(self, clock_mhz: int | None) -> None:
        """Lock a listed clock, or give back.

        Raises NotPermitted, DeviceLost, DeviceError; then all is as it was before.
        """
        if clock_mhz is None:
            self.give_back()
            return
        now, locked_mhz = self._emc.settings(), self._emc.locked_mhz()
        found = self._found or now
        try:
            self._emc.lock(clock_mhz)
        except DeviceError:
            if self._emc.locked_mhz() != locked_mhz:
                # Nobody knows what is set.
                self._found, self._asked_mhz = found, None
            raise
        self._found, self._asked_mhz = found, clock_mhz

    def give_back(self) -> None:
        """Put back what was found, unless somebody else locked another clock meanwhile.

        Raises NotPermitted, DeviceError; then nothing is forgotten.
        """
        if self._found is None:
            return
        is_others = self._emc.is_lock_known and self._emc.locked_mhz() != self._asked_mhz
        if self._asked_mhz is None or not is_others:
            # Should it fail, whatever reads then is not somebody else's.
            self._asked_mhz = None
            self._put(self._found)
        self.forget()

    def put_back(self, found: Sequence[FoundSetting]) -> None:
        """Put back what somebody who is gone found; unlock where that is not told.

        Raises NotPermitted, DeviceError.
        """
        if found:
            self._put(found)
        else:
            self._emc.unlock()

    def forget(self) -> None:
        """Take what is set for ours no more."""
        self._found = self._asked_mhz = None

    def _put(self, settings: Sequence[FoundSetting]) -> None:
        if not self._emc.is_present:
            raise NotPermitted(
                f"this account does not see {settings[0].path}, which set the memory clock",
                hint="Run as root: the memory clock is set through debugfs, which belongs to root.",
            )
        self._emc.put_back(settings)


def allowed(files: BoardFiles, listed: Mapping[int, str]) -> Mapping[int, str]:
    """Listed clocks (Hz by label, ascending) that the power mode allows; never none.

    What a mode caps is the operator's to lift.
    """
    ceiling_mhz = sm_clock_ceiling_mhz(tuple(listed), power_mode(files))
    return {label: text for label, text in listed.items() if label <= ceiling_mhz}


def _stock_range(files: BoardFiles, devfreq: Devfreq) -> ClockRange:
    """From the lowest listed clock to the highest that the power mode allows."""
    texts = tuple(allowed(files, devfreq.listed()).values())
    return ClockRange(least=texts[0], most=texts[-1])


def _undo_nothing() -> None:
    """What was not touched needs no undoing."""
