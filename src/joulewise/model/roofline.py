"""Time of a kernel over both clocks: a smooth roofline, one for each kernel of a sweep.

`t = l + ((a/f)^p + b_m^p)^(1/p)`: work a that the SM clock f speeds up, traffic b_m that only
the memory setting m changes, smoothly joined, and a part l that no clock shortens. A kernel has
its own a, l, p and b_m; b_m is held close to the kernel's traffic times a factor that all
kernels share. Source: S. Williams et al., Roofline, CACM 52 (2009), with the p-norm for partial
overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import FloatTable
from joulewise.model.conditions import Conditions

# Weak beliefs about what the data may leave open (standard deviations of logarithms).
_EXPONENT = 4.0
_EXPONENT_SPREAD = 0.7
_FIXED_SHARE = 0.002
_FIXED_SPREAD = 1.5
_LARGE_FIXED_SHARE = 0.5
_MEMORY_SPREAD = 0.05
_FREE_MEMORY_SPREAD = 1.0
_ROUND_COUNT = 6
_WARM_ROUND_COUNT = 2
_STEP_COUNT = 4
_LARGEST_STEP = 0.7
# Residuals beyond so many standard deviations count linearly (pseudo-Huber).
_OUTLIER = 3.0
# Columns of the parameters: compute, exponent, fixed, then one traffic per memory setting.
_COMPUTE, _EXPONENT_AT, _FIXED, _TRAFFIC = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roofline:
    """Logarithms of a, p, l and b_m of K kernels: (K, 3 + memory settings), times in s."""

    parameters: FloatTable
    memory_factors: FloatTable
    """(M,) logarithms of what all kernels share of b_m."""

    def log_time(self, conditions: Conditions) -> FloatTable:
        """(K, P) logarithm of seconds per launch."""
        return _evaluate(self.parameters, conditions)[0]

    def compute_share(self, conditions: Conditions) -> FloatTable:
        """(K, P) by which share of a change of the SM clock the time changes, from 0 to 1."""
        return _evaluate(self.parameters, conditions)[1][:, :, _COMPUTE]

    def compute_log_s(self) -> FloatTable:
        """(K,) logarithm of the time that computing alone takes at the highest clock."""
        return self.parameters[:, _COMPUTE]

    def traffic_log_s(self) -> FloatTable:
        """(K,) logarithm of the time that traffic alone takes at an average memory setting."""
        return np.asarray(self.parameters[:, _TRAFFIC:].mean(axis=1))


@dataclass(slots=True)
class _Belief:
    """Prior means and precisions of the parameters, (K, D) each."""

    mean: FloatTable
    precision: FloatTable


@dataclass(slots=True)
class _Search:
    """Where the damped least squares stand; one damping and one cost per kernel."""

    parameters: FloatTable
    damping: FloatTable
    traffic_information: FloatTable
    factors: FloatTable
    cost: FloatTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Data:
    """Logarithms of times with weights (K, P), and of each kernel's fastest time (K,)."""

    observed: FloatTable
    precision: FloatTable
    fastest: FloatTable


