"""What fuzzing of traces feeds: the reader of Kineto traces, with pieces of a few bytes.

What must not happen raises `Broken`; a refusal in one sentence is as good as a trace.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from tests.traces import KinetoTrace, training_trace

from joulewise.domain.errors import InputError
from joulewise.domain.trace import ProfilerTrace
from joulewise.store.importers.traces.kineto import read_kineto

BLOCK_BYTE_COUNT = 200


class Broken(AssertionError):
    """Something came out that no file may bring about."""


def seeds() -> tuple[bytes, ...]:
    """Small traces: a training step, a bare list, a replayed graph, oddities of old profilers."""
    graph = KinetoTrace()
    graph.op("around", 100, 50, dims=[[2, 3], []], types=["float", "Scalar"], concrete=["", "1"])
    graph.launch("replayed", 200, 5, at=120, runtime="cudaGraphLaunch")
    graph.gpu_mark("ProfilerStep#3", 190, 90)
    training = training_trace(step_count=1, rank_count=8)
    return (
        json.dumps(training.document()).encode(),
        json.dumps(training.events).encode(),
        json.dumps(graph.document(), indent=1).encode(),
        b'[{"ph":"X","cat":"Kernel","name":"k","ts":"1.5","dur":2,"pid":0,"tid":7}]',
        (
            b'{"a":NaN,"traceEvents":[{"ph":"X","cat":"kernel","ts":1e3,"dur":1e400},'
            b'{"ph":"X","cat":"kernel","ts":2e3,"dur":1},{}],"z":[{},{}]}'
        ),
    )


class KinetoTarget:
    """Reads inputs from one file of its own."""

    def __enter__(self) -> Self:
        memory = Path("/dev/shm")  # noqa: S108 - where files are in memory; only names are random
        self._folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self._path = Path(self._folder.name) / "trace.json"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def feed(self, raw: bytes) -> ProfilerTrace | None:
        """Read one input; none where it is refused."""
        self._path.write_bytes(raw)
        try:
            trace = read_kineto(self._path, block_byte_count=BLOCK_BYTE_COUNT)
        except InputError as error:
            if not error.hint or not str(error).startswith(str(self._path)):
                raise Broken(f"this does not help: {error}") from error
            return None
        _judge(trace)
        return trace


def _judge(trace: ProfilerTrace) -> None:
    """Refuse what no trace may hold, whatever the file says."""
    launch_count = len(trace.start_s)
    lengths = {
        len(trace.signature_index), len(trace.duration_s), len(trace.gpu), len(trace.stream),
        len(trace.passes), len(trace.step_index), len(trace.is_in_step),
        len(trace.is_graph_launch),
    }  # fmt: skip
    if not 0 < launch_count <= trace.kernel_count or {launch_count} != lengths:
        raise Broken("columns are of different lengths")
    if np.any(trace.duration_s < 0.0) or np.any(np.diff(trace.start_s) < 0.0) or trace.start_s[0]:
        raise Broken("time runs backwards")
    if trace.kernel_count != sum(total.launch_count for total in trace.totals):
        raise Broken("the totals are not of all kernels")
    if len({total.name for total in trace.totals}) != len(trace.totals):
        raise Broken("a kernel is summed up twice")
    if np.any(trace.is_in_step) and np.max(trace.step_index) >= len(trace.steps):
        raise Broken("a kernel is in a step that is none")
    repr(trace.signatures).encode()
    repr(trace.totals).encode()
