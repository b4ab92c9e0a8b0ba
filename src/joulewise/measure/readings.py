"""Readings of a GPU while something runs on it that nothing is known of."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from joulewise.domain.clock_judgement import is_loaded, is_named_idle
from joulewise.domain.measurement import GpuSample

_MOST_KEPT_COUNT = 4096


class Readings:
    """All readings of a short command, and ever fewer of a long one's."""

    def __init__(self) -> None:
        self._kept: list[GpuSample] = []
        self._last: GpuSample | None = None
        self._stride = 1
        self._seen_count = 0

    def add(self, sample: GpuSample) -> None:
        """Take one more."""
        self._last = sample
        if self._seen_count % self._stride == 0:
            self._kept.append(sample)
        self._seen_count += 1
        if len(self._kept) >= _MOST_KEPT_COUNT:
            del self._kept[1::2]
            self._stride *= 2

    @property
    def all(self) -> tuple[GpuSample, ...]:
        """Those that were kept, the first and the last among them."""
        last = self._last
        if last is None or last is self._kept[-1]:
            return tuple(self._kept)
        return (*self._kept, last)


def held_under_load_mhz(samples: Sequence[GpuSample]) -> float | None:
    """Median SM clock while the GPU worked; `None` where it did not, or does not tell."""
    clocks = [one.sm_clock_mhz for one in samples if is_loaded(one)]
    known = [clock for clock in clocks if clock is not None]
    return median(known) if known else None


def is_idle_throughout(samples: Sequence[GpuSample]) -> bool:
    """Whether the driver called it idle in every reading."""
    return all(is_named_idle(one) for one in samples)
