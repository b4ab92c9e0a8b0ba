"""The energy counter's steps: how far apart they are, and waiting for the next one.

NVML's counter moves some ten times a second, and nothing tells when. Every call takes the
driver's global lock, so it is polled once a millisecond and only shortly before a step is due.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from itertools import pairwise

from joulewise.domain.errors import MeasurementError, NotSupported
from joulewise.domain.ports import Timer

_POLL_S = 0.001
_PERIOD_STEP_COUNT = 8
_LONGEST_PERIOD_S = 2.0
# Polls begin that much before a step is due: the last step was seen up to a poll late, and a
# sleep may end late. Where foresight's error eats up half a period there is no sleeping.
_MARGIN_S = 0.003
_BLIND_RATIO = 0.5


class EnergyTicks:
    """Watches one energy counter."""

    def __init__(
        self, read_energy_j: Callable[[], float | None], timer: Timer, *, gpu: str
    ) -> None:
        """Read the counter with `read_energy_j`; `gpu` names it in errors."""
        self._read_energy_j = read_energy_j
        self._timer = timer
        self._gpu = gpu
        self._lock = threading.Lock()
        # Where the counter stood still when its period was to be measured.
        self._still_at_j: float | None = None
        self._period_s: float | None = None
        self._period_error_s = 0.0
        self._last_tick_s: float | None = None

    @property
    def period_s(self) -> float | None:
        """Time between two steps; `None` where there is no counter or it stands still.

        Measured at the first question, which takes nine steps, or 2 s for a counter that stands
        still: the median of the gaps says how many steps the whole time spans. One that stood
        still, as in deep idle, is measured again once it has moved.
        """
        with self._lock:
            if self._period_s is None:
                self._measure()
            return self._period_s

    def wait(self, timeout_s: float) -> None:
        """Return right after the counter's next step.

        Raises:
            NotSupported: there is no counter.
            MeasurementError: it does not move within `timeout_s`.
        """
        deadline_s = self._timer.now_s() + timeout_s
        energy_j = self._energy_j()
        self._sleep_until_due(deadline_s)
        # A step that came during the sleep is not fresh any more.
        energy_j = self._energy_j()
        if not self._poll(energy_j, deadline_s):
            raise MeasurementError(
                f"{self._gpu}: the energy counter did not move within {timeout_s:g} s",
                hint="Wait longer; a counter that stands still for seconds is stuck, and "
                "reloading the driver may wake it. Energy can be added up from power instead.",
            )

    def _energy_j(self) -> float:
        energy_j = self._read_energy_j()
        if energy_j is None:
            raise NotSupported(
                f"{self._gpu} has no energy counter",
                hint="Energy can be added up from power readings instead.",
            )
        return energy_j

    def _poll(self, energy_j: float, deadline_s: float) -> bool:
        """Whether the counter left `energy_j` before the deadline; notes when."""
        while self._energy_j() == energy_j:
            left_s = deadline_s - self._timer.now_s()
            if left_s <= 0:
                return False
            self._timer.sleep(min(_POLL_S, left_s))
        self._last_tick_s = self._timer.now_s()
        return True

    def _sleep_until_due(self, deadline_s: float) -> None:
        last_s, period_s = self._last_tick_s, self._period_s
        if last_s is None or period_s is None:
            return
        now_s = self._timer.now_s()
        step_count = (now_s - last_s) // period_s + 1
        margin_s = _MARGIN_S + step_count * self._period_error_s
        if margin_s < _BLIND_RATIO * period_s:
            due_s = last_s + step_count * period_s
            self._timer.sleep(max(0.0, min(due_s - margin_s, deadline_s) - now_s))

    def _measure(self) -> None:
        energy_j = self._read_energy_j()
        if energy_j is None or energy_j == self._still_at_j:
            return
        ticks_s: list[float] = []
        while len(ticks_s) <= _PERIOD_STEP_COUNT:
            if not self._poll(energy_j, self._timer.now_s() + _LONGEST_PERIOD_S):
                self._still_at_j = energy_j
                return
            ticks_s.append(self._last_tick_s or 0.0)
            energy_j = self._energy_j()
        gaps_s = [after - before for before, after in pairwise(ticks_s)]
        gap_s = statistics.median(gaps_s)
        span_s = ticks_s[-1] - ticks_s[0]
        step_count = round(span_s / gap_s) if gap_s > 0 else _PERIOD_STEP_COUNT
        self._period_s = span_s / step_count
        self._period_error_s = 2 * _POLL_S / step_count
