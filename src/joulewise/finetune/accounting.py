"""What training steps took: the module's power, over the time of the steps alone.

The best clock of a job changes with what is counted. One public set of runs (thynics/jetson_dvfs:
VGG-19 on a TX2 at 13 clocks) gives 522 MHz by the author's sums (mean of the GPU rail over whole
log files, times wall time), 114 MHz once later runs are cut out of the files, 420 MHz with the
board's power, 726 MHz for the GPU rail over the frames alone, and 930 MHz for the board's power
over the frames alone. The last is what a user pays for a unit of work, and is counted here.

Power sensors of modules are slow: between two updates they show the same value. So energy is a
trapezoid through all readings, interpolated at both ends, and how far it may lie off follows from
how often the sensor moves, never from how often it was read.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from joulewise.domain.errors import MeasurementError
from joulewise.domain.finetuning import ClockCost
from joulewise.domain.measurement import GpuSample
from joulewise.finetune.step_marks import StepSpan, joined

ASSUMED_PERIOD_S = 0.2
"""How often a sensor moves that never moved: at 100 ms 26 to 54 % of consecutive tegrastats lines
of an INA3221 repeat (jetson-latency-lab, 42 logs), at 500 ms next to none."""
FEWEST_PERIODS_COUNT = 8
"""A block that the sensor does not see move so often is too short to be told from its edges
(assumed: then an edge is at most an eighth of it)."""
SHOWN_PERIODS_COUNT = 2
# Where no shorter window is known of: drivers tell the mean of a second for many NVIDIA boards
# (measure/power_sum.py). Modules with rails tell of a window no longer than an update.
_LONG_WINDOW_S = 1.0
_MOST_KEPT_COUNT = 1 << 16
_RECENT_COUNT = 512
_FEWEST_MOVES_COUNT = 4
_GAP_PERIODS_COUNT = 5
# Two standard errors, as elsewhere.
_ERRORS_COUNT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanPower:
    """Energy of a stretch of time, and how far it may lie off.

    `error_j` is a standard error from the scatter of what the sensor showed; `edge_j` bounds what
    it showed late at both ends, and what gaps between readings leave open.
    """

    energy_j: float
    error_j: float
    edge_j: float

    @property
    def uncertainty_j(self) -> float:
        """Two standard errors and the edges."""
        return _ERRORS_COUNT * self.error_j + self.edge_j


@dataclass(slots=True, kw_only=True)
class _Reading:
    time_s: float
    power_w: float
    energy_j: float
    """Of all readings up to this one, by the trapezoid rule."""
    busy_ratio: float | None
    mem_clock_mhz: int | None


class PowerLog:
    """Power readings of one module, in order; the older they are the fewer are kept.

    What is thrown away has been added up before, so that energy between readings that are kept
    stays exact.
    """

    def __init__(self) -> None:
        self._readings: list[_Reading] = []
        self._over_current: tuple[int | None, int | None] = (None, None)
        self._is_window_short = False

    def add(self, sample: GpuSample) -> None:
        """Take one more reading; one without power, or older than the last, tells nothing."""
        self._note_over_current(sample.over_current_count)
        if sample.power_w is None or sample.time_s <= self.last_s:
            return
        self._is_window_short = bool(sample.rails) or sample.average_power_w is not None
        energy_j = 0.0
        if self._readings:
            last = self._readings[-1]
            mean_w = 0.5 * (last.power_w + sample.power_w)
            energy_j = last.energy_j + mean_w * (sample.time_s - last.time_s)
        self._readings.append(
            _Reading(
                time_s=sample.time_s,
                power_w=sample.power_w,
                energy_j=energy_j,
                busy_ratio=sample.busy_ratio,
                mem_clock_mhz=sample.mem_clock_mhz,
            )
        )
        if len(self._readings) > _MOST_KEPT_COUNT:
            del self._readings[1 : _MOST_KEPT_COUNT // 2 : 2]

    @property
    def last_s(self) -> float:
        """Time of the last reading; before all time where there is none."""
        return self._readings[-1].time_s if self._readings else -math.inf

    @property
    def over_current_count(self) -> int:
        """Over-current events since the first reading."""
        first, last = self._over_current
        return 0 if first is None or last is None else max(0, last - first)

    def period_s(self) -> float:
        """How often the sensor moves, from the last readings; assumed where it never moved."""
        moves_s = [one.time_s for one in _moves(self._readings[-_RECENT_COUNT:])]
        if len(moves_s) <= _FEWEST_MOVES_COUNT:
            return ASSUMED_PERIOD_S
        gaps_s = sorted(b - a for a, b in pairwise(moves_s))
        return gaps_s[len(gaps_s) // 2]

    def shown_within_s(self) -> float:
        """So long after a change of power, readings show nothing of what was before."""
        window_s = 0.0 if self._is_window_short else _LONG_WINDOW_S
        return window_s + SHOWN_PERIODS_COUNT * self.period_s()

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Energy between two times, at both of which readings lie on either side.

        Raises MeasurementError where readings do not reach so far.
        """
        if not end_s > start_s:
            raise MeasurementError("steps that take no time have no energy")
        if not self._readings or self._readings[0].time_s > start_s or self.last_s < end_s:
            raise MeasurementError("the power readings do not reach over the whole of the steps")
        return self._up_to_j(end_s) - self._up_to_j(start_s)

    def energy(self, start_s: float, end_s: float) -> SpanPower:
        """The same, and how far it may lie off. Raises as `energy_j`."""
        energy_j = self.energy_j(start_s, end_s)
        period_s = self.period_s()
        inner = self._between(start_s, end_s)
        moves = _moves(inner)
        scatter_w = _scatter_w([one.power_w for one in moves]) / math.sqrt(max(1, len(moves)))
        edge_j = sum(period_s * self._swing_w(time_s, period_s) for time_s in (start_s, end_s))
        return SpanPower(
            energy_j=energy_j,
            error_j=scatter_w * (end_s - start_s),
            edge_j=edge_j + _gaps_j(inner, period_s),
        )

    def of_spans(self, spans: Sequence[StepSpan]) -> SpanPower:
        """Energy of steps, whatever went on between them. Raises as `energy`."""
        parts = [self.energy(one.start_s, one.end_s) for one in joined(spans)]
        return SpanPower(
            energy_j=sum(one.energy_j for one in parts),
            error_j=math.hypot(*(one.error_j for one in parts)),
            edge_j=sum(one.edge_j for one in parts),
        )

    def busy_ratio(self, spans: Sequence[StepSpan]) -> float | None:
        """Mean share of time in which the GPU ran anything; `None` where nothing tells."""
        told = [one.busy_ratio for one in self._within(spans) if one.busy_ratio is not None]
        return sum(told) / len(told) if told else None

    def mem_clocks_mhz(self, spans: Sequence[StepSpan]) -> Counter[int]:
        """How many readings saw which memory clock."""
        clocks = (one.mem_clock_mhz for one in self._within(spans))
        return Counter(clock for clock in clocks if clock is not None)

    def _within(self, spans: Sequence[StepSpan]) -> list[_Reading]:
        return [one for span in joined(spans) for one in self._between(span.start_s, span.end_s)]

    def _between(self, start_s: float, end_s: float) -> list[_Reading]:
        begin = bisect_left(self._readings, start_s, key=_time_s)
        return self._readings[begin : bisect_right(self._readings, end_s, key=_time_s)]

    def _up_to_j(self, time_s: float) -> float:
        """Energy of all readings up to a moment between two of them."""
        index = bisect_left(self._readings, time_s, key=_time_s)
        after = self._readings[index]
        if after.time_s == time_s:
            return after.energy_j
        before = self._readings[index - 1]
        share = (time_s - before.time_s) / (after.time_s - before.time_s)
        power_w = before.power_w + share * (after.power_w - before.power_w)
        return before.energy_j + 0.5 * (before.power_w + power_w) * (time_s - before.time_s)

    def _swing_w(self, time_s: float, period_s: float) -> float:
        """How far power moves around a moment: what a reading shows may be one update old."""
        around = self._between(time_s - 2 * period_s, time_s + 2 * period_s)
        powers_w = [one.power_w for one in around]
        return max(powers_w) - min(powers_w) if powers_w else 0.0

    def _note_over_current(self, count: int | None) -> None:
        if count is not None:
            first = self._over_current[0]
            self._over_current = (count if first is None else first, count)


