"""Spans of time in whole nanoseconds: how much of them is busy, busy twice, and idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
IntColumn = NDArray[np.int64]

NS_PER_S = 1e9

Nanoseconds = int
"""A time inside this package: whole nanoseconds, so that sums and differences are exact."""

Position = int
"""A place in a sequence, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """How much of a span spans cover: at all, and by more than one of them."""

    busy_s: float
    overlap_s: float


def nanoseconds(seconds: FloatColumn) -> IntColumn:
    """Times as profilers count them, so that sums and differences are exact; shape as given."""
    return np.rint(seconds * NS_PER_S).astype(np.int64)


def cover(start_ns: IntColumn, end_ns: IntColumn) -> Cover:
    """What N spans cover together; both columns have the shape (N,), in any order."""
    if not len(start_ns):
        return Cover(busy_s=0.0, overlap_s=0.0)
    edges = np.concatenate((start_ns, end_ns))
    steps = np.repeat(np.array([1, -1], dtype=np.int64), len(start_ns))
    order = np.lexsort((steps, edges))
    depth = np.cumsum(steps[order])[:-1]
    lengths = np.diff(edges[order])
    return Cover(
        busy_s=int(lengths[depth > 0].sum()) / NS_PER_S,
        overlap_s=int(lengths[depth > 1].sum()) / NS_PER_S,
    )
