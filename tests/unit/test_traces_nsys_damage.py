"""Hostile and damaged exports are refused in one sentence; none hangs or crashes the reader."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nsys_files import Call, Export, Kernel, Range, write_export

from joulewise.domain.errors import InputError
from joulewise.store.importers.traces.nsys import read_nsys

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
COMPUTED = "end AS (length(hex(zeroblob(500000000))))"
COLUMNS = "i AS start, i AS end, 0 AS deviceId, 0 AS streamId, 1 AS demangledName"


def refusal(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read_nsys(path)
    assert str(path) == caught.value.file
    assert caught.value.hint
    return caught.value


def scripted(folder: Path, script: str) -> Path:
    path = folder / "export.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Kernel(start="soon"), "row 2, field 'CUPTI_ACTIVITY_KIND_KERNEL.start': 'soon' stands"),
        (Kernel(end=None), "row 2, field 'CUPTI_ACTIVITY_KIND_KERNEL.end': nothing stands"),
        (Kernel(start=0.5), "0.5 stands where a whole number should"),
        (Kernel(start=b"\xff"), "stands where a whole number should"),
        (Kernel(start=11), "starts at 11 ns and ends before it starts"),
        (Kernel(start=-(2**63)), "is not a possible start"),
        (Kernel(end=10**15), "ends more than a day later"),
        (Kernel(name=77), "row 2, field 'CUPTI_ACTIVITY_KIND_KERNEL.demangledName'"),
        (Kernel(name="a\0b"), "holds a control character"),
        (Kernel(name=" "), "the kernel's name is empty"),
        (Kernel(name=b"x"), "the kernel's name is not in StringIds"),
        (Kernel(registers="many"), "'many' stands where a whole number should"),
        (Kernel(registers=-1), "-1 is not a possible registersPerThread"),
    ],
)
def test_a_value_that_no_profiler_writes_is_named_with_row_and_column(
    tmp_path: Path, kernel: Kernel, message: str
) -> None:
    path = write_export(tmp_path / "x.sqlite", Export(kernels=[Kernel(name="fine"), kernel]))

    assert message in str(refusal(path))


def test_a_range_that_ends_before_it_starts_is_refused(tmp_path: Path) -> None:
    export = Export(kernels=[Kernel()], ranges=[Range(text="step 1", start=9, end=2)])

    error = refusal(write_export(tmp_path / "x.sqlite", export))

    assert "row 1, field 'NVTX_EVENTS.end': the range ends 7 ns before" in str(error)


def test_a_call_without_a_time_is_refused(tmp_path: Path) -> None:
    export = Export(kernels=[Kernel(correlation=1)], calls=[Call(correlation=1, start="x")])

    error = refusal(write_export(tmp_path / "x.sqlite", export))

    assert "field 'CUPTI_ACTIVITY_KIND_RUNTIME.start'" in str(error)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {ENDLESS} {COLUMNS} FROM n;",
         "CUPTI_ACTIVITY_KIND_KERNEL is not a plain table"),
        (f"CREATE VIEW StringIds AS {ENDLESS} i AS id, 'k' AS value FROM n;",
         "StringIds is not a plain table"),
        ("CREATE TABLE t (a); CREATE INDEX StringIds ON t (a);", "StringIds is not a plain table"),
        (f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, {COMPUTED}, demangledName);",
         "has no column 'end'"),
        ("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end);", "no column 'demangledName'"),
        ("CREATE TABLE StringTable (id, value);", "is no export of Nsight Systems"),
        ("CREATE TABLE StringIds (id, value);", "no GPU kernels are in the export"),
    ],
)  # fmt: skip
def test_a_database_of_another_make_is_refused(tmp_path: Path, script: str, message: str) -> None:
    assert message in str(refusal(scripted(tmp_path, script)))


def test_virtual_tables_are_not_read(tmp_path: Path) -> None:
    script = "CREATE VIRTUAL TABLE StringIds USING fts5(id, value);"
    try:
        path = scripted(tmp_path, script)
    except sqlite3.OperationalError:
        pytest.skip("this SQLite has no full-text search")

    assert "StringIds is not a plain table" in str(refusal(path))


def test_a_query_that_runs_away_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "joulewise.store.importers.traces.nsys_database"
    monkeypatch.setattr(f"{name}._FREE_STEPS", 0)
    monkeypatch.setattr(f"{name}._STEPS_PER_BYTE", 0)
    monkeypatch.setattr(f"{name}._STEPS_PER_CHECK", 1)
    path = write_export(tmp_path / "x.sqlite", Export(kernels=[Kernel()]))

    assert "takes longer than any file of this size can" in str(refusal(path))


def test_texts_that_are_not_utf_8_are_read_with_marks_in_their_place(tmp_path: Path) -> None:
    path = write_export(tmp_path / "x.sqlite", Export(kernels=[Kernel(name="gemm")]))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE StringIds SET value = CAST(x'67ff6d' AS TEXT)")

    assert "g\N{REPLACEMENT CHARACTER}m" == read_nsys(path).signatures[0].name


@pytest.mark.parametrize("depth", [10, 100_000])
def test_sizes_nested_without_end_are_no_shapes(tmp_path: Path, depth: int) -> None:
    text = f"aten::mm, op_id = 1, sizes = {'[' * depth}{']' * depth}"
    export = Export(
        kernels=[Kernel(correlation=1)],
        calls=[Call(correlation=1, start=5)],
        ranges=[Range(text=text, start=0, end=9)],
    )

    signature = read_nsys(write_export(tmp_path / "x.sqlite", export)).signatures[0]

    assert ("aten::mm", ()) == (signature.op, signature.inputs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small whole export, its pages full."""
    path = write_export(
        tmp_path_factory.mktemp("export") / "x.sqlite",
        Export(
            kernels=[
                Kernel(name=f"k{i % 3}", start=9 * i, end=9 * i + 5, correlation=i)
                for i in range(20)
            ],
            calls=[Call(correlation=i, start=i) for i in range(20)],
            ranges=[Range(text=f"step {i}", start=i, end=i + 1) for i in range(20)],
            gpu_names={0: "NVIDIA X"},
            diagnostics=["Not all events"],
        ),
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    return path


def is_read_or_refused(path: Path, content: bytes) -> bool:
    path.write_bytes(content)
    try:
        trace = read_nsys(path)
    except InputError as error:
        return error.file == str(path) and bool(error.hint)
    return trace.kernel_count > 0


@given(
    damage=st.lists(
        st.tuples(st.integers(0, 2**20), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6
    )
)
@settings(deadline=None, max_examples=60)
def test_an_export_with_bytes_changed_is_read_or_refused(
    whole: Path, damage: list[tuple[int, bytes]]
) -> None:
    content = bytearray(whole.read_bytes())
    for place, new in damage:
        at = place % len(content)
        content[at : at + len(new)] = new

    assert is_read_or_refused(whole.with_name("damaged.sqlite"), bytes(content))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.2, 0.5, 0.9, 0.999])
def test_an_export_cut_off_is_refused(tmp_path: Path, whole: Path, share: float) -> None:
    content = whole.read_bytes()
    path = tmp_path / "x.sqlite"
    path.write_bytes(content[: int(len(content) * share)])

    refusal(path)


@pytest.mark.parametrize(
    "make", [Path.mkdir, Path.touch, Path.absolute], ids=["folder", "empty", "none"]
)
def test_a_folder_an_empty_file_and_none_are_refused(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "x.sqlite"
    make(path)

    refusal(path)
