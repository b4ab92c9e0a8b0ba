"""How far a cell may lie off: the scatter of its windows, pooled, as a share of the value."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import BoolTable, FloatTable, Sweep
from joulewise.model.conditions import power_capped_cells

# Times that agree this well were not read off a GPU that anything shakes.
_ROUNDING_RATIO = 1e-9
# A variance this many times the pooled one is an accident of its cell, not the noise of all.
_LARGEST_RATIO = 12.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scatter:
    """Standard deviations as shares of the value, (K, P).

    `window_*` are those of one window, `time_ratio` and `power_ratio` those of the cell, the
    median of its windows. What windows of one visit share, they cannot show.
    """

    window_time_ratio: FloatTable
    window_power_ratio: FloatTable
    time_ratio: FloatTable
    power_ratio: FloatTable


def unshaken_rows(sweep: Sweep) -> BoolTable:
    """(K,) kernels whose every window took the same time, within a cell and at every point.

    The host alone times them: gaps. What shakes the others, also a whole visit at once, says
    nothing of these, nor they of it. Where the sweep has no scatter there are none.
    """
    if sweep.time_std_s is None:
        return np.zeros(len(sweep.kernels), dtype=np.bool_)
    present = sweep.is_present
    longest_s = np.where(present, sweep.time_s, 0.0).max(axis=1)
    shortest_s = np.where(present, sweep.time_s, np.inf).min(axis=1)
    widest_s = np.where(present, sweep.time_std_s, 0.0).max(axis=1)
    is_repeated = (_freedom(sweep) > 0).any(axis=1)
    is_same = np.maximum(longest_s - shortest_s, widest_s) <= _ROUNDING_RATIO * longest_s
    return np.asarray(is_repeated & is_same)


def scatter_of(sweep: Sweep) -> Scatter | None:
    """Pool the scatter of all cells, power-capped ones apart from the others.

    The deviation of three windows is itself little more than noise, so no cell is judged by
    its own. Energy is time times power; what the scatter of time leaves of the scatter of
    energy is that of power. `unshaken_rows` have none in time and count for no other kernel.
    `None` where the sweep has no scatter.
    """
    if sweep.time_std_s is None or sweep.energy_std_j is None:
        return None
    freedom = _freedom(sweep)
    if freedom.sum() == 0:
        return None
    time = _relative_variance(sweep.time_std_s, sweep.time_s, freedom)
    energy = _relative_variance(sweep.energy_std_j, sweep.energy_j, freedom)
    is_capped = power_capped_cells(sweep)
    is_shaken = ~unshaken_rows(sweep)[:, None]
    counted = freedom * is_shaken if (freedom * is_shaken).any() else freedom
    window_time = _pooled(time, counted, is_capped)
    window_power = np.maximum(_pooled(energy, counted, is_capped) - window_time, 0.0)
    window_time *= is_shaken
    count = sweep.window_count if sweep.window_count is not None else np.ones_like(freedom)
    share = median_spread_ratio(np.maximum(count, 1))
    return Scatter(
        window_time_ratio=np.sqrt(window_time),
        window_power_ratio=np.sqrt(window_power),
        time_ratio=np.sqrt(window_time) * share,
        power_ratio=np.sqrt(window_power) * share,
    )


def median_spread_ratio(window_count: FloatTable) -> FloatTable:
    """Standard deviation of the median of n normal values, as a share of that of one value.

    `sqrt(pi/2 / (n + pi/2 - 1))`: exact at n = 1 and in the limit, 1 % low at 3, otherwise a
    little high.
    """
    return np.asarray(np.sqrt(math.pi / 2 / (window_count + math.pi / 2 - 1)))


def _freedom(sweep: Sweep) -> FloatTable:
    """Degrees of freedom of every cell's deviation."""
    if sweep.window_count is None:
        return np.where(sweep.is_present, 1.0, 0.0)
    return np.where(sweep.is_present, np.maximum(sweep.window_count - 1.0, 0.0), 0.0)


def _relative_variance(deviation: FloatTable, value: FloatTable, freedom: FloatTable) -> FloatTable:
    ratio = np.divide(deviation, value, out=np.zeros_like(value), where=freedom > 0)
    return np.asarray(ratio**2)


def _pooled(variance: FloatTable, freedom: FloatTable, is_capped: BoolTable) -> FloatTable:
    """(K, P) pooled variance of the cell's group; a group too thin takes that of all."""
    whole = _robust_mean(variance[freedom > 0], freedom[freedom > 0])
    pooled = np.full(variance.shape, whole)
    for group in (is_capped, ~is_capped):
        members = group & (freedom > 0)
        if freedom[members].sum() >= _THIN_COUNT:
            pooled[group] = _robust_mean(variance[members], freedom[members])
    return pooled


_THIN_COUNT = 10


def _robust_mean(variance: FloatTable, freedom: FloatTable) -> float:
    mean = float(np.average(variance, weights=freedom))
    middle = float(np.median(variance))
    if middle == 0.0:
        return mean
    return float(np.average(np.minimum(variance, _LARGEST_RATIO * middle), weights=freedom))
