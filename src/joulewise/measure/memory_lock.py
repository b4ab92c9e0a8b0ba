"""Whether a lock on the memory clock costs time although the clock is the highest.

On some boards any lock of the memory clock also limits what lies between memory and cores: 16
to 32 % of performance on an RTX 5090 (open-gpu-kernel-modules issues 1265 and 1266). Clocks read
the same all the while, so only time tells.
"""

from __future__ import annotations

from dataclasses import replace

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import MeasurementError
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import KernelLoop, Lease
from joulewise.domain.session import DeviceSession
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.statistics import log_ratio_interval
from joulewise.measure.steady import wait_until_steady
from joulewise.measure.watching import window_of

RUN = "memory-lock"
_PAIR_COUNT = 8
_SLOWER_BEYOND_RATIO = 1.02
# A change of clocks has long taken effect after this.
_SETTLE_S = 1.0
_SHORTEST_WINDOW_S = 0.5


def check_memory_lock(
    session: DeviceSession, lease: Lease, kernel: str, settings: MeasureSettings
) -> tuple[Caveat, ...]:
    """Time a memory-bound kernel at auto and with the memory locked at its highest clock.

    Pairs in turned order, all warm and in one measuring run; a tenth of a window each, for
    only time is compared. The device is left at auto.

    Args:
        session: The device and what runs on it.
        lease: The right to set its clocks.
        kernel: One that memory traffic limits.
        settings: Warm-up, window length and the seed of the interval.

    Returns:
        MemoryLockSlows where the lock makes the kernel slower by more than 2 %, all of the 95 %
        interval of the paired ratios included; nothing where the device lists no memory clocks
        that it would take a lock of.

    Raises:
        MeasurementError: no launch ended.
        NotPermitted, NotSupported, DeviceLost: from the lease.
    """
    clocks_mhz = session.gpu.clock_grid().mem_clocks_mhz
    if not clocks_mhz:
        return ()
    locked = replace(AUTO, mem_clock_mhz=clocks_mhz[-1])
    times_s: dict[OperatingPoint, list[float]] = {AUTO: [], locked: []}
    window_s = max(_SHORTEST_WINDOW_S, settings.window_s / 10)
    try:
        lease.apply(AUTO)
        with session.runner.loop(kernel, run=RUN) as loop:
            wait_until_steady(session.gpu, loop.run_for, settings, is_soak_optional=True)
            for number in range(_PAIR_COUNT):
                order = (AUTO, locked) if number % 2 == 0 else (locked, AUTO)
                for side, point in enumerate(order):
                    lease.apply(point)
                    loop.run_for(_SETTLE_S)
                    window = 2 * number + side
                    times_s[point].append(_launch_time_s(loop, window, window_s))
    finally:
        lease.apply(AUTO)
    ratio, interval = log_ratio_interval(times_s[locked], times_s[AUTO], seed=settings.seed)
    if interval.low_ratio <= _SLOWER_BEYOND_RATIO:
        return ()
    return (
        Caveat(
            kind=CaveatKind.MEMORY_LOCK_SLOWS,
            seen=f"{kernel} takes {ratio - 1.0:.1%} longer with the memory clock locked at "
            f"{clocks_mhz[-1]} MHz than at auto",
        ),
    )


def _launch_time_s(loop: KernelLoop, window: int, duration_s: float) -> float:
    with window_of(loop, window):
        loop.run_for(duration_s)
    timing = loop.end_window()
    if timing.launch_count < 1:
        raise MeasurementError("not one launch ended within the window")
    return timing.elapsed_s / timing.launch_count