def fit_roofline(
    log_time: FloatTable,
    precision: FloatTable,
    conditions: Conditions,
    *,
    start: Roofline | None = None,
) -> Roofline:
    """Fit every kernel's roofline, robustly and together.

    Args:
        log_time: (K, P) logarithm of seconds per launch; ignored where the precision is 0.
        precision: (K, P) 1 / variance of `log_time`; 0 where not measured.
        conditions: Clock and memory setting of every cell.
        start: A fit of nearly the same data, to begin from.
    """
    observed = np.where(precision > 0, log_time, 0.0)
    fastest = np.where(precision > 0, log_time, np.inf).min(axis=1)
    if start is not None:
        # A kernel whose every cell is left out keeps what the start knew of it.
        known = start.parameters[:, _FIXED] - np.log(_FIXED_SHARE)
        fastest = np.where(np.isfinite(fastest), fastest, known)
        data = _Data(observed=observed, precision=precision, fastest=fastest)
        rounds = range(1, 1 + _WARM_ROUND_COUNT)
        search = _searched(data, conditions, start.parameters, start.memory_factors, rounds)
        return Roofline(parameters=search.parameters, memory_factors=search.factors)
    data = _Data(observed=observed, precision=precision, fastest=fastest)
    factors = np.zeros(conditions.memory_count)
    # From either side of a valley: kernels that mostly work, and kernels that mostly wait.
    searches = [
        _searched(
            data, conditions, _first_guess(data, conditions, share), factors, range(_ROUND_COUNT)
        )
        for share in (_FIXED_SHARE, _LARGE_FIXED_SHARE)
    ]
    waits = searches[1].cost < searches[0].cost
    return Roofline(
        parameters=np.where(waits[:, None], searches[1].parameters, searches[0].parameters),
        memory_factors=searches[0].factors,
    )


def _searched(
    data: _Data,
    conditions: Conditions,
    parameters: FloatTable,
    factors: FloatTable,
    rounds: range,
) -> _Search:
    """Turn by turn: every kernel's own curve, then what the kernels share."""
    shape = (len(parameters), conditions.memory_count)
    search = _Search(
        parameters=parameters,
        damping=np.full(shape[0], 1e-2),
        traffic_information=np.ones(shape),
        factors=factors,
        cost=np.zeros(shape[0]),
    )
    for number in rounds:
        if number > 0:
            search.factors = _shared_factors(search)
        belief = _belief(search, data.fastest, is_free=number == 0)
        _improve(search, belief, data, conditions)
    return search


def _first_guess(data: _Data, conditions: Conditions, fixed_share: float) -> FloatTable:
    """Bounds that the fastest cells set, less the fixed part, slightly lowered."""
    observed = np.where(data.precision > 0, data.observed, np.inf)
    fixed_s = fixed_share * np.exp(data.fastest)[:, None]
    known = np.log(np.exp(observed) - fixed_s)
    compute = (known + np.log(conditions.clock_ratio)).min(axis=1) - 0.1
    traffic = np.stack(
        [
            known[:, conditions.memory == m].min(axis=1, initial=np.inf)
            for m in range(conditions.memory_count)
        ],
        axis=1,
    )
    fastest = known.min(axis=1, keepdims=True)
    traffic = np.where(np.isfinite(traffic), traffic, fastest) - 0.2
    fixed = data.fastest + np.log(fixed_share)
    exponent = np.full(len(known), np.log(_EXPONENT))
    return np.column_stack([compute, exponent, fixed, traffic])


def _shared_factors(search: _Search) -> FloatTable:
    """Information-weighted mean of every memory setting's factor over the kernels."""
    factors = search.factors
    weight = search.traffic_information
    traffic = search.parameters[:, _TRAFFIC:]
    for _ in range(5):
        own = (weight * (traffic - factors)).sum(axis=1) / weight.sum(axis=1)
        factors = (weight * (traffic - own[:, None])).sum(axis=0) / weight.sum(axis=0)
    return factors


def _belief(search: _Search, fastest: FloatTable, *, is_free: bool) -> _Belief:
    parameters, factors = search.parameters, search.factors
    mean = np.zeros_like(parameters)
    weight = np.zeros_like(parameters)
    mean[:, _EXPONENT_AT] = np.log(_EXPONENT)
    weight[:, _EXPONENT_AT] = _EXPONENT_SPREAD**-2
    mean[:, _FIXED] = fastest + np.log(_FIXED_SHARE)
    weight[:, _FIXED] = _FIXED_SPREAD**-2
    traffic, information = parameters[:, _TRAFFIC:], search.traffic_information
    if is_free:
        mean[:, _TRAFFIC:] = traffic
        weight[:, _TRAFFIC:] = _FREE_MEMORY_SPREAD**-2
    else:
        own = (information * (traffic - factors)).sum(axis=1) / information.sum(axis=1)
        mean[:, _TRAFFIC:] = own[:, None] + factors
        weight[:, _TRAFFIC:] = _MEMORY_SPREAD**-2
    return _Belief(mean=mean, precision=weight)


