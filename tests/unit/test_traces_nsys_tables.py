"""Tables of `nsys stats` become traces, with or without a timeline."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.errors import InputError
from joulewise.domain.trace import ProfilerTrace
from joulewise.store.importers.traces.nsys import read_nsys

SUMMARY = "Time (%),Total Time (ns),Instances,Avg (ns),Name\n"
TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),"
    "DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
)


def read_text(folder: Path, text: str) -> ProfilerTrace:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return read_nsys(path)


def totals_of(trace: ProfilerTrace) -> list[tuple[str, int, int]]:
    return [(total.name, total.launch_count, round(total.time_s * 1e9)) for total in trace.totals]


def test_a_summary_lists_launches_kernel_by_kernel_with_their_mean_time(tmp_path: Path) -> None:
    trace = read_text(tmp_path, f'{SUMMARY}90.0,10,3,3.3,"f<1, 2>(int)"\n10.0,1,1,1.0,g\n')

    assert not trace.is_timeline
    assert [0, 0, 0, 1] == trace.signature_index.tolist()
    assert pytest.approx([10e-9 / 3] * 3 + [1e-9]) == trace.duration_s.tolist()
    assert [("f<1, 2>(int)", 3, 10), ("g", 1, 1)] == totals_of(trace)
    assert (4, 11e-9) == (trace.kernel_count, trace.kernel_time_s)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name", "1,2500,2,1,1,1,k"),
        ("Time(%),Total Time,Calls,Average,Minimum,Maximum,Name", "1,2500,2,1,1,1,k"),
        ("Total Time (us),Instances,Name", "2.5,2,k"),
        ("Total Time (ms),Instances,Name", '"0.0025",2,k'),
        ("Total Time (ns),Instances,Name", '"2,500",2,k'),
        ("Total Time (ns),Instances,Category,Operation", "2500,2,CUDA_KERNEL,k"),
    ],
)
def test_summaries_of_all_releases_are_read(tmp_path: Path, header: str, row: str) -> None:
    trace = read_text(tmp_path, f"{header}\n{row}\n")

    assert [("k", 2, 2500)] == totals_of(trace)


def test_a_summary_by_grid_and_block_keeps_them(tmp_path: Path) -> None:
    trace = read_text(
        tmp_path,
        "Total Time (ns),Instances,GridXYZ,BlockXYZ,Name\n5,1,  32    1    1, 128    1    1,k\n",
    )

    assert ((32, 1, 1), (128, 1, 1)) == (trace.signatures[0].grid, trace.signatures[0].block)


def test_messages_around_tables_and_tables_behind_them_are_passed_over(tmp_path: Path) -> None:
    trace = read_text(
        tmp_path,
        "Generating SQLite file x.sqlite from x.nsys-rep\n"
        "Processing [x.sqlite] with [/opt/reports/cuda_gpu_kern_sum.py]... \n\n"
        " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n"
        f"{SUMMARY}100.0,7,1,7.0,k\n\n"
        "Processing [x.sqlite] with [/opt/reports/cuda_gpu_mem_time_sum.py]... \n\n"
        "Time (%),Total Time (ns),Count,Avg (ns),Operation\n100.0,9,1,9.0,[CUDA memset]\n",
    )

    assert [("k", 1, 7)] == totals_of(trace)


def test_a_table_of_operations_is_a_timeline_without_memory_operations(tmp_path: Path) -> None:
    trace = read_text(
        tmp_path,
        f"{TRACE}"
        "1050,20,3,8,2,1,128,1,1,40,0.002,0.008,,,,,NVIDIA H100 (1),1,,7,late\n"
        "1000,5,1,,,,,,,,,,1.5,9.0,Pinned,Device,NVIDIA H100 (1),1,,7,[CUDA memcpy Host-to-Device]\n"
        "1010,30,2,1,1,1,64,1,1,16,0.000,0.000,,,,,NVIDIA H100 (0),1,,13,early\n",
    )

    assert trace.is_timeline
    assert ["early", "late"] == [trace.signatures[i].name for i in trace.signature_index]
    assert [0.0, 40e-9] == trace.start_s.tolist()
    assert [30e-9, 20e-9] == trace.duration_s.tolist()
    assert ([0, 1], [13, 7]) == (trace.gpu.tolist(), trace.stream.tolist())
    assert [(0, "NVIDIA H100"), (1, "NVIDIA H100")] == [(g.gpu, g.name) for g in trace.gpus]
    late = trace.signatures[trace.signature_index[1]]
    assert ((8, 2, 1), (128, 1, 1)) == (late.grid, late.block)
    assert (10_000, 40) == (late.shared_memory_bytes, late.register_count)


@pytest.mark.data
def test_the_measured_summary_is_read_as_plain_csv_counts_it(measured_data: Path) -> None:
    path = measured_data / "traces" / "nsys" / "summary_cuda_gpu_kern_sum.csv"
    counts: dict[str, int] = defaultdict(int)
    times_ns: dict[str, int] = defaultdict(int)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            counts[row["Name"]] += int(row["Instances"])
            times_ns[row["Name"]] += int(row["Total Time (ns)"])

    trace = read_nsys(path)

    expected = sorted(counts, key=lambda name: (-times_ns[name], name))
    assert [(name, counts[name], times_ns[name]) for name in expected] == totals_of(trace)
    assert sum(counts.values()) == trace.kernel_count == len(trace.duration_s)
    assert sum(times_ns.values()) / 1e9 == trace.kernel_time_s
    assert pytest.approx(trace.kernel_time_s) == float(trace.duration_s.sum())


@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.integers(0, 10**9)), min_size=1
    )
)
@settings(deadline=None, max_examples=40)
def test_sums_of_a_summary_are_exact_whatever_its_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, int]]
) -> None:
    text = "".join(f"0,{time_ns},{count},0,{name}\n" for name, count, time_ns in rows)

    trace = read_text(tmp_path_factory.mktemp("rows"), SUMMARY + text)

    assert sum(count for _, count, _ in rows) == trace.kernel_count
    assert sum(time_ns for _, _, time_ns in rows) / 1e9 == trace.kernel_time_s
    assert {name for name, _, _ in rows} == {total.name for total in trace.totals}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{SUMMARY}1,x,1,1,k\n", "row 1, field 'total time': 'x' is not a number"),
        (f"{SUMMARY}1,-5,1,1,k\n", "row 1, field 'total time': the time -5 is negative"),
        (f"{SUMMARY}1,5,1.5,1,k\n", "row 1, field 'instances': '1.5' is not a whole number"),
        (f"{SUMMARY}1,5,1,1,k\n1,5,1\n", "row 2: the row has 3 fields where the header has 5"),
        (f"{SUMMARY}1,5,1,1,\n", "row 1, field 'name': the kernel's name is empty"),
        (f"{SUMMARY}1,5,1,1,a\0b\n", "is not an export but a binary file"),
        (f"{SUMMARY}1,5,1,1,a\x07b\n", "holds a control character"),
        (f"{SUMMARY}1,5,20000000,1,k\n", "more than 1000000 kernel launches"),
        (f"{SUMMARY}1,{10**20},1,1,k\n", "is longer than any kernel runs"),
        (f"{SUMMARY}1,1e99,1,1,k\n", "is longer than any kernel runs"),
        (f"{SUMMARY}1,5,1,1,{'k' * 200_000}\n", "row 1: the row cannot be read as CSV"),
        (f"{SUMMARY}1,5,1,1,{'k' * 2_000_000}\n", "line 2 is longer than"),
        (f'{SUMMARY}1,5,1,1,"k\n', "row 1: the row cannot be read as CSV"),
        (SUMMARY, "no GPU kernels are in the table"),
        ("Total Time (min),Instances,Name\n5,1,k\n", "the unit 'min' of a time is not known"),
        ("kernel,time_s\nk,1\n", "no table of kernels from Nsight Systems"),
        ('"ID","Kernel Name","Metric Name"\n', "looks like a file of Nsight Compute"),
        ("x" + " " * 1_000_000 + ",y\n", "no table of kernels from Nsight Systems"),
        ("", "the file is empty"),
        (f"{TRACE}5,5,1,1,1,1,1,1,1,1,0,0,,,,,G (0),1,,x,k\n", "row 1, field 'strm'"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used_is_refused_in_one_sentence(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_text(tmp_path, text)

    assert message in str(caught.value)
    assert str(tmp_path / "table.csv") == caught.value.file
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (SUMMARY.encode("utf-16"), "is not an export but a binary file"),
        (f"{SUMMARY}1,5,1,1,k\xe9\n".encode("latin-1"), "is not UTF-8"),
        (b"NSYS\0\x01\x02", "is not an export but a binary file"),
        (b"\x1f\x8b\x08", "this file is packed"),
        (b' {"traceEvents": []}', "a trace of PyTorch's profiler"),
    ],
)
def test_files_of_other_kinds_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(content)

    with pytest.raises(InputError) as caught:
        read_nsys(path)

    assert message in str(caught.value)
    assert caught.value.hint


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    trace = read_text(tmp_path, f"\ufeff{SUMMARY}1,5,1,1,k\n")

    assert [("k", 1, 5)] == totals_of(trace)
