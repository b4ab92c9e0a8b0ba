"""One cell: one kernel at one operating point, warm, in several windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.measurement import CellMeasurement, GpuSample, Window
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Lease
from joulewise.domain.session import DeviceSession
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.statistics import median
from joulewise.measure.steady import measure_idle_power_w, wait_until_steady
from joulewise.measure.window import measure_window

# A window is an outlier when it lies further from the median than both of these: six standard
# deviations, estimated by the median absolute deviation, and a share that plain noise rarely
# reaches.
_OUTLIER_STD_COUNT = 6.0
_MAD_PER_STD = 0.6745
_OUTLIER_TIME_RATIO = 0.02
_OUTLIER_ENERGY_RATIO = 0.08
_FEWEST_FOR_OUTLIERS_COUNT = 3
_STEADY_WITHIN_C = 2.0
# Windows of one cell, at one temperature, whose clock nothing holds down run at one clock.
_SAME_CLOCK_WITHIN_RATIO = 0.02
_LOWERING = frozenset(
    {
        CaveatKind.POWER_CAPPED,
        CaveatKind.THERMALLY_THROTTLED,
        CaveatKind.CLOCK_NOT_HELD,
        CaveatKind.FOREIGN_CONTROL,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellVisit:
    """Windows of one kernel to be measured at the point in force, within one measuring run."""

    kernel: str
    point: OperatingPoint
    run: str
    window: int = 0
    """Number of the first window; the others follow on."""
    window_count: int = 1
    is_soak_optional: bool = False


def measure_cell(  # noqa: PLR0913 - what, where, under which label and how
    session: DeviceSession,
    lease: Lease,
    kernel: str,
    point: OperatingPoint,
    *,
    run: str,
    settings: MeasureSettings,
    first_window: int = 0,
    window_count: int | None = None,
) -> CellMeasurement:
    """Set the point, read idle power, warm up and measure.

    Args:
        session: The device and what runs on it.
        lease: The right to set its clocks.
        kernel: Which kernel.
        point: Which operating point.
        run: Label of the measuring run.
        settings: Windows, warm-up and patience.
        first_window: Number of the first window; no two windows of a run may share one.
        window_count: `None` for that of the settings.

    Raises:
        MeasurementError: no trustworthy number came out.
        DeviceError: the device refused the point, has no energy counter, or was lost.
    """
    lease.apply(point)
    visit = CellVisit(
        kernel=kernel,
        point=point,
        run=run,
        window=first_window,
        window_count=settings.window_count if window_count is None else window_count,
    )
    idle_power_w = measure_idle_power_w(session.gpu, settings)
    return measure_visit(session, visit, settings, idle_power_w=idle_power_w)


def measure_visit(
    session: DeviceSession,
    visit: CellVisit,
    settings: MeasureSettings,
    *,
    idle_power_w: float | None = None,
) -> CellMeasurement:
    """Warm up and measure one cell at the point that is already in force."""
    gpu = session.gpu
    warm: list[GpuSample] = []
    with session.runner.loop(visit.kernel, run=visit.run) as loop:
        warm_up = wait_until_steady(
            gpu,
            loop.run_for,
            settings,
            is_soak_optional=visit.is_soak_optional,
            seen=warm.append,
        )
        reached_mhz = max((s.sm_clock_mhz for s in warm if s.sm_clock_mhz), default=None)
        windows = [
            measure_window(
                gpu, loop, visit.point, visit.window + number, settings, reached_mhz=reached_mhz
            )
            for number in range(visit.window_count)
        ]
    doubts = warm_up or _temperature_drift(windows)
    if not gpu.clock_grid().is_governed:
        windows = [
            replace(window, caveats=(*window.caveats, *foreign))
            for window, foreign in zip(windows, _foreign_clocks(windows, visit.point), strict=True)
        ]
    outliers = _outliers(windows)
    return CellMeasurement(
        kernel=visit.kernel,
        point=visit.point,
        run=visit.run,
        idle_power_w=idle_power_w,
        windows=tuple(
            replace(window, caveats=(*window.caveats, *doubts, *outlier))
            for window, outlier in zip(windows, outliers, strict=True)
        ),
    )


def _foreign_clocks(windows: Sequence[Window], point: OperatingPoint) -> list[tuple[Caveat, ...]]:
    """Per window, whether its SM clock at auto lies below that of others with nothing against it.

    Somebody else's lock may have come and gone between windows.
    """
    free_mhz = [
        None if _is_explained(window) or point.sm_clock_mhz else window.sm_clock_held_mhz
        for window in windows
    ]
    highest = max((clock for clock in free_mhz if clock is not None), default=0.0)
    return [
        (
            Caveat(
                kind=CaveatKind.FOREIGN_CONTROL,
                seen=f"the SM clock was left to the driver and ran at {clock:.0f} MHz, at "
                f"{highest:.0f} MHz in another window, while nothing held it down",
            ),
        )
        if clock is not None and clock < (1.0 - _SAME_CLOCK_WITHIN_RATIO) * highest
        else ()
        for clock in free_mhz
    ]


def _is_explained(window: Window) -> bool:
    return any(caveat.kind in _LOWERING for caveat in window.caveats)


def _temperature_drift(windows: Sequence[Window]) -> tuple[Caveat, ...]:
    temps_c = [window.temp_c for window in windows if window.temp_c is not None]
    if not temps_c or max(temps_c) - min(temps_c) <= _STEADY_WITHIN_C:
        return ()
    return (
        Caveat(
            kind=CaveatKind.NOT_STEADY,
            seen=f"temperature went from {min(temps_c):.0f} to {max(temps_c):.0f} °C "
            "between windows",
        ),
    )


def _outliers(windows: Sequence[Window]) -> list[tuple[Caveat, ...]]:
    """Per window, whether it lies far from the others in time or energy."""
    far_in_time = _far_from_median([window.time_s for window in windows], _OUTLIER_TIME_RATIO)
    far_in_energy = _far_from_median([window.energy_j for window in windows], _OUTLIER_ENERGY_RATIO)
    return [
        (
            Caveat(
                kind=CaveatKind.OUTLIERS_SEEN,
                seen=f"window {window.window} lies far from the median of {len(windows)}",
            ),
        )
        if in_time or in_energy
        else ()
        for window, in_time, in_energy in zip(windows, far_in_time, far_in_energy, strict=True)
    ]


def _far_from_median(values: Sequence[float], least_ratio: float) -> list[bool]:
    if len(values) < _FEWEST_FOR_OUTLIERS_COUNT:
        return [False] * len(values)
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    spread = median(distances) / _MAD_PER_STD
    threshold = max(_OUTLIER_STD_COUNT * spread, least_ratio * middle)
    return [distance > threshold for distance in distances]