@dataclass(slots=True, kw_only=True)
class StepTimes:
    """Steps that are counted, their time, and how they scatter."""

    spans: list[StepSpan] = field(default_factory=list)
    step_count: int = 0
    duration_s: float = 0.0
    _span_count: int = 0
    _squares_s: float = 0.0
    """Sum over spans of the square of their time, by their steps."""

    def add(self, span: StepSpan) -> None:
        """Count the steps of one span, which lies after all before."""
        self.step_count += span.step_count
        self.duration_s += span.duration_s
        self._span_count += 1
        self._squares_s += span.duration_s**2 / span.step_count
        self.spans[-1:] = joined([*self.spans[-1:], span])

    @property
    def time_s(self) -> float:
        """Mean time of a step."""
        return self.duration_s / self.step_count

    @property
    def time_error_s(self) -> float | None:
        """Standard error of that; `None` where it was told of one stretch of steps alone.

        The mean of n steps is told n times as well as one step; so spans whose marks were lost
        weigh by their steps, and each is one degree of freedom.
        """
        if self._span_count <= 1:
            return None
        scatter = max(0.0, self._squares_s - self.step_count * self.time_s**2)
        variance = scatter / (self._span_count - 1)
        return math.sqrt(variance / self.step_count)


def cost_of_steps(sm_clock_mhz: int | None, steps: StepTimes, log: PowerLog) -> ClockCost:
    """Time and module energy of a training step at one clock, over the steps alone.

    Raises MeasurementError where no step was counted, or readings do not reach over them.
    """
    if not steps.step_count:
        raise MeasurementError(
            "no training step was marked",
            hint="Call StepMarker.step, or give the trainer the JoulewiseCallback.",
        )
    power = log.of_spans(steps.spans)
    if power.energy_j <= 0:
        raise MeasurementError("the readings say that nothing was drawn")
    mem_clocks_mhz = log.mem_clocks_mhz(steps.spans)
    return ClockCost(
        sm_clock_mhz=sm_clock_mhz,
        time_s=steps.time_s,
        energy_j=power.energy_j / steps.step_count,
        step_count=steps.step_count,
        time_error_s=steps.time_error_s,
        energy_error_j=power.uncertainty_j / _ERRORS_COUNT / steps.step_count,
        busy_ratio=log.busy_ratio(steps.spans),
        mem_clock_mhz=mem_clocks_mhz.most_common(1)[0][0] if mem_clocks_mhz else None,
    )


