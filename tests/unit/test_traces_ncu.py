"""Tables of Nsight Compute become launches with their counted work."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.errors import InputError
from joulewise.domain.trace import MeasuredWork, ProfilerTrace
from joulewise.store.importers.traces.ncu import read_ncu

DETAILS = (
    '"ID","Process ID","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
    '"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name"\n'
)
RAW_HEAD = (
    "ID",
    "Process ID",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
)
FADD, FFMA, HMUL = (
    f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("fadd", "ffma", "hmul")
)
TENSOR = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
Metric = tuple[str, str, str]  # name, unit, value
MICROSECOND = ("gpu__time_duration.sum", "us", "1.00")


def details(number: object, name: str, metrics: Sequence[Metric]) -> str:
    """Rows of one launch on the details page."""
    head = f'"{number}","9","{name}","1","7","(128, 1, 1)","(4, 2, 1)","0","9.0","Section"'
    return "".join(f'{head},"{metric}","{unit}","{value}"\n' for metric, unit, value in metrics)


def raw(launches: Sequence[tuple[str, Sequence[Metric]]]) -> str:
    """A raw page; all launches have the metrics of the first."""
    names = [name for name, _, _ in launches[0][1]]
    units = [unit for _, unit, _ in launches[0][1]]
    rows: list[Sequence[object]] = [[*RAW_HEAD, *names], ["", *[""] * 7, *units]]
    for number, (kernel, metrics) in enumerate(launches):
        head = (number, 9, kernel, 1, 7, "(128, 1, 1)", "(4, 2, 1)", 0)
        rows.append([*head, *(value for _, _, value in metrics)])
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)


def read_text(folder: Path, text: str) -> ProfilerTrace:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return read_ncu(path)


def work_of(folder: Path, metrics: Sequence[Metric], name: str = "k") -> MeasuredWork:
    """The same launch's work, read from either page."""
    listed = read_text(folder, DETAILS + details(0, name, metrics)).measured
    assert listed == read_text(folder, raw([(name, metrics)])).measured
    return listed[0]


def test_launches_come_in_the_order_of_their_numbers_without_gaps(tmp_path: Path) -> None:
    trace = read_text(
        tmp_path,
        "==PROF== Connected to process 9 (/usr/bin/python3)\n"
        '==PROF== Profiling "k" - 0: 0%....100% - 8 passes\n'
        + DETAILS
        + details(10, "late", [("Duration", "ms", "0.002")])
        + "==PROF== Disconnected from process 9\n"
        + details(9, "early<1, 2>", [("Duration", "nsecond", "1,500")]),
    )

    assert not trace.is_timeline
    assert ["early<1, 2>", "late"] == [trace.signatures[i].name for i in trace.signature_index]
    assert [0.0, 1.5e-6] == trace.start_s.tolist()
    assert [1.5e-6, 2e-6] == trace.duration_s.tolist()
    assert (2, 3.5e-6) == (trace.kernel_count, trace.kernel_time_s)
    assert [("late", 2e-6), ("early<1, 2>", 1.5e-6)] == [
        (total.name, total.time_s) for total in trace.totals
    ]
    assert ((4, 2, 1), (128, 1, 1)) == (trace.signatures[0].grid, trace.signatures[0].block)


def test_the_raw_page_has_its_units_in_a_row_of_its_own(tmp_path: Path) -> None:
    metrics = [
        MICROSECOND,
        ("launch__registers_per_thread", "register/thread", "40"),
        ("launch__shared_mem_per_block_static", "Kbyte/block", "1.02"),
        ("launch__shared_mem_per_block_dynamic", "byte/block", "8"),
        ("device__attribute_display_name", "", "NVIDIA H100 PCIe"),
    ]

    trace = read_text(tmp_path, raw([("a", metrics), ("b", metrics), ("a", metrics)]))

    assert [0, 1, 0] == trace.signature_index.tolist()
    assert (1028, 40) == (
        trace.signatures[0].shared_memory_bytes,
        trace.signatures[0].register_count,
    )
    assert "NVIDIA H100 PCIe" == trace.gpus[0].name
    assert (3, 3e-6) == (trace.kernel_count, trace.kernel_time_s)


@pytest.mark.parametrize(
    ("metrics", "flop_count"),
    [
        ([(FADD, "inst", "1,000"), (FFMA, "inst", "2,000"), (HMUL, "inst", "10")], 5010.0),
        ([(FADD, "Kinst", "1.5"), (FFMA, "inst", "n/a")], 1500.0),
        ([(FADD, "inst", "7"), (TENSOR, "", "1,024")], 1031.0),
        ([(TENSOR, "", "4096")], 4096.0),
        ([(TENSOR, "", "0")], None),
        ([(FADD, "inst", "0"), (TENSOR, "", "0")], 0.0),
        ([(f"{FFMA}.per_cycle_elapsed", "inst/cycle", "3"),
          ("smsp__cycles_elapsed.avg.per_second", "Ghz", "1.5")], 9000.0),
        ([(f"{FFMA}.per_cycle_elapsed", "inst/cycle", "3")], None),
        ([("sm__ops_path_tensor_src_int8.sum", "", "4096")], None),
        ([("flop_count_sp.sum", "", "12"), ("flop_count_hp.sum", "", "n/a")], 12.0),
        ([], None),
    ],
)  # fmt: skip
def test_flops_are_counted_from_what_was_measured(
    tmp_path: Path, metrics: list[Metric], flop_count: float | None
) -> None:
    work = work_of(tmp_path, [MICROSECOND, *metrics])

    assert flop_count == (None if work.flop_count is None else pytest.approx(work.flop_count))


