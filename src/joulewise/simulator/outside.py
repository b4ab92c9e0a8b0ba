"""What happens to a virtual board from outside, at moments that its device string names."""

from __future__ import annotations

from joulewise.domain.errors import DeviceLost
from joulewise.simulator.device_string import VirtualOptions
from joulewise.simulator.virtual_time import NEVER, Units, seconds, units


class Outside:
    """Loss of the device, a reset of its energy counter, another process on it."""

    def __init__(self, options: VirtualOptions) -> None:
        """Know the moments."""
        self._lost_at = _moment(options.lost_after_s)
        self._counter_reset_at = _moment(options.counter_reset_s)
        self._foreign_from = _moment(options.foreign_from_s)
        self._foreign_to = _moment(options.foreign_to_s)

    def check(self, now: Units) -> None:
        """Raise DeviceLost once the device has gone."""
        if now >= self._lost_at:
            raise DeviceLost(
                f"the virtual GPU was lost after {seconds(self._lost_at):g} s",
                hint="Open the device without lost_after.",
            )

    def is_foreign(self, now: Units) -> bool:
        """Whether another process is on the GPU."""
        return self._foreign_from <= now < self._foreign_to

    def resets_counter(self, now: Units) -> bool:
        """Whether the energy counter starts anew; true once."""
        if now < self._counter_reset_at:
            return False
        self._counter_reset_at = NEVER
        return True

    def next_event(self, now: Units) -> Units:
        """The next of these moments."""
        moments = (self._lost_at, self._counter_reset_at, self._foreign_from, self._foreign_to)
        return min((moment for moment in moments if moment > now), default=NEVER)


def _moment(after_s: float | None) -> Units:
    return NEVER if after_s is None else units(after_s)
