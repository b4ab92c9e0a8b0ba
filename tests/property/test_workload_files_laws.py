"""Any workload is read as it was written; any damage is read or refused, never worse."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.traced_workloads import traced_workload

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.trace import (
    Collective,
    IterationTrace,
    KernelSignature,
    OpInput,
    TracedKernel,
    TracedLaunch,
)
from joulewise.domain.workload import (
    Dtype,
    IterationSize,
    KernelKind,
    KernelWork,
    Launch,
    Pass,
    Workload,
)
from joulewise.store.documents import read_workload, write_workload

LABELS = ("gemm", "softmax", "größe ≥ 2", 'a "quoted" name', "x" * 80)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
TIMES = st.floats(0.0, 1e6, allow_subnormal=False)
COUNTS = st.none() | st.integers(1, 10**7)
EXTENTS = st.none() | st.tuples(*[st.integers(1, 2**31 - 1)] * 3)

INPUTS = st.builds(
    OpInput,
    shape=st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
    dtype=st.none() | TEXTS,
    value=st.none() | TEXTS,
)
COLLECTIVES = st.builds(
    Collective,
    name=st.none() | TEXTS,
    dtype=st.none() | TEXTS,
    input_element_count=COUNTS,
    output_element_count=COUNTS,
    group_gpu_count=COUNTS,
)
SIGNATURES = st.builds(
    KernelSignature,
    name=TEXTS,
    grid=EXTENTS,
    block=EXTENTS,
    shared_memory_bytes=st.none() | st.integers(0, 2**20),
    register_count=st.none() | st.integers(0, 255),
    op=st.none() | TEXTS,
    inputs=st.lists(INPUTS, max_size=3).map(tuple),
    collective=st.none() | COLLECTIVES,
)
LAUNCHES = st.builds(Launch, kernel=st.sampled_from(LABELS), pass_=st.sampled_from(Pass))
SIZES = st.builds(
    IterationSize,
    gpu_count=st.integers(8, 10**7),
    node_gpu_count=st.none() | st.integers(1, 8),
    token_count=COUNTS,
    parameter_count=COUNTS,
    model_flop_count=st.none() | st.floats(1.0, 1e30),
    kernel_flop_count=st.none() | st.floats(1.0, 1e30),
    dtype=st.none() | st.sampled_from(Dtype),
)
CAVEATS = st.builds(Caveat, kind=st.sampled_from(CaveatKind), seen=TEXTS, advice=st.none() | TEXTS)


@st.composite
def works(draw: st.DrawFn) -> tuple[KernelWork, ...]:
    """The works of some kernels; a gap has a wait alone."""
    made = []
    for label in draw(st.lists(st.sampled_from(LABELS), unique=True)):
        kind = draw(st.sampled_from(KernelKind))
        is_gap = kind is KernelKind.GAP
        made.append(
            KernelWork(
                kernel=label,
                kind=kind,
                dtype=draw(st.sampled_from(Dtype)),
                flop_count=0.0 if is_gap else draw(st.floats(1.0, 1e20)),
                traffic_bytes=0.0 if is_gap else draw(st.floats(0.0, 1e17)),
                compute_efficiency_ratio=draw(st.floats(1e-6, 1.0)),
                memory_efficiency_ratio=draw(st.floats(1e-6, 1.0)),
                core_activity_ratio=draw(st.floats(0.0, 10.0)),
                memory_activity_ratio=draw(st.floats(0.0, 10.0)),
                clock_offset_ratio=draw(st.floats(-0.5, 0.5)),
                wait_s=draw(st.floats(1e-9 if is_gap else 0.0, 3600.0)),
            )
        )
    return tuple(made)


@st.composite
def traces(draw: st.DrawFn) -> IterationTrace:
    """A traced iteration whose launches are of its kernels."""
    labels = draw(st.lists(st.sampled_from(LABELS), unique=True, min_size=1))
    return IterationTrace(
        tool=draw(TEXTS),
        file=draw(TEXTS),
        gpu=draw(st.integers(0, 15)),
        device_name=draw(st.none() | TEXTS),
        rank=draw(st.none() | st.integers(0, 10**5)),
        rank_count=draw(COUNTS),
        step=draw(st.none() | TEXTS),
        iteration_count=draw(st.integers(1, 10**6)),
        duration_s=draw(TIMES),
        busy_s=draw(TIMES),
        overlap_s=draw(TIMES),
        gap_s=draw(TIMES),
        kernels=tuple(
            TracedKernel(
                kernel=label,
                signature=draw(SIGNATURES),
                launch_count=draw(st.integers(0, 10**6)),
                time_s=draw(TIMES),
            )
            for label in labels
        ),
        launches=tuple(
            draw(
                st.lists(
                    st.builds(
                        TracedLaunch,
                        kernel=st.sampled_from(labels),
                        pass_=st.sampled_from(Pass),
                        stream=st.integers(-(2**62), 2**62),
                        start_s=TIMES,
                        duration_s=TIMES,
                        is_graph_launch=st.booleans(),
                    ),
                    max_size=6,
                )
            )
        ),
        trace_kernel_count=draw(st.integers(0, 10**9)),
        trace_kernel_time_s=draw(TIMES),
    )


WORKLOADS = st.builds(
    Workload,
    name=st.sampled_from(LABELS),
    launches=st.lists(LAUNCHES, min_size=1, max_size=12).map(tuple),
    works=works(),
    size=st.none() | SIZES,
    trace=st.none() | traces(),
    caveats=st.lists(CAVEATS, max_size=3).map(tuple),
)


@given(workload=WORKLOADS)
@settings(deadline=None, max_examples=60)
def test_any_workload_is_read_as_it_was_written(workload: Workload) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "workload.json"
        write_workload(workload, path)

        assert workload == read_workload(path)


def _written(workload: Workload) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "workload.json"
        write_workload(workload, path)
        return path.read_bytes()


WHOLE = _written(replace(traced_workload(), works=traced_workload().works[:2]))


def read_or_refuse(raw: bytes) -> Workload | InputError:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "workload.json"
        path.write_bytes(raw)
        try:
            return read_workload(path)
        except InputError as error:
            return error


@given(
    cut=st.none() | st.integers(0, len(WHOLE)),
    flips=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=4),
)
@settings(deadline=None, max_examples=150)
def test_a_damaged_traced_workload_is_read_or_refused(
    cut: int | None, flips: list[tuple[int, int]]
) -> None:
    damaged = bytearray(WHOLE)
    for place, byte in flips:
        damaged[place] = byte

    found = read_or_refuse(bytes(damaged[:cut]))

    assert found.file is not None if isinstance(found, InputError) else found.launches
