"""Energy of a span that begins and ends whenever it likes, such as that of any command.

Windows begin and end where the energy counter moves, with the GPU loaded across both edges. A
command does not wait for that. So the counter is read at its last step before the command and at
its first one after it, and what was drawn in between but outside the command is taken off: its
time is known, and its power is taken to be that of the step before the command, and of the step
after it. No power of the command itself comes into it, for its whole energy lies between the two
readings.

What was really drawn on either side may be another: a GPU goes on working for some milliseconds
after a command, or something else runs then. It is at least nothing and at most what the power
limit allows; after the command, at most what the counter grew by since. That is what stays open.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import MeasurementError, NotSupported
from joulewise.domain.measurement import GpuSample
from joulewise.domain.ports import WatchedGpu
from joulewise.measure.meter import check_plausible
from joulewise.measure.power_sum import UNREAD_AFTER_S, Outside, PowerSum, inside

COARSE_RATIO = 0.01
"""Of the energy: what is left open beyond that is told by a caveat."""

# The longest steps of counters that are known; one that takes longer stands still.
_TICK_TIMEOUT_S = 1.5
# A step is seen so much late: a poll, and the calls after it.
_SEEN_LATE_S = 0.002
# Readings at the begin that are kept, and how many steps may be late by.
_EARLY_COUNT = 16
_LATE_PERIODS_COUNT = 1.2
# The counter tells whole millijoules.
_COUNTED_WITHIN_J = 0.001
# Twice within an update of most power sensors, so that nothing that is shown is missed.
POWER_SAMPLE_S = 0.05
# Beside a counter power is read twice a second at least, and a reading may fail.
_UNREAD_AFTER_BESIDE_COUNTER_S = 2.5
# Of a span: where less of its power was read, what readings add up to says nothing of a counter.
_COMPARED_UNREAD_RATIO = 0.05
# Power readings now and then of a load that comes and goes scatter; counters that are wrong lie
# further off than that (187 J counted, 327 J integrated: Zeus 181).
_DISAGREES_BEYOND_RATIO = 0.25
_SHORTEST_COMPARED_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEnergy:
    """What a span took, and what stays open of it.

    Where the counter tells, the true energy lies within `uncertainty_j`, as long as the GPU keeps
    its power limit on average over a step of the counter, and a step is seen at once. So it does
    where power readings were added up, for a load that is steady between its begin and its end;
    of what power does within the window of a reading, or while the sensor does not look, nobody
    knows. Where no power was read for a while, it is open up to the power limit or, without one,
    to the highest power seen. How well the sensor is calibrated is another matter, of which no
    device tells.
    """

    energy_j: float
    uncertainty_j: float
    caveats: tuple[Caveat, ...] = ()


class SpanMeter:
    """Measures one span of one GPU: `open`, `see` now and then while it lasts, `close`.

    The energy counter is read where one moves. Power readings are added up all the while, for
    where there is no counter, or where it turns out not to have counted.
    """

    def __init__(self, gpu: WatchedGpu) -> None:
        """Nothing is read yet."""
        self._gpu = gpu
        self._counter: _Counter | None = None
        self._no_counter = ""
        self._power: PowerSum | None = None

    @property
    def is_counter_missing(self) -> bool:
        """Whether power has to be read all the while, every POWER_SAMPLE_S, before the span too."""
        return self._counter is None

    def open(self) -> GpuSample:
        """Get ready, which takes up to two steps of the counter; the span begins after this.

        Raises:
            NotSupported: neither an energy counter that moves nor power can be read.
            DeviceError: the device does not answer.
        """
        try:
            first = self._gpu.wait_for_energy_tick(_TICK_TIMEOUT_S)
            sample = self._gpu.wait_for_energy_tick(_TICK_TIMEOUT_S)
            self._counter = _Counter(_step(first, sample))
        except (MeasurementError, NotSupported) as error:
            self._no_counter = error.message
            sample = self._gpu.sample()
            if sample.power_w is None:
                raise NotSupported(
                    f"{self._gpu.identity.name} has no energy counter that moves, and tells no "
                    "power",
                    hint="Energy cannot be measured there; no energy is invented.",
                ) from error
        self._begin_power(sample)
        return sample

    def next_before(self) -> GpuSample:
        """Read where a span may begin later than expected: at the next step, where one comes.

        Raises DeviceError where the device does not answer.
        """
        if self._counter is not None:
            with suppress(MeasurementError):
                return self._gpu.wait_for_energy_tick(_TICK_TIMEOUT_S)
        return self._gpu.sample()

    def see_before(self, sample: GpuSample) -> None:
        """Take a reading that is nearer to the begin of the span than the one before."""
        if self._counter is not None:
            with suppress(MeasurementError):
                self._counter = _Counter(_step(self._counter.opened, sample))
        self._begin_power(sample)

    def _begin_power(self, sample: GpuSample) -> None:
        if sample.power_w is not None:
            has_counter = self._counter is not None
            unread_after_s = _UNREAD_AFTER_BESIDE_COUNTER_S if has_counter else UNREAD_AFTER_S
            self._power = PowerSum(sample, sample.power_w, unread_after_s=unread_after_s)

    def see(self, sample: GpuSample) -> None:
        """Take a reading within the span into account."""
        if self._counter is not None:
            self._counter.see(sample)
        if self._power is not None:
            self._power.see(sample)

    def close(self, start_s: float, end_s: float) -> SpanEnergy:
        """Energy from `start_s` to `end_s`, the latter just now; both on the GPU's clock.

        Raises:
            MeasurementError: no energy came out that can be trusted.
            DeviceError: the device no longer answers.
        """
        if self._power is not None:
            self._power.end(end_s)
        sample = self._gpu.sample()
        self.see(sample)
        if self._counter is not None:
            try:
                return self._counted(self._counter, sample, start_s, end_s)
            except MeasurementError as error:
                self._no_counter = error.message
        return self._added_up(start_s, end_s)

    def _counted(
        self, counter: _Counter, last: GpuSample, start_s: float, end_s: float
    ) -> SpanEnergy:
        """Wait for two more steps, and take off what was drawn outside the span."""
        first = self._gpu.wait_for_energy_tick(_TICK_TIMEOUT_S)
        second = self._gpu.wait_for_energy_tick(_TICK_TIMEOUT_S)
        counter.see(first)
        counter.see(second)
        after = _After(last=last, first=first, step=_step(first, second))
        counted = counter.between(start_s, end_s, after)
        check_plausible(self._gpu, counter.whole_j(first), (counter.opened, first))
        doubts = self._disagreement(counted.energy_j, start_s, end_s)
        period_s = second.time_s - first.time_s
        meter = f"the energy counter moves every {1000 * period_s:.0f} ms"
        return _with_caveats(counted, *doubts, *_coarse(counted, meter))

    def _added_up(self, start_s: float, end_s: float) -> SpanEnergy:
        if self._power is None:
            raise MeasurementError(self._no_counter)
        # What was drawn up to the end is shown for a while after it.
        while self._gpu.now_s() < end_s + self._power.shown_within_s:
            self._gpu.wait(POWER_SAMPLE_S)
            self._power.see(self._gpu.sample())
        unread_s = self._power.unread_s(start_s, end_s)
        energy_j, uncertainty_j = self._power.between(start_s, end_s)
        added = SpanEnergy(energy_j=energy_j, uncertainty_j=uncertainty_j)
        seen = f"power readings were added up: {self._no_counter}"
        if unread_s > POWER_SAMPLE_S:
            seen = f"{seen}; for {unread_s:.2f} s no power could be read"
        from_power = Caveat(kind=CaveatKind.ENERGY_FROM_POWER, seen=seen)
        return _with_caveats(added, from_power, *_coarse(added, "power is read now and then"))

    def _disagreement(self, energy_j: float, start_s: float, end_s: float) -> tuple[Caveat, ...]:
        """CounterDisagrees where power readings of the same span tell quite another energy."""
        kinds = {caveat.kind for caveat in self._gpu.identity.caveats}
        is_short = end_s - start_s < _SHORTEST_COMPARED_S
        if self._power is None or is_short or CaveatKind.ENERGY_OF_MODULE in kinds:
            return ()
        if self._power.unread_s(start_s, end_s) > _COMPARED_UNREAD_RATIO * (end_s - start_s):
            return ()
        excess_ratio = self._power.roughly_j(start_s, end_s) / energy_j - 1
        if abs(excess_ratio) <= _DISAGREES_BEYOND_RATIO:
            return ()
        more_or_less = "more" if excess_ratio > 0 else "less"
        seen = (
            f"integrated power is {abs(excess_ratio):.0%} {more_or_less} than the energy counter "
            "counted"
        )
        return (Caveat(kind=CaveatKind.COUNTER_DISAGREES, seen=seen),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A step of the counter, and what power the one before it was drawn at."""

    sample: GpuSample
    energy_j: float
    power_w: float
    period_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _After:
    """What was read after the span: as soon as it was over, at the next step, and the one then."""

    last: GpuSample
    first: GpuSample
    step: _Step


