"""A model of the whole sweep that knows its own error: predicts cells, also absent ones.

Time is a smooth roofline over the clocks that were held (`roofline`), power is standing plus
switching power over a free voltage curve (`switching`); energy is their product. Residuals of
power may keep a few factors that kernels share (`lowrank`), if cells left out say so.

Compared by `studies/model.py` on cells left out of the fit (one in five; root mean squares over
cells up to 30 % slower than the baseline), against the noise-free truth of a virtual
RTX 3080 Ti and against A100 measurements (12 applications at 61 clocks):

=================================  =============  =============  ==============
model                              3080 Ti        with stress    A100, measured
=================================  =============  =============  ==============
the cells as measured              0.42, 0.67 %   0.66, 1.07 %
1 to 3 factors, no physics         6.88, 4.79 %   6.84, 4.82 %   2.18, 0.82 %
polynomials of the clock, 2 to 4   0.88, 2.64 %   1.03, 2.72 %   1.93, 0.71 %
this one                           0.20, 0.42 %   0.29, 0.51 %   1.93, 0.67 %
=================================  =============  =============  ==============

(time, power; the best of each family). On the A100 there is no truth but the cells themselves,
and all models end at much the same distance from their times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from joulewise.domain.errors import MeasurementError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import BoolTable, FloatTable, Sweep
from joulewise.model.conditions import Conditions, conditions_of, power_capped_cells
from joulewise.model.lowrank import smooth_residuals
from joulewise.model.roofline import Roofline, fit_roofline
from joulewise.model.scatter import Scatter, scatter_of, unshaken_rows
from joulewise.model.switching import Switching, fit_switching

_FOLD_COUNT = 5
_FACTOR_COUNT = 2
# Factors must make left-out cells better by this much to be used.
_WORTH_RATIO = 0.95
# The fit allows the physics to be wrong by this much (standard deviations).
_TIME_MISFIT_RATIO = 0.004
_POWER_MISFIT_RATIO = 0.004
# Scatter assumed where the sweep has none: it only weighs cells, all alike.
_ASSUMED_RATIO = 0.005
_SMALLEST_ERROR_RATIO = 2e-4
# The error of a kernel counts as that of all kernels until it has this many cells.
_PRIOR_CELL_COUNT = 10.0
# Cells up to this much slower than the kernel's fastest are judged apart from the rest: only
# they are worth choosing.
_NEAR_RATIO = 1.5
_OUTLIER = 4.0
_FEWEST_FOR_SHIFTS_COUNT = 5
_MEDIAN_OF_SQUARED_NORMAL = 0.4549
_CURVE_FREEDOM_COUNT = 2.0
_TINY = 1e-18
_FEWEST_FOR_CLOCKS_COUNT = 10
_CLOCK_ROUND_COUNT = 3
_CLOCK_ERROR_RATIO = 0.01
# Until cells say otherwise the physics is believed to this, as if so many cells had said so.
_BELIEVED_ERROR_RATIO = 0.01
_BELIEVED_CELL_COUNT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Surrogate:
    """Time and energy per launch that the model expects, and how wrong it is; (K, P).

    `time_s` and `energy_j` use every measured cell and hold at absent cells too;
    `held_out_*` are predictions of each cell that did not use it. Both are free of the
    visits' shifts: `visit_shift_ratio` (P,) is the factor that all times measured at that
    point seem to share, `visit_shift_error_ratio` its standard deviation; those of
    `is_unshaken` (K,) kernels, which the host alone times, have no part in it. `time_error_ratio`
    and `power_error_ratio` are the model's own error, noise taken out. `scatter` is `None`
    where the sweep has none; then the errors contain the noise.
    """

    kernels: tuple[str, ...]
    points: tuple[OperatingPoint, ...]
    time_s: FloatTable
    energy_j: FloatTable
    held_out_time_s: FloatTable
    held_out_energy_j: FloatTable
    time_error_ratio: FloatTable
    power_error_ratio: FloatTable
    visit_shift_ratio: FloatTable
    visit_shift_error_ratio: FloatTable
    is_unshaken: BoolTable
    scatter: Scatter | None

    @property
    def energy_error_ratio(self) -> FloatTable:
        """(K, P) error of the predicted energy."""
        return np.hypot(self.time_error_ratio, self.power_error_ratio)

    @property
    def cell_shift_ratio(self) -> FloatTable:
        """(K, P) factor by which the time measured in every cell seems to be shifted."""
        return np.where(self.is_unshaken[:, None], 1.0, self.visit_shift_ratio)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Data:
    """A sweep as logarithms with weights; absent cells have the precision 0."""

    conditions: Conditions
    is_present: BoolTable
    is_near: BoolTable
    is_capped: BoolTable
    is_timed: BoolTable
    """Cells whose times are the GPU's, not the host's."""
    log_time: FloatTable
    log_power: FloatTable
    time_precision: FloatTable
    power_precision: FloatTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fit:
    roofline: Roofline
    switching: Switching
    log_time: FloatTable
    log_power: FloatTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Prediction:
    """Logarithms at every cell."""

    log_time: FloatTable
    log_power: FloatTable


def fit_surrogate(sweep: Sweep) -> Surrogate:
    """Fit the model to every measured cell, and its error to cells left out in turn.

    Works with or without memory clocks, auto settings and scatter; cells may be absent.
    Takes well under a second for 46 kernels at 66 points.

    Raises MeasurementError for a kernel that was measured nowhere.
    """
    _check_rows(sweep)
    scatter = scatter_of(sweep)
    data = _with_corrected_clocks(_data_of(sweep, scatter))
    fit = _fitted(data, data.is_present, None)
    folds = _folds(sweep.is_present.shape)
    parts = [_fitted(data, data.is_present & (folds != f), fit) for f in range(_FOLD_COUNT)]
    factor_count = _worthwhile_factors(data, parts, folds)
    whole = _predicted(data, fit, data.is_present, factor_count)
    held_out = _stitched(data, parts, folds, factor_count)
    shift, shift_error = _visit_shift(data, held_out)
    time_rest = data.log_time - np.where(data.is_timed, shift, 0.0) - held_out.log_time
    power_rest = data.log_power - held_out.log_power
    noise = scatter or _no_scatter(sweep.is_present.shape)
    return Surrogate(
        kernels=sweep.kernels,
        points=sweep.points,
        time_s=np.exp(whole.log_time),
        energy_j=np.exp(whole.log_time + whole.log_power),
        held_out_time_s=np.exp(held_out.log_time),
        held_out_energy_j=np.exp(held_out.log_time + held_out.log_power),
        time_error_ratio=_own_error(time_rest, noise.time_ratio, data, data.is_timed),
        power_error_ratio=_own_error(power_rest, noise.power_ratio, data, data.is_present),
        visit_shift_ratio=np.exp(shift),
        visit_shift_error_ratio=shift_error,
        is_unshaken=np.asarray(~data.is_timed.any(axis=1)),
        scatter=scatter,
    )


def _check_rows(sweep: Sweep) -> None:
    empty = np.flatnonzero(~sweep.is_present.any(axis=1))
    if empty.size:
        raise MeasurementError(
            f"kernel {sweep.kernels[int(empty[0])]!r} was measured at no point",
            hint="Leave it out, or measure it.",
        )


def _data_of(sweep: Sweep, scatter: Scatter | None) -> _Data:
    present = sweep.is_present
    log_time = np.log(np.where(present, sweep.time_s, 1.0))
    log_energy = np.log(np.where(present, sweep.energy_j, 1.0))
    time_noise = scatter.time_ratio if scatter else np.full(present.shape, _ASSUMED_RATIO)
    power_noise = scatter.power_ratio if scatter else np.full(present.shape, _ASSUMED_RATIO)
    fastest = np.where(present, log_time, np.inf).min(axis=1, keepdims=True)
    return _Data(
        conditions=conditions_of(sweep),
        is_present=present,
        is_near=present & (log_time <= fastest + np.log(_NEAR_RATIO)),
        is_capped=power_capped_cells(sweep),
        is_timed=present & ~unshaken_rows(sweep)[:, None],
        log_time=log_time,
        log_power=log_energy - log_time,
        time_precision=present / (time_noise**2 + _TIME_MISFIT_RATIO**2),
        power_precision=present / (power_noise**2 + _POWER_MISFIT_RATIO**2),
    )


def _with_corrected_clocks(data: _Data) -> _Data:
    """Take off what clocks read under the power limit lie off together.

    A regulator moves between the clocks that a device lists, and what is read is rounded to
    them; times tell by how much.
    """
    if data.is_capped.sum() < _FEWEST_FOR_CLOCKS_COUNT:
        return data
    weight = data.time_precision * data.is_capped
    roofline: Roofline | None = None
    for _ in range(_CLOCK_ROUND_COUNT):
        roofline = fit_roofline(data.log_time, data.time_precision, data.conditions, start=roofline)
        share = roofline.compute_share(data.conditions)
        rest = data.log_time - roofline.log_time(data.conditions)
        information = (weight * share**2).sum() + _CLOCK_ERROR_RATIO**-2
        off = float((weight * share * rest).sum() / information)
        clock_ratio = data.conditions.clock_ratio * np.exp(-off * data.is_capped)
        data = replace(data, conditions=replace(data.conditions, clock_ratio=clock_ratio))
    return data


def _folds(shape: tuple[int, int]) -> FloatTable:
    """(K, P) fold of every cell: neighbours in either direction lie in different ones."""
    rows, columns = np.indices(shape)
    return np.asarray((2 * rows + columns) % _FOLD_COUNT)


def _fitted(data: _Data, used: BoolTable, start: _Fit | None) -> _Fit:
    roofline = fit_roofline(
        data.log_time,
        data.time_precision * used,
        data.conditions,
        start=start.roofline if start else None,
    )
    switching, log_power = fit_switching(
        data.log_power,
        data.power_precision * used,
        data.conditions,
        roofline,
        start=start.switching if start else None,
    )
    return _Fit(
        roofline=roofline,
        switching=switching,
        log_time=roofline.log_time(data.conditions),
        log_power=log_power,
    )


def _predicted(data: _Data, fit: _Fit, used: BoolTable, factor_count: int) -> _Prediction:
    """Physics, plus what kernels share of its residuals of power."""
    power_rest = data.log_power - fit.log_power
    common = smooth_residuals(power_rest, data.power_precision * used, factor_count)
    return _Prediction(log_time=fit.log_time, log_power=fit.log_power + common)


def _stitched(data: _Data, parts: list[_Fit], folds: FloatTable, factor_count: int) -> _Prediction:
    """Every cell as predicted by the fit that left its fold out."""
    predictions = [
        _predicted(data, part, data.is_present & (folds != fold), factor_count)
        for fold, part in enumerate(parts)
    ]
    chosen = folds.astype(np.int64)[None]

    def pick(table: Callable[[_Prediction], FloatTable]) -> FloatTable:
        stack = np.stack([table(prediction) for prediction in predictions])
        return np.asarray(np.take_along_axis(stack, chosen, axis=0)[0])

    return _Prediction(
        log_time=pick(lambda prediction: prediction.log_time),
        log_power=pick(lambda prediction: prediction.log_power),
    )


def _worthwhile_factors(data: _Data, parts: list[_Fit], folds: FloatTable) -> int:
    """How many factors the left-out cells of power ask for: none or a few."""
    if min(data.is_present.shape) <= _FACTOR_COUNT:
        return 0
    losses = []
    for factor_count in (0, _FACTOR_COUNT):
        rest = data.log_power - _stitched(data, parts, folds, factor_count).log_power
        losses.append(_robust_loss(rest, data.power_precision))
    return _FACTOR_COUNT if losses[1] < _WORTH_RATIO * losses[0] else 0


def _robust_loss(rest: FloatTable, precision: FloatTable) -> float:
    square = rest**2 * precision
    return float((_OUTLIER**2 * (np.sqrt(1 + square / _OUTLIER**2) - 1)).sum())


def _visit_shift(data: _Data, held_out: _Prediction) -> tuple[FloatTable, FloatTable]:
    """(P,) logarithms of the shifts of all times at a point, and their standard deviations.

    What many kernels agree on and the physics does not know is taken for the visit's shift;
    the fewer they are and the less they agree, the more it is shrunk.
    """
    precision = data.time_precision * data.is_timed
    rest = np.where(data.is_timed, data.log_time - held_out.log_time, 0.0)
    weight = precision / np.sqrt(1 + rest**2 * precision / _OUTLIER**2)
    information = weight.sum(axis=0)
    seen = information > 0
    mean = (weight * rest).sum(axis=0) / np.where(seen, information, 1.0)
    freedom = int(data.is_timed.sum() - seen.sum())
    if freedom < _FEWEST_FOR_SHIFTS_COUNT:
        return np.zeros_like(mean), np.zeros_like(mean)
    disagreement = float((weight * (rest - mean) ** 2).sum()) / freedom
    noise = disagreement / np.where(seen, information, 1.0)
    spread = max(float((mean[seen] ** 2 - noise[seen]).mean()), 0.0)
    trust = spread / (spread + noise + _TINY) * seen
    # The fit itself follows the shifts a little: curves are free along the clock, and once for
    # every memory setting.
    freedom_count = _CURVE_FREEDOM_COUNT + data.conditions.memory_count
    followed = min(1.0, freedom_count / seen.sum())
    return trust * mean, np.sqrt(spread * (1 - trust + followed * trust))


def _own_error(
    rest: FloatTable, noise_ratio: FloatTable, data: _Data, is_counted: BoolTable
) -> FloatTable:
    """(K, P) standard deviation of the model, from left-out residuals less the noise.

    Cells near the kernel's fastest are judged apart from the rest, and of those the
    power-capped ones apart from the others: their clock is known less well. Each kernel's own
    residuals count the more, the more of them there are. Only counted cells say anything.
    """
    error = np.zeros(rest.shape)
    near, capped = data.is_near, data.is_capped
    for group in (near & capped, near & ~capped, ~near):
        members = group & is_counted
        if not members.any():
            error[group] = _BELIEVED_ERROR_RATIO**2
            continue
        limit = _OUTLIER**2 * _typical_square(rest, members)
        excess = np.where(members, np.minimum(rest**2, limit) - noise_ratio**2, 0.0)
        count = members.sum(axis=1)
        believed = _BELIEVED_CELL_COUNT * _BELIEVED_ERROR_RATIO**2
        whole = (excess.sum() + believed) / (count.sum() + _BELIEVED_CELL_COUNT)
        whole = max(float(whole), 0.0)
        own = (excess.sum(axis=1) + _PRIOR_CELL_COUNT * whole) / (count + _PRIOR_CELL_COUNT)
        error = np.where(group, np.maximum(own, _SMALLEST_ERROR_RATIO**2)[:, None], error)
    return np.sqrt(error)


def _typical_square(rest: FloatTable, members: BoolTable) -> FloatTable:
    """(K, 1) variances of normal residuals with this median square, of all or the kernel's own.

    The larger counts: a kernel that the physics misses everywhere has no outliers.
    """
    whole = np.median(rest[members] ** 2)
    own = [
        np.median(row[known] ** 2) if known.any() else 0.0
        for row, known in zip(rest, members, strict=True)
    ]
    return np.asarray(np.maximum(whole, own) / _MEDIAN_OF_SQUARED_NORMAL)[:, None]


def _no_scatter(shape: tuple[int, int]) -> Scatter:
    none = np.zeros(shape)
    return Scatter(
        window_time_ratio=none, window_power_ratio=none, time_ratio=none, power_ratio=none
    )
