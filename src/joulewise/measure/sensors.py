"""Probing the energy and power sensors of one GPU before anything is measured with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.clock_judgement import CAUSES
from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import AUTO
from joulewise.domain.ports import Gpu, KernelRunner, Progress, no_progress
from joulewise.domain.sensor_probe import SensorProbe, UpdatePeriod
from joulewise.measure.clocks import clock_doubts, foreign_limit
from joulewise.measure.counter_check import disagreement, power_excess_ratio
from joulewise.measure.held_down import held_down
from joulewise.measure.meter import after_failure, meter_of
from joulewise.measure.sensor_estimates import (
    averaging_window_s,
    update_period_s,
)
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.watching import watch
from joulewise.measure.window import disturbances

RUN = "sensors"
PROBING = "probing sensors"
_STAGE_COUNT = 4
_DISAGREES_BEYOND_RATIO = 0.03
# Holds of steps differ by this share of their length in turn (the golden ratio's fraction), so
# that no sensor's period keeps step with them.
_GOLDEN_RATIO = 0.6180339887498949
_POLLS_PER_PERIOD_COUNT = 50.0
# Where a reading has no period that could be seen.
_POLLS_OF_STEPS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSettings:
    """How long each part of a probe takes, in the device's time.

    Readings are polled every `poll_s` for `poll_duration_s` to find update periods. To find
    windows, the load steps up and down `step_count` times, each step held for `hold_s` and up
    to half as long again; where that shows no ramp of instant power, `short_step_count` more
    follow, held for `short_hold_s`. A mean over more than half of a hold is not found. The
    load runs `warm_up_s` before the counter is compared with power for `steady_s`. Idle power
    is the mean of `idle_s`.
    """

    idle_s: float = 30.0
    warm_up_s: float = 10.0
    steady_s: float = 10.0
    poll_s: float = 0.001
    poll_duration_s: float = 2.0
    hold_s: float = 2.5
    short_hold_s: float = 0.4
    step_count: int = 2
    short_step_count: int = 40

    def __post_init__(self) -> None:
        """Refuse what cannot be probed with."""
        for name in ("idle_s", "steady_s", "poll_s", "poll_duration_s", "hold_s", "short_hold_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be a positive time", field=name)
        for name in ("warm_up_s", "step_count", "short_step_count"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name} must not be negative", field=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Updates:
    """How often each reading moves."""

    counter: UpdatePeriod | None
    power: UpdatePeriod | None
    average_power: UpdatePeriod | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """What was seen under steady load."""

    updates: _Updates
    excess_ratio: float | None
    duration_s: float
    power_w: float
    caveats: tuple[Caveat, ...]


def probe_sensors(
    gpu: Gpu,
    runner: KernelRunner | None,
    kernel: str | None,
    settings: SensorSettings | None = None,
    progress: Progress = no_progress,
) -> SensorProbe:
    """Find out what the sensors of this GPU are like, at the point in force; sets nothing.

    Args:
        gpu: Whose sensors.
        runner: Runs a load; `None` where none can be run.
        kernel: Which load; `None` for the runner's first.
        settings: How long to look.
        progress: Told before every stage.

    Returns:
        Periods, windows and powers, with CounterDisagrees where integrated power lies more than
        3 % off the counter, EnergyFromPower where no counter moves, and whatever disturbed the
        steady load. Without load, periods are those at idle and windows are `None`.

    Raises:
        InputError: the runner cannot run the kernel.
        NotSupported: the device tells neither energy nor power.
        MeasurementError: no energy came out.
        DeviceLost: it no longer answers.
    """
    settings = SensorSettings() if settings is None else settings
    kernel = _load_of(runner, kernel)
    progress(PROBING, 0, _STAGE_COUNT)
    idle_power_w, idle_caveats = _mean_power_w(gpu, gpu.wait, settings.idle_s)
    progress(PROBING, 1, _STAGE_COUNT)
    loaded = instant_s = average_s = None
    if runner is None or kernel is None:
        updates = _updates(gpu, gpu.wait, settings)
    else:
        loaded = _under_load(gpu, runner, kernel, settings, progress)
        updates = loaded.updates
        progress(PROBING, 3, _STAGE_COUNT)
        steps = _Steps(
            gpu=gpu, runner=runner, kernel=kernel, poll_s=_step_poll_s(updates.power, settings)
        )
        instant_s, average_s = _windows_s(steps, settings)
    progress(PROBING, _STAGE_COUNT, _STAGE_COUNT)
    return SensorProbe(
        device=gpu.identity.spec,
        device_name=gpu.identity.name,
        kernel=kernel,
        counter=updates.counter,
        power=updates.power,
        average_power=updates.average_power,
        instant_window_s=instant_s,
        average_window_s=average_s,
        power_excess_ratio=None if loaded is None else loaded.excess_ratio,
        steady_s=None if loaded is None else loaded.duration_s,
        steady_power_w=None if loaded is None else loaded.power_w,
        idle_power_w=idle_power_w,
        idle_s=settings.idle_s,
        caveats=(
            *gpu.identity.caveats,
            *(idle_caveats if loaded is None else loaded.caveats),
        ),
    )


def _load_of(runner: KernelRunner | None, kernel: str | None) -> str | None:
    if runner is None:
        return None
    if kernel is None:
        return runner.kernels[0] if runner.kernels else None
    if kernel not in runner.kernels:
        raise InputError(
            f"the device cannot run the kernel {kernel!r}",
            field="kernel",
            hint=f"It can run {', '.join(runner.kernels[:5])} …",
        )
    return kernel


def _under_load(
    gpu: Gpu, runner: KernelRunner, kernel: str, settings: SensorSettings, progress: Progress
) -> _Loaded:
    with runner.loop(kernel, run=RUN) as loop:
        if settings.warm_up_s:
            loop.run_for(settings.warm_up_s)
        updates = _updates(gpu, loop.run_for, settings)
        progress(PROBING, 2, _STAGE_COUNT)
        samples, energy_j, caveats = _metered(gpu, loop.run_for, settings.steady_s)
    grid = gpu.clock_grid()
    duration_s = samples[-1].time_s - samples[0].time_s
    return _Loaded(
        updates=updates,
        excess_ratio=power_excess_ratio(samples),
        duration_s=duration_s,
        power_w=energy_j / duration_s,
        caveats=(
            *caveats,
            *disagreement(samples, _DISAGREES_BEYOND_RATIO),
            *held_down(samples, *CAUSES),
            *(one for one in disturbances(samples) if one.kind is CaveatKind.OTHER_PROCESS_ON_GPU),
            *clock_doubts(samples, AUTO, grid),
            *foreign_limit(samples, AUTO, grid),
        ),
    )


def _mean_power_w(
    gpu: Gpu, let_pass: Callable[[float], None], duration_s: float
) -> tuple[float | None, tuple[Caveat, ...]]:
    """Mean power, read as often as windows are; `None` beside a foreign process."""
    samples, energy_j, caveats = _metered(gpu, let_pass, duration_s)
    foreign = tuple(
        one for one in disturbances(samples) if one.kind is CaveatKind.OTHER_PROCESS_ON_GPU
    )
    power_w = None if foreign else energy_j / (samples[-1].time_s - samples[0].time_s)
    return power_w, (*caveats, *foreign)


def _metered(
    gpu: Gpu, let_pass: Callable[[float], None], duration_s: float
) -> tuple[tuple[GpuSample, ...], float, tuple[Caveat, ...]]:
    """Samples of a span often enough to add power up, its energy, and what to doubt of that."""
    measuring = MeasureSettings()
    meter = meter_of(gpu, measuring)
    reason = ""
    for _attempt in range(measuring.repeat_count + 1):
        try:
            start = meter.edge()
            within = watch(gpu, let_pass, duration_s, measuring.power_sample_s)
            samples = (start, *within, meter.edge())
            return samples, meter.energy_j(samples), meter.caveats
        except MeasurementError as error:
            reason = error.message
            meter = after_failure(meter, gpu, measuring)
    raise MeasurementError(
        f"no span of {duration_s:g} s gave an energy: {reason}",
        hint="Look whether another program resets the driver, and probe again.",
    )


def _updates(gpu: Gpu, let_pass: Callable[[float], None], settings: SensorSettings) -> _Updates:
    samples = watch(gpu, let_pass, settings.poll_duration_s, settings.poll_s)
    return _Updates(
        counter=_update([(one.time_s, one.energy_j) for one in samples]),
        power=_update([(one.time_s, one.power_w) for one in samples]),
        average_power=_update([(one.time_s, one.average_power_w) for one in samples]),
    )


def _update(readings: Sequence[tuple[float, float | None]]) -> UpdatePeriod | None:
    known = [(time_s, value) for time_s, value in readings if value is not None]
    return update_period_s([time for time, _ in known], [value for _, value in known])


def _step_poll_s(power: UpdatePeriod | None, settings: SensorSettings) -> float:
    """Often enough to see when a reading moved, and no oftener: each poll is many calls."""
    if power is None:
        return _POLLS_OF_STEPS * settings.poll_s
    return max(settings.poll_s, power.period_s / _POLLS_PER_PERIOD_COUNT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """What it takes to make a load step up and down and to watch it."""

    gpu: Gpu
    runner: KernelRunner
    kernel: str
    poll_s: float

    def windows_s(self, hold_s: float, step_count: int) -> tuple[float | None, float | None]:
        """Windows of instant and average power, from so many steps."""
        gpu = self.gpu
        samples: list[GpuSample] = [gpu.sample()]
        steps_s: list[float] = []
        for number in range(step_count):
            duration_s = hold_s * (1.0 + 0.5 * (number * _GOLDEN_RATIO % 1.0))
            if number % 2 == 0:
                with self.runner.loop(self.kernel, run=RUN) as loop:
                    steps_s.append(gpu.sample().time_s)
                    samples += watch(gpu, loop.run_for, duration_s, self.poll_s)
            else:
                steps_s.append(gpu.sample().time_s)
                samples += watch(gpu, gpu.wait, duration_s, self.poll_s)
        instant = [(one.time_s, one.power_w) for one in samples]
        average = [(one.time_s, one.average_power_w) for one in samples]
        return _window_s(instant, steps_s), _window_s(average, steps_s)


def _windows_s(steps: _Steps, settings: SensorSettings) -> tuple[float | None, float | None]:
    """Windows of instant and average power; again with short holds where instant had no ramp."""
    instant_s, average_s = steps.windows_s(settings.hold_s, settings.step_count)
    if instant_s is not None:
        return instant_s, average_s
    # Short holds are too short for a slow mean, which the long ones have seen.
    instant_s, _ = steps.windows_s(settings.short_hold_s, settings.short_step_count)
    return instant_s, average_s


def _window_s(
    readings: Sequence[tuple[float, float | None]], steps_s: Sequence[float]
) -> float | None:
    known = [(time_s, value) for time_s, value in readings if value is not None]
    if not known:
        return None
    times_s, powers_w = zip(*known, strict=True)
    return averaging_window_s(times_s, powers_w, steps_s)
