"""From a kernel to the moment on the host that launched it, its operation and its pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.passes import Pass, is_communication_kernel
from joulewise.store.importers.traces.annotations import pass_of_annotation
from joulewise.store.importers.traces.kineto_columns import ABSENT, KinetoColumns
from joulewise.store.importers.traces.kineto_nesting import (
    FORWARD_BY_SEQUENCE,
    NO_PASS,
    Intervals,
    enclosed,
)
from joulewise.store.importers.traces.kineto_processes import (
    AMBIGUOUS,
    launch_rows,
    processes_of,
    rows_of_process,
)

IntColumn = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]
Columns = dict[str, IntColumn]

_PASSES = tuple(Pass)
_CODES = {each: code for code, each in enumerate(_PASSES, start=NO_PASS + 1)}
_GRAPH_LAUNCH = "GraphLaunch"
# What tells stands at the beginning of a name, however long it is.
_READ_CHARACTER_COUNT = 1_000
# Operators are namespace::name; one that is named forward may run in a backward pass.
_OPERATOR = "::"
# Old traces hold whole microseconds, cut off: a launch may seem to lie this far outside its op.
_SLACK_NS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """For each kernel, shape (kernels,): where the profiler does not say, `op` is -1.

    `host_time` is when it was launched, in nanoseconds; it means nothing where `is_launch_known`
    is false. `is_ambiguous`: several processes may have launched it.
    """

    host_time: IntColumn
    is_launch_known: BoolColumn
    is_ambiguous: BoolColumn
    is_graph: BoolColumn
    op: IntColumn
    passes: tuple[Pass | None, ...]


def linked(columns: KinetoColumns, kernels: Columns, ops: Columns) -> Links:
    """Follow correlation to the launch, external id or time to the operation."""
    launches = columns.launches.columns()
    names = columns.names.values()
    process = processes_of(columns.owners.values())
    launch = launch_rows(
        kernels["correlation"],
        kernels["gpu"],
        launches["correlation"],
        _taken(process, launches["owner"]),
    )
    is_ambiguous = launch == AMBIGUOUS
    is_launched = launch >= 0
    host_time = _taken(launches["start"], launch)
    owner = _taken(launches["owner"], launch)
    is_graph = kernels["is_graph"].astype(np.bool_) | _is_graph_launch(launches, launch, names)

    own_process = np.where(is_launched, _taken(process, owner), ABSENT)
    op = rows_of_process(
        kernels["external"], own_process, ops["external"], _taken(process, ops["owner"])
    )
    op = np.where(_is_meant(op, kernels, ops, host_time, is_launched), op, ABSENT)
    # Where only the operation is known, the kernel was launched while it ran.
    is_only_op = ~is_launched & (op != ABSENT)
    host_time = np.where(is_only_op, _taken(ops["start"], op), host_time)
    owner = np.where(is_only_op, _taken(ops["owner"], op), owner)
    is_known = is_launched | is_only_op

    around = enclosed(host_time[is_known], owner[is_known], _host_intervals(columns, ops, names))
    innermost = np.full(len(op), ABSENT, dtype=np.int64)
    innermost[is_known] = around.op
    op = np.where(op == ABSENT, innermost, op)
    # A replayed graph's kernels belong to operations that ran when it was captured.
    op = np.where(is_graph, ABSENT, op)

    codes = np.full(len(op), NO_PASS, dtype=np.int64)
    weak = around.is_forward_by_sequence & (around.pass_code == NO_PASS)
    codes[is_known] = np.where(weak, _CODES[Pass.FORWARD], around.pass_code)
    codes[~is_known] = _gpu_codes(columns, kernels, ~is_known, names)
    codes[_is_communication(kernels, names)] = _CODES[Pass.COMMUNICATION]
    return Links(
        host_time=host_time,
        is_launch_known=is_known,
        is_ambiguous=is_ambiguous & ~is_only_op,
        is_graph=is_graph,
        op=op,
        passes=tuple(_PASSES[code - 1] if code else None for code in codes.tolist()),
    )


def _taken(column: IntColumn, row: IntColumn) -> IntColumn:
    if not len(column):
        return np.zeros(len(row), dtype=np.int64)
    return column[np.maximum(row, 0)]


def _is_graph_launch(launches: Columns, launch: IntColumn, names: tuple[str, ...]) -> BoolColumn:
    is_graph = np.array([_GRAPH_LAUNCH in name for name in names], dtype=np.bool_)
    found: BoolColumn = (launch >= 0) & is_graph[_taken(launches["name"], launch)]
    return found


def _is_meant(
    op: IntColumn, kernels: Columns, ops: Columns, host_time: IntColumn, is_launched: BoolColumn
) -> BoolColumn:
    """Whether the operation of the external id is what the profiler means.

    Old profilers wrote the correlation there, which may be the number of any operation: the
    launch must lie in it.
    """
    is_inside = (_taken(ops["start"], op) - _SLACK_NS <= host_time) & (
        host_time <= _taken(ops["end"], op) + _SLACK_NS
    )
    is_other = kernels["external"] != kernels["correlation"]
    return (op >= 0) & np.where(is_launched, is_inside, is_other)


def _host_intervals(columns: KinetoColumns, ops: Columns, names: tuple[str, ...]) -> Intervals:
    """Operations and marks of the host; marks come first, so that they are the outer ones."""
    marks = columns.marks.columns()
    no_op = np.full(len(marks["start"]), ABSENT, dtype=np.int64)
    return Intervals(
        start=np.concatenate((marks["start"], ops["start"])),
        end=np.concatenate((marks["end"], ops["end"])),
        owner=np.concatenate((marks["owner"], ops["owner"])),
        op=np.concatenate((no_op, np.arange(len(ops["start"]), dtype=np.int64))),
        pass_code=np.concatenate((_mark_codes(marks["name"], names), _op_codes(ops, names))),
    )


def _mark_codes(name: IntColumn, names: tuple[str, ...]) -> IntColumn:
    codes = np.zeros(len(names) or 1, dtype=np.int64)
    for number in np.unique(name).tolist():
        found = pass_of_annotation(names[number])
        codes[number] = NO_PASS if found is None else _CODES[found]
    return codes[name]


def _op_codes(ops: Columns, names: tuple[str, ...]) -> IntColumn:
    is_operator = np.array([_OPERATOR in name for name in names] or [False], dtype=np.bool_)
    by_name = _mark_codes(ops["name"], names)
    by_name[is_operator[ops["name"]] & (by_name == _CODES[Pass.FORWARD])] = NO_PASS
    is_backward = ops["forward_thread"] > 0
    returned = ops["sequence"][is_backward & (ops["sequence"] != ABSENT)]
    is_forward = ~is_backward & np.isin(ops["sequence"], returned)
    codes = np.where(is_forward & (by_name == NO_PASS), FORWARD_BY_SEQUENCE, by_name)
    return np.where(is_backward, _CODES[Pass.BACKWARD], codes)


def _gpu_codes(
    columns: KinetoColumns, kernels: Columns, which: BoolColumn, names: tuple[str, ...]
) -> IntColumn:
    """Passes of kernels whose launch is unknown, by the marks that the profiler put on the GPU."""
    marks = columns.gpu_marks.columns()
    streams = np.concatenate((
        np.stack((kernels["gpu"][which], kernels["stream"][which]), axis=1),
        np.stack((marks["gpu"], marks["stream"]), axis=1),
    ))  # fmt: skip
    _, owner = np.unique(streams, axis=0, return_inverse=True)
    owner = owner.reshape(-1).astype(np.int64)
    kernel_count = int(which.sum())
    intervals = Intervals(
        start=marks["start"],
        end=marks["end"],
        owner=owner[kernel_count:],
        op=np.full(len(marks["start"]), ABSENT, dtype=np.int64),
        pass_code=_mark_codes(marks["name"], names),
    )
    return enclosed(kernels["start"][which], owner[:kernel_count], intervals).pass_code


def _is_communication(kernels: Columns, names: tuple[str, ...]) -> BoolColumn:
    is_collective = np.array(
        [is_communication_kernel(name[:_READ_CHARACTER_COUNT]) for name in names], dtype=np.bool_
    )
    found: BoolColumn = (kernels["collective"] != ABSENT) | is_collective[kernels["name"]]
    return found
