"""Seeing that somebody else sets what a lease has set, on a device that can be read back."""

from __future__ import annotations

from joulewise.control.drift import Drift
from joulewise.control.found_settings import is_same
from joulewise.control.journal import knobs_of
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.points import CLOCK_KNOBS, FoundSetting, OperatingPoint
from joulewise.domain.ports import Gpu, ReadBackGpu

_NAMES = {"sm_clock_mhz": "GPU clock", "mem_clock_mhz": "memory clock"}


class SettingsWatch:
    """Compares the files that set clocks with how they read right after they were set.

    That needs no load: a pin that somebody else moves shows at once, also on an idle GPU.
    """

    def __init__(self, gpu: Gpu, point: OperatingPoint) -> None:
        """Take what reads now for what this point has set. Raises DeviceLost."""
        self._gpu = gpu
        asked = knobs_of(point)
        settings = gpu.knob_state().settings if isinstance(gpu, ReadBackGpu) else ()
        # A governor that is exchanged leaves both bounds of a pin where they are.
        self._set = tuple(one for one in settings if one.knob in asked and one.text.isdecimal())
        self._seen: dict[str, Caveat] = {}

    def look(self) -> Drift:
        """What somebody else has set since. Raises DeviceLost."""
        left = [one for one in self._set if one.knob not in self._seen]
        now_at = {one.path: one.text for one in self._gpu.knob_state().settings} if left else {}
        new: dict[str, Caveat] = {}
        for one in left:
            now = now_at.get(one.path)
            if now is not None and now.isdecimal() and not is_same(now, one.text):
                new.setdefault(one.knob, _moved(one, now))
        self._seen |= new
        return Drift(
            caveats=tuple(self._seen.values()),
            new=tuple(new.values()),
            taken_over=frozenset(self._seen).intersection(CLOCK_KNOBS),
        )


def _moved(setting: FoundSetting, now: str) -> Caveat:
    return Caveat(
        kind=CaveatKind.FOREIGN_CONTROL,
        seen=f"the {_NAMES.get(setting.knob, setting.knob)} was set, and somebody else has set it "
        f"since: {setting.path} reads {now} in place of {setting.text}",
        advice="Stop the other controller, as nvpmodel, jetson_clocks or a script. This clock is "
        "left alone from here on.",
    )
