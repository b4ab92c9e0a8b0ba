"""What a leased GPU does beside what was asked of it, from one request to the next."""

from __future__ import annotations

from joulewise.control.drift import Drift, DriftWatch
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import ClockGrid, OperatingPoint

Asked = tuple[OperatingPoint, float]
"""A point, and when it was asked for."""


class Drifting:
    """One watch after the other: what was seen before a request says nothing of the next one."""

    def __init__(self) -> None:
        self._watched: Asked | None = None
        self._watch: DriftWatch | None = None

    def feed(self, sample: GpuSample, asked: Asked | None, grid: ClockGrid) -> Drift | None:
        """Judge a reading; `None` where nothing is asked for."""
        if asked is None:
            self._watch = self._watched = None
            return None
        if self._watch is None or asked is not self._watched:
            point, asked_s = asked
            self._watch, self._watched = DriftWatch(point, grid, asked_s=asked_s), asked
        return self._watch.feed(sample)
