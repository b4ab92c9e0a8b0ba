"""One window of whole iterations: their energy, and what disturbed it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.clock_judgement import SYNC_BOOST
from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import GpuSample, IterationTiming, ReplayWindow
from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import ClockGrid
from joulewise.domain.ports import Gpu, IterationLoop, Progress
from joulewise.measure.clocks import clock_doubts, foreign_clock_on_the_way, foreign_limit
from joulewise.measure.held_down import held_down
from joulewise.measure.meter import CounterMeter, Meter, after_failure, meter_of
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.watching import watch, window_of
from joulewise.measure.window import (
    REPEAT_STRIDE,
    coarseness,
    disturbances,
    is_disturbed,
    power_capping,
)

REPLAYING = "replaying"
FEWEST_ITERATIONS_COUNT = 3
_SAMPLES_PER_TOLD = 10
# A window may end with the counter's tick at another place of the iteration than it began at.
# What that adds is known only roughly, so windows are made somewhat longer, up to this often,
# until it is less than this share of them.
_LONGEST_WINDOW_COUNT = 4
_PHASE_WITHIN_RATIO = 1e-3
# Devices count time in steps, and one that is asked for less than half of its step lets none pass.
# Counters move every few ms or more rarely, so that this much before the end is the end.
_SHORTEST_PIECE_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """An iteration as it is carried out: launches with their points, and when to ask."""

    launches: tuple[PlannedLaunch, ...]
    requests: tuple[PlannedRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """A window to be measured: of what, under which number, and how many iterations."""

    schedule: Schedule
    window: int
    iteration_count: int
    iteration_s: float
    """About how long an iteration takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawReplay:
    """What was read around a number of whole iterations.

    The first sample follows the start of an iteration and the last that of a later one. Each
    is an edge of the meter, as is the second where the meter is a counter.
    """

    window: int
    samples: tuple[GpuSample, ...]
    timing: IterationTiming
    counted_j: float
    first_step_w: float | None
    """Power between the first two samples; `None` where it does not stand for that moment."""

    @property
    def duration_s(self) -> float:
        """Time between the first and the last edge."""
        return self.samples[-1].time_s - self.samples[0].time_s

    @property
    def iteration_energy_j(self) -> float:
        """Energy of one whole iteration.

        The edges lie nearly a whole number of iterations apart. What was counted too much or
        too little is taken off at the power that was drawn there, which the counter's first
        step tells: iterations are all alike.
        """
        iteration_s = self.timing.elapsed_s / self.timing.iteration_count
        count = max(1, round(self.duration_s / iteration_s))
        mean_w = self.counted_j / self.duration_s
        local_w = mean_w if self.first_step_w is None else self.first_step_w
        excess_s = self.duration_s - count * iteration_s
        return (self.counted_j - local_w * excess_s) / count


def enough_iterations(
    iteration_s: float, energy_counter_period_s: float | None, settings: MeasureSettings
) -> int:
    """Iterations that fill a window and end where in the counter's period they began.

    With a counter period u and iterations of t, a window of N iterations leaves N t mod u
    uncounted or counted in excess; near u, 5/2 u and the like that hardly changes from one N to
    the next (the aliasing of arXiv 2312.02741), so N is chosen.
    """
    window_s = settings.window_duration_s(energy_counter_period_s)
    fewest = max(FEWEST_ITERATIONS_COUNT, math.ceil(window_s / iteration_s))
    if energy_counter_period_s is None:
        return fewest

    def phase_ratio(count: int) -> float:
        periods = count * iteration_s / energy_counter_period_s
        return abs(periods - round(periods)) / periods

    best = fewest
    for count in range(fewest, _LONGEST_WINDOW_COUNT * fewest + 1):
        if phase_ratio(count) < phase_ratio(best):
            best = count
        if phase_ratio(best) <= _PHASE_WITHIN_RATIO:
            break
    return best


def measure_replay(
    gpu: Gpu, loop: IterationLoop, task: ReplayTask, settings: MeasureSettings, progress: Progress
) -> ReplayWindow:
    """One window of the running iterations, measured again where something disturbed it.

    Raises:
        MeasurementError: no window gave an energy.
        NotSupported: the device has neither an energy counter that moves nor power readings.
        DeviceLost: it no longer answers.
    """
    spoilt: ReplayWindow | None = None
    reason = ""
    meter = meter_of(gpu, settings)
    for attempt in range(settings.repeat_count + 1):
        try:
            number = task.window + attempt * REPEAT_STRIDE
            raw = _read(gpu, loop, task, number, meter, progress)
        except MeasurementError as error:
            reason = error.message
            meter = after_failure(meter, gpu, settings)
            continue
        replay = _finish(raw, (*_doubts(raw, gpu, task, settings), *meter.caveats))
        if not is_disturbed(replay.caveats):
            return replay
        spoilt = replay
    if spoilt is None:
        raise MeasurementError(
            f"no replay of {settings.repeat_count + 1} gave an energy: {reason}",
            hint="Look whether another program resets the driver, and measure again.",
        )
    return spoilt


