"""How sensors behave, told from rows of readings. Pure: arrays in, numbers out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.sensor_probe import UpdatePeriod

_FloatArray = NDArray[np.float64]

_FEWEST_CHANGES_COUNT = 5
# A reading that changes at nearly every poll may change far more often than it is polled.
_FEWEST_POLLS_PER_PERIOD_COUNT = 2.5
# One standard deviation below and above the middle of a normal distribution.
_STD_QUANTILES = (0.1587, 0.8413)
# Of a step, what lies between these shares tells how fast a reading follows.
_RISE_FROM_RATIO = 0.1
_RISE_TO_RATIO = 0.9
_FEWEST_RISING_COUNT = 3
_LEAST_RISE_RATIO = 0.3
# A step has to stand out from what the reading does anyway.
_LEAST_STEP_RATIO = 0.1


def update_period_s(
    times_s: Sequence[float] | _FloatArray, values: Sequence[float] | _FloatArray
) -> UpdatePeriod | None:
    """How often a reading is updated, from polling it.

    An update that brings the same value again is not seen, and one of several registers may
    come a poll late; so each gap between changes counts as the whole number of periods that
    it is nearest to.

    Args:
        times_s: Shape (N,), ascending, much finer than the period.
        values: Shape (N,), any unit.

    Returns:
        `None` where fewer than five changes were seen, or they came so fast that polling may
        have missed most.
    """
    times = np.asarray(times_s, dtype=np.float64)
    changed_s = times[1:][np.diff(np.asarray(values, dtype=np.float64)) != 0]
    if len(changed_s) < _FEWEST_CHANGES_COUNT:
        return None
    gaps_s = np.diff(changed_s)
    typical_s = float(np.median(gaps_s))
    if typical_s < _FEWEST_POLLS_PER_PERIOD_COUNT * float(np.median(np.diff(times))):
        return None
    period_counts = np.round(gaps_s / typical_s)
    period_s = float(gaps_s.sum() / period_counts.sum())
    single_s = gaps_s[period_counts == 1]
    low_s, high_s = np.quantile(single_s, _STD_QUANTILES)
    spread_s = float(high_s - low_s) / 2.0
    return UpdatePeriod(period_s=period_s, spread_s=spread_s, change_count=len(changed_s))


def averaging_window_s(
    times_s: Sequence[float] | _FloatArray,
    power_w: Sequence[float] | _FloatArray,
    step_s: float | Sequence[float] | _FloatArray,
) -> float | None:
    """Span over which a power reading is a mean, from how it follows steps of load.

    A mean over a window W follows a step as a straight ramp; it takes 0.8 W from 10 to 90 %
    (arXiv 2312.02741 finds windows by fitting; the ramp is the same model). Its slope is
    fitted to the moments at which the reading changed. A window shorter than the update period
    shows only where updates happen to fall into ramps, so several steps at different phases
    are folded on each other. A load that itself takes time to rise makes the window look
    longer.

    Args:
        times_s: Shape (N,), ascending.
        power_w: Shape (N,), what was read then.
        step_s: Moments of the steps, up or down, in the readings' time; each has to settle
            before the next.

    Returns:
        `None` where there is no clear step, or no ramp could be seen.
    """
    times = np.asarray(times_s, dtype=np.float64)
    power = np.asarray(power_w, dtype=np.float64)
    steps = np.atleast_1d(np.asarray(step_s, dtype=np.float64))
    ends = np.append(steps, np.inf)[1:]
    folded = [_followed(times, power, start, end) for start, end in zip(steps, ends, strict=True)]
    delays_s = np.concatenate([delay for delay, _ in folded] or [np.empty(0)])
    ratios = np.concatenate([ratio for _, ratio in folded] or [np.empty(0)])
    rising = (ratios > _RISE_FROM_RATIO) & (ratios < _RISE_TO_RATIO)
    if rising.sum() < _FEWEST_RISING_COUNT or np.ptp(ratios[rising]) < _LEAST_RISE_RATIO:
        return None
    return _slope(ratios[rising], delays_s[rising])


def counter_against_power(
    times_s: Sequence[float] | _FloatArray,
    energy_j: Sequence[float] | _FloatArray,
    power_w: Sequence[float] | _FloatArray,
) -> float | None:
    """Energy integrated from power over energy counted, less one.

    Args:
        times_s: Shape (N,), ascending; the first and last moments right after the counter moved.
        energy_j: Shape (N,), what the counter showed.
        power_w: Shape (N,), what the power sensor showed.

    Returns:
        `None` where the counter did not move forward.
    """
    energy = np.asarray(energy_j, dtype=np.float64)
    counted_j = float(energy[-1] - energy[0])
    if counted_j <= 0:
        return None
    integral_j = np.trapezoid(
        np.asarray(power_w, dtype=np.float64), np.asarray(times_s, dtype=np.float64)
    )
    return float(integral_j) / counted_j - 1.0


def _followed(
    times: _FloatArray, power: _FloatArray, start_s: float, end_s: float
) -> tuple[_FloatArray, _FloatArray]:
    """Delays after a step at which the reading changed, and how far it had come by then."""
    before, after = power[times <= start_s], (times > start_s) & (times <= end_s)
    moments, readings = times[after], power[after]
    nothing = np.empty(0), np.empty(0)
    if not len(before) or not len(readings):
        return nothing
    from_w = float(before[-1])
    settled = readings[moments >= 0.5 * (moments[0] + moments[-1])]
    to_w = float(np.median(settled))
    if abs(to_w - from_w) < _LEAST_STEP_RATIO * max(abs(from_w), abs(to_w)):
        return nothing
    changed = np.diff(np.concatenate([[from_w], readings])) != 0
    ratios = (readings[changed] - from_w) / (to_w - from_w)
    # Beyond the end of the ramp a settled reading only wavers.
    arrived = np.flatnonzero(ratios >= _RISE_TO_RATIO)
    stop = int(arrived[0]) if len(arrived) else len(ratios)
    return moments[changed][:stop] - start_s, ratios[:stop]


def _slope(x: _FloatArray, y: _FloatArray) -> float | None:
    """Of the straight line through the points that distances are least from."""
    centred = x - x.mean()
    slope = float((centred * (y - y.mean())).sum() / (centred**2).sum())
    return slope if slope > 0 else None
