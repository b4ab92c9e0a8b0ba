"""Learning a policy from curves, its size by leave-one-out cross-validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.finetuning import ClockCurve
from joulewise.finetune.characterisation import NEAR_RATIO
from joulewise.finetune.policies.curve_table import Array, CurveTable, curve_table
from joulewise.finetune.policies.growing import (
    LEAST_LEAF_COUNTS,
    MOST_DEPTH_COUNT,
    Grower,
    Grown,
    LabelGrower,
    OneClockGrower,
    RegretGrower,
    clock_at,
)
from joulewise.finetune.policies.trees import rules_of
from joulewise.store.policies import (
    ClockExpectation,
    PolicyDocument,
    PolicyFigures,
    PolicyKind,
    PolicyNode,
    TrainedJob,
)

_GROWERS: Mapping[PolicyKind, type[LabelGrower | RegretGrower | OneClockGrower]] = MappingProxyType(
    {
        PolicyKind.TREE: LabelGrower,
        PolicyKind.REGRET: RegretGrower,
        PolicyKind.FFG: OneClockGrower,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSize:
    """How far a tree may grow: branches in a row, and fewest jobs in a leaf."""

    most_depth_count: int
    least_leaf_count: int


def train_policy(
    curves: Sequence[ClockCurve], kind: PolicyKind, *, uses_utilisation: bool = False
) -> PolicyDocument:
    """Learn a policy.

    Of all sizes of the tree, the one of least mean regret on left-out jobs is taken, of equal
    ones the smallest. What is said of left-out jobs is nested: each of them is left out of the
    choice of the size, too.

    Args:
        curves: One curve per job, all at the same clocks of one device.
        kind: How clocks are found.
        uses_utilisation: Whether to learn from how busy the GPU was. It says much of small models,
            but nobody knows it before a first run.

    Raises:
        InputError: curves that cannot be laid side by side; see `curve_table`.
    """
    table = curve_table(curves, uses_utilisation=uses_utilisation)
    return _document(table, _Forest(table, kind), kind, ())


def train_policies(
    curves: Sequence[ClockCurve], kind: PolicyKind
) -> tuple[PolicyDocument, tuple[PolicyDocument, ...]]:
    """Learn a policy, and for every job one of all others, in the order of the jobs.

    What those say of jobs that were left out of them besides is what the one policy says.
    Raises InputError as `train_policy` does.
    """
    table = curve_table(curves)
    forest = _Forest(table, kind)
    whole = _document(table, forest, kind, ())
    return whole, tuple(
        _document(table, forest, kind, (job,), whole) for job in range(len(table.curves))
    )


def _document(
    table: CurveTable,
    forest: _Forest,
    kind: PolicyKind,
    left_out: tuple[int, ...],
    whole: PolicyDocument | None = None,
) -> PolicyDocument:
    """The policy of all jobs but these; `whole` is that of all, where it is known."""
    size = forest.best_size(left_out)
    tree = forest.tree(left_out, size.least_leaf_count)
    nodes = tuple(_nodes(tree, table, size.most_depth_count))
    first = table.curves[0]
    if whole is None:
        chosen = [forest.left_out_clock_index(job) for job in range(len(table.curves))]
        jobs, figures = _trained(table, chosen), _figures(table, chosen)
    else:
        jobs, figures = whole.training_jobs, whole.left_out
    return PolicyDocument(
        policy=kind.value,
        kind=kind,
        device=first.device,
        device_name=first.device_name,
        is_simulated=any(curve.is_simulated for curve in table.curves),
        sm_clocks_mhz=table.sm_clocks_mhz,
        features=table.names,
        rules=rules_of(nodes),
        nodes=nodes,
        training_jobs=tuple(one for row, one in enumerate(jobs) if row not in left_out),
        most_depth_count=size.most_depth_count,
        least_leaf_count=size.least_leaf_count,
        left_out=figures,
        caveats=_doubts(table.curves),
    )


class _Forest:
    """Trees of all jobs but one or two: enough for cross-validation within cross-validation."""

    def __init__(self, table: CurveTable, kind: PolicyKind) -> None:
        self._table = table
        self._grower: Grower = _GROWERS[kind](table)
        is_one_leaf = kind is PolicyKind.FFG
        self._depth_counts = (0,) if is_one_leaf else tuple(range(MOST_DEPTH_COUNT + 1))
        self._leaf_counts = (1,) if is_one_leaf else LEAST_LEAF_COUNTS
        self._trees: dict[tuple[tuple[int, ...], int], Grown] = {}
        self._sizes: dict[tuple[int, ...], TreeSize] = {}

    def tree(self, left_out: tuple[int, ...], least_leaf_count: int) -> Grown:
        """The tree of all jobs but these; which of two comes first makes no difference."""
        key = (tuple(sorted(left_out)), least_leaf_count)
        if key not in self._trees:
            jobs = [job for job in range(len(self._table.curves)) if job not in left_out]
            self._trees[key] = self._grower.grow(jobs, least_leaf_count)
        return self._trees[key]

    def left_out_clock_index(self, job: int) -> int:
        """What a job gets from a tree whose size and shape it had no part in."""
        size = self.best_size((job,))
        tree = self.tree((job,), size.least_leaf_count)
        return clock_at(tree, self._table.values[job], size.most_depth_count)

    def best_size(self, left_out: tuple[int, ...]) -> TreeSize:
        """The size of least regret by leave-one-out among the jobs that are there."""
        if left_out not in self._sizes:
            self._sizes[left_out] = min(
                self._candidates(),
                key=lambda size: (
                    round(self._regret(left_out, size), 12),
                    size.most_depth_count,
                    -size.least_leaf_count,
                ),
            )
        return self._sizes[left_out]

    def _candidates(self) -> Iterator[TreeSize]:
        for leaf_count in self._leaf_counts:
            for depth_count in self._depth_counts:
                yield TreeSize(most_depth_count=depth_count, least_leaf_count=leaf_count)

    def _regret(self, left_out: tuple[int, ...], size: TreeSize) -> float:
        """Sum of the regrets of jobs that are left out one at a time besides these."""
        total = 0.0
        for job in range(len(self._table.curves)):
            if job not in left_out:
                tree = self.tree((*left_out, job), size.least_leaf_count)
                index = clock_at(tree, self._table.values[job], size.most_depth_count)
                total += float(self._table.regrets[job, index])
        return total


def _nodes(tree: Grown, table: CurveTable, depth_count: int) -> Iterator[PolicyNode]:
    """The tree cut at a depth; a branch whose leaves all have one clock is a leaf."""
    clocks = _leaf_clocks(tree, depth_count)
    low, high = tree.low, tree.high
    if len(clocks) == 1 or low is None or high is None or tree.column_index is None:
        yield _leaf(tree, table, clocks.pop())
        return
    yield PolicyNode(
        feature=table.names[tree.column_index],
        threshold=tree.threshold,
        is_high_if_unknown=len(high.jobs) > len(low.jobs),
    )
    yield from _nodes(low, table, depth_count - 1)
    yield from _nodes(high, table, depth_count - 1)


def _leaf_clocks(tree: Grown, depth_count: int) -> set[int]:
    if depth_count == 0 or tree.low is None or tree.high is None:
        return {tree.clock_index}
    return _leaf_clocks(tree.low, depth_count - 1) | _leaf_clocks(tree.high, depth_count - 1)


def _leaf(tree: Grown, table: CurveTable, clock_index: int) -> PolicyNode:
    rows = np.asarray(tree.jobs)
    energies = _geometric_means(table.energy_ratios[rows])
    slowdowns = _geometric_means(table.slowdown_ratios[rows])
    worst = table.slowdown_ratios[rows].max(axis=0)
    return PolicyNode(
        sm_clock_mhz=table.sm_clocks_mhz[clock_index],
        jobs=tuple(table.curves[row].job for row in tree.jobs),
        expectations=tuple(
            ClockExpectation(
                sm_clock_mhz=clock,
                energy_ratio=float(energies[index]),
                slowdown_ratio=float(slowdowns[index]),
                worst_slowdown_ratio=float(worst[index]),
            )
            for index, clock in enumerate(table.sm_clocks_mhz)
        ),
    )


def _geometric_means(ratios: Array) -> Array:
    return np.asarray(np.exp(np.log(ratios).mean(axis=0)))


def _trained(table: CurveTable, chosen: Sequence[int]) -> tuple[TrainedJob, ...]:
    return tuple(
        TrainedJob(
            job=curve.job,
            features=table.features[row],
            best_sm_clock_mhz=table.sm_clocks_mhz[table.best[row]],
            left_out_sm_clock_mhz=table.sm_clocks_mhz[chosen[row]],
        )
        for row, curve in enumerate(table.curves)
    )


def _figures(table: CurveTable, chosen: Sequence[int]) -> PolicyFigures:
    picked = np.asarray(chosen)
    regrets = table.regrets[np.arange(len(picked)), picked]
    return PolicyFigures(
        accuracy_ratio=float((picked == table.best).mean()),
        within_band_ratio=float((regrets <= NEAR_RATIO).mean()),
        mean_regret_ratio=float(regrets.mean()),
        worst_regret_ratio=float(regrets.max()),
    )


def _doubts(curves: Sequence[ClockCurve]) -> tuple[Caveat, ...]:
    """Those of the curves; that they are simulated is a field of its own."""
    return first_of_each_kind(
        *(
            caveat
            for curve in curves
            for caveat in (*curve.caveats, *curve.baseline.caveats)
            if caveat.kind is not CaveatKind.SIMULATED_DEVICE
        )
    )