class _Counter:
    """The counter from its last step before the span on."""

    def __init__(self, before: _Step) -> None:
        self._before = before
        self._last_j = before.energy_j
        self._highest_w = before.power_w
        self._early: list[GpuSample] = []
        self._broken: str | None = None
        self._note_power(before.sample)

    @property
    def opened(self) -> GpuSample:
        """The last step before the span."""
        return self._before.sample

    def see(self, sample: GpuSample) -> None:
        """Notice a counter that goes back, as when the driver is loaded anew."""
        self._note_power(sample)
        if len(self._early) < _EARLY_COUNT:
            self._early.append(sample)
        if sample.energy_j is None:
            self._broken = "the energy counter was gone for a while"
        elif sample.energy_j < self._last_j:
            self._broken = "the energy counter went back, as when the driver is loaded anew"
        else:
            self._last_j = sample.energy_j

    def whole_j(self, after: GpuSample) -> float:
        """What was counted up to a later step."""
        return (after.energy_j or 0.0) - self._before.energy_j

    def between(self, start_s: float, end_s: float, after: _After) -> SpanEnergy:
        """The span's part of what was counted up to the first step after it."""
        if self._broken is not None:
            raise MeasurementError(self._broken)
        whole_j = self.whole_j(after.first)
        highest_w = max(self._highest_w, after.step.power_w)
        before = self._drawn_before(start_s, highest_w, after.first)
        outsides = (before, _drawn_after(end_s, highest_w, after))
        within_j = 2 * _COUNTED_WITHIN_J
        energy_j, uncertainty_j = inside(whole_j, *outsides, within_j=within_j)
        return SpanEnergy(energy_j=energy_j, uncertainty_j=uncertainty_j)

    def _drawn_before(self, start_s: float, highest_w: float, after: GpuSample) -> Outside:
        gap_s = max(0.0, start_s - self._before.sample.time_s)
        # A reading so much later has counted all that was drawn before the begin.
        late_s = start_s + _LATE_PERIODS_COUNT * self._before.period_s
        counted = next((one for one in self._early if one.time_s > late_s), after)
        most_j = min(highest_w * (gap_s + _SEEN_LATE_S), self.whole_j(counted))
        return Outside(likely_j=self._before.power_w * gap_s, most_j=most_j)

    def _note_power(self, sample: GpuSample) -> None:
        told_w = (self._highest_w, sample.power_w or 0.0, sample.power_limit_w or 0.0)
        self._highest_w = max(told_w)