def test_a_kernel_on_tensor_cores_has_no_flops_unless_these_were_counted(tmp_path: Path) -> None:
    vector = [MICROSECOND, (FADD, "inst", "100")]
    name = "ampere_bf16_s16816gemm_bf16_128x128"

    assert work_of(tmp_path, vector, name).flop_count is None
    assert 4196 == work_of(tmp_path, [*vector, (TENSOR, "", "4096")], name).flop_count


@pytest.mark.parametrize(
    ("metrics", "traffic_bytes"),
    [
        ([("dram__bytes.sum", "Mbyte", "2.5"), ("dram__bytes_read.sum", "byte", "1")], 2.5e6),
        ([("dram__bytes_read.sum", "Kbyte", "3"), ("dram__bytes_write.sum", "byte", "5")], 3005.0),
        ([("dram__bytes_read.sum", "byte", "3"), ("dram__bytes_write.sum", "byte", "n/a")], None),
        ([("dram__bytes.sum.per_second", "Gbyte/second", "2")], 2000.0),
        ([("Memory Throughput", "Tbyte/s", "1")], 1e6),
        ([("Memory Throughput", "%", "50")], None),
    ],
)
def test_traffic_is_counted_from_what_was_measured(
    tmp_path: Path, metrics: list[Metric], traffic_bytes: float | None
) -> None:
    work = work_of(tmp_path, [MICROSECOND, *metrics])

    assert traffic_bytes == (
        None if work.traffic_bytes is None else pytest.approx(work.traffic_bytes)
    )


def test_bytes_a_second_are_told_from_a_share_of_the_peak_by_their_unit(tmp_path: Path) -> None:
    metrics = [
        MICROSECOND,
        ("Memory Throughput", "%", "13.59"),
        ("Memory Throughput", "Gbyte/s", "238.46"),
    ]

    (work,) = read_text(tmp_path, DETAILS + details(0, "k", metrics)).measured

    assert pytest.approx(238_460.0) == work.traffic_bytes


def test_launches_of_one_kernel_share_their_mean_work(tmp_path: Path) -> None:
    launches = [
        ("k", [MICROSECOND, (FADD, "inst", value), ("dram__bytes.sum", "byte", byte_count)])
        for value, byte_count in (("10", "n/a"), ("30", "100"))
    ]

    assert (MeasuredWork(flop_count=20.0, traffic_bytes=100.0),) == (
        read_text(tmp_path, raw(launches)).measured
    )


@pytest.mark.data
def test_the_measured_details_page_is_read_as_plain_csv_says(measured_data: Path) -> None:
    path = measured_data / "traces" / "ncu" / "ncu.details.csv"
    durations_ns: dict[str, int] = {}
    names: dict[str, str] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["Metric Name"] == "gpu__time_duration.sum":
                assert row["Metric Unit"] == "us"
                durations_ns[row["ID"]] = round(float(row["Metric Value"]) * 1000)
                names[row["ID"]] = row["Kernel Name"]

    trace = read_ncu(path)

    assert len(durations_ns) == trace.kernel_count
    assert sum(durations_ns.values()) / 1e9 == trace.kernel_time_s
    assert list(names.values()) == [trace.signatures[i].name for i in trace.signature_index]
    assert [((340, 2, 1), (512, 1, 1))] == [
        (kernel.grid, kernel.block) for kernel in trace.signatures
    ]
    assert (MeasuredWork(traffic_bytes=2_340_000.0),) == trace.measured


GOOD = DETAILS + details(0, "k", [MICROSECOND])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DETAILS + details(0, "k", [("Duration", "us", "fast")]), "'fast' is not a number"),
        (DETAILS + details(0, "k", [("Duration", "us", "-1")]), "the time -1 is negative"),
        (DETAILS + details(0, "k", [("Duration", "year", "1")]), "the unit 'year' of a time"),
        (DETAILS + details(0, "k", [("Duration", "us", "n/a")]), "the kernel 'k' has no duration"),
        (DETAILS + details("x", "k", [MICROSECOND]), "row 1, field 'id': 'x' is not a whole"),
        (DETAILS + details(0, "k\x07", [MICROSECOND]), "holds a control character"),
        (f'{GOOD}"1","9","k"\n', "row 2: the row has 3 fields where the header has 14"),
        (GOOD + "\0", "not an export but a binary file"),
        ("SQLite format 3\0", "a file of Nsight Systems, not like a file of Nsight Compute"),
        (f'{DETAILS}"0,"\n', "the row has"),
        (DETAILS, "no GPU kernels are in the table"),
        (",".join(RAW_HEAD) + "\n", "no GPU kernels are in the table"),
        ("Time (%),Total Time (ns),Instances,Name\n1,1,1,k\n", "looks like a file of Nsight Systems"),
        ('"Kernel Name","Invocations","Metric Name","Average"\n"k",1,"Duration",1\n',
         "the table sums kernels up"),
        ("", "the file is empty"),
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


@given(
    cells=st.dictionaries(
        st.integers(0, 200), st.sampled_from([b"", b'"', b",", b"\n", b"9", b"\xff", b"\0"])
    ),
    cut=st.integers(0, 600),
)
@settings(deadline=None, max_examples=60)
def test_a_damaged_table_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, cells: Mapping[int, bytes], cut: int
) -> None:
    content = (DETAILS + details(0, "k", [MICROSECOND, (FADD, "inst", "5")])).encode()
    for place, new in cells.items():
        content = content[: place * 3] + new + content[place * 3 + 1 :]
    path = tmp_path_factory.mktemp("damage") / "table.csv"
    path.write_bytes(content[:cut] if cut < 300 else content)

    try:
        trace = read_ncu(path)
    except InputError as error:
        refused = error
        assert (str(path), True) == (refused.file, bool(refused.hint))
        return
    assert trace.kernel_count > 0
