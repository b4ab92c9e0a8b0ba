"""Fresh windows of some cells, pooled, and what they say about the cells that have none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import CellMeasurement, Window
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import BoolTable, FloatTable, IntTable
from joulewise.model.scatter import median_spread_ratio

_THIN_COUNT = 20
# Times that agree this well were not read off a GPU that anything shakes.
_ROUNDING_RATIO = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FreshCells:
    """Medians of fresh windows, (K, P), all of one measuring run.

    `log_time` and `log_power` are 0 where `window_count` is. `window_time_ratio` and
    `window_power_ratio` are the standard deviations of one window as shares of the value,
    pooled over power-capped cells and over the others; `None` while no cell has two windows.
    Kernels whose windows all agree, for the host alone times them, have no scatter in time.
    """

    log_time: FloatTable
    log_power: FloatTable
    window_count: IntTable
    is_capped: BoolTable
    window_time_ratio: FloatTable | None
    window_power_ratio: FloatTable | None

    @property
    def is_measured(self) -> BoolTable:
        """(K, P) whether the cell has fresh windows."""
        return np.asarray(self.window_count > 0)

    @property
    def time_error_ratio(self) -> FloatTable:
        """(K, P) standard error of the median time; 0 where nothing is known of scatter."""
        return self._standard_error(self.window_time_ratio)

    @property
    def power_error_ratio(self) -> FloatTable:
        """(K, P) standard error of the median power."""
        return self._standard_error(self.window_power_ratio)

    def _standard_error(self, window_ratio: FloatTable | None) -> FloatTable:
        if window_ratio is None:
            return np.zeros(self.log_time.shape)
        return np.asarray(window_ratio * median_spread_ratio(np.maximum(self.window_count, 1)))


def fresh_cells(
    cells: Iterable[CellMeasurement],
    kernels: Sequence[str],
    points: Sequence[OperatingPoint],
) -> FreshCells:
    """Pool the windows of every cell over several batches of one measuring run.

    Raises MeasurementError for a cell outside the table, windows of different runs, or a
    window that came twice: those would count one accident several times.
    """
    windows = _windows_by_cell(cells, kernels, points)
    shape = (len(kernels), len(points))
    log_time, log_power = np.zeros(shape), np.zeros(shape)
    count = np.zeros(shape, dtype=np.int64)
    is_capped = np.zeros(shape, dtype=np.bool_)
    time_variance, power_variance = np.zeros(shape), np.zeros(shape)
    for cell, seen in windows.items():
        times = np.log([window.time_s for window in seen])
        powers = np.log([window.energy_j / window.time_s for window in seen])
        log_time[cell], log_power[cell] = np.median(times), np.median(powers)
        count[cell] = len(seen)
        is_capped[cell] = 2 * sum(_is_capped(window) for window in seen) > len(seen)
        if len(seen) > 1:
            time_variance[cell], power_variance[cell] = times.var(ddof=1), powers.var(ddof=1)
    return FreshCells(
        log_time=log_time,
        log_power=log_power,
        window_count=count,
        is_capped=is_capped,
        window_time_ratio=_pooled_times(time_variance, count, is_capped),
        window_power_ratio=_pooled(power_variance, count, is_capped),
    )


def _windows_by_cell(
    cells: Iterable[CellMeasurement],
    kernels: Sequence[str],
    points: Sequence[OperatingPoint],
) -> dict[tuple[int, int], list[Window]]:
    rows = {kernel: row for row, kernel in enumerate(kernels)}
    columns = {point: column for column, point in enumerate(points)}
    windows: dict[tuple[int, int], list[Window]] = {}
    runs: set[str] = set()
    for cell in cells:
        runs.add(cell.run)
        if cell.kernel not in rows or cell.point not in columns:
            raise MeasurementError(
                f"{cell.kernel!r} at {cell.point.label} was measured afresh but is not in the sweep"
            )
        windows.setdefault((rows[cell.kernel], columns[cell.point]), []).extend(cell.windows)
    if len(runs) > 1:
        raise MeasurementError(
            f"fresh windows come from {len(runs)} measuring runs, which cannot be compared",
            hint="Measure all fresh windows under one label.",
        )
    for (row, column), seen in windows.items():
        if len({window.window for window in seen}) < len(seen):
            raise MeasurementError(
                f"a window of {kernels[row]!r} at {points[column].label} came twice",
                hint="Go on counting windows from batch to batch.",
            )
    return windows


def _is_capped(window: Window) -> bool:
    return any(caveat.kind is CaveatKind.POWER_CAPPED for caveat in window.caveats)


def _pooled_times(variance: FloatTable, count: IntTable, is_capped: BoolTable) -> FloatTable | None:
    """As `_pooled`; a kernel whose windows agree in every cell has a scatter of 0 and no say."""
    is_repeated = (count > 1).any(axis=1)
    is_shaken = ~(is_repeated & (variance.max(axis=1) <= _ROUNDING_RATIO**2))[:, None]
    pooled = _pooled(variance, count * is_shaken, is_capped)
    if pooled is None:
        return np.zeros(variance.shape) if is_repeated.any() else None
    return np.asarray(pooled * is_shaken)


def _pooled(variance: FloatTable, count: IntTable, is_capped: BoolTable) -> FloatTable | None:
    """(K, P) pooled standard deviation of one window; a thin group takes that of all."""
    freedom = np.maximum(count - 1, 0)
    if freedom.sum() == 0:
        return None
    pooled = np.full(variance.shape, (variance * freedom).sum() / freedom.sum())
    for group in (is_capped, ~is_capped):
        if freedom[group].sum() >= _THIN_COUNT:
            pooled[group] = (variance * freedom)[group].sum() / freedom[group].sum()
    return np.asarray(np.sqrt(pooled))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prior:
    """What is believed of every cell before fresh windows, (K, P): logarithms and errors.

    `shift_error_ratio` (P,) is how far the times of a point may lie off together; those of
    `is_unshaken` (K,) kernels do not.
    """

    log_time: FloatTable
    log_power: FloatTable
    time_error_ratio: FloatTable
    power_error_ratio: FloatTable
    shift_error_ratio: FloatTable
    is_unshaken: BoolTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Belief:
    """Time (s) and energy (J) per launch in the frame of the fresh run, (K, P)."""

    time_s: FloatTable
    energy_j: FloatTable


def believe(prior: Prior, fresh: FreshCells) -> Belief:
    """Combine what was believed with what was measured afresh.

    Every point's common distance between the sweep and the fresh run is estimated from its
    re-measured kernels and taken off the others; points without any take the distance of all.
    Times that no shift moves neither tell of one nor follow it.
    Re-measured cells are weighted by their errors.

    Source: normal-normal empirical Bayes, twice: over points, then over cells.
    """
    log_time = _combined(
        prior.log_time,
        prior.time_error_ratio,
        prior.shift_error_ratio,
        fresh.log_time,
        fresh.time_error_ratio,
        fresh.is_measured,
        ~prior.is_unshaken,
    )
    log_power = _combined(
        prior.log_power,
        prior.power_error_ratio,
        np.zeros_like(prior.shift_error_ratio),
        fresh.log_power,
        fresh.power_error_ratio,
        fresh.is_measured,
        np.ones_like(prior.is_unshaken),
    )
    return Belief(time_s=np.exp(log_time), energy_j=np.exp(log_time + log_power))


def _combined(  # noqa: PLR0913, PLR0917 - two tables with their errors, and what they are of
    prior: FloatTable,
    prior_error: FloatTable,
    shift_error: FloatTable,
    fresh: FloatTable,
    fresh_error: FloatTable,
    is_measured: BoolTable,
    is_shifted: BoolTable,
) -> FloatTable:
    if not is_measured.any():
        return prior
    telling = is_measured & is_shifted[:, None]
    moved = prior
    if telling.any():
        shifts = _point_shifts(prior, prior_error, shift_error, fresh, fresh_error, telling)
        moved = prior + is_shifted[:, None] * shifts
    variance = prior_error**2 + fresh_error**2
    trust = np.divide(prior_error**2, variance, out=np.ones_like(prior), where=variance > 0)
    return np.where(is_measured, moved + trust * (fresh - moved), moved)


def _point_shifts(
    prior: FloatTable,
    prior_error: FloatTable,
    shift_error: FloatTable,
    fresh: FloatTable,
    fresh_error: FloatTable,
    is_measured: BoolTable,
) -> FloatTable:
    """(P,) how far the fresh run lies off the prior, point by point, shrunk to the mean."""
    variance = prior_error**2 + fresh_error**2 + 1e-12
    precision = is_measured / variance
    information = precision.sum(axis=0)
    seen = information > 0
    distance = np.where(is_measured, fresh - prior, 0.0)
    mean = (precision * distance).sum(axis=0)[seen] / information[seen]
    noise = 1 / information[seen]
    spread = shift_error[seen] ** 2
    whole = float(np.average(mean, weights=1 / (noise + spread + 1e-12)))
    excess = float(np.average((mean - whole) ** 2 - noise, weights=1 / noise))
    spread = np.maximum(spread, max(excess, 0.0))
    shifts = np.full(prior.shape[1], whole)
    shifts[seen] = whole + spread / (spread + noise) * (mean - whole)
    return shifts
