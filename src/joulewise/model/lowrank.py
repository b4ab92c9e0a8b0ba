"""What kernels have in common in the residuals of the physics: a few factors, shrunk."""

from __future__ import annotations

import numpy as np

from joulewise.domain.sweep import FloatTable

_ROUND_COUNT = 10
_TINY = 1e-12


def smooth_residuals(residual: FloatTable, precision: FloatTable, factor_count: int) -> FloatTable:
    """Offsets of points plus a product of kernel and point factors, at every cell.

    Alternating ridge regressions with priors learned from the factors themselves, so that
    factors vanish when the residuals are noise (probabilistic principal components; Tipping
    and Bishop, J. R. Statist. Soc. B 61, 1999).

    Args:
        residual: (K, P) differences of logarithms; ignored where the precision is 0.
        precision: (K, P) 1 / variance; 0 where not measured.
        factor_count: Products beside the offsets of the points.
    """
    known = np.where(precision > 0, residual, 0.0)
    offset = _point_offsets(known, precision)
    if factor_count == 0:
        return np.broadcast_to(offset, known.shape).copy()
    left, right = _first_factors(known, precision, offset, factor_count)
    for _ in range(_ROUND_COUNT):
        rest = known - offset
        left = _ridge(rest, precision, right, np.ones(factor_count))
        scale = np.sqrt((left**2).mean(axis=0)) + _TINY
        left, right = left / scale, right * scale
        size = (right**2).mean(axis=0) + _TINY
        right = _ridge(rest.T, precision.T, left, 1 / size)
        offset = _point_offsets(known - left @ right.T, precision)
    return np.asarray(offset + left @ right.T)


def _point_offsets(residual: FloatTable, precision: FloatTable) -> FloatTable:
    """(P,) weighted means over kernels, shrunk by their own spread."""
    information = precision.sum(axis=0)
    mean = (precision * residual).sum(axis=0) / np.maximum(information, _TINY)
    noise = 1 / np.maximum(information, _TINY)
    seen = information > 0
    if not seen.any():
        return np.zeros_like(mean)
    spread = max(float((mean[seen] ** 2 - noise[seen]).mean()), 0.0)
    return np.asarray(mean * spread / (spread + noise))


def _first_factors(
    residual: FloatTable, precision: FloatTable, offset: FloatTable, factor_count: int
) -> tuple[FloatTable, FloatTable]:
    """Singular vectors, with absent cells filled in turn by what the others imply."""
    filled = np.zeros_like(residual)
    left = right = np.zeros((0, 0))
    for _ in range(5):
        table = np.where(precision > 0, residual - offset, filled)
        u, d, v = np.linalg.svd(table, full_matrices=False)
        root = np.sqrt(d[:factor_count])
        left, right = u[:, :factor_count] * root, v[:factor_count].T * root
        filled = left @ right.T
    return left, right


def _ridge(
    table: FloatTable, precision: FloatTable, factors: FloatTable, prior: FloatTable
) -> FloatTable:
    """(rows, r) regression of every row on the factors of the columns."""
    weighted = precision[:, :, None] * factors
    curvature = np.swapaxes(weighted, 1, 2) @ factors + np.diag(prior)
    right = (weighted * table[:, :, None]).sum(axis=1)
    return np.asarray(np.linalg.solve(curvature, right[:, :, None])[:, :, 0])
