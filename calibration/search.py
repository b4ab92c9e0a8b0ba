"""Levenberg-Marquardt over globals and kernels together, and restarts of single kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration import parameters as par
from calibration.facts import BASELINE
from calibration.objective import (
    FACT_COUNT,
    Objective,
    State,
    Tables,
    huber_cost,
    huber_weight,
)

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_KERNEL_STEP = 1e-5
_DEVICE_STEP = 1e-4
_LONGEST_STEP = 0.7
_DAMPING_LIMIT = 1e9
_PER_KERNEL = len(par.PER_KERNEL)
_PATIENCE = 3
_IMPROVEMENT: Final = 2e-4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priors:
    """Priors of the per-kernel parameters, held still during one descent."""

    centre: FloatArray
    spread: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Point:
    state: State
    tables: Tables
    residuals: FloatArray
    cost: float


def descend(objective: Objective, state: State, *, step_count: int) -> tuple[State, float]:
    """Move globals and kernels downhill together; returns the state and its cost."""
    centre, spread = objective.priors_of_kernels(state.of_kernels)
    priors = Priors(centre=centre, spread=spread)
    point = _point(objective, state, priors)
    damping, idle = 1.0, 0
    for _ in range(step_count):
        following, damping = _step(objective, point, priors, damping)
        if following is None:
            break
        idle = idle + 1 if point.cost - following.cost < _IMPROVEMENT * point.cost else 0
        point = following
        if idle == _PATIENCE:
            break
    return point.state, point.cost


def descend_kernels(
    objective: Objective, state: State, *, step_count: int
) -> tuple[State, FloatArray]:
    """Move each kernel downhill by itself on table 1, globals fixed; costs of shape (K,)."""
    centre, spread = objective.priors_of_kernels(state.of_kernels)
    rate = par.value(state.of_device, "exchange_rate")

    def residuals(of_kernels: FloatArray) -> FloatArray:
        tables = objective.tables(dataclasses.replace(state, of_kernels=of_kernels))
        facts = objective.kernel_residuals(tables, rate)
        return np.concatenate([facts, (of_kernels - centre) / spread])

    kernels = state.of_kernels
    now = residuals(kernels)
    cost = _kernel_costs(now)
    damping = np.ones(len(cost))
    for _ in range(step_count):
        move = _kernel_moves(residuals, kernels, now, damping)
        tried = kernels + np.clip(move, -_LONGEST_STEP, _LONGEST_STEP)
        then = residuals(tried)
        better = _kernel_costs(then) < cost
        kernels = np.where(better, tried, kernels)
        now = np.where(better, then, now)
        cost = np.where(better, _kernel_costs(then), cost)
        damping = np.where(better, damping / 4, damping * 4)
    return dataclasses.replace(state, of_kernels=kernels), cost


def restart_kernels(
    objective: Objective, state: State, rng: np.random.Generator, *, attempt_count: int
) -> State:
    """Start each kernel from others of its class; keep what fits table 1 better."""
    rate = par.value(state.of_device, "exchange_rate")
    centre, spread = objective.priors_of_kernels(state.of_kernels)
    facts = objective.kernel_residuals(objective.tables(state), rate)
    cost = _kernel_costs(np.concatenate([facts, (state.of_kernels - centre) / spread]))
    best = state.of_kernels.copy()
    for _ in range(attempt_count):
        start = dataclasses.replace(state, of_kernels=_borrowed(objective, state, rng))
        found, found_cost = descend_kernels(objective, start, step_count=14)
        better = found_cost < cost - 1e-6
        best[:, better] = found.of_kernels[:, better]
        cost = np.where(better, found_cost, cost)
    return dataclasses.replace(state, of_kernels=best)


def _borrowed(objective: Objective, state: State, rng: np.random.Generator) -> FloatArray:
    """Parameters of another kernel of the class, scaled to the time of this one."""
    kernels, size = state.of_kernels, np.log(objective.kernels.time_s)
    count = len(size)
    lender = np.arange(count)
    for members in (objective.is_gemm, ~objective.is_gemm):
        able = np.flatnonzero(members & ~objective.is_tiny)
        lender[members] = rng.choice(able, members.sum())
    start = kernels[:, lender].copy()
    start[:2] += size - size[lender]
    start += rng.normal(size=start.shape) * np.array([0.02, 0.4, 0.15, 0.3, 0.0])[:, None]
    start[4] = 0.0
    return np.where(objective.is_tiny, kernels, start)


def _point(objective: Objective, state: State, priors: Priors) -> _Point:
    tables = objective.tables(state)
    residuals = _residuals(objective, state, tables, priors)
    data = residuals[: objective.data_count]
    rest = residuals[objective.data_count :]
    cost = float(huber_cost(data).sum() + 0.5 * (rest**2).sum())
    return _Point(state=state, tables=tables, residuals=residuals, cost=cost)


def _residuals(objective: Objective, state: State, tables: Tables, priors: Priors) -> FloatArray:
    rate = par.value(state.of_device, "exchange_rate")
    return np.concatenate(
        [
            objective.kernel_residuals(tables, rate).ravel(),
            objective.pass_residuals(tables),
            (state.of_device - par.CENTRES) / par.SPREADS,
            ((state.of_kernels - priors.centre) / priors.spread).ravel(),
        ]
    )


def _step(
    objective: Objective, point: _Point, priors: Priors, damping: float
) -> tuple[_Point | None, float]:
    """One damped step that lowers the cost, or None where none does."""
    jacobian = _jacobian(objective, point, priors)
    weight = np.ones(len(point.residuals))
    data = slice(objective.data_count)
    weight[data] = huber_weight(point.residuals[data])
    weighted = jacobian * weight[:, None]
    curvature, slope = jacobian.T @ weighted, weighted.T @ point.residuals
    device = point.state.of_device
    free = np.ones(len(slope), dtype=np.bool_)
    free[: par.GLOBAL_COUNT] = ~(
        ((device <= par.LEAST) & (slope[: par.GLOBAL_COUNT] > 0))
        | ((device >= par.GREATEST) & (slope[: par.GLOBAL_COUNT] < 0))
    )
    inner, pull = curvature[np.ix_(free, free)], slope[free]
    while damping < _DAMPING_LIMIT:
        damped = inner + np.diag(damping * np.diag(inner) + 1e-9)
        move = np.zeros(len(slope))
        move[free] = -np.linalg.solve(damped, pull)
        following = _point(objective, _moved(point.state, move), priors)
        if following.cost < point.cost:
            return following, max(damping / 4, 1e-6)
        damping *= 4
    return None, damping


def _moved(state: State, move: FloatArray) -> State:
    device = state.of_device + move[: par.GLOBAL_COUNT]
    kernels = move[par.GLOBAL_COUNT :].reshape(state.of_kernels.shape)
    return State(
        of_device=np.clip(device, par.LEAST, par.GREATEST),
        of_kernels=state.of_kernels + np.clip(kernels, -_LONGEST_STEP, _LONGEST_STEP),
    )


def _jacobian(objective: Objective, point: _Point, priors: Priors) -> FloatArray:
    """Forward differences; a kernel's facts depend on its own parameters and the globals."""
    state, count = point.state, len(objective.kernels.kernels)
    jacobian = np.zeros((len(point.residuals), par.GLOBAL_COUNT + _PER_KERNEL * count))
    for j in range(par.GLOBAL_COUNT):
        width = _DEVICE_STEP * par.SPREADS[j]
        # Away from the nearer bound, so that a difference never straddles it.
        width = -width if state.of_device[j] + width > par.GREATEST[j] else width
        device = state.of_device.copy()
        device[j] += width
        moved = dataclasses.replace(state, of_device=device)
        residuals = _residuals(objective, moved, objective.tables(moved), priors)
        jacobian[:, j] = (residuals - point.residuals) / width
    rate = par.value(state.of_device, "exchange_rate")
    facts = point.residuals[: objective.fact_count].reshape(FACT_COUNT, count)
    each = np.arange(count)
    for j in range(_PER_KERNEL):
        kernels = state.of_kernels.copy()
        kernels[j] += _KERNEL_STEP
        tables = objective.tables(dataclasses.replace(state, of_kernels=kernels))
        columns = par.GLOBAL_COUNT + j * count + each
        change = (objective.kernel_residuals(tables, rate) - facts) / _KERNEL_STEP
        for row in range(FACT_COUNT):
            jacobian[row * count + each, columns] = change[row]
        jacobian[objective.fact_count : objective.data_count, columns] = _pass_change(
            objective, point.tables, tables
        )
        priors_from = objective.data_count + par.GLOBAL_COUNT + j * count
        jacobian[priors_from + each, columns] = 1.0 / priors.spread[j]
    return jacobian


