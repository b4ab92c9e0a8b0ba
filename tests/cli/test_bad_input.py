"""Bad input: one clear sentence, exit 1, nothing half-written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from joulewise.store.cells import CellJournal
from tests.cli.conftest import FEW_POINTS, SWEEP_CSV, Joulewise

HEADER = "kernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j\n"
GOOD = "a,,,1.0,100\n"

TABLES = {
    "missing column": ("kernel,sm_clock_mhz,mem_clock_mhz,time_s\na,,,1\n", None, "energy_j"),
    "negative time": (HEADER + GOOD + "a,1000,,-1,80\n", 2, "time_s"),
    "zero time": (HEADER + GOOD + "a,1000,,0,80\n", 2, "time_s"),
    "NaN time": (HEADER + GOOD + "a,1000,,nan,80\n", 2, "time_s"),
    "text for a time": (HEADER + GOOD + "a,1000,,fast,80\n", 2, "time_s"),
    "no time": (HEADER + GOOD + "a,1000,,,80\n", 2, "time_s"),
    "negative energy": (HEADER + GOOD + "a,1000,,1,-80\n", 2, "energy_j"),
    "infinite energy": (HEADER + GOOD + "a,1000,,1,inf\n", 2, "energy_j"),
    "clock that is no number": (HEADER + GOOD + "a,1 GHz,,1,80\n", 2, "sm_clock_mhz"),
    "no kernel": (HEADER + GOOD + ",1000,,1,80\n", 2, "kernel"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_bad_table_names_file_row_and_field(
    joulewise: Joulewise, tmp_path: Path, name: str
) -> None:
    text, row, field = TABLES[name]
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")

    said = joulewise("plan", path, "--json", "--out", "plan.json")

    assert (1, "error") == (said.code, said.document["status"])
    assert (str(path), row, field) == tuple(said.document[key] for key in ("file", "row", "field"))
    assert not (tmp_path / "plan.json").exists()


def test_a_duplicate_cell_names_its_row(joulewise: Joulewise, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(HEADER + GOOD + "a,1000,,1,80\na,1000,,1,81\n", encoding="utf-8")

    said = joulewise("plan", path, "--json")

    assert (1, 3) == (said.code, said.document["row"])
    assert "already" in str(said.document["message"])


def test_a_missing_baseline_names_the_kernel(joulewise: Joulewise, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(HEADER + GOOD + "b,1000,,1,80\n", encoding="utf-8")

    said = joulewise("plan", path, "--json")

    assert 1 == said.code
    assert "'b'" in str(said.document["message"])
    assert "baseline" in str(said.document["message"])


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", HEADER.encode(), b"PAR1\x00\x01", b"\x00\xff\xfe"]
)
def test_an_empty_or_broken_file_is_one_error(
    joulewise: Joulewise, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)

    said = joulewise("plan", path)

    assert (1, "") == (said.code, said.out)
    assert said.err.startswith(f"error: {path}")


def test_a_truncated_parquet_is_one_error(joulewise: Joulewise, tmp_path: Path) -> None:
    whole = tmp_path / "sweep.parquet"
    joulewise("measure", "--out", whole, *FEW_POINTS)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:-200])

    said = joulewise("plan", cut, "--json")

    assert (1, str(cut)) == (said.code, said.document["file"])


@pytest.mark.parametrize(
    ("arguments", "field", "message"),
    [
        (("tune", "--device", "virtual:rtx9090"), "device", "rtx9090"),
        (("tune", "--device", "nvidia:0"), "device", "nvidia:0"),
        (("tune", "--device", "virtual:rtx3080ti,speed=9"), "speed", "rtx3080ti"),
        (("tune", "--workload", "gpt5"), "workload", "gpt5"),
        (("tune", "--max-slowdown", "5"), "max-slowdown", "5"),
        (("measure", "--sm-clocks", "1681"), "sm-clocks", "1681"),
        (("measure", "--mem-clocks", "9500"), "mem-clocks", "9500"),
        (("devices", "--fail-on", "Nonsense"), "fail-on", "Nonsense"),
    ],
)
def test_an_unknown_name_is_named_and_nothing_is_written(
    joulewise: Joulewise,
    tmp_path: Path,
    arguments: tuple[str, ...],
    field: str,
    message: str,
) -> None:
    said = joulewise(*arguments, "--json")

    assert (1, field) == (said.code, said.document["field"])
    assert message in str(said.document["message"])
    assert said.document["hint"]
    assert [] == [path.name for path in tmp_path.iterdir() if path.name != "state"]


@pytest.mark.parametrize(
    "arguments", [("plan",), ("plan", "x.csv", "--objective", "speed"), ("fly",)]
)
def test_wrong_usage_exits_with_1(joulewise: Joulewise, arguments: tuple[str, ...]) -> None:
    said = joulewise(*arguments)

    assert (1, "") == (said.code, said.out)
    assert said.err.startswith("error: ")


def test_an_unknown_schema_version_is_refused(joulewise: Joulewise, tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    path.write_text('{"schema_version": 9, "name": "x", "launches": []}', encoding="utf-8")

    said = joulewise("measure", "--workload", path, "--json")

    assert (1, "schema_version", str(path)) == (
        said.code,
        said.document["field"],
        said.document["file"],
    )


def test_an_infeasible_budget_says_the_least_slowdown(
    joulewise: Joulewise, sweep_csv: Path
) -> None:
    said = joulewise("plan", sweep_csv, "--max-slowdown", "-50%", "--json")

    assert (1, "infeasible") == (said.code, said.document["status"])
    assert 1.0 == said.document["least_slowdown_ratio"]


def test_a_report_refuses_a_plan_of_another_sweep(
    joulewise: Joulewise, sweep_csv: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    joulewise("plan", sweep_csv, "--out", run / "plan.json")
    (run / "sweep.csv").write_text(SWEEP_CSV.replace("240", "241"), encoding="utf-8")

    said = joulewise("report", run, "--json")

    assert (1, "sweep_sha256") == (said.code, said.document["field"])
    assert not (run / "report.html").exists()


def test_a_plan_of_another_device_is_not_verified(joulewise: Joulewise, sweep_csv: Path) -> None:
    assert 0 == joulewise("plan", sweep_csv, "--out", "plan.json").code

    said = joulewise(
        "verify", "plan.json", "--workload", "gpt3-xl", "--device", "virtual:rtx3080ti", "--json"
    )

    assert (1, "device_name") == (said.code, said.document["field"])


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_one_error(joulewise: Joulewise, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)

    said = joulewise("measure", "--out", folder / "sweep.parquet", *FEW_POINTS, "--json")

    assert (1, str(folder / "sweep.parquet.cells")) == (said.code, said.document["file"])


def test_a_folder_that_is_a_file_is_one_error(joulewise: Joulewise, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine", encoding="utf-8")

    said = joulewise("tune", "--out", tmp_path / "taken" / "run", *FEW_POINTS, "--json")

    assert (1, "error") == (said.code, said.document["status"])
    assert "mine" == (tmp_path / "taken").read_text(encoding="utf-8")


def test_a_second_measure_on_the_same_output_is_refused(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    out = tmp_path / "sweep.parquet"

    with CellJournal.open_for(out, {"device": "another process"}):
        said = joulewise("measure", "--out", out, *FEW_POINTS, "--json")

    assert 1 == said.code
    assert "another" in str(said.document["message"])
    assert not out.exists()
