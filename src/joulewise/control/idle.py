"""Lowers the clock of a GPU that nobody uses, and gives it back when somebody does.

A GPU with a process on it that waits may rest at its highest clock and draw tens of watts more
than it needs to. Pure: fed with samples, it says what to do. Whoever drives it, per GPU:

* feeds every sample, about once a second, and every `LOWERED_SAMPLE_PERIOD_S` while lowered:
  that is how late a load is noticed; `None` where the GPU did not answer;
* feeds once more, with `is_leased=True`, right when somebody asks for the lease on the GPU;
* on LOWER takes the lease itself and asks for `point`, and calls `not_lowered` where that fails;
* on GIVE_BACK releases that lease, before anybody else gets the GPU.
"""

from __future__ import annotations

from enum import Enum

from joulewise.domain.errors import InputError
from joulewise.domain.measurement import EventReason, GpuActivity, GpuSample
from joulewise.domain.points import ClockGrid, OperatingPoint

LOWERED_SAMPLE_PERIOD_S = 0.25
LONGEST_GAP_S = 5.0
"""Samples may be so far apart, and no further."""
# A sample that comes late is no gap; nobody knows what ran while nobody looked for longer.
_BLIND_AFTER_S = 2 * LONGEST_GAP_S
QUIET_RATIO = 0.01
"""Activity of SMs and memory since the last sample, up to which nothing counts as having run."""
LONGEST_WAIT_FACTOR = 16.0


class IdleAct(Enum):
    """What is to be done now."""

    NOTHING = "nothing"
    LOWER = "lower"
    GIVE_BACK = "give back"


class IdlePolicy:
    """When one GPU is lowered and when given back.

    It is lowered where every sample of `after_s` saw it idle and free, and given back at the
    first that does not. One that was given back within `after_s` is lowered only after twice as
    long the next time, up to sixteen times: short work that comes again and again between two
    samples is not slowed down over and over.
    """

    def __init__(self, *, after_s: float, grid: ClockGrid, sm_clock_mhz: int | None = None) -> None:
        """Begin with nothing seen; `sm_clock_mhz` at `None` stands for the lowest that is listed.

        Raises InputError for a clock that the GPU does not list.
        """
        if sm_clock_mhz is not None and sm_clock_mhz not in grid.sm_clocks_mhz:
            nearest_mhz = min(grid.sm_clocks_mhz, key=lambda listed: abs(listed - sm_clock_mhz))
            raise InputError(
                f"the idle clock {sm_clock_mhz} MHz is none that the GPU lists",
                hint=f'Say "lowest", or the nearest one, {nearest_mhz}.',
                field="sm_clock_mhz",
            )
        clock_mhz = grid.sm_clocks_mhz[0] if sm_clock_mhz is None else sm_clock_mhz
        self.point = OperatingPoint(sm_clock_mhz=clock_mhz)
        self._after_s = after_s
        self._wait_s = after_s
        self._idle_since_s: float | None = None
        self._seen_s: float | None = None
        self._lowered_s: float | None = None
        self._does_tell_idle = False

    @property
    def is_lowered(self) -> bool:
        """Whether LOWER was said, and neither GIVE_BACK nor `not_lowered` since."""
        return self._lowered_s is not None

    def feed(self, sample: GpuSample | None, *, now_s: float, is_leased: bool) -> IdleAct:
        """Take a look at the GPU; `is_leased` says that somebody else has or wants the lease.

        `now_s` never goes back. A GPU that does not answer, or does not tell whether it idles,
        counts as busy.
        """
        is_free = not is_leased and self._is_idle(sample)
        is_seen = self._seen_s is not None and now_s - self._seen_s <= _BLIND_AFTER_S
        self._seen_s = now_s
        if not is_free:
            self._idle_since_s = None
            return self._give_back(now_s, is_early=not is_leased)
        if self._idle_since_s is None or not is_seen:
            self._idle_since_s = now_s
        if self.is_lowered or now_s - self._idle_since_s < self._wait_s:
            return IdleAct.NOTHING
        self._lowered_s = now_s
        return IdleAct.LOWER

    def not_lowered(self, now_s: float) -> None:
        """LOWER could not be done; it is said again later, each time after twice as long."""
        self._give_back(now_s, is_early=True)
        self._idle_since_s = None

    def _give_back(self, now_s: float, *, is_early: bool) -> IdleAct:
        if self._lowered_s is None:
            return IdleAct.NOTHING
        if is_early and now_s - self._lowered_s < self._after_s:
            self._wait_s = min(2.0 * self._wait_s, LONGEST_WAIT_FACTOR * self._after_s)
        else:
            self._wait_s = self._after_s
        self._lowered_s = None
        return IdleAct.GIVE_BACK

    def _is_idle(self, sample: GpuSample | None) -> bool:
        """Whether nothing runs now and, as far as it is told, nothing ran since the last sample.

        The event reason tells of this moment. NVIDIA may drop it from later drivers: of a GPU
        that never gave it, activity is believed instead.
        """
        if sample is None:
            return False
        is_told_idle = EventReason.GPU_IDLE in (sample.event_reasons or ())
        self._does_tell_idle = self._does_tell_idle or is_told_idle
        if sample.activity is None:
            return is_told_idle
        return _is_quiet(sample.activity) and (is_told_idle or not self._does_tell_idle)


def _is_quiet(activity: GpuActivity) -> bool:
    """Whether SMs, and memory where that is told, did next to nothing."""
    if activity.sm_cycle_ratio is None:
        return False
    return max(activity.sm_cycle_ratio, activity.dram_ratio or 0.0) <= QUIET_RATIO
