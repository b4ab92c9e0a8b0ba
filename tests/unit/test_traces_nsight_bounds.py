"""Absurd values in files of NVIDIA's profilers are refused before anything is made of them."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nsys_files import Call, Export, Kernel, Range, write_export
from tests.peak_memory import PRINT_PEAK_KIB

from joulewise.domain.errors import InputError
from joulewise.domain.trace import ProfilerTrace
from joulewise.store.files import read_bytes
from joulewise.store.importers.traces.ncu import read_ncu
from joulewise.store.importers.traces.nsys import read_nsys

SUMMARY = "Time (%),Total Time (ns),Instances,Avg (ns),Name\n"
TIMELINE = "Start (ns),Duration (ns),GrdX,Reg/Trd,Strm,Name\n"
RAW = "ID,Process ID,Kernel Name,Stream,Device,gpu__time_duration.sum,dram__bytes.sum\n"
DETAILS = "ID,Process ID,Kernel Name,Metric Name,Metric Unit,Metric Value\n"
UNITS = ",,,,,ns,byte\n"
DAY_NS = 24 * 3600 * 10**9


def table(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


def refusal_of_ncu(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read_ncu(table(folder, text))
    assert caught.value.hint
    return str(caught.value)


def refusal_of_nsys(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_nsys(path)
    assert caught.value.hint
    return str(caught.value)


def is_finite(trace: ProfilerTrace) -> bool:
    times = (trace.start_s, trace.duration_s)
    return all(np.isfinite(column).all() and (column >= 0).all() for column in times)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("600,5", "row 1, field 'total time': '600,5' is not a number"),
        ("1.234,5", "is not a number"),
        ("1,23,456", "is not a number"),
        (",500", "is not a number"),
        ("\u0661\u0662", "is not a number"),
    ],
)
def test_commas_part_thousands_only(tmp_path: Path, cell: str, message: str) -> None:
    assert message in refusal_of_nsys(table(tmp_path, f'{SUMMARY}1,"{cell}",1,1,k\n'))


def test_a_metric_of_another_locale_is_refused_with_row_and_field(tmp_path: Path) -> None:
    text = f'{RAW}{UNITS}0,9,k,7,0,"1,500","600,5"\n'

    assert "row 2, field 'dram__bytes.sum': '600,5'" in refusal_of_ncu(tmp_path, text)


def test_a_greek_letter_is_a_sign_for_micro_too(tmp_path: Path) -> None:
    text = f"{RAW}{UNITS.replace('ns', chr(0x3BC) + 's')}0,9,k,7,0,2,4\n"

    assert 2e-6 == read_ncu(table(tmp_path, text)).kernel_time_s


def test_one_number_is_one_launch_of_one_process(tmp_path: Path) -> None:
    def rows(*rows: str) -> str:
        return DETAILS + "".join(f"{row}\n" for row in rows)

    first = "0,9,k,Duration,ns,5"
    assert "row 2, field 'kernel name': launch 0 has two names: 'k'" in refusal_of_ncu(
        tmp_path, rows(first, "0,9,other,dram__bytes.sum,byte,5")
    )
    assert "row 2, field 'metric name': launch 0 has a second duration" in refusal_of_ncu(
        tmp_path, rows(first, first)
    )
    assert "row 3, field 'metric value': launch 0 has two values of dram__bytes.sum" in (
        refusal_of_ncu(
            tmp_path, rows(first, "0,9,k,dram__bytes.sum,byte,5", "0,9,k,dram__bytes.sum,byte,6")
        )
    )
    assert "row 3, field 'id': launch 0 comes twice" in refusal_of_ncu(
        tmp_path, rows(first, "1,9,k,Duration,ns,5", first)
    )
    assert "row 3, field 'id': launch 0 comes twice" in refusal_of_ncu(
        tmp_path, f"{RAW}{UNITS}0,9,k,7,0,5,5\n0,9,k,7,0,5,5\n"
    )
    trace = read_ncu(table(tmp_path, rows(first, "0,8,other,Duration,ns,5")))
    assert 2 == trace.kernel_count


def test_work_that_no_kernel_has_is_refused(tmp_path: Path) -> None:
    message = refusal_of_ncu(tmp_path, f"{RAW}{UNITS}0,9,k,7,0,5,1e30\n")

    assert "row 2: no kernel has 1e+30 bytes" in message


@pytest.mark.parametrize("count", [1_000_001, 9_900_000, 10**18, 2**63])
def test_a_summary_of_more_launches_than_an_iteration_has_is_refused_unread(
    tmp_path: Path, count: int
) -> None:
    message = refusal_of_nsys(table(tmp_path, f"{SUMMARY}1,5,{count},1,k\n"))

    assert "more than 1000000 kernel launches" in message or "not a whole number" in message


def test_kernels_years_apart_are_refused(tmp_path: Path) -> None:
    rows = f"0,5,1,8,7,k\n{10**18},5,1,8,7,k\n"
    assert "field 'start': kernels start 11574 days apart" in refusal_of_nsys(
        table(tmp_path, TIMELINE + rows)
    )
    kernels = [Kernel(start=-(2**62), end=-(2**62)), Kernel(start=2**62 - 1, end=2**62 - 1)]
    path = write_export(tmp_path / "x.sqlite", Export(kernels=kernels))
    assert "days apart" in refusal_of_nsys(path)


def test_a_name_longer_than_compilers_make_is_refused(tmp_path: Path) -> None:
    path = write_export(tmp_path / "x.sqlite", Export(kernels=[Kernel(name="k" * 70_000)]))

    assert "the kernel's name is longer than 65536 characters" in refusal_of_nsys(path)


def test_rows_beside_the_file_are_not_lost_silently(tmp_path: Path) -> None:
    path = write_export(tmp_path / "x.sqlite", Export(kernels=[Kernel()]))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end) VALUES (1, 2)")
        connection.commit()

        message = refusal_of_nsys(path)

    assert "not all of the database is in this file: x.sqlite-wal" in message


def test_a_kernel_of_unknown_launch_before_the_first_of_a_step_is_of_an_earlier_one(
    tmp_path: Path,
) -> None:
    steps = [
        Range(text=f"step {step}", start=1000 * step, end=1000 * step + 900) for step in (1, 2)
    ]
    known = [
        Kernel(start=1500, end=1510, correlation=1),
        Kernel(start=2500, end=2510, correlation=2),
    ]
    late, own = Kernel(start=2100, end=2110), Kernel(start=2600, end=2610)
    calls = [Call(correlation=1, start=1100), Call(correlation=2, start=2200)]

    trace = read_nsys(
        write_export(
            tmp_path / "x.sqlite", Export(kernels=[*known, late, own], calls=calls, ranges=steps)
        )
    )

    assert [0, 0, 1, 1] == trace.step_index.tolist()
    assert trace.is_in_step.all()


def test_marks_of_pytorchs_profiler_go_before_others(tmp_path: Path) -> None:
    marks = [
        Range(text="step 1", start=0, end=900),
        Range(text="ProfilerStep#7", start=100, end=500),
    ]
    kernels = [Kernel(start=600, end=610, correlation=1), Kernel(start=700, end=710, correlation=2)]
    calls = [Call(correlation=1, start=499), Call(correlation=2, start=500)]

    trace = read_nsys(
        write_export(tmp_path / "x.sqlite", Export(kernels=kernels, calls=calls, ranges=marks))
    )

    assert ["ProfilerStep#7"] == [step.name for step in trace.steps]
    assert [True, False] == trace.is_in_step.tolist()


@pytest.mark.skipif(os.name != "posix", reason="a matter of Unix")
def test_pipes_are_refused_before_they_are_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    for read in (read_bytes, read_nsys, read_ncu):
        with pytest.raises(InputError, match="this is a pipe, not a file"):
            read(pipe)


LARGE = st.one_of(
    st.integers(-(2**70), 2**70), st.sampled_from([0, 1, DAY_NS, 2**62, 2**63 - 1, 10**18])
)


@given(values=st.lists(st.tuples(LARGE, LARGE, LARGE), min_size=1, max_size=3))
@settings(deadline=None, max_examples=40)
def test_numbers_of_any_size_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[int, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("large")
    summary = "".join(f"1,{time_ns},{min(count, 10**4)},1,k\n" for time_ns, count, _ in values)
    timeline = "".join(f"{start},{time},1,8,{stream},k\n" for start, time, stream in values)
    raw = "".join(f"{number},9,k,{stream},0,{time},{stream}\n" for number, time, stream in values)
    for read, text in (
        (read_nsys, SUMMARY + summary),
        (read_nsys, TIMELINE + timeline),
        (read_ncu, RAW + UNITS + raw),
    ):
        try:
            trace = read(table(folder, text))
        except InputError:
            continue
        assert is_finite(trace)


@pytest.mark.integration
def test_the_largest_times_of_many_launches_do_not_overflow(tmp_path: Path) -> None:
    rows = "".join(f"{number},9,k,7,0,{DAY_NS},1\n" for number in range(120_000))

    trace = read_ncu(table(tmp_path, RAW + UNITS + rows))

    assert is_finite(trace)
    assert 120_000 * 86_400 == trace.kernel_time_s


_PEAK = (
    "import sys\n"
    "from pathlib import Path\n"
    "from joulewise.store.importers.traces.ncu import read_ncu\n"
    "from joulewise.store.importers.traces.nsys import read_nsys\n"
    "try:\n"
    "    {reader}(Path(sys.argv[1]))\n"
    "except Exception as error:\n"
    "    print(type(error).__name__, file=sys.stderr)\n"
) + PRINT_PEAK_KIB


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak so")
@pytest.mark.parametrize(
    ("reader", "head", "row", "count"),
    [
        ("read_nsys", SUMMARY, "1,5,1,1,k{}\n", 100_000),
        ("read_nsys", SUMMARY, "1,5,1000000,1,k{}\n", 3),
        ("read_nsys", TIMELINE, "{},5,1,8,7,k{}\n", 100_000),
        ("read_ncu", RAW + UNITS, "{},9,k,7,0,5,5\n", 100_000),
        ("read_ncu", DETAILS, "{},9,k,Duration,ns,5\n", 100_000),
        ("read_ncu", RAW.strip() + "".join(f",sm__ops_path_tensor_{n}" for n in range(3_000)) + "\n",
         "{},9,k,7,0,5,5" + ",1" * 3_000 + "\n", 3_000),
    ],
)  # fmt: skip
def test_no_table_takes_more_memory_than_a_profile_of_its_launches(
    tmp_path: Path, reader: str, head: str, row: str, count: int
) -> None:
    text = head + "".join(row.replace("{}", str(number)) for number in range(count))
    path = table(tmp_path, text)

    done = subprocess.run(
        [sys.executable, "-c", _PEAK.format(reader=reader), str(path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.stderr.strip() in ("", "InputError")
    assert int(done.stdout) / 1024 < 300