def _pass_change(objective: Objective, before: Tables, after: Tables) -> FloatArray:
    """Slope of the pass residuals in one parameter of every kernel, shape (260, K)."""
    row, point = objective.pass_row, objective.passes.point
    weight = objective.pass_weight[row]
    parts = []
    for old, new, spread in (
        (before.time_s, after.time_s, objective.pass_spread[0]),
        (before.energy_j, after.energy_j, objective.pass_spread[1]),
    ):
        sums = objective.pass_sums(old)
        change = (new - old) / _KERNEL_STEP
        at_point = weight * change[:, point].T / sums[row, point][:, None]
        at_baseline = weight * change[:, BASELINE] / sums[row, BASELINE][:, None]
        parts.append((at_point - at_baseline) / spread[:, None])
    return np.concatenate(parts)


def _kernel_costs(residuals: FloatArray) -> FloatArray:
    """Cost of each kernel's facts and priors, shape (K,)."""
    facts, priors = residuals[:FACT_COUNT], residuals[FACT_COUNT:]
    cost: FloatArray = huber_cost(facts).sum(axis=0) + 0.5 * (priors**2).sum(axis=0)
    return cost


def _kernel_moves(
    residuals: Callable[[FloatArray], FloatArray],
    kernels: FloatArray,
    now: FloatArray,
    damping: FloatArray,
) -> FloatArray:
    """Damped steps of all kernels at once, shape (5, K)."""
    count = kernels.shape[1]
    jacobian = np.empty((count, len(now), _PER_KERNEL))
    for j in range(_PER_KERNEL):
        moved = kernels.copy()
        moved[j] += _KERNEL_STEP
        jacobian[:, :, j] = ((residuals(moved) - now) / _KERNEL_STEP).T
    weight = np.ones_like(now)
    weight[:FACT_COUNT] = huber_weight(now[:FACT_COUNT])
    weighted = jacobian * weight.T[:, :, None]
    curvature = np.einsum("kri,krj->kij", jacobian, weighted)
    slope = np.einsum("kri,kr->ki", weighted, now.T)
    diagonal = np.einsum("kii->ki", curvature)
    damped = curvature + (damping[:, None] * diagonal + 1e-9)[:, :, None] * np.eye(_PER_KERNEL)
    moves: FloatArray = -np.linalg.solve(damped, slope[:, :, None])[:, :, 0].T
    return moves
