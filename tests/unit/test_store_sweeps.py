"""Sweeps in and out of files, by example."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.store.seal import BLANK, SEAL_KEY, seal
from joulewise.store.sweep_parquet import METADATA_KEY
from joulewise.store.sweeps import read_sweep, sweep_sha256, write_sweep_csv, write_sweep_parquet

AT_1410 = OperatingPoint(sm_clock_mhz=1410)


def written(folder: Path, text: str, name: str = "sweep.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def table_of(kernel_count: int, point_count: int) -> Sweep:
    points = (AUTO, *(OperatingPoint(sm_clock_mhz=1 + p) for p in range(point_count - 1)))
    values = np.random.default_rng(1).uniform(1.0, 2.0, (kernel_count, point_count))
    return Sweep(
        kernels=tuple(f"kernel {k}" for k in range(kernel_count)),
        points=points,
        baseline=AUTO,
        source=SweepSource(device="virtual:x", device_name="X", tool="test"),
        is_present=np.ones(values.shape, dtype=np.bool_),
        time_s=values,
        energy_j=values + 1.0,
        time_std_s=values * 0.01,
        energy_std_j=values * 0.02,
        window_count=np.full(values.shape, 3),
    )


def test_a_table_written_by_hand_is_read_cell_by_cell(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "kernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j\n"
        "gemm,,,1.0,10\n"
        "gemm,1410,,1.1,8\n"
        "softmax,auto,auto,2.0,20\n",
    )

    sweep = read_sweep(path)

    assert ("gemm", "softmax") == sweep.kernels
    assert (AUTO, AT_1410) == sweep.points
    assert AUTO == sweep.baseline
    assert [[1.0, 1.1], [2.0, math.inf]] == sweep.time_s.tolist()
    assert [[10.0, 8.0], [20.0, math.inf]] == sweep.energy_j.tolist()
    assert [[True, True], [True, False]] == sweep.is_present.tolist()
    assert (sweep.time_std_s, sweep.energy_std_j, sweep.window_count) == (None, None, None)
    assert () == sweep.caveats


def test_optional_columns_may_come_in_any_order_and_hold_zero_where_absent(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "window_count,time_std_s,energy_std_j,power_limit_w,kernel,sm_clock_mhz,time_s,energy_j\n"
        "3,0.1,0.2,,gemm,,1.0,10\n"
        "5,0.3,0.4,250,gemm,1410,1.1,8\n"
        "3,0.1,0.2,,softmax,,2.0,20\n",
    )

    sweep = read_sweep(path)

    limited = OperatingPoint(sm_clock_mhz=1410, power_limit_w=250.0)
    assert (AUTO, limited) == sweep.points
    assert sweep.time_std_s is not None
    assert [[0.1, 0.3], [0.1, 0.0]] == sweep.time_std_s.tolist()
    assert sweep.window_count is not None
    assert [[3, 5], [3, 0]] == sweep.window_count.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffkernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j\r\ngemm,,,1.0,10\r\n",
        "kernel , sm_clock_mhz, mem_clock_mhz, time_s, energy_j\ngemm, , , 1.0, 10\n\n",
        '"kernel","sm_clock_mhz","mem_clock_mhz","time_s","energy_j"\r"gemm","","","1.0","10"\r',
        ",kernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j\n0,gemm,,,1.0,10\n",
    ],
    ids=["BOM and CRLF", "spaces and blank lines", "quotes and CR", "index of pandas"],
)
def test_spreadsheet_habits_do_not_change_the_table(tmp_path: Path, text: str) -> None:
    plain = "kernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j\ngemm,,,1.0,10\n"

    expected = sweep_sha256(read_sweep(written(tmp_path, plain, "plain.csv")))

    assert expected == sweep_sha256(read_sweep(written(tmp_path, text)))


def test_without_auto_the_highest_clocks_are_the_baseline_and_a_caveat_says_so(
    tmp_path: Path,
) -> None:
    path = written(
        tmp_path,
        "kernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j\n"
        "gemm,1410,5001,1.2,9\n"
        "gemm,1395,9501,1.1,8\n"
        "gemm,1410,9501,1.0,10\n",
    )

    sweep = read_sweep(path)

    assert OperatingPoint(sm_clock_mhz=1410, mem_clock_mhz=9501) == sweep.baseline
    assert [CaveatKind.BASELINE_ASSUMED] == [caveat.kind for caveat in sweep.caveats]
    assert "1410/9501" in sweep.caveats[0].seen


def test_the_name_of_a_sweep_does_not_hang_on_the_order_of_rows(tmp_path: Path) -> None:
    header = "kernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j\n"
    rows = ["a,,,1,2\n", "a,1410,,3,4\n", "b,,,5,6\n", "b,1410,,7,8\n"]

    forward = read_sweep(written(tmp_path, header + "".join(rows), "forward.csv"))
    backward = read_sweep(written(tmp_path, header + "".join(rows[::-1]), "backward.csv"))

    assert sweep_sha256(forward) == sweep_sha256(backward)


def test_the_name_of_a_sweep_stays_the_same_from_version_to_version(tmp_path: Path) -> None:
    path = written(tmp_path, "kernel,sm_clock_mhz,time_s,energy_j\ngemm,,1.0,10\ngemm,1410,1.1,8\n")

    # Plans name their sweep so: a change here orphans every plan that was ever written.
    expected = "c1c68b8740d2ab202b470ea953a2b33cefb6d9cb0bd53e9f43e7a833e1c16c1f"
    assert expected == sweep_sha256(read_sweep(path))


def test_parquet_is_told_by_its_content_whatever_its_suffix(tmp_path: Path) -> None:
    sweep = table_of(2, 3)
    path = tmp_path / "sweep.dat"
    write_sweep_parquet(sweep, path)

    assert sweep_sha256(sweep) == sweep_sha256(read_sweep(path))


def test_csv_refuses_a_baseline_that_its_reader_would_not_take(tmp_path: Path) -> None:
    path = written(tmp_path, "kernel,sm_clock_mhz,time_s,energy_j\ngemm,1410,1,2\ngemm,1395,1,2\n")
    sweep = read_sweep(path)
    pinned = Sweep(
        kernels=sweep.kernels,
        points=sweep.points,
        baseline=OperatingPoint(sm_clock_mhz=1395),
        source=sweep.source,
        is_present=sweep.is_present,
        time_s=sweep.time_s,
        energy_j=sweep.energy_j,
    )

    with pytest.raises(InputError, match="CSV cannot say that 1395/auto is the baseline"):
        write_sweep_csv(pinned, tmp_path / "pinned.csv")

    assert not (tmp_path / "pinned.csv").exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the file is empty"),
        (b"kernel,sm_clock_mhz\n", "the file is not Parquet"),
        (b"PAR1", "the Parquet file is cut off"),
        (b"PAR1 and then nothing", "the Parquet file is cut off"),
        (b"PAR1 without metadata PAR1", "it carries no schema version"),
    ],
)
def test_what_only_looks_like_parquet_is_refused(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    path = tmp_path / "sweep.parquet"
    path.write_bytes(content)

    with pytest.raises(InputError, match=expected):
        read_sweep(path)


def test_parquet_of_another_tool_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sweep.parquet"
    pl.DataFrame({"kernel": ["a"], "time_s": [1.0]}).write_parquet(path)

    with pytest.raises(InputError, match="was not written by joulewise"):
        read_sweep(path)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('{"schema_version": 7}', "schema version 7 is not known; this joulewise reads version 1"),
        ("{}", "does not say its schema version"),
        ('{"schema_version": 1}', "the field is missing"),
    ],
)
def test_parquet_of_another_schema_version_is_refused(
    tmp_path: Path, header: str, expected: str
) -> None:
    buffer = io.BytesIO()
    metadata = {METADATA_KEY: header, SEAL_KEY: BLANK}
    pl.DataFrame({"kernel": ["a"]}).write_parquet(buffer, metadata=metadata)
    path = tmp_path / "sweep.parquet"
    path.write_bytes(seal(buffer.getvalue()))

    with pytest.raises(InputError, match=expected):
        read_sweep(path)


def test_a_large_sweep_is_read(tmp_path: Path) -> None:
    write_sweep_csv(table_of(46, 762), tmp_path / "sweep.csv")

    sweep = read_sweep(tmp_path / "sweep.csv")

    assert (46, 762) == sweep.time_s.shape
