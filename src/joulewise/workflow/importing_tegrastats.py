"""`import tegrastats`: what a log of tegrastats adds up to, and what is doubtful about it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from joulewise.device.tegrastats_log import read_tegrastats_log
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.tegrastats import EngineLoad, TegrastatsLine, TegrastatsLog
from joulewise.report.wording import duration, percent

_SENSORS = frozenset({"gpu", "gpu-therm"})
# Intervals that are less sure than this are said to be.
_SURE_RATIO = 0.01
# Rounding of times.
_LEAST_UNTOLD_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ClocksSeen:
    """Least, median and greatest of the clocks that lines show."""

    least_mhz: int
    median_mhz: int
    most_mhz: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RailEnergy:
    """One rail over the time that it is told; `is_counted`: its energy is part of the module's."""

    rail: str
    energy_j: float
    time_s: float | None
    is_counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TegrastatsSummary:
    """A log, or a part of it, in numbers; what it does not tell is `None`.

    `energy_j` and `mean_power_w` are of the module, over `energy_time_s`: shorter than
    `duration_s` where lines tell no power. `interval_error_s` is the standard error of
    the time between lines, `None` where that was given. `left_out` says what the module's power
    does not cover.
    """

    line_count: int
    run_count: int
    duration_s: float
    interval_s: float | None
    interval_error_s: float | None
    energy_j: float | None
    energy_time_s: float | None
    mean_power_w: float | None
    rails: tuple[RailEnergy, ...]
    left_out: str | None
    sm_clocks: ClocksSeen | None
    mem_clocks: ClocksSeen | None
    busy_ratio: float | None
    highest_gpu_temp_c: float | None
    repeated_ratio: float | None
    update_period_s: float | None
    notes: tuple[str, ...]
    caveats: tuple[Caveat, ...]


def summarise_log(
    file: Path,
    *,
    interval_s: float | None = None,
    from_s: float | None = None,
    to_s: float | None = None,
) -> TegrastatsSummary:
    """Read a log and add it up between two times, which are counted from its first line.

    Logs hold more than the work in question: loading before it, evaluation after it, and all
    later runs where tegrastats was never stopped.

    Raises InputError for what is no log, and for a time in which it has no line.
    """
    _check_times(from_s, to_s)
    whole = read_tegrastats_log(file, interval_s=interval_s)
    log = whole.between(from_s, to_s)
    if not log.lines:
        raise InputError(
            "has no line in that time",
            file=str(file),
            hint=f"Its lines go from 0 to {whole.lines[-1].time_s:.1f} s.",
        )
    return _summary(log)


def _summary(log: TegrastatsLog) -> TegrastatsSummary:
    lines = [one.line for one in log.lines]
    mem_clocks = _clocks(line.emc for line in lines)
    return TegrastatsSummary(
        line_count=len(lines),
        run_count=len(log.runs),
        duration_s=log.duration_s,
        interval_s=log.mean_interval_s,
        interval_error_s=_interval_error_s(log),
        energy_j=log.energy_j,
        energy_time_s=log.energy_time_s,
        mean_power_w=log.mean_power_w,
        rails=_rails(log),
        left_out=log.left_out,
        sm_clocks=_clocks(line.gr3d for line in lines),
        mem_clocks=mem_clocks,
        busy_ratio=_busy_ratio(lines),
        highest_gpu_temp_c=max(_gpu_temps_c(lines), default=None),
        repeated_ratio=log.repeated_ratio,
        update_period_s=log.update_period_s,
        notes=(*log.notes, *_notes(log)),
        caveats=tuple(_caveats(log, mem_clocks)),
    )


def _check_times(from_s: float | None, to_s: float | None) -> None:
    for name, value in (("from", from_s), ("to", to_s)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise InputError(
                f"{value} s is no time in a log", field=name, hint="Count from its first line, 0."
            )
    if from_s is not None and to_s is not None and from_s >= to_s:
        raise InputError(
            f"{from_s:g} s is not before {to_s:g} s", field="from", hint="--from is the earlier."
        )


def _rails(log: TegrastatsLog) -> tuple[RailEnergy, ...]:
    times_s = log.time_by_rail_s
    return tuple(
        RailEnergy(
            rail=rail,
            energy_j=energy_j,
            time_s=times_s.get(rail),
            is_counted=rail in log.counted,
        )
        for rail, energy_j in log.energy_by_rail_j.items()
    )


def _clocks(loads: Iterable[EngineLoad | None]) -> ClocksSeen | None:
    """Of each line the fastest cluster: those that are idle may stand lower."""
    clocks = [max(load.clocks_mhz) for load in loads if load is not None and load.clocks_mhz]
    if not clocks:
        return None
    return ClocksSeen(
        least_mhz=min(clocks),
        median_mhz=statistics.median_low(clocks),
        most_mhz=max(clocks),
    )


def _busy_ratio(lines: Iterable[TegrastatsLine]) -> float | None:
    ratios = [
        line.gr3d.busy_ratio
        for line in lines
        if line.gr3d is not None and line.gr3d.busy_ratio is not None
    ]
    return statistics.fmean(ratios) if ratios else None


def _gpu_temps_c(lines: Iterable[TegrastatsLine]) -> Iterator[float]:
    for line in lines:
        yield from (temp.temp_c for temp in line.temps if temp.sensor.lower() in _SENSORS)


def _interval_error_s(log: TegrastatsLog) -> float | None:
    errors = [run.interval_error_s for run in log.runs if run.interval_error_s is not None]
    return max(errors, default=None)


def _notes(log: TegrastatsLog) -> Iterator[str]:
    interval_s, error_s = log.mean_interval_s, _interval_error_s(log)
    if interval_s is not None and error_s is not None and error_s > _SURE_RATIO * interval_s:
        yield (
            f"the time between lines is known within "
            f"{percent(error_s / interval_s, digit_count=1)} only, and so are "
            "duration and energy: stamps are whole seconds; give --interval if it is known"
        )
    told_s = log.energy_time_s
    if told_s is not None and log.duration_s - told_s > _LEAST_UNTOLD_S:
        yield (
            f"energy and power cover {told_s:.2f} s of {log.duration_s:.2f} s: the other lines do "
            "not tell the module's power"
        )
    repeated_ratio = log.repeated_ratio
    if repeated_ratio and log.update_period_s is not None:
        yield (
            f"{percent(repeated_ratio, digit_count=0)} of the lines repeat every rail of the "
            "line before: readings move every "
            f"{duration(log.update_period_s)} in the mean; that does not change the energy"
        )


def _caveats(log: TegrastatsLog, mem_clocks: ClocksSeen | None) -> Iterator[Caveat]:
    if log.counted:
        left_out = "" if log.left_out is None else f"; {log.left_out}"
        yield Caveat(
            kind=CaveatKind.ENERGY_OF_MODULE,
            seen=f"Energy is that of {' + '.join(log.counted)}{left_out}.",
        )
    if log.energy_j is not None and log.mean_interval_s is not None:
        yield Caveat(
            kind=CaveatKind.ENERGY_FROM_POWER,
            seen=f"Power was read every {duration(log.mean_interval_s)}.",
            advice="Log for longer; an interval below 100 ms tells nothing more.",
        )
    if mem_clocks is not None and mem_clocks.least_mhz != mem_clocks.most_mhz:
        yield Caveat(
            kind=CaveatKind.MEMORY_CLOCK_MOVED,
            seen=f"The memory clock moved between {mem_clocks.least_mhz} and "
            f"{mem_clocks.most_mhz} MHz.",
        )
