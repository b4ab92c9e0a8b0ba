"""Waiting for a steady temperature, and the power that is drawn without load."""

from __future__ import annotations

from collections.abc import Callable

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import MeasurementError, NotSupported
from joulewise.domain.measurement import GpuSample
from joulewise.domain.ports import Gpu
from joulewise.measure.meter import after_failure, meter_of
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.watching import watch


def _unseen(_sample: GpuSample) -> None:
    """Look at no sample."""


def wait_until_steady(
    gpu: Gpu,
    let_pass: Callable[[float], None],
    settings: MeasureSettings,
    *,
    is_soak_optional: bool = False,
    seen: Callable[[GpuSample], None] = _unseen,
) -> tuple[Caveat, ...]:
    """Let time pass until the temperature sensor rests, then soak.

    A sensor of 1 °C that has not moved for 10 s may still be most of a degree away from where
    it will end; soaking takes that away.

    Args:
        gpu: Whose sensor to read.
        let_pass: Lets that many seconds pass, with or without load.
        settings: How long to rest, to soak, and to wait at most.
        is_soak_optional: Whether a sensor that never moved needs no soak.
        seen: Called with every sample that was read after time had passed.

    Returns:
        NotSteady where the sensor still moved at the end of `warm_up_max_s`, or where there is
        none to look at, not any more for `steady_s` either.
    """
    reading_c = gpu.sample().temp_c
    if reading_c is None:
        let_pass(settings.steady_s + settings.soak_s)
        return (Caveat(kind=CaveatKind.NOT_STEADY, seen="the device tells no temperature"),)
    has_moved = False
    passed_s = rested_s = untold_s = 0.0
    while rested_s < settings.steady_s:
        if passed_s >= settings.warm_up_max_s:
            return (
                Caveat(
                    kind=CaveatKind.NOT_STEADY,
                    seen=f"temperature still moved after {passed_s:.0f} s of warm-up",
                ),
            )
        let_pass(settings.step_s)
        passed_s += settings.step_s
        sample = gpu.sample()
        seen(sample)
        now_c = sample.temp_c
        untold_s = untold_s + settings.step_s if now_c is None else 0.0
        if untold_s >= max(settings.steady_s, settings.step_s):
            let_pass(settings.soak_s)
            seen_last = f"the device told no temperature after {passed_s - untold_s:.0f} s"
            return (Caveat(kind=CaveatKind.NOT_STEADY, seen=seen_last),)
        is_resting = now_c == reading_c
        rested_s = rested_s + settings.step_s if is_resting else 0.0
        has_moved = has_moved or not is_resting
        reading_c = now_c
    if has_moved or not is_soak_optional:
        let_pass(settings.soak_s)
    return ()


def measure_idle_power_w(gpu: Gpu, settings: MeasureSettings) -> float | None:
    """Mean power without load at the point in force, once the board has cooled down.

    Read as often as under load, for reading itself can keep a GPU awake.

    Returns:
        Power in W; `None` where another process kept the GPU busy or no meter gave anything,
        as on a recording that does not tell.

    Raises:
        DeviceLost: it no longer answers.
    """
    wait_until_steady(gpu, gpu.wait, settings)
    meter = meter_of(gpu, settings)
    for _attempt in range(settings.repeat_count + 1):
        try:
            start = meter.edge()
            duration_s = settings.window_duration_s(gpu.energy_counter_period_s)
            within = watch(gpu, gpu.wait, duration_s, meter.sample_s)
            samples = (start, *within, meter.edge())
            energy_j = meter.energy_j(samples)
        except MeasurementError:
            meter = after_failure(meter, gpu, settings)
            continue
        except NotSupported:
            return None
        if not any(sample.other_process_count for sample in samples):
            return energy_j / (samples[-1].time_s - start.time_s)
    return None
