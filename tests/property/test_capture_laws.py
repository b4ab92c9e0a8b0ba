"""Laws of captures, for any launches."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.profiler_traces import Ran, profiler_trace, scalar, tensor

from joulewise.domain.gaps import is_gap
from joulewise.domain.points import OperatingPoint
from joulewise.domain.trace import Collective, KernelSignature
from joulewise.domain.workload import KernelKind, Workload
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset
from joulewise.store.workload_files import WORK_BOUNDS
from joulewise.workload.capture.capture import captured_workload
from joulewise.workload.capture.choice import CaptureChoice
from joulewise.workload.capture.intervals import cover
from joulewise.workload.capture.repetition import best_of, repetitions
from joulewise.workload.capture.units import gaps_of, units_of

SIGNATURES = (
    KernelSignature(
        name="sm90_xmma_gemm_bf16",
        op="aten::mm",
        inputs=(tensor(512, 1024, dtype="c10::BFloat16"), tensor(1024, 256, dtype="c10::BFloat16")),
    ),
    KernelSignature(
        name="sm90_xmma_gemm_bf16",
        op="aten::mm",
        inputs=(tensor(512, 1024), tensor(1000, 256)),
    ),
    KernelSignature(name="gelu", op="aten::gelu", inputs=(tensor(4096, 4096), scalar("none"))),
    KernelSignature(name="layer_norm_backward"),
    KernelSignature(name="gemm_without_shapes"),
    KernelSignature(name="empty", op="aten::add", inputs=(tensor(0, 7),)),
    KernelSignature(name="ncclDevKernel_AllReduce"),
    KernelSignature(
        name="ncclDevKernel_AllGather",
        collective=Collective(
            name="allgather",
            dtype="BFloat16",
            input_element_count=1000,
            output_element_count=8000,
            group_gpu_count=8,
        ),
    ),
)


@st.composite
def launches(draw: st.DrawFn) -> list[Ran]:
    """Up to 24 launches on three streams; those of one stream do not overlap."""
    ran: list[Ran] = []
    at = dict.fromkeys(range(3), 0)
    for _ in range(draw(st.integers(1, 24))):
        stream = draw(st.integers(0, 2))
        start = at[stream] + draw(st.sampled_from((0, 1, 400, 3_000, 70_000)))
        duration = draw(st.sampled_from((1, 900, 2_500, 30_000, 400_000)))
        at[stream] = start + duration
        ran.append(
            Ran(
                kernel=draw(st.sampled_from(SIGNATURES)),
                start_us=start / 1000,
                duration_us=duration / 1000,
                stream=stream,
            )
        )
    return ran


def captured(ran: list[Ran], device_name: str | None = "NVIDIA H100 80GB HBM3") -> Workload:
    marked = [dataclasses.replace(one, step=0) for one in ran]
    trace = profiler_trace(marked, steps=[("step 0", 0, 1e6)], device_name=device_name)
    return captured_workload(trace, CaptureChoice())


@given(launches(), st.sampled_from(("NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB", None)))
@settings(max_examples=400, deadline=None)
def test_every_kernel_has_one_work_that_a_workload_file_takes(
    ran: list[Ran], device_name: str | None
) -> None:
    workload = captured(ran, device_name)

    named = Counter(work.kernel for work in workload.works)
    assert set(workload.kernels) == set(named)
    assert {1} == set(named.values())
    for work in workload.works:
        assert 0 < len(work.kernel) <= 80
        assert work.kernel.isprintable()
        assert work.flop_count + work.traffic_bytes >= 1 or work.wait_s > 0
        assert work.wait_s >= 0
        assert (work.kind is KernelKind.GAP) == is_gap(work.kernel)
        for field, (lowest, highest) in WORK_BOUNDS.items():
            assert lowest <= getattr(work, field) <= highest


@given(launches())
@settings(max_examples=400, deadline=None)
def test_an_iteration_is_its_busy_time_and_its_gaps(ran: list[Ran]) -> None:
    workload = captured(ran)

    trace = workload.trace
    assert trace is not None
    waits = {work.kernel: work.wait_s for work in workload.works if work.kind is KernelKind.GAP}
    gaps = [waits[launch.kernel] for launch in workload.launches if launch.kernel in waits]
    assert trace.gap_s == pytest.approx(math.fsum(gaps), rel=1e-9, abs=1e-15)
    assert trace.duration_s == pytest.approx(trace.busy_s + trace.gap_s, rel=1e-9, abs=1e-15)
    assert len(ran) == len(trace.launches)
    assert math.fsum(one.duration_s for one in trace.launches) == pytest.approx(
        math.fsum(one.time_s for one in trace.kernels), rel=1e-9
    )
    assert trace.busy_s <= trace.duration_s * (1 + 1e-9)


@given(launches())
@settings(max_examples=40, deadline=None)
def test_units_cover_busy_time_once_and_hold_every_launch_once(ran: list[Ran]) -> None:
    in_order = sorted(ran, key=lambda one: one.start_us)
    start = np.array([round(one.start_us * 1000) for one in in_order], dtype=np.int64)
    end = start + np.array([round(one.duration_us * 1000) for one in in_order], dtype=np.int64)
    streams = np.array([one.stream for one in in_order], dtype=np.int64)

    units = units_of(start, end, streams)

    members = [member for unit in units for member in unit.members]
    assert list(range(len(in_order))) == members
    busy_ns = sum(unit.duration_ns for unit in units)
    assert round(cover(start, end).busy_s * 1e9) == busy_ns
    assert all(one.end_ns <= two.start_ns for one, two in pairwise(units))
    idle_ns = sum(gap.duration_ns for gap in gaps_of(units, int(end.max()) + 5_000))
    assert int(end.max()) + 5_000 - int(start.min()) == busy_ns + idle_ns


@given(launches())
@settings(max_examples=400, deadline=None)
def test_cover_is_what_counting_nanosecond_by_nanosecond_gives(ran: list[Ran]) -> None:
    start = np.array([round(one.start_us) for one in ran], dtype=np.int64)
    end = start + np.array([round(one.duration_us) for one in ran], dtype=np.int64)
    depth: Counter[int] = Counter()
    for first, last in zip(start.tolist(), end.tolist(), strict=True):
        depth.update(range(first, last))

    found = cover(start, end)

    assert len(depth) == round(found.busy_s * 1e9)
    assert sum(1 for count in depth.values() if count > 1) == round(found.overlap_s * 1e9)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
    st.lists(st.integers(6, 9), max_size=30),
    st.lists(st.integers(10, 12), max_size=30),
    st.integers(3, 6),
)
@settings(max_examples=80, deadline=None)
def test_copies_of_a_sequence_are_found_behind_a_prologue(
    sequence: list[int], prologue: list[int], epilogue: list[int], copy_count: int
) -> None:
    assume(_is_primitive(sequence))
    symbols = np.array([*prologue, *sequence * copy_count, *epilogue], dtype=np.int64)
    # What repeats besides must be shorter, or it is what the whole consists of.
    assume(len(prologue) + len(epilogue) < len(sequence) * copy_count / 2)

    found = best_of(repetitions(symbols))

    assert found is not None
    assert len(sequence) == found.period_count
    assert len(prologue) == found.start_index
    assert len(prologue) + len(sequence) * copy_count == found.end_index


def _is_primitive(sequence: list[int]) -> bool:
    """Whether a sequence is no repetition itself."""
    doubled = [*sequence, *sequence]
    return all(
        doubled[shift : shift + len(sequence)] != sequence for shift in range(1, len(sequence))
    )


@pytest.mark.parametrize(
    ("board", "device_name", "least_ratio", "most_ratio"),
    [
        # At auto the clock is up to 8 % above that of the printed peak of its tensor cores.
        ("h100-sxm", "NVIDIA H100 80GB HBM3", 0.92, 1.001),
        # Another overlap of computing and traffic than that of the H100, which captures assume.
        ("a100-sxm", "NVIDIA A100-SXM4-40GB", 0.98, 1.001),
        # Both of these, and a shorter launch.
        ("rtx3080ti", "NVIDIA GeForce RTX 3080 Ti", 0.86, 1.001),
        ("rtx4090", "NVIDIA GeForce RTX 4090", 0.83, 1.05),
    ],
)
@given(
    st.lists(st.sampled_from(SIGNATURES[:1] + SIGNATURES[2:7]), min_size=1, max_size=12),
    st.floats(10.0, 900.0),
    st.floats(0.0, 50.0),
)
@settings(max_examples=100, deadline=None)
def test_a_virtual_gpu_of_the_traced_kind_takes_about_the_traced_time(  # noqa: PLR0913, PLR0917 - a table
    board: str,
    device_name: str,
    least_ratio: float,
    most_ratio: float,
    signatures: list[KernelSignature],
    duration_us: float,
    gap_us: float,
) -> None:
    ran = [
        Ran(kernel=one, start_us=index * (duration_us + gap_us), duration_us=duration_us)
        for index, one in enumerate(signatures)
    ]
    workload = captured(ran, device_name)
    assert workload.trace is not None

    time_s = steady_state(preset(board), workload.works, [OperatingPoint()]).time_s[:, 0]
    by_kernel = dict(zip((one.kernel for one in workload.works), time_s.tolist(), strict=True))

    total_s = math.fsum(by_kernel[launch.kernel] for launch in workload.launches)
    assert least_ratio <= total_s / workload.trace.duration_s <= most_ratio
