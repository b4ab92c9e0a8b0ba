"""`joulewise pipeline` with bad input: one sentence that names file and field, exit 1."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Joulewise
from tests.stage_profiles import perseus_row, perseus_rows, write_perseus

ASKED = ("--microbatches", "4", "--blocking-power", "80", "--json")

_TWO = perseus_rows(2)
ROWS = {
    "no backward": ([row for row in _TWO if "1,backward" not in row], "instruction", "stage 1"),
    "no stage between": ([*_TWO, *(row.replace("1,", "3,", 1) for row in _TWO[6:])], "stage", "2"),
    "another instruction": ([*_TWO, "1,optimizer,1410,1,1"], "instruction", "optimizer"),
    "negative time": ([*_TWO[:-1], "1,backward,990,-1,5"], "time", "-1"),
    "no number": ([*_TWO[:-1], "1,backward,990,nan,5"], "time", "NaN"),
    "negative energy": ([*_TWO[:-1], "1,backward,990,1,-5"], "energy", "-5"),
    "no clock": ([*_TWO[:-1], "1,backward,fast,1,5"], "frequency", "fast"),
    "no baseline": (
        [row for row in _TWO if row != perseus_row(1, "forward", 1410)],
        "kernel",
        "stage1/forward",
    ),
    "a stage of two names": (
        [*_TWO, perseus_row(1, "forward", 1410).replace("1,", "01,", 1)],
        "stage",
        "twice",
    ),
    "no stages at all": (["x,forward,1410,1,1"], "kernel", "stagex/forward"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_bad_profile_names_file_and_field(
    joulewise: Joulewise, tmp_path: Path, name: str
) -> None:
    rows, field, word = ROWS[name]
    path = write_perseus(tmp_path / "bad.csv", rows)

    said = joulewise("pipeline", "plan", path, *ASKED, "--out", "pipeline.json")

    assert 1 == said.code
    assert (str(path), field) == (said.document["file"], said.document["field"])
    assert word in str(said.document["message"])
    assert not (tmp_path / "pipeline.json").exists()


OPTIONS = {
    "too many stages": (("--stages", "9"), "stages", "up to stage 1"),
    "a straggler without a stage": (("--straggler", "10%"), "straggler", "10%"),
    "a straggler without a number": (("--straggler", "1:slow"), "straggler", "slow"),
    "a faster straggler": (("--straggler", "1:-10%"), "straggler", "faster"),
    "a straggler beyond the end": (("--straggler", "2:10%"), "straggler", "no stage 2"),
    "one straggler twice": (("--straggler", "1:1%", "--straggler", "1:2%"), "straggler", "twice"),
    "two budgets": (("--time", "3", "--max-slowdown", "1%"), "time", "both"),
    "no time": (("--time", "0"), "time", "0"),
    "time that is no number": (("--time", "nan"), "time", "nan"),
    "negative power": (("--blocking-power", "-1"), "blocking-power", "-1"),
    "infinite power": (("--blocking-power", "inf"), "blocking-power", "inf"),
    "power of a city": (("--blocking-power", "1e20"), "blocking-power", "1e+06 W"),
    "power in other units": (("--blocking-power", "80kW"), "blocking-power", "80kW"),
    "an endless straggler": (("--straggler", "0:1e300%"), "straggler", "100000%"),
    "endless time": (("--time", "1e300"), "time", "1e+300"),
    "an endless slowdown": (("--max-slowdown", "1e300%"), "max-slowdown", "1e+09 s"),
    "more operations than are planned": (("--microbatches", "6000"), "microbatches", "24000"),
    "more operations by chunks": (
        ("--microbatches", "6", "--schedule", "interleaved", "--chunks", "1000"),
        "microbatches",
        "2 stages x 6 micro-batches x 1000 chunks",
    ),
    "one point": (("--points", "1"), "points", "from 2 to 1000"),
    "too many points": (("--points", "1001"), "points", "from 2 to 1000"),
    "chunks without interleaving": (("--chunks", "2"), "chunks", "1f1b"),
    "launches of a whole stage": (("--workload", "gpt3-xl"), "workload", "whole operations"),
    "unknown schedule": (("--schedule", "zigzag"), "schedule", "zigzag"),
    "no micro-batches": (("--microbatches", "0"), "microbatches", "equal to 1"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_bad_option_names_itself(joulewise: Joulewise, tmp_path: Path, name: str) -> None:
    options, field, word = OPTIONS[name]
    path = write_perseus(tmp_path / "two.csv", _TWO)

    said = joulewise("pipeline", "plan", path, *ASKED, *options)

    assert (1, field) == (said.code, said.document["field"])
    assert word in str(said.document["message"])


def test_chunks_that_do_not_fit_the_micro_batches_are_refused(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    path = write_perseus(tmp_path / "three.csv", perseus_rows(3))

    said = joulewise("pipeline", "plan", path, *ASKED, "--schedule", "interleaved")

    assert (1, "error") == (said.code, said.document["status"])
    assert "micro-batches" in str(said.document["message"])


def test_a_profile_of_all_stages_stands_alone(joulewise: Joulewise, tmp_path: Path) -> None:
    first = write_perseus(tmp_path / "first.csv", _TWO)
    second = write_perseus(tmp_path / "second.csv", _TWO)

    said = joulewise("pipeline", "plan", first, second, *ASKED)

    assert (1, str(first)) == (said.code, said.document["file"])
    assert "one kernel-level sweep per stage" in str(said.document["hint"])


def test_a_kernel_beside_stages_is_refused(joulewise: Joulewise, tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    path.write_text(
        "kernel,sm_clock_mhz,time_s,energy_j\nstage0/forward,1410,1,1\ngemm,1410,1,1\n",
        encoding="utf-8",
    )

    said = joulewise("pipeline", "plan", path, *ASKED)

    assert (str(path), "kernel") == (said.document["file"], said.document["field"])
    assert "'gemm'" in str(said.document["message"])


def test_kernels_need_a_workload(joulewise: Joulewise, sweep_csv: Path) -> None:
    said = joulewise("pipeline", "plan", sweep_csv, *ASKED)

    assert (1, str(sweep_csv), "workload") == (
        said.code,
        said.document["file"],
        said.document["field"],
    )


def test_fewer_sweeps_than_stages_are_refused(joulewise: Joulewise, sweep_csv: Path) -> None:
    said = joulewise("pipeline", "plan", sweep_csv, sweep_csv, "--stages", "3", *ASKED)

    assert (1, "stages") == (said.code, said.document["field"])
    assert "2 kernel-level sweeps for 3 stages" in str(said.document["message"])


def test_a_frontier_has_two_points_or_more(joulewise: Joulewise, tmp_path: Path) -> None:
    path = write_perseus(tmp_path / "two.csv", _TWO)

    said = joulewise("pipeline", "frontier", path, *ASKED, "--points", "1")

    assert (1, "points") == (said.code, said.document["field"])
    assert "a frontier has from 2 to 1000 points, not 1" == said.document["message"]


def test_power_may_have_its_unit(joulewise: Joulewise, tmp_path: Path) -> None:
    path = write_perseus(tmp_path / "two.csv", _TWO)

    said = joulewise("pipeline", "plan", path, *ASKED, "--blocking-power", "75.5 W")

    assert 75.5 == said.document["blocking_power_w"]


def test_a_workload_without_a_backward_pass_names_its_own_file(
    joulewise: Joulewise, sweep_csv: Path, tmp_path: Path
) -> None:
    kernel = sweep_csv.read_text("utf-8").splitlines()[1].split(",")[0]
    workload = tmp_path / "forward.json"
    document = {"schema_version": 1, "name": "half", "launches": [{"kernel": kernel}]}
    workload.write_text(json.dumps(document), encoding="utf-8")

    said = joulewise("pipeline", "plan", sweep_csv, "--workload", workload, *ASKED)

    assert (1, str(workload)) == (said.code, said.document["file"])
    assert "nothing in its backward pass" in str(said.document["message"])


def _written(joulewise: Joulewise, tmp_path: Path) -> Path:
    profile = write_perseus(tmp_path / "two.csv", _TWO)
    path = tmp_path / "run" / "pipeline.json"
    path.parent.mkdir()
    joulewise("pipeline", "plan", profile, *ASKED, "--points", "0", "--out", path)
    return path


@pytest.mark.parametrize("field", ["operations", "baseline_operations"])
def test_an_operation_before_those_that_it_waits_for_is_refused(
    joulewise: Joulewise, tmp_path: Path, field: str
) -> None:
    path = _written(joulewise, tmp_path)
    document = json.loads(path.read_text("utf-8"))
    second = [one for one in document[field] if one["stage"] == 1]
    first = min(second, key=lambda one: one["start_s"])
    first["start_s"] = 0.0
    path.write_text(json.dumps(document), encoding="utf-8")

    said = joulewise("report", path.parent, "--json")

    place = document[field].index(first)
    assert (1, f"{field}[{place}].start_s") == (said.code, said.document["field"])
    assert "which it waits for" in str(said.document["message"])


def test_a_shape_that_its_schedule_cannot_run_names_the_file(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    path = _written(joulewise, tmp_path)
    document = json.loads(path.read_text("utf-8"))
    document["request"]["shape"]["schedule"] = "interleaved"
    path.write_text(json.dumps(document), encoding="utf-8")

    said = joulewise("report", path.parent, "--json")

    assert (str(path), "request.shape") == (said.document["file"], said.document["field"])


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_pipeline_that_is_a_link_to_itself_is_there_and_cannot_be_read(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    path = tmp_path / "pipeline.json"
    path.symlink_to(path)

    said = joulewise("report", tmp_path, "--json")

    assert (1, str(path)) == (said.code, said.document["file"])
