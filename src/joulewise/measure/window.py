"""One window: energy from counter tick to counter tick, time per launch from events."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import MeasurementError, NotSupported
from joulewise.domain.measurement import GpuSample, LoopTiming, Window
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Gpu, KernelLoop
from joulewise.measure.clocks import clock_caveats, held_sm_clock_mhz
from joulewise.measure.settings import MeasureSettings

# A window capped or slowed for less than this share of its length is as good as any.
_NEGLIGIBLE_RATIO = 0.01
_TICK_TIMEOUT_PERIOD_COUNT = 20
_SHORTEST_TICK_TIMEOUT_S = 1.0
# Window numbers of repeats lie beyond those that any measuring run counts up to.
REPEAT_STRIDE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RawWindow:
    """What was read at both ends of a window, and what ran in between."""

    window: int
    start: GpuSample
    end: GpuSample
    timing: LoopTiming

    @property
    def duration_s(self) -> float:
        """Time between the two counter ticks."""
        return self.end.time_s - self.start.time_s


def measure_window(
    gpu: Gpu, loop: KernelLoop, point: OperatingPoint, window: int, settings: MeasureSettings
) -> Window:
    """Measure one window of the running kernel, repeating broken ones.

    A window during which the counter went back or stood still, another process ran or heat
    lowered the clock is thrown away and measured again under another window number. Where
    repeating does not help, a window with a foreign process or a thermal slowdown is kept
    with its caveat.

    Returns:
        Time per launch from the loop's own timing; energy per launch is the mean power
        between two counter ticks, with the GPU loaded across both, times time per launch.

    Raises:
        MeasurementError: the counter went back or stood still every time.
        NotSupported: the device has no energy counter.
        DeviceLost: it no longer answers.
    """
    spoilt: RawWindow | None = None
    reason = ""
    for attempt in range(settings.repeat_count + 1):
        try:
            raw = _read_window(gpu, loop, window + attempt * REPEAT_STRIDE, settings)
        except MeasurementError as error:
            reason = error.message
            continue
        if not disturbances(raw.start, raw.end):
            return _finish(raw, gpu, point, settings)
        spoilt = raw
    if spoilt is None:
        raise MeasurementError(
            f"no window of {settings.repeat_count + 1} gave an energy: {reason}",
            hint="Look whether another program resets the driver, and measure again.",
        )
    return _finish(spoilt, gpu, point, settings)


def wait_for_tick(gpu: Gpu) -> GpuSample:
    """Wait for the energy counter's next step and read everything right then.

    Raises:
        MeasurementError: it stands still.
    """
    return gpu.wait_for_energy_tick(
        max(
            _SHORTEST_TICK_TIMEOUT_S,
            _TICK_TIMEOUT_PERIOD_COUNT * (gpu.energy_counter_period_s or 0.0),
        )
    )


def energy_between_j(start: GpuSample, end: GpuSample) -> float:
    """Energy counted between two samples.

    Raises:
        MeasurementError: the counter went back or stood still.
        NotSupported: the device has no energy counter.
    """
    if start.energy_j is None or end.energy_j is None:
        raise NotSupported(
            "this device has no energy counter",
            hint="Energy cannot be measured there; no energy is invented.",
        )
    energy_j = end.energy_j - start.energy_j
    if energy_j < 0:
        raise MeasurementError("the energy counter went back")
    if energy_j == 0:
        raise MeasurementError("the energy counter stood still")
    return energy_j


def _read_window(gpu: Gpu, loop: KernelLoop, window: int, settings: MeasureSettings) -> RawWindow:
    start = wait_for_tick(gpu)
    loop.begin_window(window)
    loop.run_for(settings.window_duration_s(gpu.energy_counter_period_s))
    try:
        end = wait_for_tick(gpu)
    finally:
        timing = loop.end_window()
    energy_between_j(start, end)
    if timing.launch_count < 1:
        raise MeasurementError("not one launch ended within the window")
    return RawWindow(window=window, start=start, end=end, timing=timing)


def disturbances(start: GpuSample, end: GpuSample) -> tuple[Caveat, ...]:
    """What spoils a window: another process, or heat that lowered the clock."""
    caveats = []
    foreign_count = max(start.other_process_count or 0, end.other_process_count or 0)
    if foreign_count:
        caveats.append(
            Caveat(
                kind=CaveatKind.OTHER_PROCESS_ON_GPU,
                seen=f"{foreign_count} other process(es) on the GPU during the window",
            )
        )
    slowed = _share(start.thermally_throttled_s, end.thermally_throttled_s, start, end)
    if slowed > _NEGLIGIBLE_RATIO:
        caveats.append(
            Caveat(
                kind=CaveatKind.THERMALLY_THROTTLED,
                seen=f"heat held the clock down for {slowed:.0%} of the window",
            )
        )
    return tuple(caveats)


def power_capping(start: GpuSample, end: GpuSample) -> tuple[Caveat, ...]:
    """PowerCapped where the power limit held the clock down for more than a moment."""
    capped = _share(start.power_capped_s, end.power_capped_s, start, end)
    if capped <= _NEGLIGIBLE_RATIO:
        return ()
    return (
        Caveat(
            kind=CaveatKind.POWER_CAPPED,
            seen=f"the power limit held the clock down for {capped:.0%} of the window",
        ),
    )


def coarseness(
    duration_s: float, energy_counter_period_s: float | None, settings: MeasureSettings
) -> tuple[Caveat, ...]:
    """CounterTooCoarse where the energy counter moved too rarely for a window this short."""
    if energy_counter_period_s is None:
        return ()
    period_count = duration_s / energy_counter_period_s
    if period_count >= settings.coarse_counter_period_count:
        return ()
    return (
        Caveat(
            kind=CaveatKind.COUNTER_TOO_COARSE,
            seen=f"the energy counter moved about {period_count:.0f} times in the window",
        ),
    )


def _finish(raw: RawWindow, gpu: Gpu, point: OperatingPoint, settings: MeasureSettings) -> Window:
    power_w = energy_between_j(raw.start, raw.end) / raw.duration_s
    time_s = raw.timing.elapsed_s / raw.timing.launch_count
    samples = (raw.start, raw.end)
    capped = power_capping(raw.start, raw.end)
    return Window(
        window=raw.window,
        time_s=time_s,
        energy_j=power_w * time_s,
        duration_s=raw.duration_s,
        launch_count=raw.timing.launch_count,
        sm_clock_held_mhz=held_sm_clock_mhz(samples),
        temp_c=raw.end.temp_c,
        caveats=(
            *capped,
            *clock_caveats(samples, point, gpu.clock_grid(), is_sm_excused=bool(capped)),
            *disturbances(raw.start, raw.end),
            *coarseness(raw.duration_s, gpu.energy_counter_period_s, settings),
        ),
    )


def _share(start_s: float | None, end_s: float | None, start: GpuSample, end: GpuSample) -> float:
    """Share of the window that a counter of seconds grew by; 0 where it cannot be told."""
    if start_s is None or end_s is None:
        return 0.0
    return (end_s - start_s) / (end.time_s - start.time_s)