def _read(
    gpu: Gpu, loop: IterationLoop, task: ReplayTask, number: int, meter: Meter, progress: Progress
) -> RawReplay:
    first_step_w = None
    with window_of(loop, number):
        samples = [meter.edge()]
        if isinstance(meter, CounterMeter):
            samples.append(meter.edge())
            step_s = samples[1].time_s - samples[0].time_s
            first_step_w = meter.energy_j(samples) / step_s
        samples += _run_watching(gpu, loop, task, meter, progress, samples)
        samples.append(meter.edge())
    timing = loop.end_window()
    raw = RawReplay(
        window=number,
        samples=tuple(samples),
        timing=timing,
        counted_j=meter.energy_j(samples),
        first_step_w=first_step_w,
    )
    if raw.iteration_energy_j <= 0:
        raise MeasurementError("the energy counter moved too rarely")
    return raw


def _run_watching(
    gpu: Gpu,
    loop: IterationLoop,
    task: ReplayTask,
    meter: Meter,
    progress: Progress,
    edges: Sequence[GpuSample],
) -> list[GpuSample]:
    """Run until the edge that ends the window is next; read and tell now and then.

    That edge is the tick nearest to a whole number of iterations after the first. Short
    iterations are read where they end, for anybody else's doings meet those at ever other
    phases; long ones within.
    """
    start_s, now_s = edges[0].time_s, edges[-1].time_s
    iteration_s, sample_s = task.iteration_s, meter.sample_s
    end_s = start_s + task.iteration_count * iteration_s - 0.5 * (gpu.energy_counter_period_s or 0)
    is_whole = isinstance(meter, CounterMeter) and iteration_s <= sample_s
    step_count = math.floor(sample_s / iteration_s) if is_whole else 1
    samples: list[GpuSample] = []
    progress(REPLAYING, 0, task.iteration_count)
    while is_whole and now_s + step_count * iteration_s < end_s:
        loop.run_iterations(step_count)
        samples.append(gpu.sample())
        now_s = samples[-1].time_s
        _tell(progress, task, now_s - start_s)
    while end_s - now_s > _SHORTEST_PIECE_S:
        piece_s = min(_SAMPLES_PER_TOLD * sample_s, end_s - now_s)
        samples += watch(gpu, loop.run_for, piece_s, sample_s)
        now_s = samples[-1].time_s
        _tell(progress, task, now_s - start_s)
    return samples


def _tell(progress: Progress, task: ReplayTask, passed_s: float) -> None:
    done_count = min(task.iteration_count - 1, max(0, int(passed_s / task.iteration_s)))
    progress(REPLAYING, done_count, task.iteration_count)


def _doubts(
    raw: RawReplay, gpu: Gpu, task: ReplayTask, settings: MeasureSettings
) -> tuple[Caveat, ...]:
    samples, grid = raw.samples, gpu.clock_grid()
    capped = power_capping(samples)
    return (
        *capped,
        *_foreign(samples, task.schedule, grid),
        *held_down(samples, SYNC_BOOST),
        *disturbances(samples),
        *coarseness(raw.duration_s, gpu.energy_counter_period_s, settings),
        *_unkept_requests(raw.timing),
    )


def _foreign(
    samples: Sequence[GpuSample], schedule: Schedule, grid: ClockGrid
) -> tuple[Caveat, ...]:
    """ForeignControl only: a clock that is not held is a doubt of the cells planned with."""
    points = tuple(dict.fromkeys(launch.point for launch in schedule.launches))
    if len(points) > 1:
        limits = {point.power_limit_w for point in points}
        clocks = foreign_clock_on_the_way(samples, points, grid)
    else:
        limits = {points[0].power_limit_w}
        clocks = tuple(
            caveat
            for caveat in clock_doubts(samples, points[0], grid)
            if caveat.kind is CaveatKind.FOREIGN_CONTROL
        )
    if len(limits) > 1:
        return clocks
    return (*clocks, *foreign_limit(samples, points[0], grid))


def _finish(raw: RawReplay, caveats: tuple[Caveat, ...]) -> ReplayWindow:
    timing, count = raw.timing, raw.timing.iteration_count
    return ReplayWindow(
        window=raw.window,
        time_s=timing.elapsed_s / count,
        energy_j=raw.iteration_energy_j,
        duration_s=raw.duration_s,
        iteration_count=count,
        request_count=timing.request_count / count,
        late_count=timing.late_count / count,
        skipped_count=timing.skipped_count / count,
        max_late_s=timing.max_late_s,
        early_count=timing.early_count / count,
        max_early_s=timing.max_early_s,
        temp_c=raw.samples[-1].temp_c,
        caveats=caveats,
    )


def _unkept_requests(timing: IterationTiming) -> tuple[Caveat, ...]:
    """Doubts where points came late, too early or not at all, so launches ran at other points."""
    count = timing.iteration_count
    doubts = []
    if timing.late_count or timing.skipped_count:
        doubts.append(
            Caveat(
                kind=CaveatKind.CHANGES_LATE,
                seen=f"of the changes {timing.late_count / count:g} came into force up to "
                f"{timing.max_late_s * 1e3:.3g} ms after their launch had begun, and "
                f"{timing.skipped_count / count:g} fell away, per iteration",
            )
        )
    if timing.early_count:
        doubts.append(
            Caveat(
                kind=CaveatKind.CHANGES_EARLY,
                seen=f"of the changes {timing.early_count / count:g} came into force up to "
                f"{timing.max_early_s * 1e3:.3g} ms before their launch began, per iteration",
            )
        )
    return tuple(doubts)
