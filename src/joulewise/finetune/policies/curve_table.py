"""Curves of several jobs side by side: what policies learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import ClockCurve, JobFeatures
from joulewise.finetune.features import BUSY, FEATURE_NAMES, feature_value

FEWEST_JOBS_COUNT = 3
# Twice as many clocks as terms of the law; fewer would be followed point by point.
_FEWEST_TO_SMOOTH_COUNT = 8
# Time is a/f + b, energy that times a power that grows with f.
_TIME_TERMS, _ENERGY_TERMS = (-1, 0), (-1, 0, 1, 2)

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveTable:
    """n jobs at C clocks, with F features.

    `values` has shape (n, F). `energy_ratios` and `slowdown_ratios` (n, C) are against each
    job's governor; `regrets` (n, C) are energies against the job's least one, less one, on
    smoothed curves.
    """

    curves: tuple[ClockCurve, ...]
    sm_clocks_mhz: tuple[int, ...]
    names: tuple[str, ...]
    features: tuple[JobFeatures, ...]
    values: Array
    energy_ratios: Array
    slowdown_ratios: Array
    regrets: Array

    @property
    def best(self) -> NDArray[np.int64]:
        """Index of each job's best clock; of two that are equal the faster one. Shape (n,)."""
        turned = self.regrets[:, ::-1]
        return np.asarray(self.regrets.shape[1] - 1 - turned.argmin(axis=1), np.int64)


def curve_table(curves: Sequence[ClockCurve], *, uses_utilisation: bool = False) -> CurveTable:
    """Lay curves side by side.

    Curves of eight clocks or more are smoothed before clocks are compared: times by a/f + b,
    energies by the terms 1/f, 1, f and f^2. That takes most of the noise of single points away and
    follows the published energies of DeBERTa-v2-xlarge within 1.1 % (slmdvfs2026).

    Args:
        curves: One curve per job, all at the same clocks of one device.
        uses_utilisation: Whether to learn from how busy the GPU was under its governor, which
            somebody has to look at before a policy can go by it.

    Raises:
        InputError: too few curves, other clocks or another device in one of them, a job twice,
            or one of which nothing is known, or not how busy the GPU was where that is used.
    """
    curves = tuple(curves)
    features = _checked(curves)
    if uses_utilisation:
        _check_busy(curves, features)
    names = tuple(name for name in FEATURE_NAMES if name != BUSY or uses_utilisation)
    values = np.array([[feature_value(one, name) for name in names] for one in features], float)
    energy_j = np.array([[cost.energy_j for cost in curve.costs] for curve in curves])
    time_s = np.array([[cost.time_s for cost in curve.costs] for curve in curves])
    base_j = np.array([[curve.baseline.energy_j] for curve in curves])
    base_s = np.array([[curve.baseline.time_s] for curve in curves])
    smooth = np.log(_smoothed(energy_j, curves[0].sm_clocks_mhz, _ENERGY_TERMS))
    return CurveTable(
        curves=curves,
        sm_clocks_mhz=curves[0].sm_clocks_mhz,
        names=names,
        features=features,
        values=values,
        energy_ratios=np.exp(smooth) / base_j,
        slowdown_ratios=_smoothed(time_s, curves[0].sm_clocks_mhz, _TIME_TERMS) / base_s,
        regrets=np.expm1(smooth - smooth.min(axis=1, keepdims=True)),
    )


def with_utilisation(curve: ClockCurve) -> JobFeatures | None:
    """Features of a curve's job; how busy the GPU was is what its baseline says."""
    if curve.features is None or curve.features.gpu_busy_ratio is not None:
        return curve.features
    return replace(curve.features, gpu_busy_ratio=curve.baseline.busy_ratio)


def _smoothed(values: Array, sm_clocks_mhz: Sequence[int], exponents: Sequence[int]) -> Array:
    """Least squares of relative errors with these powers of the clock; shape (n, C) as given."""
    if len(sm_clocks_mhz) < _FEWEST_TO_SMOOTH_COUNT:
        return values
    place = np.array(sm_clocks_mhz) / sm_clocks_mhz[-1]
    basis = np.stack([place ** float(exponent) for exponent in exponents], axis=1)
    smooth = np.empty_like(values)
    for row, measured in enumerate(values):
        terms = np.linalg.lstsq(basis / measured[:, None], np.ones_like(place))[0]
        smooth[row] = basis @ terms
    # A curve that no such law fits (below 0 between wild points) is taken as it is.
    is_wild = (smooth <= 0).any(axis=1, keepdims=True)
    return np.where(is_wild, values, smooth)


def _checked(curves: tuple[ClockCurve, ...]) -> tuple[JobFeatures, ...]:
    if len(curves) < FEWEST_JOBS_COUNT:
        raise InputError(
            f"a policy is learned from at least {FEWEST_JOBS_COUNT} jobs, not {len(curves)}",
            field="curves",
            hint="Sweep more jobs: joulewise finetune sweep.",
        )
    features, seen = [], set()
    for index, curve in enumerate(curves):
        where = f"curves[{index}]"
        if curve.job in seen:
            raise InputError(
                f"the job {curve.job!r} comes twice",
                field=f"{where}.job",
                hint="Keep one of its curves.",
            )
        seen.add(curve.job)
        _check_alike(curve, curves[0], where)
        found = with_utilisation(curve)
        if found is None:
            raise InputError(
                f"nothing is known of the job {curve.job!r} that a policy could go by",
                field=f"{where}.features",
                hint="Sweep it with --config, or leave it out.",
            )
        features.append(found)
    return tuple(features)


def _check_busy(curves: Sequence[ClockCurve], features: Sequence[JobFeatures]) -> None:
    for index, (curve, one) in enumerate(zip(curves, features, strict=True)):
        if one.gpu_busy_ratio is None:
            raise InputError(
                f"how busy the GPU was with {curve.job!r} is not known",
                field=f"curves[{index}].features.gpu_busy_ratio",
                hint="Learn without --with-utilisation.",
            )


def _check_alike(curve: ClockCurve, first: ClockCurve, where: str) -> None:
    if curve.sm_clocks_mhz != first.sm_clocks_mhz:
        raise InputError(
            f"{curve.job!r} was measured at other clocks than {first.job!r}",
            field=f"{where}.costs",
            hint="Sweep all jobs at the same clocks.",
        )
    if curve.device_name != first.device_name:
        raise InputError(
            f"{curve.job!r} was measured on {curve.device_name}, {first.job!r} on "
            f"{first.device_name}",
            field=f"{where}.device_name",
            hint="Learn one policy for each kind of device.",
        )