def _drawn_after(end_s: float, highest_w: float, after: _After) -> Outside:
    gap_s = max(0.0, after.first.time_s - end_s)
    # The counter may have moved between the end and the reading that came as soon as it could.
    late_s = max(0.0, after.last.time_s - end_s) + _SEEN_LATE_S
    grown_j = (after.first.energy_j or 0.0) - (after.last.energy_j or 0.0)
    most_j = min(highest_w * gap_s, grown_j + highest_w * late_s)
    return Outside(likely_j=after.step.power_w * gap_s, most_j=most_j)


def _step(first: GpuSample, second: GpuSample) -> _Step:
    """The second of two steps in a row. Raises MeasurementError where they tell no power."""
    if first.energy_j is None or second.energy_j is None or second.time_s <= first.time_s:
        raise MeasurementError("the energy counter tells nothing")
    power_w = (second.energy_j - first.energy_j) / (second.time_s - first.time_s)
    if power_w < 0:
        raise MeasurementError("the energy counter went back")
    period_s = second.time_s - first.time_s
    return _Step(sample=second, energy_j=second.energy_j, power_w=power_w, period_s=period_s)


def _with_caveats(measured: SpanEnergy, *caveats: Caveat) -> SpanEnergy:
    return SpanEnergy(
        energy_j=measured.energy_j, uncertainty_j=measured.uncertainty_j, caveats=caveats
    )


def _coarse(measured: SpanEnergy, meter: str) -> tuple[Caveat, ...]:
    """CounterTooCoarse where what is left open is more than a hundredth of the whole."""
    ratio = measured.uncertainty_j / measured.energy_j
    if ratio <= COARSE_RATIO:
        return ()
    share = f"{ratio:.1%} of" if ratio < 1 else "more than"
    return (
        Caveat(
            kind=CaveatKind.COUNTER_TOO_COARSE,
            seen=f"{meter}, which leaves {measured.uncertainty_j:.2g} J open, {share} what was "
            "measured",
            advice="Measure a command that runs longer, or several runs of it in a row.",
        ),
    )
