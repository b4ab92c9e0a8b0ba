"""Activity of a GPU from its GPM counters (Hopper and later).

GPM divides cycles by cycles, so a GPU that is busy at 1980 MHz and idles at 345 MHz looks
busier than it is. In time: U_t = U_c f/f_a, f the mean clock over all time, f_a the clock while
busy (derived from U_c = a u f_a / (a f_a + (1 - a) f_i) for a share a of time busy at f_a).
"""

from __future__ import annotations

import math
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

from joulewise.device.nvml import FieldValue, GpmRequest, NvmlDevice, call
from joulewise.device.nvml_reply import PASSING, Reply
from joulewise.domain.measurement import GpuActivity
from joulewise.domain.ports import Timer

# nvml.h: two samples have to lie more than 100 ms apart.
SHORTEST_S = 0.11
_VARYING_RATIO = 0.05
_ROUNDING_RATIO = 0.02
# A mean clock beyond these is a counter of something else.
_SLOWEST_RATIO, _FASTEST_RATIO = 0.02, 1.1


class Metric:
    """GPM metrics that are read here (nvmlGpmMetricId_t); the first four in percent."""

    SM_UTIL = 2
    SM_OCCUPANCY = 3
    ANY_TENSOR_UTIL = 5
    DRAM_BW_UTIL = 10
    SM_CYCLES_ELAPSED = 248


_METRICS = (
    Metric.SM_UTIL,
    Metric.SM_OCCUPANCY,
    Metric.ANY_TENSOR_UTIL,
    Metric.DRAM_BW_UTIL,
    Metric.SM_CYCLES_ELAPSED,
)


@dataclass(slots=True)
class _Earlier:
    """The sample that the next one is compared with."""

    sample: object
    time_s: float
    cycle_count: float | None = None
    clocks_mhz: list[int] = field(default_factory=list)


class ActivityMeter:
    """Activity since an earlier reading; `None` on GPUs without GPM."""

    def __init__(self, device: NvmlDevice, timer: Timer) -> None:
        """Ask whether there is GPM; nothing is switched on for it."""
        self._device = device
        self._timer = timer
        self._lock = threading.Lock()
        self._spare: list[object] = []
        self._earlier: _Earlier | None = None
        self._request: GpmRequest | None = None
        self.is_there = bool(gpm_support(device).told(device.title))

    def read(self, sm_clock_mhz: int | None) -> GpuActivity | None:
        """Activity since the last reading that gave one, or since the first.

        `None` where there is no GPM, within 110 ms of the last such reading, and where GPM
        fails for now.

        Args:
            sm_clock_mhz: the SM clock just read, for cycles to be weighed by.

        Raises:
            DeviceLost: the GPU no longer answers.
        """
        if not self.is_there:
            return None
        with self._lock:
            earlier = self._earlier
            if earlier is not None and sm_clock_mhz is not None:
                earlier.clocks_mhz.append(sm_clock_mhz)
            if earlier is not None and self._timer.now_s() - earlier.time_s < SHORTEST_S:
                return None
            later = self._take()
            if later is None:
                return None
            if sm_clock_mhz is not None:
                later.clocks_mhz.append(sm_clock_mhz)
            self._earlier = later
            return None if earlier is None else self._between(earlier, later)

    def _take(self) -> _Earlier | None:
        """A new sample, and when it was taken; `None` where the driver gives none."""
        sample = self._spare.pop() if self._spare else self._allocate()
        if sample is None:
            return None
        before_s = self._timer.now_s()
        failure = self._device.failure("nvmlGpmSampleGet", sample)
        time_s = (before_s + self._timer.now_s()) / 2
        if failure is None:
            return _Earlier(sample=sample, time_s=time_s)
        self._spare.append(sample)
        self._give_up_unless_passing(failure)
        return None

    def _allocate(self) -> object | None:
        reply = call("nvmlGpmSampleAlloc")
        if reply.code:
            self._give_up_unless_passing(reply)
            return None
        sample: object = reply.value
        weakref.finalize(self, call, "nvmlGpmSampleFree", sample)
        return sample

    def _give_up_unless_passing(self, failure: Reply[Any]) -> None:
        """Ask for GPM no more, unless it only failed for now. Raises DeviceLost."""
        failure.told(self._device.title)
        self.is_there = failure.code in PASSING

    def _between(self, earlier: _Earlier, later: _Earlier) -> GpuActivity | None:
        if self._request is None:
            self._request = GpmRequest(_METRICS)
        reply = self._request.between(earlier.sample, later.sample, self._device.pause)
        self._spare.append(earlier.sample)
        values = reply.told(self._device.title)
        if values is None:
            return None
        by_metric = dict(zip(_METRICS, values, strict=True))
        later.cycle_count = _number(by_metric[Metric.SM_CYCLES_ELAPSED])
        duration_s = later.time_s - earlier.time_s
        busy_mhz = float(max(earlier.clocks_mhz, default=0))
        mean_mhz = _mean_clock_mhz(earlier, later, busy_mhz, duration_s)
        sm_cycle_ratio = _ratio(by_metric[Metric.SM_UTIL])
        return GpuActivity(
            duration_s=duration_s,
            sm_cycle_ratio=sm_cycle_ratio,
            sm_time_ratio=time_ratio(sm_cycle_ratio, mean_mhz, busy_mhz),
            occupancy_ratio=_ratio(by_metric[Metric.SM_OCCUPANCY]),
            tensor_ratio=_ratio(by_metric[Metric.ANY_TENSOR_UTIL]),
            dram_ratio=_ratio(by_metric[Metric.DRAM_BW_UTIL]),
            is_clock_varying=_is_varying(earlier.clocks_mhz, mean_mhz),
        )


