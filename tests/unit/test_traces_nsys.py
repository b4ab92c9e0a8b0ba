"""Exports of Nsight Systems become traces: kernels, steps, passes, operations."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.nsys_files import (
    FIRST_PROCESS,
    SECOND_PROCESS,
    Call,
    Export,
    Kernel,
    Range,
    write_export,
)

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.passes import Pass
from joulewise.domain.trace import Collective, KernelSignature, OpInput, ProfilerTrace
from joulewise.store.importers.traces.nsys import read_nsys

MAIN, AUTOGRAD = FIRST_PROCESS + 1, FIRST_PROCESS + 2


def read_export(folder: Path, export: Export) -> ProfilerTrace:
    return read_nsys(write_export(folder / "export.sqlite", export))


def names(trace: ProfilerTrace) -> list[str]:
    return [trace.signatures[index].name for index in trace.signature_index]


def signature_of(trace: ProfilerTrace, launch: int) -> KernelSignature:
    return trace.signatures[int(trace.signature_index[launch])]


def launched(*texts_and_times: tuple[str, int]) -> tuple[list[Kernel], list[Call]]:
    """Kernels by name, each launched at its time and run 1 µs later."""
    kernels = [
        Kernel(name=name, start=time + 1000, end=time + 1100, correlation=index)
        for index, (name, time) in enumerate(texts_and_times)
    ]
    calls = [Call(correlation=index, start=time) for index, (_, time) in enumerate(texts_and_times)]
    return kernels, calls


@pytest.mark.parametrize(
    ("year", "tool", "has_shapes"),
    [(2018, "nsys", False), (2019, "nsys", True), (2022, "nsys 2022.3.2 (schema 2.7)", True),
     (2026, "nsys 2026.3.2 (schema 3.25)", True)],
)  # fmt: skip
def test_exports_of_all_years_are_read(
    tmp_path: Path, year: int, tool: str, *, has_shapes: bool
) -> None:
    kernels, calls = launched(("a", 100), ("b", 50))
    marks = [Range(text="step 3", start=0, end=90), Range(text="forward", start=90, end=120)]

    trace = read_export(
        tmp_path,
        Export(kernels=kernels, calls=calls, ranges=marks, gpu_names={0: "NVIDIA X"}, year=year),
    )

    assert tool == trace.tool
    assert ["b", "a"] == names(trace)
    assert (None, Pass.FORWARD) == trace.passes
    assert [True, False] == trace.is_in_step.tolist()
    assert "NVIDIA X" == trace.gpus[0].name
    first = trace.signatures[0]
    assert ((4, 2, 1) if has_shapes else None) == first.grid
    assert (1040 if has_shapes else None) == first.shared_memory_bytes
    assert (32 if has_shapes else None) == first.register_count


def test_times_are_whole_nanoseconds_and_count_from_the_first_launch(tmp_path: Path) -> None:
    base = 2**60
    kernels = [
        Kernel(name="a", start=base + 7, end=base + 8, stream=20),
        Kernel(name="b", start=base, end=base + 3, stream=7),
        Kernel(name="a", start=base + 7, end=base + 7, stream=21),
    ]

    trace = read_export(tmp_path, Export(kernels=kernels))

    assert ["b", "a", "a"] == names(trace)
    assert [0.0, 7e-9, 7e-9] == trace.start_s.tolist()
    assert [3e-9, 1e-9, 0.0] == trace.duration_s.tolist()
    assert [7, 20, 21] == trace.stream.tolist()
    assert (3, 4e-9) == (trace.kernel_count, trace.kernel_time_s)
    assert [("b", 1, 3e-9), ("a", 2, 1e-9)] == [
        (total.name, total.launch_count, total.time_s) for total in trace.totals
    ]


def test_the_innermost_range_of_the_launching_thread_gives_operation_and_shapes(
    tmp_path: Path,
) -> None:
    kernels, calls = launched(("inner", 30), ("outer", 70), ("none", 95))
    marks = [
        Range(text="aten::linear, op_id = 1", start=10, end=90),
        Range(
            text="aten::mm, seq = 4, op_id = 2, sizes = [[8, 4], [], [4, 2]], "
            "input_op_ids = [(1, 0)]",
            start=20,
            end=40,
        ),
        Range(text="aten::add, op_id = 3", start=0, end=99, thread=AUTOGRAD),
    ]

    trace = read_export(tmp_path, Export(kernels=kernels, calls=calls, ranges=marks))

    inner = signature_of(trace, 0)
    assert "aten::mm" == inner.op
    assert (OpInput(shape=(8, 4)), OpInput(), OpInput(shape=(4, 2))) == inner.inputs
    assert ("aten::linear", ()) == (signature_of(trace, 1).op, signature_of(trace, 1).inputs)
    assert signature_of(trace, 2).op is None


def test_equal_kernels_of_different_operations_are_different_kernels(tmp_path: Path) -> None:
    kernels, calls = launched(("k", 10), ("k", 30), ("k", 50))
    marks = [
        Range(text=f"aten::{op}, op_id = {start}", start=start, end=start + 9)
        for op, start in (("mul", 5), ("add", 25), ("mul", 45))
    ]

    trace = read_export(tmp_path, Export(kernels=kernels, calls=calls, ranges=marks))

    assert ["aten::mul", "aten::add"] == [signature.op for signature in trace.signatures]
    assert [0, 1, 0] == trace.signature_index.tolist()
    assert [("k", 3)] == [(total.name, total.launch_count) for total in trace.totals]


def test_a_sequence_number_that_comes_again_in_backward_tells_forward(tmp_path: Path) -> None:
    kernels, calls = launched(("fwd", 10), ("other", 30), ("bwd", 50))
    calls[2] = Call(correlation=2, start=50, thread=AUTOGRAD)
    marks = [
        Range(text="aten::mm, seq = 4, op_id = 2", start=5, end=20),
        Range(text="aten::mm, seq = 9, op_id = 3", start=25, end=40),
        Range(
            text="autograd::engine::evaluate_function: MmBackward0, op_id = 4",
            start=45,
            end=70,
            thread=AUTOGRAD,
        ),
        Range(text="MmBackward0, seq = 4, op_id = 5", start=46, end=69, thread=AUTOGRAD),
        Range(text="aten::mm, op_id = 6", start=47, end=60, thread=AUTOGRAD),
    ]

    trace = read_export(tmp_path, Export(kernels=kernels, calls=calls, ranges=marks))

    assert (Pass.FORWARD, None, Pass.BACKWARD) == trace.passes
    assert "aten::mm" == signature_of(trace, 2).op


def test_releases_that_write_stashed_sequence_numbers_are_understood(tmp_path: Path) -> None:
    kernels, calls = launched(("fwd", 10), ("bwd", 30))
    marks = [
        Range(text="mul, seq=4", start=5, end=20),
        Range(text="mul, stashed seq=4", start=25, end=40),
    ]

    trace = read_export(tmp_path, Export(kernels=kernels, calls=calls, ranges=marks))

    assert (Pass.FORWARD, Pass.BACKWARD) == trace.passes


def test_a_silent_thread_follows_the_passes_that_its_process_marks(tmp_path: Path) -> None:
    kernels, calls = launched(("a", 10), ("b", 50))
    kernels = [
        *kernels,
        Kernel(name="c", start=9000, end=9001, correlation=0, process=SECOND_PROCESS),
    ]
    calls = [
        Call(correlation=0, start=10, thread=AUTOGRAD),
        Call(correlation=1, start=50, thread=AUTOGRAD),
        Call(correlation=0, start=10, thread=SECOND_PROCESS + 5),
    ]
    marks = [Range(text="backward", start=0, end=40), Range(text="optimizer", start=45, end=60)]

    trace = read_export(tmp_path, Export(kernels=kernels, calls=calls, ranges=marks))

    assert (Pass.BACKWARD, Pass.OPTIMIZER, None) == trace.passes


def test_correlation_numbers_repeat_in_other_processes(tmp_path: Path) -> None:
    kernels = [
        Kernel(name="first", start=100, end=110, correlation=1, process=FIRST_PROCESS),
        Kernel(name="second", start=200, end=210, correlation=1, process=SECOND_PROCESS, device=1),
    ]
    calls = [
        Call(correlation=1, start=90, thread=FIRST_PROCESS + 1),
        Call(correlation=1, start=190, thread=SECOND_PROCESS + 1),
    ]
    marks = [
        Range(text="forward", start=80, end=95, thread=FIRST_PROCESS + 1),
        Range(text="backward", start=180, end=195, thread=SECOND_PROCESS + 1),
    ]

    trace = read_export(tmp_path, Export(kernels=kernels, calls=calls, ranges=marks))

    assert (Pass.FORWARD, Pass.BACKWARD) == trace.passes
    assert [0, 1] == trace.gpu.tolist()
    assert [0, 1] == [gpu.gpu for gpu in trace.gpus]


def test_device_0_of_two_processes_may_be_two_gpus(tmp_path: Path) -> None:
    kernels = [
        Kernel(start=0, end=1, process=FIRST_PROCESS),
        Kernel(start=2, end=3, process=SECOND_PROCESS),
    ]

    trace = read_export(
        tmp_path,
        Export(
            kernels=kernels,
            gpu_names={4: "NVIDIA A", 5: "NVIDIA B"},
            devices=[(100, 0, 4), (101, 0, 5)],
        ),
    )

    assert [4, 5] == trace.gpu.tolist()
    assert [(4, "NVIDIA A"), (5, "NVIDIA B")] == [(gpu.gpu, gpu.name) for gpu in trace.gpus]


def test_kernels_belong_to_the_outermost_step_in_which_they_were_launched(tmp_path: Path) -> None:
    # The last kernel of each step runs when the next step has begun on the host.
    kernels, calls = launched(("a", 10), ("b", 95), ("a", 110), ("b", 195), ("late", 250))
    kernels.append(Kernel(name="unlinked", start=1500, end=1501))
    marks = [
        Range(text="iteration 0", start=0, end=100),
        Range(text="step 0", start=5, end=50),
        Range(text="iteration 1", start=100, end=200),
        Range(text="iteration 2", start=200, end=None),
    ]

    trace = read_export(tmp_path, Export(kernels=kernels, calls=calls, ranges=marks))

    assert ["iteration 0", "iteration 1"] == [step.name for step in trace.steps]
    assert [-1010 / 1e9, -910 / 1e9] == [step.start_s for step in trace.steps]
    assert [1e-7, 1e-7] == [step.duration_s for step in trace.steps]
    assert [True, True, True, True, False, False] == trace.is_in_step.tolist()
    assert [0, 0, 1, 1] == trace.step_index[:4].tolist()


def test_a_step_that_one_thread_starts_and_another_ends_holds_for_the_process(
    tmp_path: Path,
) -> None:
    kernels, calls = launched(("a", 10), ("b", 150))
    marks = [Range(text="ProfilerStep#7", start=0, end=100, thread=AUTOGRAD, kind=60)]

    trace = read_export(tmp_path, Export(kernels=kernels, calls=calls, ranges=marks))

    assert ["ProfilerStep#7"] == [step.name for step in trace.steps]
    assert [True, False] == trace.is_in_step.tolist()


def test_communication_kernels_are_known_by_name_and_filled_from_ranges(tmp_path: Path) -> None:
    kernels, calls = launched(
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", 20),
        ("copy", 40),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", 70),
    )
    marks = [
        Range(text="nccl:all_reduce, op_id = 9, sizes = [[1024, 3]]", start=10, end=50),
        Range(text="NCCL", start=0, end=None, kind=75, domain=5),
        Range(
            text="ncclAllGather",
            start=60,
            end=80,
            domain=5,
            payload='{"NCCL communicator ID": 7, "Message size [bytes]": 4096}',
        ),
    ]

    trace = read_export(tmp_path, Export(kernels=kernels, calls=calls, ranges=marks))

    assert Collective(name="all_reduce", input_element_count=3072) == (
        signature_of(trace, 0).collective
    )
    assert signature_of(trace, 1).collective is None
    assert Collective(name="AllGather", dtype="Byte", input_element_count=4096) == (
        signature_of(trace, 2).collective
    )
    assert (Pass.COMMUNICATION,) * 3 == trace.passes


def test_graph_launches_are_known_by_node_or_by_call(tmp_path: Path) -> None:
    kernels = [
        Kernel(start=0, end=1, graph_node=4_294_967_297, correlation=1),
        Kernel(start=2, end=3, correlation=2),
        Kernel(start=4, end=5, correlation=3),
    ]
    calls = [
        Call(correlation=2, start=0, name="cudaGraphLaunch_v10000"),
        Call(correlation=3, start=0),
    ]

    trace = read_export(tmp_path, Export(kernels=kernels, calls=calls))

    assert [True, True, False] == trace.is_graph_launch.tolist()


def test_a_whole_graph_is_a_launch_only_where_its_kernels_are_not_there(tmp_path: Path) -> None:
    kernels = [Kernel(name="node", start=0, end=5, correlation=1)]
    graphs = [
        Kernel(start=0, end=9, correlation=1, graph_node=11),
        Kernel(start=20, end=29, correlation=2, graph_node=11),
    ]

    trace = read_export(tmp_path, Export(kernels=kernels, graphs=graphs))

    assert ["node", "CUDA graph 11"] == names(trace)
    assert [False, True] == trace.is_graph_launch.tolist()
    (caveat,) = trace.caveats
    assert CaveatKind.TRACE_INCOMPLETE is caveat.kind
    assert "Whole CUDA graphs were traced and count as one kernel each: 1." == caveat.seen


def test_what_the_profiler_lost_is_a_caveat(tmp_path: Path) -> None:
    trace = read_export(
        tmp_path,
        Export(
            kernels=[Kernel()],
            diagnostics=["Not all CUDA events might\nhave been collected.", "Profiling started."],
        ),
    )

    (caveat,) = trace.caveats
    assert CaveatKind.TRACE_INCOMPLETE is caveat.kind
    assert "Nsight Systems says: Not all CUDA events might have been collected." == caveat.seen


def test_kernels_without_a_call_are_a_caveat_where_ranges_would_tell(tmp_path: Path) -> None:
    kernels, calls = launched(("a", 10), ("b", 20))

    trace = read_export(
        tmp_path,
        Export(kernels=kernels, calls=calls[:1], ranges=[Range(text="x", start=0, end=9)]),
    )

    (caveat,) = trace.caveats
    assert caveat.seen.startswith("1 of 2 kernels have no launching call in the file")


@pytest.mark.data
def test_the_export_of_two_h100_is_read_as_plain_sql_counts_it(measured_data: Path) -> None:
    path = measured_data / "traces" / "nsys" / "h100_2gpu_1s.sqlite"

    trace = read_nsys(path)

    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        expected = database.execute(
            "SELECT value, COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL "
            "JOIN StringIds ON id = demangledName GROUP BY value ORDER BY 3 DESC, 1"
        ).fetchall()
        by_gpu = database.execute(
            "SELECT deviceId, COUNT(*), MIN(start), MAX(end) FROM CUPTI_ACTIVITY_KIND_KERNEL "
            "GROUP BY 1 ORDER BY 1"
        ).fetchall()
        calls = database.execute(
            "SELECT r.start, r.globalTid FROM CUPTI_ACTIVITY_KIND_KERNEL AS k "
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r ON r.correlationId = k.correlationId "
            "AND (r.globalTid >> 24 << 24) = k.globalPid"
        ).fetchall()
        products = np.array(
            database.execute(
                "SELECT start, end, globalTid FROM NVTX_EVENTS WHERE text LIKE 'aten::mm,%'"
            ).fetchall()
        )
    assert expected == [
        (total.name, total.launch_count, round(total.time_s * 1e9)) for total in trace.totals
    ]
    assert sum(count for _, count, _ in expected) == trace.kernel_count
    assert sum(time_ns for _, _, time_ns in expected) / 1e9 == trace.kernel_time_s
    first_ns = min(start for _, _, start, _ in by_gpu)
    for gpu, count, start_ns, end_ns in by_gpu:
        is_here = trace.gpu == gpu
        assert count == is_here.sum()
        ends_s = trace.start_s[is_here] + trace.duration_s[is_here]
        assert (start_ns - first_ns) / 1e9 == trace.start_s[is_here].min()
        assert pytest.approx((end_ns - first_ns) / 1e9, abs=1e-12) == ends_s.max()
    starts, ends, threads = products.T
    product_count = sum(
        bool(np.any((starts <= time) & (time < ends) & (threads == thread)))
        for time, thread in calls
    )
    operations = [trace.signatures[index].op for index in trace.signature_index]
    assert 0 < product_count == operations.count("aten::mm")
    assert len(calls) == trace.kernel_count - operations.count(None)
    assert bool(np.all(np.diff(trace.start_s) >= 0))


def test_an_export_without_kernels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no GPU kernels are in the export"):
        read_export(tmp_path, Export(ranges=[Range(text="step 1", start=0, end=1)]))
