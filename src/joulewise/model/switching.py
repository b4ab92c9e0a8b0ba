"""Board power of a kernel: standing power, and switching power that follows the voltage.

`P = s_m + c V(f)^2 f + V(f)^2 x a/t + k_m y b/t`: standing power s_m of the memory setting m,
the clock tree, and the kernel's own core and memory activity x and y while it computes (a/t of
the time) and moves data (b/t). The square of the voltage is a free, smooth curve over the SM
clock, the same for all kernels; where the memory clock is left to the driver it may be another
one. Source: the usual C V^2 f of CMOS; J. Leng et al., GPUWattch, ISCA 2013, for the split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.sweep import FloatTable
from joulewise.model.conditions import Conditions
from joulewise.model.roofline import Roofline

_KNOT_COUNT = 14
# Standard deviations of weak beliefs, all of logarithms.
_STANDING_SPREAD = 0.7
_TREE_SPREAD = 1.0
_BEND_SPREAD = 0.15
_LEVEL_SPREAD = 3.0
_AUTO_SPREAD = 0.3
_MEMORY_SPREAD = 0.5
_ACTIVITY_SPREAD = 1.0
_STEP_COUNT = 25
_WARM_STEP_COUNT = 4
_TRY_COUNT = 6
_ENOUGH_RATIO = 1e-4
_OUTLIER = 3.0

FloatCube = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Switching:
    """Logarithms of what all kernels share (G,) and of their own activities (K, 2), in W.

    `level_w` is the median power of the cells first fitted: beliefs are shares of it.
    """

    level_w: float
    shared: FloatTable
    activity: FloatTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Frame:
    """What the fit is told: places of the shared parameters and shares of every cell.

    `voltage_basis` (K, P, V) interpolates the logarithm of the squared voltage;
    `compute_share` and `traffic_share` (K, P) are a/t and b/t.
    """

    conditions: Conditions
    voltage_basis: FloatCube
    compute_share: FloatTable
    traffic_share: FloatTable

    @property
    def standing(self) -> slice:
        return slice(0, self.conditions.memory_count)

    @property
    def tree(self) -> int:
        return self.conditions.memory_count

    @property
    def voltage(self) -> slice:
        knot_count = int(self.voltage_basis.shape[2])
        return slice(self.tree + 1, self.tree + 1 + knot_count)

    @property
    def memory(self) -> slice:
        return slice(self.voltage.stop, self.voltage.stop + self.conditions.memory_count)

    @property
    def shared_count(self) -> int:
        return self.tree + 1 + int(self.voltage_basis.shape[2]) + self.conditions.memory_count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """Logarithm of power (K, P) and the shares of its four parts."""

    log_power: FloatTable
    standing: FloatTable
    tree: FloatTable
    core: FloatTable
    memory: FloatTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Belief:
    mean: FloatTable
    precision: FloatTable
    activity: FloatTable


def fit_switching(
    log_power: FloatTable,
    precision: FloatTable,
    conditions: Conditions,
    roofline: Roofline,
    *,
    start: Switching | None = None,
) -> tuple[Switching, FloatTable]:
    """Fit the board's shared parameters and every kernel's activities together, robustly.

    Args:
        log_power: (K, P) logarithm of watts; ignored where the precision is 0.
        precision: (K, P) 1 / variance of `log_power`; 0 where not measured.
        conditions: Clock and memory setting of every cell.
        roofline: The times fitted before: they say how busy each part is.
        start: A fit of nearly the same data, to begin from.

    Returns:
        The fit and the (K, P) logarithm of the power that it predicts.
    """
    frame = _frame(conditions, roofline)
    observed = np.where(precision > 0, log_power, 0.0)
    fit = start or _first_guess(frame, float(np.exp(np.median(log_power[precision > 0]))))
    belief = _belief(frame, fit)
    parts = _evaluate(frame, fit)
    cost = _cost(fit, parts, belief, observed, precision)
    damping = 1e-2
    for _ in range(_STEP_COUNT if start is None else _WARM_STEP_COUNT):
        equations = _equations(frame, fit, parts, belief, observed, precision)
        for _ in range(_TRY_COUNT):
            tried = _step(fit, equations, damping)
            tried_parts = _evaluate(frame, tried)
            tried_cost = _cost(tried, tried_parts, belief, observed, precision)
            if tried_cost < cost:
                break
            damping *= 8
        else:
            break
        gained = cost - tried_cost
        fit, parts, damping = tried, tried_parts, max(damping / 5, 1e-8)
        belief = _belief(frame, fit)
        cost = _cost(fit, parts, belief, observed, precision)
        if gained < _ENOUGH_RATIO * cost:
            break
    return fit, parts.log_power


def _frame(conditions: Conditions, roofline: Roofline) -> _Frame:
    clock = conditions.clock_ratio
    log_time = roofline.log_time(conditions)
    knots = np.linspace(clock.min(), clock.max() + 1e-9, _KNOT_COUNT)
    basis = _interpolation(clock, knots)
    if conditions.is_auto_memory.any():
        apart = basis * conditions.is_auto_memory[None, :, None]
        basis = np.concatenate([basis, apart], axis=2)
    return _Frame(
        conditions=conditions,
        voltage_basis=basis,
        compute_share=np.exp(roofline.compute_log_s()[:, None] - log_time),
        traffic_share=np.exp(roofline.traffic_log_s()[:, None] - log_time),
    )


def _interpolation(clock: FloatTable, knots: FloatTable) -> FloatCube:
    """(K, P, knots) weights of linear interpolation."""
    left = np.clip(np.searchsorted(knots, clock, side="right") - 1, 0, len(knots) - 2)
    beyond = np.clip((clock - knots[left]) / (knots[left + 1] - knots[left]), 0.0, 1.0)
    basis = np.zeros((*clock.shape, len(knots)))
    np.put_along_axis(basis, left[:, :, None], (1 - beyond)[:, :, None], axis=2)
    np.put_along_axis(basis, left[:, :, None] + 1, beyond[:, :, None], axis=2)
    return basis


def _first_guess(frame: _Frame, level_w: float) -> Switching:
    shared = np.zeros(frame.shared_count)
    shared[frame.standing] = np.log(0.15 * level_w)
    shared[frame.tree] = np.log(0.1 * level_w)
    shared[frame.voltage][:_KNOT_COUNT] = np.linspace(-1.0, 0.0, _KNOT_COUNT)
    activity = np.tile(np.log([0.4 * level_w, 0.25 * level_w]), (len(frame.compute_share), 1))
    return Switching(level_w=level_w, shared=shared, activity=activity)


def _belief(frame: _Frame, fit: Switching) -> _Belief:
    """Weak priors: a smooth voltage curve, activities near those of the other kernels."""
    size = frame.shared_count
    mean = np.zeros(size)
    precision = np.zeros((size, size))
    mean[frame.standing] = np.log(0.15 * fit.level_w)
    mean[frame.tree] = np.log(0.1 * fit.level_w)
    diagonal = np.zeros(size)
    diagonal[frame.standing] = _STANDING_SPREAD**-2
    diagonal[frame.tree] = _TREE_SPREAD**-2
    diagonal[frame.memory] = _MEMORY_SPREAD**-2
    curve = slice(frame.voltage.start, frame.voltage.start + _KNOT_COUNT)
    apart = slice(curve.stop, frame.voltage.stop)
    diagonal[curve] = _LEVEL_SPREAD**-2
    diagonal[apart] = _AUTO_SPREAD**-2
    # The activities carry the scale: the voltage at the highest clock is 1 by definition.
    diagonal[curve.stop - 1] = 1e6
    bend = np.diff(np.eye(_KNOT_COUNT), 2, axis=0)
    smooth = bend.T @ bend / _BEND_SPREAD**2
    precision[curve, curve] = smooth
    if apart.stop > apart.start:
        precision[apart, apart] = smooth
    precision[np.diag_indices(size)] += diagonal
    return _Belief(mean=mean, precision=precision, activity=np.median(fit.activity, axis=0))


def _evaluate(frame: _Frame, fit: Switching) -> _Parts:
    memory = frame.conditions.memory
    square = np.exp(frame.voltage_basis @ fit.shared[frame.voltage])
    standing = np.exp(fit.shared[frame.standing])[memory]
    tree = np.exp(fit.shared[frame.tree]) * square * frame.conditions.clock_ratio
    core = np.exp(fit.activity[:, [0]]) * square * frame.compute_share
    moved = np.exp(fit.shared[frame.memory])[memory] * frame.traffic_share
    moved = moved * np.exp(fit.activity[:, [1]])
    power = standing + tree + core + moved
    return _Parts(
        log_power=np.log(power),
        standing=standing / power,
        tree=tree / power,
        core=core / power,
        memory=moved / power,
    )


def _cost(
    fit: Switching,
    parts: _Parts,
    belief: _Belief,
    observed: FloatTable,
    precision: FloatTable,
) -> float:
    square = (parts.log_power - observed) ** 2 * precision
    loss = 2 * _OUTLIER**2 * (np.sqrt(1 + square / _OUTLIER**2) - 1)
    away = fit.shared - belief.mean
    spread = (fit.activity - belief.activity) / _ACTIVITY_SPREAD
    return float(loss.sum() + away @ belief.precision @ away + (spread**2).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Equations:
    """Normal equations in blocks: shared (G, G), mixed (K, G, 2), own (K, 2, 2)."""

    shared: FloatTable
    mixed: FloatCube
    own: FloatCube
    shared_gradient: FloatTable
    own_gradient: FloatTable


def _equations(
    frame: _Frame,
    fit: Switching,
    parts: _Parts,
    belief: _Belief,
    observed: FloatTable,
    precision: FloatTable,
) -> _Equations:
    residual = parts.log_power - observed
    weight = precision / np.sqrt(1 + residual**2 * precision / _OUTLIER**2)
    slopes = _shared_slopes(frame, parts)
    own = np.stack([parts.core, parts.memory], axis=2)
    weighted = slopes * weight[:, :, None]
    weighted_own = own * weight[:, :, None]
    prior = np.eye(2) / _ACTIVITY_SPREAD**2
    flat = slopes.reshape(-1, frame.shared_count)
    return _Equations(
        shared=weighted.reshape(flat.shape).T @ flat + belief.precision,
        mixed=np.swapaxes(weighted, 1, 2) @ own,
        own=np.swapaxes(weighted_own, 1, 2) @ own + prior,
        shared_gradient=weighted.reshape(flat.shape).T @ residual.ravel()
        + belief.precision @ (fit.shared - belief.mean),
        own_gradient=(weighted_own * residual[:, :, None]).sum(axis=1)
        + (fit.activity - belief.activity) / _ACTIVITY_SPREAD**2,
    )


def _shared_slopes(frame: _Frame, parts: _Parts) -> FloatCube:
    slopes = np.zeros((*parts.log_power.shape, frame.shared_count))
    columns = np.arange(parts.log_power.shape[1])
    memory = frame.conditions.memory
    slopes[:, columns, frame.standing.start + memory] = parts.standing
    slopes[:, columns, frame.memory.start + memory] = parts.memory
    slopes[:, :, frame.tree] = parts.tree
    slopes[:, :, frame.voltage] = frame.voltage_basis * (parts.tree + parts.core)[:, :, None]
    return slopes


def _step(fit: Switching, equations: _Equations, damping: float) -> Switching:
    """Solve with the kernels' blocks eliminated first (Schur complement)."""
    own = equations.own * (1 + damping * np.eye(2))
    shared = equations.shared + damping * np.diag(np.diag(equations.shared))
    inverse = np.linalg.inv(own)
    carried = equations.mixed @ inverse
    complement = shared - (carried @ np.swapaxes(equations.mixed, 1, 2)).sum(axis=0)
    gradient = equations.shared_gradient
    gradient = gradient - (carried @ equations.own_gradient[:, :, None]).sum(axis=0)[:, 0]
    step = -np.linalg.solve(complement, gradient)
    pull = equations.own_gradient + np.swapaxes(equations.mixed, 1, 2) @ step
    own_step = -(inverse @ pull[:, :, None])[:, :, 0]
    return Switching(
        level_w=fit.level_w,
        shared=fit.shared + np.clip(step, -0.5, 0.5),
        activity=fit.activity + np.clip(own_step, -0.7, 0.7),
    )