def gpm_support(device: NvmlDevice) -> Reply[bool]:
    """Whether the GPU has GPM (nvmlGpmQueryDeviceSupport)."""
    reply = device.call("nvmlGpmQueryDeviceSupport")
    return reply.mapped(lambda support: bool(support.isSupportedDevice))


def time_ratio(cycle_ratio: float | None, mean_mhz: float | None, busy_mhz: float) -> float | None:
    """Share of time from a share of cycles: U_t = U_c f/f_a; `None` without a clock.

    Args:
        cycle_ratio: active cycles over elapsed ones, U_c.
        mean_mhz: mean clock over all time, f.
        busy_mhz: clock while busy, f_a; not below the mean, for busy clocks are the high ones.
    """
    if cycle_ratio is None or mean_mhz is None or busy_mhz <= 0:
        return None
    return cycle_ratio * min(1.0, mean_mhz / busy_mhz)


def _mean_clock_mhz(
    earlier: _Earlier, later: _Earlier, busy_mhz: float, duration_s: float
) -> float | None:
    """Cycles over time where the driver counts them and they make sense, else a mean of clocks.

    The counter runs since the GPU was started, so it takes two readings.
    """
    if busy_mhz <= 0:
        return None
    if earlier.cycle_count is not None and later.cycle_count is not None:
        mean_mhz = (later.cycle_count - earlier.cycle_count) / duration_s / 1e6
        if _SLOWEST_RATIO * busy_mhz < mean_mhz < _FASTEST_RATIO * busy_mhz:
            return mean_mhz
    return sum(earlier.clocks_mhz) / len(earlier.clocks_mhz)


def _is_varying(clocks_mhz: list[int], mean_mhz: float | None) -> bool:
    if mean_mhz is None or not clocks_mhz:
        return False
    return min(mean_mhz, *clocks_mhz) < (1 - _VARYING_RATIO) * max(clocks_mhz)


def _number(metric: FieldValue) -> float | None:
    if metric.code or metric.value is None or not math.isfinite(metric.value):
        return None
    return metric.value


def _ratio(metric: FieldValue) -> float | None:
    """A share from percent; `None` for a metric that failed, and for what is no share."""
    percent = _number(metric)
    if percent is None or not 0 <= percent <= 100 * (1 + _ROUNDING_RATIO):
        return None
    return min(1.0, percent / 100)
