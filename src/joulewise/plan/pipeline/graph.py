"""Operations and what they wait for: an acyclic graph, in levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.errors import PlanError
from joulewise.domain.pipeline import Instruction
from joulewise.domain.sweep import FloatTable, IntTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One instruction of one model chunk of a stage on one micro-batch."""

    stage: int
    instruction: Instruction
    micro_batch: int
    chunk: int = 0

    @property
    def label(self) -> str:
        """For people: `forward of micro-batch 3 on stage 0`."""
        chunk = f", chunk {self.chunk}" if self.chunk else ""
        return f"{self.instruction} of micro-batch {self.micro_batch} on stage {self.stage}{chunk}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OperationGraph:
    """N operations and what each must wait for.

    `edges` (E, 2) holds pairs (before, after), each once. `levels` groups the operations so that
    each comes in a later group than all it waits for. `predecessors` and `successors` (N, …) are
    padded with N, which stands for nothing.
    """

    operations: tuple[Operation, ...]
    edges: IntTable
    levels: tuple[IntTable, ...]
    predecessors: IntTable
    successors: IntTable

    @property
    def reversed(self) -> OperationGraph:
        """The same graph with time running backwards."""
        return OperationGraph(
            operations=self.operations,
            edges=self.edges[:, ::-1],
            levels=self.levels[::-1],
            predecessors=self.successors,
            successors=self.predecessors,
        )


def operation_graph(
    operations: Sequence[Operation], edges: Iterable[tuple[Operation, Operation]]
) -> OperationGraph:
    """Build the graph from any list of dependencies.

    Args:
        operations: Each once.
        edges: Pairs (before, after); repeats are dropped.

    Raises:
        PlanError: An operation twice or unknown, or operations that wait for one another; names
            those on the cycle.
    """
    if not operations:
        raise PlanError("a pipeline needs at least one operation")
    places = {operation: place for place, operation in enumerate(operations)}
    if len(places) < len(operations):
        twice = next(o for place, o in enumerate(operations) if places[o] != place)
        raise PlanError(f"{twice.label} is listed twice")
    pairs = dict.fromkeys((_place(places, a), _place(places, b)) for a, b in edges)
    table = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    count = len(operations)
    predecessors = _padded(table[:, 1], table[:, 0], count)
    return OperationGraph(
        operations=tuple(operations),
        edges=table,
        levels=_levels(tuple(operations), predecessors),
        predecessors=predecessors,
        successors=_padded(table[:, 0], table[:, 1], count),
    )


def earliest_ends(graph: OperationGraph, time_s: FloatTable) -> FloatTable:
    """(N,) or (N, K) when each operation ends if all start as early as they can.

    Args:
        graph: N operations.
        time_s: (N,) times, or (N, K) for K plans at once.
    """
    ends = np.zeros((len(time_s) + 1, *time_s.shape[1:]))
    for level in graph.levels:
        ends[level] = ends[graph.predecessors[level]].max(axis=1) + time_s[level]
    return ends[:-1]


def iteration_time(graph: OperationGraph, time_s: FloatTable) -> float:
    """Length of the longest path: the time of an iteration."""
    return float(earliest_ends(graph, time_s).max())


def _place(places: Mapping[Operation, int], operation: Operation) -> int:
    place = places.get(operation)
    if place is None:
        raise PlanError(f"a dependency names {operation.label}, which is not planned")
    return place


def _padded(keys: IntTable, values: IntTable, count: int) -> IntTable:
    """Row k holds the values of key k, then `count`."""
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    sizes = np.bincount(keys, minlength=count)
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    table = np.full((count, max(1, int(sizes.max(initial=0)))), count, dtype=np.int64)
    table[keys, np.arange(keys.size) - starts[keys]] = values
    return table


def _levels(operations: tuple[Operation, ...], predecessors: IntTable) -> tuple[IntTable, ...]:
    """Peel off, again and again, what waits for nothing that is left."""
    count = len(operations)
    is_done = np.zeros(count + 1, dtype=np.bool_)
    is_done[count] = True
    left = np.arange(count)
    levels = []
    while left.size:
        is_ready = is_done[predecessors[left]].all(axis=1)
        if not is_ready.any():
            raise _cycle_error(operations, predecessors, is_done)
        level = left[is_ready]
        is_done[level] = True
        levels.append(level)
        left = left[~is_ready]
    return tuple(levels)


def _cycle_error(
    operations: tuple[Operation, ...], predecessors: IntTable, is_done: NDArray[np.bool_]
) -> PlanError:
    """Walk back among those left until one comes up again."""
    seen: dict[int, int] = {}
    place = int(np.flatnonzero(~is_done)[0])
    walk: list[int] = []
    while place not in seen:
        seen[place] = len(walk)
        walk.append(place)
        before = predecessors[place]
        place = int(before[~is_done[before]][0])
    cycle = [*walk[seen[place] :], place][::-1]
    return PlanError(
        "operations wait for one another: " + " -> ".join(operations[i].label for i in cycle),
        hint="Remove one of these dependencies.",
    )
