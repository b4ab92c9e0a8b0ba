"""Before hours of measuring: whether it may be done at all, and how long it will take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from joulewise.device.jetson_string import is_jetson, parse_jetson
from joulewise.device.nvml_string import is_nvml, parse_nvml
from joulewise.domain.errors import NotPermitted
from joulewise.domain.plan import Plan
from joulewise.domain.points import AUTO, KNOBS, OperatingPoint
from joulewise.domain.ports import Lease
from joulewise.domain.session import DeviceSession
from joulewise.measure.settings import MeasureSettings
from joulewise.simulator.fake_driver import loaded_driver
from joulewise.workflow.jetson_time import passes_time

Announce = Callable[[str], None]
"""Called with one sentence that people should read before a long measurement begins."""
_MINUTE_S, _HOUR_S = 60.0, 3600.0
_LONG_S = 60.0


def announce_nothing(_sentence: str) -> None:
    """Tell nobody."""


def refuse_without_rights(
    session: DeviceSession, lease: Lease, points: Iterable[OperatingPoint]
) -> None:
    """Set each knob once that will be set, before anything is measured, and give it back.

    Nothing tells beforehand whether an account may set an NVIDIA GPU's clocks; only trying does,
    and on a board it is as good as any other way. Virtual devices are measured in seconds and
    are not tried.

    Raises:
        NotPermitted: this account may not set one of the knobs; its hint says what needs no
            rights.
        NotSupported, DeviceLost, DeviceError: as the device says.
    """
    spec = session.gpu.identity.spec
    if not is_nvml(spec) and not is_jetson(spec):
        return
    asked = tuple(points)
    firsts = [
        next((point for point in asked if getattr(point, knob) is not None), AUTO) for knob in KNOBS
    ]
    tried = [point for point in dict.fromkeys(firsts) if point != AUTO]
    try:
        for point in tried:
            lease.apply(point)
    except NotPermitted as error:
        hint = f"{error.hint} " if error.hint else ""
        raise NotPermitted(
            f"{error.message}; nothing was measured",
            hint=f"{hint}`joulewise measure --sm-clocks auto` alone sets nothing and needs none.",
        ) from error
    if tried:
        lease.apply(AUTO)


def takes_real_time(session: DeviceSession) -> bool:
    """Whether measuring takes as long as it says: on hardware, or on a fake driver in real time."""
    spec = session.gpu.identity.spec
    if not is_nvml(spec):
        return is_jetson(spec) and passes_time(spec)
    driver = loaded_driver()
    return driver is None or not driver.is_virtual_time


def announce_sweep(  # noqa: PLR0913 - what, where, how, and whom to tell
    session: DeviceSession,
    kernels: Sequence[str],
    points: Sequence[OperatingPoint],
    settings: MeasureSettings,
    announce: Announce,
    *,
    finished_count: int = 0,
    and_then: str = "",
) -> None:
    """Say how many cells there are and about how long they take, where that is long.

    `and_then` is a sentence on what comes after the sweep.
    """
    point_count = len({AUTO, *points})
    cell_count = len(set(kernels)) * point_count - finished_count
    window_s = settings.window_duration_s(session.gpu.energy_counter_period_s)
    duration_s = sweep_duration_s(cell_count, point_count, window_s, settings)
    if not takes_real_time(session) or duration_s < _LONG_S:
        return
    announce(
        f"{cell_count} cells of {settings.window_count} windows of {window_s:.0f} s each, and the "
        f"warm-up of each: about {duration_text(duration_s)}. What is measured is kept if it is "
        f"stopped, and can be gone on with.{and_then and f' {and_then}'}"
    )


def announce_pairs(
    session: DeviceSession,
    plan: Plan,
    pair_count: int,
    settings: MeasureSettings,
    announce: Announce,
) -> None:
    """Say about how long a verification kernel by kernel takes, where that is long."""
    if plan.request.transition is not None or not takes_real_time(session):
        return
    cells = {(one.kernel, point) for one in plan.launches for point in (plan.baseline, one.point)}
    window_s = settings.window_duration_s(session.gpu.energy_counter_period_s)
    one_window = replace(settings, window_count=1)
    duration_s = sweep_duration_s(pair_count * len(cells), 0, window_s, one_window)
    if duration_s >= _LONG_S:
        announce(
            f"{pair_count} pairs of {len(cells)} cells, each with its warm-up: about "
            f"{duration_text(duration_s)}. Fewer --pairs take less and show less."
        )


def sweep_duration_s(
    cell_count: int, point_count: int, window_s: float, settings: MeasureSettings
) -> float:
    """About how long a sweep takes: windows, and warm-up that meets the sensor once on its way.

    Under the default settings within a tenth of what a fake RTX 3080 Ti takes.
    """
    warm_s = 2.0 * settings.steady_s + settings.soak_s
    return cell_count * (warm_s + settings.window_count * window_s) + point_count * (
        warm_s + window_s
    )


def duration_text(duration_s: float) -> str:
    """`40 min` or `7.5 h`: an estimate has no more digits."""
    if duration_s < _HOUR_S:
        return f"{max(1, round(duration_s / _MINUTE_S))} min"
    hours = duration_s / _HOUR_S
    return f"{hours:.1f} h" if hours < 10 else f"{hours:.0f} h"  # noqa: PLR2004


def leaves_memory_clock(device: str) -> bool:
    """Whether the memory clock of this device stays with the driver whatever is asked for."""
    if is_jetson(device):
        return not parse_jetson(device, os.environ).is_memory_lock_allowed
    return is_nvml(device) and not parse_nvml(device).is_memory_lock_allowed
