"""One window: energy from edge to edge, time per launch from events, and what disturbed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.clock_judgement import HEAT, POWER_BRAKE, POWER_LIMIT, SYNC_BOOST
from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import GpuSample, LoopTiming, Window
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Gpu, KernelLoop
from joulewise.measure.clocks import clock_doubts, foreign_limit, held_sm_clock_mhz
from joulewise.measure.counter_check import disagreement
from joulewise.measure.held_down import held_down
from joulewise.measure.meter import (
    CounterMeter,
    Meter,
    after_failure,
    meter_of,
)
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.watching import watch, window_of

# Window numbers of repeats lie beyond those that any measuring run counts up to.
REPEAT_STRIDE = 1_000_000
# A dozen power readings scatter more than the many of a sensor probe.
_DISAGREES_BEYOND_RATIO = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RawWindow:
    """What was read from one edge of a window to the other, and what ran in between."""

    window: int
    samples: tuple[GpuSample, ...]
    timing: LoopTiming
    energy_j: float

    @property
    def duration_s(self) -> float:
        """Time between the two edges."""
        return self.samples[-1].time_s - self.samples[0].time_s


def measure_window(
    gpu: Gpu,
    loop: KernelLoop,
    point: OperatingPoint,
    window: int,
    settings: MeasureSettings,
    *,
    reached_mhz: int | None = None,
) -> Window:
    """Measure one window of the running kernel, repeating broken ones.

    A window during which the counter went back, stood still or ran faster than the board can
    draw, another process ran, somebody else set clocks or a power limit, or heat lowered the
    clock is thrown away and measured again under another window number. Where repeating does
    not help, a disturbed window is kept with its caveat. A counter that stands still twice is
    given up for power readings.

    Args:
        gpu: What to read.
        loop: The kernel that runs.
        point: The operating point asked for.
        window: Number of the window.
        settings: Its length, how often to read, and how often to repeat.
        reached_mhz: SM clock that the device was seen to reach at this point before.

    Returns:
        Time per launch from the loop's own timing; energy per launch is the mean power
        between two counter ticks, with the GPU loaded across both, times time per launch.

    Raises:
        MeasurementError: the counter went back every time.
        NotSupported: the device has neither an energy counter that moves nor power readings.
        DeviceLost: it no longer answers.
    """
    spoilt: tuple[RawWindow, tuple[Caveat, ...]] | None = None
    reason = ""
    meter = meter_of(gpu, settings)
    for attempt in range(settings.repeat_count + 1):
        try:
            raw = _read_window(gpu, loop, window + attempt * REPEAT_STRIDE, settings, meter)
        except MeasurementError as error:
            reason = error.message
            meter = after_failure(meter, gpu, settings)
            continue
        doubts = _doubts(raw, gpu, point, settings, reached_mhz)
        if not is_disturbed(doubts):
            return _finish(raw, (*doubts, *meter.caveats, *_disagreement(raw, gpu, meter)))
        spoilt = raw, (*doubts, *meter.caveats)
    if spoilt is None:
        raise MeasurementError(
            f"no window of {settings.repeat_count + 1} gave an energy: {reason}",
            hint="Look whether another program resets the driver, and measure again.",
        )
    return _finish(*spoilt)


def disturbances(samples: Sequence[GpuSample]) -> tuple[Caveat, ...]:
    """What spoils a window: another process, or heat that lowered the clock."""
    foreign_count = max(sample.other_process_count or 0 for sample in samples)
    if not foreign_count:
        return held_down(samples, HEAT)
    seen = f"{foreign_count} other process(es) on the GPU during the window"
    return (
        Caveat(kind=CaveatKind.OTHER_PROCESS_ON_GPU, seen=seen),
        *held_down(samples, HEAT),
    )


def is_disturbed(doubts: Sequence[Caveat]) -> bool:
    """Whether a window with these doubts should be measured again."""
    return any(caveat.kind in _DISTURBING for caveat in doubts)


def power_capping(samples: Sequence[GpuSample]) -> tuple[Caveat, ...]:
    """PowerCapped where a power limit or brake held the clock down for more than a moment."""
    return held_down(samples, POWER_LIMIT, POWER_BRAKE)


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


_DISTURBING = frozenset(
    {
        CaveatKind.OTHER_PROCESS_ON_GPU,
        CaveatKind.THERMALLY_THROTTLED,
        CaveatKind.FOREIGN_CONTROL,
    }
)


def _read_window(
    gpu: Gpu, loop: KernelLoop, window: int, settings: MeasureSettings, meter: Meter
) -> RawWindow:
    duration_s = settings.window_duration_s(gpu.energy_counter_period_s)
    start = meter.edge()
    with window_of(loop, window):
        within = watch(gpu, loop.run_for, duration_s, meter.sample_s)
        end = meter.edge()
    timing = loop.end_window()
    samples = (start, *within, end)
    energy_j = meter.energy_j(samples)
    if timing.launch_count < 1:
        raise MeasurementError("not one launch ended within the window")
    return RawWindow(window=window, samples=samples, timing=timing, energy_j=energy_j)


def _doubts(
    raw: RawWindow,
    gpu: Gpu,
    point: OperatingPoint,
    settings: MeasureSettings,
    reached_mhz: int | None,
) -> tuple[Caveat, ...]:
    """Everything that there is to doubt about a window but how its energy was found."""
    samples, grid = raw.samples, gpu.clock_grid()
    held = (*power_capping(samples), *held_down(samples, SYNC_BOOST))
    clocks = clock_doubts(
        samples,
        point,
        grid,
        counted_mhz=raw.timing.mean_sm_clock_mhz,
        reached_mhz=reached_mhz,
        is_sm_excused=bool(held or held_down(samples, HEAT)),
    )
    return (
        *held,
        *clocks,
        *foreign_limit(samples, point, grid),
        *disturbances(samples),
        *coarseness(raw.duration_s, gpu.energy_counter_period_s, settings),
    )


def _disagreement(raw: RawWindow, gpu: Gpu, meter: Meter) -> tuple[Caveat, ...]:
    """CounterDisagrees where power readings of the same window tell another energy.

    One kernel over and over draws one power, so that readings now and then will do; and those
    of a GPU say nothing of what its module draws.
    """
    kinds = {caveat.kind for caveat in gpu.identity.caveats}
    if not isinstance(meter, CounterMeter) or CaveatKind.ENERGY_OF_MODULE in kinds:
        return ()
    return disagreement(raw.samples, _DISAGREES_BEYOND_RATIO)


def _finish(raw: RawWindow, caveats: tuple[Caveat, ...]) -> Window:
    time_s = raw.timing.elapsed_s / raw.timing.launch_count
    return Window(
        window=raw.window,
        time_s=time_s,
        energy_j=raw.energy_j / raw.duration_s * time_s,
        duration_s=raw.duration_s,
        launch_count=raw.timing.launch_count,
        sm_clock_held_mhz=held_sm_clock_mhz(raw.samples, raw.timing.mean_sm_clock_mhz),
        temp_c=raw.samples[-1].temp_c,
        caveats=caveats,
    )
