"""Hostile files, flags and places: one clear sentence, exit 1, and nothing of the user's lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from joulewise.store.cells import CellJournal
from tests.cli.conftest import Joulewise, Said

unix_only = pytest.mark.skipif(os.name != "posix", reason="a matter of Unix")

WORK = {
    "kernel": "a",
    "kind": "gemm",
    "dtype": "bf16",
    "flop_count": 1e12,
    "traffic_bytes": 1e9,
    "compute_efficiency_ratio": 0.5,
    "memory_efficiency_ratio": 0.5,
    "core_activity_ratio": 1.0,
    "memory_activity_ratio": 1.0,
}
WORKLOAD = {
    "schema_version": 1,
    "name": "one kernel",
    "launches": [{"kernel": "a"}],
    "works": [WORK],
}
QUICK = ("--sm-clocks", "auto,1680", "--mem-clocks", "auto")


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "work.json"
    path.write_text(json.dumps(WORKLOAD), encoding="utf-8")
    return path


@pytest.fixture
def run_dir(joulewise: Joulewise, workload: Path) -> Path:
    """A folder that `tune` has filled."""
    said = joulewise("tune", "--workload", workload, *QUICK, "--pairs", "2", "--out", "run")
    assert 0 == said.code, said.err
    return Path("run")


def place(said: Said) -> tuple[int, object, object]:
    return said.code, said.document["file"], said.document["field"]


def edit(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


# --- places ---------------------------------------------------------------------------------


@unix_only
def test_a_pipe_or_a_device_is_never_replaced_by_a_file(
    joulewise: Joulewise, sweep_csv: Path, workload: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    for command in (
        ("plan", sweep_csv),
        ("measure", "--workload", workload, *QUICK),
        ("import", "perseus", sweep_csv),
    ):
        said = joulewise(*command, "--out", pipe, "--json")
        assert (1, str(pipe), None) == place(said)
        assert "this is a device or a pipe, not a file" == said.document["message"]
    assert pipe.is_fifo()


def test_what_a_command_reads_it_does_not_write_over(
    joulewise: Joulewise, sweep_csv: Path, workload: Path, run_dir: Path
) -> None:
    plan = run_dir / "plan.json"
    columns = ("--kernel", "kernel", "--sm-clock", "sm_clock_mhz")
    amounts = ("--time", "time_s", "--energy", "energy_j")
    for command, source in (
        (("plan", sweep_csv), sweep_csv),
        (("plan", sweep_csv, "--workload", workload), workload),
        (("verify", plan, "--workload", workload), plan),
        (("verify", plan, "--workload", workload), workload),
        (("import", "csv", sweep_csv, *columns, *amounts), sweep_csv),
        (("measure", "--workload", workload, *QUICK), workload),
    ):
        before = source.read_bytes()
        said = joulewise(*command, "--out", source, "--json")
        assert (1, str(source), None) == place(said)
        assert before == source.read_bytes()


@pytest.mark.parametrize("place_there", [Path.mkdir, lambda path: path.parent.joinpath("x")])
def test_a_place_that_cannot_be_written_to_is_refused_before_measuring(
    joulewise: Joulewise, workload: Path, tmp_path: Path, place_there: Callable[[Path], object]
) -> None:
    out = tmp_path / "no" / "sweep" if place_there is not Path.mkdir else tmp_path / "folder"
    place_there(out)

    said = joulewise("measure", "--workload", workload, *QUICK, "--out", out, "--json")

    assert (1, str(out), None) == place(said)
    assert {"work.json", *(["folder"] if out.exists() else [])} == {
        path.name for path in tmp_path.iterdir()
    }


def test_a_measurement_that_never_began_leaves_nothing_in_the_way(
    joulewise: Joulewise, workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(workload))
    command = ("measure", "--workload", workload, *QUICK, "--out", "sweep.parquet")
    refused = joulewise(*command, "--json")
    left = sorted(path.name for path in tmp_path.iterdir())
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path / "state"))

    assert (1, str(workload)) == (refused.code, refused.document["file"])
    assert ["work.json"] == left
    assert 0 == joulewise(*command).code


def test_a_second_tune_in_the_same_folder_is_refused(
    joulewise: Joulewise, workload: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    with CellJournal.open_for(tmp_path / "run" / "sweep.parquet", {"device": "another"}):
        said = joulewise("tune", "--workload", workload, *QUICK, "--out", "run", "--json")

    assert 1 == said.code
    assert "another" in str(said.document["message"])


def test_a_workload_name_never_leads_out_of_the_folder_of_runs(
    joulewise: Joulewise, workload: Path, tmp_path: Path
) -> None:
    edit(workload, lambda document: document.update(name="../../" + "x" * 500))

    said = joulewise("tune", "--workload", workload, *QUICK, "--pairs", "2", "--json")

    assert 0 == said.code
    assert [tmp_path / "runs"] == [
        path.parent for path in tmp_path.glob("**/*") if "xxx" in path.name
    ]


# --- words on the command line ----------------------------------------------------------------


@unix_only
def test_names_that_are_not_unicode_still_give_one_json_object(
    joulewise: Joulewise, sweep_csv: Path
) -> None:
    missing = joulewise("plan", "\udcff.csv", "--json")
    written = joulewise("plan", sweep_csv, "--out", "\udcff.json", "--json")

    assert (1, "\udcff.csv", None) == place(missing)
    assert (0, "\udcff.json") == (written.code, written.document["plan"])


@pytest.mark.parametrize("word", ["1", "true", "yes", "on", " T "])
def test_json_asked_for_by_a_variable_is_given_on_errors_too(
    joulewise: Joulewise, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("JOULEWISE_JSON", word)

    said = joulewise("plan", "none.csv")

    assert (1, "none.csv", None) == place(said)
    assert not said.err


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("plan", "--json=1"), None),
        (("plan", "--json"), "sweep"),
        (("verify", "p.json", "--pairs", "0", "--json"), "pairs"),
        (("plan", "x.csv", "--objective", "speed", "--json"), "objective"),
        (("import", "csv", "x.csv", "--json"), "kernel"),
        (("import", "--json"), None),
        (("fly", "--json"), None),
    ],
)
def test_wrong_usage_is_one_json_object_that_names_the_option(
    joulewise: Joulewise, arguments: tuple[str, ...], field: str | None
) -> None:
    said = joulewise(*arguments)

    assert (1, None, field) == place(said)
    assert "error" == said.document["status"]
    assert not said.err


# --- workloads ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flop_count", 1e300),
        ("traffic_bytes", 1e300),
        ("compute_efficiency_ratio", 0),
        ("compute_efficiency_ratio", -1),
        ("memory_efficiency_ratio", 0),
        ("memory_efficiency_ratio", 1e-300),
        ("core_activity_ratio", 1e300),
        ("memory_activity_ratio", -1),
        ("clock_offset_ratio", 1e300),
    ],
)
def test_work_that_no_kernel_does_is_refused(
    joulewise: Joulewise, workload: Path, field: str, value: float
) -> None:
    edit(workload, lambda document: document.update(works=[{**WORK, field: value}]))

    said = joulewise("measure", "--workload", workload, *QUICK, "--json")

    assert (1, str(workload), f"works[0].{field}") == place(said)


def test_a_kernel_that_does_nothing_is_refused(joulewise: Joulewise, workload: Path) -> None:
    nothing = {**WORK, "flop_count": 0, "traffic_bytes": 0}
    edit(workload, lambda document: document.update(works=[nothing]))

    said = joulewise("measure", "--workload", workload, *QUICK, "--json")

    assert (1, str(workload), "works[0].flop_count") == place(said)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "\x1b[31m"}, "name"),
        ({"launches": [{"kernel": "\x1b[31m"}]}, "launches[0].kernel"),
        ({"launches": [{"kernel": "a", "repeat": 10**12}]}, "launches[0].repeat"),
        ({"works": [WORK, WORK]}, "works"),
    ],
)
def test_a_hostile_workload_is_one_error(
    joulewise: Joulewise, workload: Path, change: dict[str, object], field: str
) -> None:
    edit(workload, lambda document: document.update(change))

    said = joulewise("measure", "--workload", workload, *QUICK, "--json")

    assert (1, str(workload), field) == place(said)


# --- sizes --------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_a_file_without_an_end_is_refused(joulewise: Joulewise) -> None:
    said = joulewise("plan", "/dev/zero", "--json")

    assert (1, "/dev/zero", None) == place(said)
    assert "larger than" in str(said.document["message"])


def test_a_table_too_sparse_for_the_memory_is_refused(joulewise: Joulewise, tmp_path: Path) -> None:
    kernel_count = 4500
    rows = "".join(f"k{k},,1,1\nk{k},{k + 1},1,1\n" for k in range(kernel_count))
    path = tmp_path / "sparse.csv"
    path.write_text(f"kernel,sm_clock_mhz,time_s,energy_j\n{rows}", encoding="utf-8")

    said = joulewise("plan", path, "--json")

    assert (1, str(path), None) == place(said)
    assert "4500 kernels and 4501 operating points" in str(said.document["message"])


# --- plans, verifications and what lies beside them --------------------------------------------


@pytest.mark.parametrize(
    ("name", "field", "change"),
    [
        ("plan.json", "status", {"status": "error"}),
        ("plan.json", "launches", {"launches": []}),
        ("plan.json", "baseline_time_s", {"baseline_time_s": 0}),
        ("plan.json", "slowdown_ratio", {"slowdown_ratio": -1}),
        ("plan.json", "energy_j", {"energy_j": 1e300}),
        ("verification.json", "pairs", {"pairs": []}),
        ("verification.json", "slowdown_ratio", {"slowdown_ratio": 0}),
        (
            "verification.json",
            "saving_interval",
            {"saving_interval": {"low_ratio": 1, "high_ratio": 0}},
        ),
    ],
)
def test_a_report_refuses_numbers_that_cannot_be(
    joulewise: Joulewise, run_dir: Path, name: str, field: str, change: dict[str, object]
) -> None:
    before = (run_dir / "report.html").read_bytes()
    edit(run_dir / name, lambda document: document.update(change))

    said = joulewise("report", run_dir, "--json")

    assert (1, str(run_dir / name), field) == place(said)
    assert before == (run_dir / "report.html").read_bytes()


def at_an_unlisted_clock(plan: dict[str, object]) -> None:
    plan["launches"][0]["point"]["sm_clock_mhz"] = 1681  # type: ignore[index]


def test_a_plan_at_clocks_that_the_device_lacks_names_its_file(
    joulewise: Joulewise, run_dir: Path, workload: Path
) -> None:
    plan = run_dir / "plan.json"
    edit(plan, at_an_unlisted_clock)

    verified = joulewise("verify", plan, "--workload", workload, "--json")
    reported = joulewise("report", run_dir, "--json")

    assert (1, str(plan), "sm_clock_mhz") == place(verified)
    assert (1, str(plan), "launches[0]") == place(reported)


def test_cells_measured_anew_for_another_sweep_are_refused(
    joulewise: Joulewise, run_dir: Path, workload: Path
) -> None:
    other = run_dir / "remeasured.parquet"
    device = "virtual:rtx3080ti,seed=3"
    joulewise("measure", "--device", device, "--workload", workload, *QUICK, "--out", other)

    said = joulewise("report", run_dir, "--json")

    assert (1, str(other), "remeasured_sha256") == place(said)


# --- other tools' files -------------------------------------------------------------------------

CACHE = """{"device_name": "A100", "kernel_name": "KERNEL", "tune_params_keys": ["nvml_gr_clock"],
"cache": {"1": {"nvml_gr_clock": 1000, "time": TIME, "nvml_energy": 2.0}}}"""


@pytest.mark.parametrize(
    ("kernel", "time", "field"),
    [
        ("gemm", "9" * 5000, None),
        ("\\u001b[31m", "1.0", "kernel_name"),
        ("\\ud800", "1.0", "kernel_name"),
    ],
)
def test_a_hostile_kernel_tuner_cache_is_one_error(
    joulewise: Joulewise, tmp_path: Path, kernel: str, time: str, field: str | None
) -> None:
    path = tmp_path / "cache.json"
    path.write_text(CACHE.replace("KERNEL", kernel).replace("TIME", time), encoding="utf-8")

    said = joulewise("import", "kernel-tuner", path, "--json")

    assert (1, str(path), field) == place(said)
    assert [path] == list(tmp_path.iterdir())


@unix_only
def test_a_perseus_profile_of_any_file_name_is_imported(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    path = tmp_path / "\udcff.csv"
    path.write_text("stage,instruction,frequency,time,energy\n0,forward,1000,1,2\n")

    assert 0 == joulewise("import", "perseus", path, "--json").code
