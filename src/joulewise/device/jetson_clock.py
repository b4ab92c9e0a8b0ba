"""The clock that a Jetson's GPU runs at, which need not be the one asked for."""

from __future__ import annotations

from joulewise.device.jetson_devfreq import Devfreq, is_hz, label_mhz
from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_load import busy_ratio
from joulewise.domain.errors import DeviceError, NotPermitted
from joulewise.domain.ports import Timer

# Cycles that the BPMP counts, cluster by cluster, where debugfs may be read; devfreq's own
# `cur_freq` is what the clock driver believes. Thor has three clusters.
_COUNTERS = tuple(
    f"/sys/kernel/debug/bpmp/debug/clk/nafll_gpc{cluster}/pto_counter" for cluster in range(3)
)
# 990 to 1019 MHz were measured at 1020, 897 to 915 at 918, 1295 at 1300 (42 logs of
# jetson-latency-lab; slmdvfs).
_HELD_WITHIN_RATIO = 0.03
# Read-back was seen after 6.5 to 7.1 ms (jetson-latency-lab, analysis_trans.txt).
_SHOWN_WITHIN_S = 0.05
_ASK_AGAIN_S = 0.002


def measured_mhz(files: BoardFiles, devfreq: Devfreq) -> int | None:
    """The clock as it is counted, else as devfreq tells it; a GPU whose rail is off has none.

    Raises DeviceLost.
    """
    counted = _counted_mhz(files)
    if counted is not None:
        return counted or None
    try:
        text = devfreq.text("cur_freq")
    except NotPermitted:
        return None
    return (label_mhz(text) or None) if text is not None and is_hz(text) else None


def is_held(measured_mhz: int, asked_mhz: int) -> bool:
    """Whether a measured clock is the one asked for: within 3 %, never by equality."""
    return abs(measured_mhz - asked_mhz) <= _HELD_WITHIN_RATIO * asked_mhz


def see_in_force(
    files: BoardFiles, devfreq: Devfreq, timer: Timer, *, asked_mhz: int, before_mhz: int | None
) -> None:
    """See that a GPU at work does run at the clock that it was pinned to.

    An idle one need not: its rail is off, or its driver waits for work. One that moved and
    stays lower is held down by heat or by its supply, which samples show.

    Raises:
        DeviceError: the clock did not move, or is above the one asked for. DeviceLost.
    """
    if not busy_ratio(files, devfreq.folder):
        return
    now_mhz = measured_mhz(files, devfreq)
    until_s = timer.now_s() + _SHOWN_WITHIN_S
    while now_mhz is not None and not is_held(now_mhz, asked_mhz):
        if timer.now_s() >= until_s:
            break
        timer.sleep(_ASK_AGAIN_S)
        now_mhz = measured_mhz(files, devfreq)
    if now_mhz is None or is_held(now_mhz, asked_mhz):
        return
    if now_mhz > asked_mhz or (before_mhz is not None and is_held(now_mhz, before_mhz)):
        raise DeviceError(
            f"{devfreq.title}: asked for a GPU clock of {asked_mhz} MHz, which is set, and the "
            f"GPU runs at {now_mhz} MHz",
            hint="The board's firmware ignores requests after an over-current event until it is "
            "started anew; dmesg and the oc*_event_cnt files in /sys/class/hwmon tell.",
        )


def _counted_mhz(files: BoardFiles) -> int | None:
    """Of the clusters that run; 0 where all stand still, `None` where nothing is counted."""
    counted = []
    for path in _COUNTERS:
        try:
            text = files.read(path)
        except NotPermitted:
            return None
        if text and is_hz(text):
            counted.append(label_mhz(text))
    return max(counted, default=None)
