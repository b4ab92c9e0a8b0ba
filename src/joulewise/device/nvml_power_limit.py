"""The power limit of one GPU: never above what was found, and put back only where it is ours.

Unlike a clock lock it can be read back, so that what somebody else set meanwhile is seen, and
stays. Nothing here is called but under a lease, by `NvmlKnobs`.
"""

from __future__ import annotations

from collections.abc import Collection

from joulewise.device.nvml import NvmlDevice
from joulewise.device.nvml_clocks import current_power_limit_w
from joulewise.domain.errors import DeviceError, NotPermitted, NotSupported

_LEAST_DIFFERENCE_W = 0.001
# Drivers may round to whole watts.
_ROUNDING_W = 0.5
_OTHERS_HINT = "Another controller (DCGM, a cluster's agent) may set it too; stop it."


class PowerLimit:
    """The limit as found, as asked for, and as it reads."""

    def __init__(self, device: NvmlDevice) -> None:
        """Touch nothing."""
        self._device = device
        self._found_w: float | None = None
        # The one asked for last, and what may be set besides since a call failed: of those before
        # it another one that reads so is somebody else's.
        self._asked_w: set[float] = set()

    @property
    def is_touched(self) -> bool:
        """Whether it was asked for here and not given back."""
        return bool(self._asked_w)

    @property
    def found_w(self) -> float | None:
        """What it reads; once asked for here, what it read before. `None`: there is none."""
        return self._found_w if self._asked_w else current_power_limit_w(self._device)

    def ask(self, limit_w: float) -> None:
        """Set it.

        Raises:
            NotSupported: there is none, or it would be above the one found.
            DeviceError: somebody else lowered it meanwhile, below this; or another one reads
                back.
            NotPermitted: nothing is changed. DeviceLost.
        """
        title = self._device.title
        now_w = current_power_limit_w(self._device)
        found_w = self._found_w if self._asked_w else now_w
        if now_w is None or found_w is None:
            raise no_power_limit(title)
        if limit_w > found_w + _LEAST_DIFFERENCE_W:
            raise NotSupported(
                f"{title} takes no power limit of {limit_w:g} W",
                hint=f"Up to the limit found, {found_w:g} W.",
            )
        is_others = bool(self._asked_w) and not _is_one_of(now_w, self._asked_w)
        if is_others and now_w < limit_w - _ROUNDING_W:
            raise DeviceError(
                f"{title}: somebody else lowered the power limit to {now_w:g} W, and it is not "
                f"raised to {limit_w:g} W",
                hint=_OTHERS_HINT,
            )
        before_w, before_asked_w = self._found_w, set(self._asked_w)
        self._found_w = found_w
        # Should the call fail, nobody knows which one is set.
        self._asked_w.add(limit_w)
        try:
            self._set(limit_w)
        except NotPermitted:
            self._found_w, self._asked_w = before_w, before_asked_w
            raise
        self._asked_w = {limit_w}

    def give_back(self) -> None:
        """Put it back where it was asked for here, and is still ours; forget it.

        Raises NotPermitted, DeviceLost, DeviceError; then nothing is forgotten.
        """
        if self._asked_w and self._found_w is not None:
            self.put_back(self._found_w, self._asked_w)
        self.forget()

    def forget(self) -> None:
        """Take the limit that is set for ours no more."""
        self._asked_w.clear()

    def put_back(self, found_w: float, asked_w: Collection[float] | None) -> None:
        """Put it back to `found_w` where it reads less, and as one of those asked for.

        Args:
            found_w: before the first touch.
            asked_w: all limits that were asked for; `None`: not known, so that whatever is
                lower than the one found counts as one.

        Raises:
            NotPermitted, DeviceLost, DeviceError.
        """
        now_w = current_power_limit_w(self._device)
        if now_w is None or now_w > found_w - _LEAST_DIFFERENCE_W:
            return
        if asked_w is None or _is_one_of(now_w, asked_w):
            self._set(found_w)

    def _set(self, limit_w: float) -> None:
        self._device.set_power_limit(round(limit_w * 1000)).needed(self._device.title)
        now_w = current_power_limit_w(self._device)
        if now_w is not None and abs(now_w - limit_w) > _ROUNDING_W:
            raise DeviceError(
                f"{self._device.title}: asked for a power limit of {limit_w:g} W, and "
                f"{now_w:g} W is set",
                hint=_OTHERS_HINT,
            )


def no_power_limit(title: str) -> NotSupported:
    """The error for a GPU whose power limit cannot be set."""
    return NotSupported(
        f"{title} has no power limit that can be set", hint="Leave the power limit at auto."
    )


def _is_one_of(now_w: float, asked_w: Collection[float]) -> bool:
    return any(abs(now_w - one_w) <= _ROUNDING_W for one_w in asked_w)