def least_block_s(period_s: float) -> float:
    """So long a block of steps has to last for a sensor that moves so often."""
    return FEWEST_PERIODS_COUNT * period_s


def _time_s(reading: _Reading) -> float:
    return reading.time_s


def _moves(readings: Sequence[_Reading]) -> list[_Reading]:
    """Readings that show another value than the one before: as often as the sensor moved."""
    return [
        one
        for index, one in enumerate(readings)
        if index == 0 or one.power_w != readings[index - 1].power_w
    ]


def _gaps_j(readings: Sequence[_Reading], period_s: float) -> float:
    """What is left open by gaps in which the sensor moved unseen."""
    powers_w = [one.power_w for one in readings]
    if not powers_w:
        return 0.0
    longest_s = _GAP_PERIODS_COUNT * period_s
    gaps_s = (b.time_s - a.time_s for a, b in pairwise(readings))
    return (max(powers_w) - min(powers_w)) * sum(gap_s for gap_s in gaps_s if gap_s > longest_s)


def _scatter_w(powers_w: Sequence[float]) -> float:
    """Standard deviation of single values, from how neighbours differ: slow drift is none.

    Von Neumann's mean square successive difference (1941), half of which estimates the variance.
    """
    if len(powers_w) <= 1:
        return 0.0
    squares = math.fsum((b - a) ** 2 for a, b in pairwise(powers_w))
    return math.sqrt(squares / (2 * (len(powers_w) - 1)))