def _improve(search: _Search, belief: _Belief, data: _Data, conditions: Conditions) -> None:
    """A few Levenberg-Marquardt steps, every kernel on its own damping."""
    observed, precision = data.observed, data.precision

    def cost_of(parameters: FloatTable, predicted: FloatTable) -> FloatTable:
        square = (predicted - observed) ** 2 * precision
        loss = 2 * _OUTLIER**2 * (np.sqrt(1 + square / _OUTLIER**2) - 1)
        prior = belief.precision * (parameters - belief.mean) ** 2
        return np.asarray(loss.sum(axis=1) + prior.sum(axis=1))

    predicted, slopes = _evaluate(search.parameters, conditions)
    cost = cost_of(search.parameters, predicted)
    diagonal = np.arange(search.parameters.shape[1])
    for _ in range(_STEP_COUNT):
        residual = predicted - observed
        weight = precision / np.sqrt(1 + residual**2 * precision / _OUTLIER**2)
        weighted = slopes * weight[:, :, None]
        curvature = np.swapaxes(weighted, 1, 2) @ slopes
        gradient = (weighted * residual[:, :, None]).sum(axis=1)
        gradient += belief.precision * (search.parameters - belief.mean)
        search.traffic_information = curvature[:, diagonal, diagonal][:, _TRAFFIC:] + 1e-9
        curvature[:, diagonal, diagonal] += belief.precision + 1e-9
        curvature[:, diagonal, diagonal] *= 1 + search.damping[:, None]
        step = -np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        tried = search.parameters + np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
        tried_predicted, tried_slopes = _evaluate(tried, conditions)
        tried_cost = cost_of(tried, tried_predicted)
        better = tried_cost < cost
        search.parameters = np.where(better[:, None], tried, search.parameters)
        predicted = np.where(better[:, None], tried_predicted, predicted)
        slopes = np.where(better[:, None, None], tried_slopes, slopes)
        cost = np.where(better, tried_cost, cost)
        search.damping = np.clip(search.damping * np.where(better, 0.2, 8.0), 1e-8, 1e8)
    search.cost = cost


def _evaluate(parameters: FloatTable, conditions: Conditions) -> tuple[FloatTable, FloatTable]:
    """Logarithm of the time (K, P) and its slopes by the parameters (K, P, D)."""
    exponent = np.exp(parameters[:, [_EXPONENT_AT]])
    compute = parameters[:, [_COMPUTE]] - np.log(conditions.clock_ratio)
    traffic = parameters[:, _TRAFFIC:][:, conditions.memory]
    lead = exponent * (compute - traffic)
    overlap = np.log1p(np.exp(-np.abs(lead)))
    work = np.exp(np.maximum(compute, traffic) + overlap / exponent)
    time = work + np.exp(parameters[:, [_FIXED]])
    work_share = work / time
    compute_share = np.where(lead > 0, 1.0, np.exp(-np.abs(lead))) / (1 + np.exp(-np.abs(lead)))
    minor_share = np.minimum(compute_share, 1 - compute_share)
    slopes = np.zeros((*work.shape, parameters.shape[1]))
    slopes[:, :, _COMPUTE] = work_share * compute_share
    slopes[:, :, _EXPONENT_AT] = -work_share * (overlap + minor_share * np.abs(lead)) / exponent
    slopes[:, :, _FIXED] = 1 - work_share
    columns = np.arange(work.shape[1])
    slopes[:, columns, _TRAFFIC + conditions.memory] = work_share * (1 - compute_share)
    return np.log(time), slopes
