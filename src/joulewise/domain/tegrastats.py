"""What tegrastats prints about a Jetson, line by line, and what a log of it adds up to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """Load of a part of the SoC; `None` where the line does not tell it.

    `clocks_mhz` has one clock for every cluster that runs: a GPU that prints several has them
    side by side, and is still one GPU. Clusters whose rail is off are left out.
    """

    busy_ratio: float | None = None
    clocks_mhz: tuple[int, ...] = ()

    @property
    def clock_mhz(self) -> int | None:
        """The clock of the first cluster."""
        return self.clocks_mhz[0] if self.clocks_mhz else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorTemp:
    """One temperature, named as printed."""

    sensor: str
    temp_c: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RailReading:
    """One rail: its power at the moment of the line.

    `running_mean_w` is over all time since that tegrastats was started, not over the time since
    the last line, so nothing is computed from it.
    """

    rail: str
    power_w: float
    running_mean_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TegrastatsLine:
    """One line; what it does not tell is `None` or empty.

    `stamp` is the board's local time in whole seconds. A core that is off is `None` in `cores`.
    Temperatures of dead sensors are left out, and powers that no board has, which are counted.
    """

    stamp: datetime | None = None
    ram_used_bytes: int | None = None
    ram_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    cores: tuple[EngineLoad | None, ...] = ()
    emc: EngineLoad | None = None
    gr3d: EngineLoad | None = None
    temps: tuple[SensorTemp, ...] = ()
    rails: tuple[RailReading, ...] = ()
    impossible_count: int = 0

    @property
    def is_recognised(self) -> bool:
        """Whether tegrastats printed this: every one of its lines tells of memory."""
        return self.ram_used_bytes is not None

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the rails, as printed."""
        return tuple(reading.rail for reading in self.rails)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedLine:
    """A line with the time at which it stands, and the module's power then.

    The time is in seconds since the first line of a log, or of the reader's own clock.
    """

    time_s: float
    line: TegrastatsLine
    module_power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TegrastatsRun:
    """Lines that one tegrastats printed without a pause.

    Lines lie `interval_s` apart, `None` where there is one alone; `interval_error_s` is the
    standard error of that where it was told from the stamps, and `None` where it was given.
    """

    lines: tuple[TimedLine, ...]
    interval_s: float | None
    interval_error_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TegrastatsLog:
    """A log: runs one after another, with what is doubtful about it.

    `counted` are the rails that make up the module's power and `left_out` says what they do not
    cover. Nothing is known of the time between two runs, so it is in no sum here.
    """

    runs: tuple[TegrastatsRun, ...]
    counted: tuple[str, ...]
    left_out: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[TimedLine, ...]:
        """All lines."""
        return tuple(line for run in self.runs for line in run.lines)

    @property
    def duration_s(self) -> float:
        """Time from the first to the last line of each run."""
        return sum(run.lines[-1].time_s - run.lines[0].time_s for run in self.runs)

    @property
    def energy_j(self) -> float | None:
        """Energy of the module: the trapezoid of its instant power; `None` where no two are told.

        Readings that a slow sensor repeats are kept, for they are what it holds to be so.
        """
        return _sum(_energy_j(series) for series in self._series())

    @property
    def mean_power_w(self) -> float | None:
        """Energy over the time that it is told of."""
        energy_j, told_s = self.energy_j, self.energy_time_s
        return None if energy_j is None or not told_s else energy_j / told_s

    @property
    def energy_time_s(self) -> float | None:
        """The time that `energy_j` covers, shorter than the log where lines tell no power."""
        return _told_s(self._series())

    @property
    def energy_by_rail_j(self) -> Mapping[str, float]:
        """Energy of every rail, whether or not it is counted, in the order of the lines."""
        sums = {rail: _sum(map(_energy_j, its)) for rail, its in self._series_by_rail().items()}
        return {rail: energy_j for rail, energy_j in sums.items() if energy_j is not None}

    @property
    def time_by_rail_s(self) -> Mapping[str, float]:
        """The time that the energy of every rail covers."""
        times = {rail: _told_s(its) for rail, its in self._series_by_rail().items()}
        return {rail: time_s for rail, time_s in times.items() if time_s is not None}

    @property
    def repeated_ratio(self) -> float | None:
        """Share of lines that repeat every rail of the line before; `None` without two."""
        powers = ([_powers(one.line.rails) for one in run.lines] for run in self.runs)
        repeated = [
            one == other for told in powers for one, other in pairwise(told) if one and other
        ]
        return sum(repeated) / len(repeated) if repeated else None

    @property
    def update_period_s(self) -> float | None:
        """How often readings change, in the mean; `None` where they never do."""
        repeated, interval_s = self.repeated_ratio, self.mean_interval_s
        if repeated is None or repeated >= 1.0 or interval_s is None:
            return None
        return interval_s / (1.0 - repeated)

    @property
    def mean_interval_s(self) -> float | None:
        """How far lines lie apart, in the mean over all runs; `None` without two lines."""
        step_count = sum(len(run.lines) - 1 for run in self.runs)
        return self.duration_s / step_count if step_count else None

    def between(self, from_s: float | None, to_s: float | None) -> TegrastatsLog:
        """Only lines at these times, both ends included; runs without any fall away."""
        runs = (
            replace(run, lines=tuple(one for one in run.lines if _is_in(one.time_s, from_s, to_s)))
            for run in self.runs
        )
        return replace(self, runs=tuple(run for run in runs if run.lines))

    def _series(self) -> list[list[tuple[float, float]]]:
        """Times and module powers, run by run, where they are told."""
        return [
            [
                (one.time_s, one.module_power_w)
                for one in run.lines
                if one.module_power_w is not None
            ]
            for run in self.runs
        ]

    def _series_by_rail(self) -> Mapping[str, list[list[tuple[float, float]]]]:
        """Times and powers of every rail, run by run."""
        by_rail: dict[str, list[list[tuple[float, float]]]] = {}
        for run in self.runs:
            series: dict[str, list[tuple[float, float]]] = {}
            for one in run.lines:
                for reading in one.line.rails:
                    series.setdefault(reading.rail, []).append((one.time_s, reading.power_w))
            for rail, its in series.items():
                by_rail.setdefault(rail, []).append(its)
        return by_rail


def _told_s(runs: Iterable[Sequence[tuple[float, float]]]) -> float | None:
    """The time that the energy of these covers; `None` where there is none."""
    told = [series for series in runs if len(series) > 1]
    return sum(series[-1][0] - series[0][0] for series in told) if told else None


def _energy_j(series: Sequence[tuple[float, float]]) -> float | None:
    if len(series) < 2:  # noqa: PLR2004 - one reading spans no time
        return None
    return sum((b - a) * (p + q) / 2.0 for (a, p), (b, q) in pairwise(series))


def _sum(energies_j: Iterable[float | None]) -> float | None:
    told = [energy_j for energy_j in energies_j if energy_j is not None]
    return sum(told) if told else None


def _powers(rails: Iterable[RailReading]) -> tuple[tuple[str, float], ...]:
    return tuple((reading.rail, reading.power_w) for reading in rails)


def _is_in(time_s: float, from_s: float | None, to_s: float | None) -> bool:
    return (from_s is None or time_s >= from_s) and (to_s is None or time_s <= to_s)
