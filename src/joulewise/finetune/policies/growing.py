"""Trees while they grow: each branch also knows the clock that it would have as a leaf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from joulewise.finetune.policies.curve_table import Array, CurveTable

MOST_DEPTH_COUNT = 4
LEAST_LEAF_COUNTS = (1, 2, 3)
"""Fewest training jobs in a leaf that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """A part of a tree: the jobs that came to it, and where it branches its two sides.

    `clock_index` is the clock of the part if it is cut down to a leaf here.
    """

    jobs: tuple[int, ...]
    clock_index: int
    column_index: int | None = None
    threshold: float | None = None
    low: Grown | None = None
    high: Grown | None = None


class Grower(Protocol):
    """Grows a tree of some of a table's jobs."""

    def grow(self, jobs: Sequence[int], least_leaf_count: int) -> Grown:
        """A tree of at most `MOST_DEPTH_COUNT` branches in a row, from these rows of the table."""
        ...


class RegretGrower:
    """Splits where the regret of the best clock on either side adds up to least.

    Every leaf takes the clock of least mean regret over its jobs. Unlike a classifier it does not
    mind which of two clocks a job is given that cost the same, and it minds the more, the more
    the wrong one costs.
    """

    def __init__(self, table: CurveTable) -> None:
        """Lay out every place at which the jobs of the table can be divided."""
        self._regrets = table.regrets
        self._columns, self._thresholds, self._is_low = _splits(table.values)

    def grow(self, jobs: Sequence[int], least_leaf_count: int) -> Grown:
        """Recursive partitioning, the best split at a time."""
        return self._grow(np.asarray(jobs), least_leaf_count, MOST_DEPTH_COUNT)

    def _grow(self, jobs: np.ndarray, least_leaf_count: int, depth_count: int) -> Grown:
        regrets = self._regrets[jobs]
        totals = regrets.sum(axis=0)
        clock_index = _cheapest(totals)
        leaf = Grown(jobs=tuple(jobs.tolist()), clock_index=clock_index)
        if depth_count == 0 or len(jobs) < 2 * least_leaf_count or not len(self._columns):
            return leaf
        is_low = self._is_low[:, jobs]
        low_totals = is_low @ regrets
        costs = low_totals.min(axis=1) + (totals - low_totals).min(axis=1)
        low_counts = is_low.sum(axis=1)
        is_small = np.minimum(low_counts, len(jobs) - low_counts) < least_leaf_count
        costs[is_small] = np.inf
        split = int(costs.argmin())
        if not costs[split] < totals[clock_index] * (1.0 - _LEAST_GAIN_RATIO):
            return leaf
        goes_low = is_low[split] > 0
        return Grown(
            jobs=leaf.jobs,
            clock_index=clock_index,
            column_index=int(self._columns[split]),
            threshold=float(self._thresholds[split]),
            low=self._grow(jobs[goes_low], least_leaf_count, depth_count - 1),
            high=self._grow(jobs[~goes_low], least_leaf_count, depth_count - 1),
        )


class LabelGrower:
    """scikit-learn's classifier of best clocks: the published kind of tree."""

    def __init__(self, table: CurveTable) -> None:
        """Take the best clock of each job as its label."""
        self._values = table.values.astype(np.float32)
        self._labels = table.best

    def grow(self, jobs: Sequence[int], least_leaf_count: int) -> Grown:
        """`DecisionTreeClassifier` (Gini impurity) of these jobs."""
        from sklearn import config_context  # noqa: PLC0415 - heavy, only here
        from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415

        rows = np.asarray(jobs)
        model = DecisionTreeClassifier(
            max_depth=MOST_DEPTH_COUNT, min_samples_leaf=least_leaf_count, random_state=0
        )
        # A thousand small trees for one policy: checks would take two thirds of the time.
        with config_context(skip_parameter_validation=True, assume_finite=True):
            model.fit(self._values[rows], self._labels[rows], check_input=False)
        tree = model.tree_
        # The share of each label among the jobs of a node; of two that are equal the faster clock.
        shares = np.asarray(tree.value)[:, 0, ::-1]
        classes = np.asarray(model.classes_)[::-1][shares.argmax(axis=1)]
        parts = _Parts(
            columns=tree.feature.tolist(),
            thresholds=tree.threshold.tolist(),
            low=tree.children_left.tolist(),
            high=tree.children_right.tolist(),
            classes=classes.tolist(),
        )
        return _grown(parts, 0, rows, self._values)


class OneClockGrower:
    """No branches: the fixed clock of least mean regret (`ffg`)."""

    def __init__(self, table: CurveTable) -> None:
        """Take the regrets of the table."""
        self._regrets = table.regrets

    def grow(self, jobs: Sequence[int], least_leaf_count: int) -> Grown:  # noqa: ARG002 - one leaf
        """A single leaf."""
        totals = self._regrets[np.asarray(jobs)].sum(axis=0)
        return Grown(jobs=tuple(jobs), clock_index=_cheapest(totals))


def clock_at(tree: Grown, values: Array, depth_count: int) -> int:
    """Index of the clock that a job of these feature values (F,) gets from a tree cut at a depth.

    Sides that are missing end the way.
    """
    part = tree
    for _ in range(depth_count):
        if part.column_index is None or part.threshold is None:
            break
        side = part.low if values[part.column_index] <= part.threshold else part.high
        if side is None:
            break
        part = side
    return part.clock_index


_LEAST_GAIN_RATIO = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """scikit-learn's arrays of a tree, one entry for each node."""

    columns: list[int]
    thresholds: list[float]
    low: list[int]
    high: list[int]
    classes: list[int]


def _grown(parts: _Parts, node: int, rows: np.ndarray, values: np.ndarray) -> Grown:
    jobs = tuple(rows.tolist())
    if parts.low[node] < 0:
        return Grown(jobs=jobs, clock_index=parts.classes[node])
    column, threshold = parts.columns[node], parts.thresholds[node]
    goes_low = values[rows, column] <= threshold
    return Grown(
        jobs=jobs,
        clock_index=parts.classes[node],
        column_index=column,
        threshold=threshold,
        low=_grown(parts, parts.low[node], rows[goes_low], values),
        high=_grown(parts, parts.high[node], rows[~goes_low], values),
    )


def _splits(values: Array) -> tuple[np.ndarray, Array, Array]:
    """Column, threshold and who goes low (K, n), for every middle between neighbouring values."""
    columns, thresholds, rows = [], [], []
    for column in range(values.shape[1]):
        known = np.unique(values[:, column])
        for middle in (known[1:] + known[:-1]) / 2.0:
            columns.append(column)
            thresholds.append(middle)
            rows.append((values[:, column] <= middle).astype(float))
    is_low = np.array(rows, float).reshape(len(rows), len(values))
    return np.array(columns, int), np.array(thresholds, float), is_low


def _cheapest(totals: Array) -> int:
    """Index of the least; of several that are equal the fastest clock."""
    return int(len(totals) - 1 - totals[::-1].argmin())
