"""`finetune sweep` on built-in jobs, and what curves come to, on the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from inline_snapshot import snapshot

from joulewise.store.clock_curves import read_curves, write_curves
from joulewise.store.schemas import json_schemas
from tests.cli.conftest import Joulewise
from tests.report.test_ucurve_page import ONE, OTHER, UNKNOWN, plain

ORIN = "virtual:agx-orin"
FEW = ("--jobs", "bert-base/sst2,pythia-70m/qnli", "--sm-clocks", "306,714,1300")


def test_curves_read_like_this(joulewise: Joulewise, tmp_path: Path) -> None:
    write_curves(tmp_path / "curves.json", [ONE.curve, OTHER.curve])

    said = joulewise("finetune", "curves", "curves.json", "--html", "page.html")

    assert (0, "") == (said.code, said.err)
    assert plain(said.out) == snapshot("""\
job              best MHz        saving      time  fast MHz  saving      time
bert-base/sst2        612  20.0 % ± 1.1  +112.4 %       918  19.0 %   +41.6 %
pythia-70m/qnli       306  30.0 % ± 1.0  +324.8 %       306  30.0 %  +324.8 %

Caveats
  SelectionBias: the best of 4 clocks was chosen by the numbers that it is told by
    The best of many noisy numbers is partly luck; fresh runs will promise less. joulewise finetune
    run checks its clock on paired blocks of fresh steps.
  EnergyOfModule: three rails are counted
    The energy includes the CPU and the memory of the module, not the GPU alone. Compare only with
    figures of the same scope.
  OutliersSeen: 2 of 10 cells.
    Some windows lay far from the rest; medians were used. Look for another load on the machine.

Simulated Jetson AGX Orin (virtual:agx-orin). Of 2 jobs the least energy lies at 306 to 612 MHz: on
average 25.0 % less energy than the governor takes, 20.0 % to 30.0 %, at +218.6 % time. The fastest
clocks within 2 % of that energy: 24.5 % less energy, at +183.2 % time. At the edge of the clocks
measured: pythia-70m/qnli.
Curves: curves.json
Figure: page.html
""")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_saving_within_two_errors_is_claimed_neither_in_words_nor_in_json(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    write_curves(tmp_path / "curves.json", [UNKNOWN.curve])

    words = plain(joulewise("finetune", "curves", "curves.json").out)
    document = joulewise("finetune", "curves", "curves.json", "--json").document
    assert words.split("\n\n")[0] == snapshot("""\
job       best MHz     saving      time  fast MHz     saving     time
train.py       612  not shown  +112.4 %       918  not shown  +41.6 %
train.py: 99.00 J ± 1.0 % at 612 MHz, 100.0 J ± 1.0 % under the governor\
""")
    assert "no saving against the governor is shown" in words
    assert document["saving_ratio"] is None
    jobs = document["jobs"]
    assert isinstance(jobs, list)
    assert (None, False) == (jobs[0]["saving_ratio"], jobs[0]["is_saving_shown"])
    # What was measured stays, with its errors.
    assert (100.0, 1.0) == (jobs[0]["baseline"]["energy_j"], jobs[0]["baseline"]["energy_error_j"])
    assert (99.0, 0.99) == (jobs[0]["costs"][1]["energy_j"], jobs[0]["costs"][1]["energy_error_j"])
    assert 0.04 < jobs[0]["highest_saving_ratio"] < 0.05


@pytest.mark.parametrize("width_count", [80, 120])
def test_the_table_keeps_its_lines_at_every_usual_width(
    joulewise: Joulewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width_count: int
) -> None:
    write_curves(tmp_path / "curves.json", [ONE.curve, OTHER.curve, UNKNOWN.curve])
    monkeypatch.setenv("COLUMNS", str(width_count))
    lines = joulewise("finetune", "curves", "curves.json").out.splitlines()

    # No heading is cut.
    assert ["fast", "MHz", "saving", "time"] == lines[0].split()[-4:]
    assert max(map(len, lines)) <= width_count
    assert ["job", "bert-base/sst2", "pythia-70m/qnli", "train.py"] == [
        line.split()[0] for line in lines[:4]
    ]


def test_the_highest_clock_is_swept_though_it_was_not_named(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    # Else 612 MHz would be called the highest, and every saving against it be 0.
    few = ("--jobs", "bert-base/sst2", "--sm-clocks", "306,510,612")
    said = joulewise("finetune", "sweep", *few, "--out", "c.json", "--json")

    assert (306, 510, 612, 1300) == read_curves(tmp_path / "c.json")[0].sm_clocks_mhz
    jobs = said.document["jobs"]
    assert isinstance(jobs, list)
    assert 1300 == jobs[0]["highest_sm_clock_mhz"]
    assert jobs[0]["highest_saving_ratio"] > 0.05


def test_a_curve_without_the_highest_clock_of_its_board_calls_none_its_maximum(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    part = replace(ONE.curve, costs=ONE.curve.costs[:3])
    write_curves(tmp_path / "curves.json", [part])
    said = joulewise("finetune", "curves", "curves.json", "--html", "page.html")

    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "highest measured" in page
    for text in (said.out, page.split('<script type="application/json" id="figures">')[0]):
        assert "maximum" not in text
        assert "pinned max" not in text


def test_built_in_jobs_are_swept_on_the_virtual_orin_and_written(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    said = joulewise("finetune", "sweep", *FEW, "--out", "c.json", "--html", "c.html", "--json")

    assert (0, "") == (said.code, said.err)
    curves = read_curves(tmp_path / "c.json")
    assert ["bert-base/sst2", "pythia-70m/qnli"] == [curve.job for curve in curves]
    assert (306, 714, 1300) == curves[0].sm_clocks_mhz
    assert ORIN == curves[0].device
    jobs = said.document["jobs"]
    assert isinstance(jobs, list)
    assert [one["best_sm_clock_mhz"] for one in jobs] == [
        curve.best.sm_clock_mhz for curve in curves
    ]
    costs = jobs[0]["costs"]
    assert [cost.energy_j for cost in curves[0].costs] == [cost["energy_j"] for cost in costs]
    kinds = {caveat["kind"] for caveat in said.document["caveats"]}  # type: ignore[attr-defined]
    assert {"SimulatedDevice", "EnergyOfModule", "SelectionBias"} <= kinds
    assert (tmp_path / "c.html").exists()
    jsonschema.Draft202012Validator(json_schemas()["result"]).validate(said.document)


def test_the_same_sweep_gives_the_same_curves_and_another_seed_others(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    def swept(device: str, out: str) -> bytes:
        said = joulewise("finetune", "sweep", "--device", device, *FEW, "--out", out, "--json")
        assert 0 == said.code, said.out
        return (tmp_path / out).read_bytes()

    first = swept(ORIN, "a.json")
    assert first == swept(ORIN, "b.json")
    assert first != swept(f"{ORIN},seed=1", "c.json")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--jobs", "bert/sst3"), "no fine-tuning job is called 'bert/sst3'"),
        (("--models", "gpt"), "no 'gpt' among the built-in models"),
        (("--jobs", "all", "--tasks", "rte"), "not both"),
        (("--jobs", " ,"), "no name in it"),
        (("--sm-clocks", "auto,510"), "auto is no clock that can be pinned"),
        (("--sm-clocks", "511"), "the device lists no clock of 511 MHz"),
        (("--sm-clocks", "x"), "'x' is not a clock"),
        (("--mem-clock", "204,665"), "more than one clock"),
        (("--mem-clock", "1"), "the device lists no clock of 1 MHz"),
        (("--rounds", "0"), "0 rounds cannot be measured"),
        (("--window", "-1"), "'-1' is no time"),
        (("--window", "soon"), "'soon' is no time"),
        (("--steps", "5"), "--steps does not fit here"),
        (("--whole-runs",), "--whole-runs does not fit here"),
        (("--config", "config.json"), "--config does not fit here"),
        (("--device", "virtual:orin"), "no virtual GPU is called 'orin'"),
        (("--out", "no/where.json"), "the folder it should go to does not exist"),
        (("--out", "x", "--html", "x"), "cannot both go here"),
        (("--jobs", "all", "--", "true"), "--jobs does not fit here"),
        (("--mem-clock", "665", "--", "true"), "--mem-clock does not fit here"),
        (("--rounds", "2", "--whole-runs", "--", "true"), "whole runs are one a clock"),
        (("--steps", "0", "--", "true"), "0 steps cannot be measured"),
        (("--config", "config.json", "--", "true"), "both"),
        (("--", "no-such-program-here"), "no program 'no-such-program-here'"),
        (("--device", ORIN, "--", "true"), "command"),
    ],
)
def test_what_cannot_be_swept_is_refused_in_one_sentence(
    joulewise: Joulewise, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    said = joulewise("finetune", "sweep", *arguments)

    assert (1, "") == (said.code, said.out)
    assert words in said.err
    assert "Traceback" not in said.err
    assert [] == [path for path in tmp_path.iterdir() if path.name != "state"]


def test_a_recording_knows_no_jobs_and_hardware_needs_a_program(
    joulewise: Joulewise, sweep_csv: Path
) -> None:
    recording = joulewise("finetune", "sweep", "--device", f"recorded:{sweep_csv}", *FEW[:2])
    hardware = joulewise("finetune", "sweep", "--device", "nvml:0", *FEW[:2])

    assert (1, 1) == (recording.code, hardware.code)
    assert "is a recording" in recording.err
    assert "-- python train.py" in hardware.err


def test_a_caveat_can_fail_a_sweep(joulewise: Joulewise) -> None:
    said = joulewise("finetune", "sweep", *FEW, "--fail-on", "SimulatedDevice")

    assert 2 == said.code


def test_a_broken_curve_file_is_named(joulewise: Joulewise, tmp_path: Path) -> None:
    worse = replace(ONE.curve, job="a")
    write_curves(tmp_path / "curves.json", [worse])
    text = (tmp_path / "curves.json").read_text(encoding="utf-8")
    (tmp_path / "curves.json").write_text(text.replace('"energy_j": 80.0', '"energy_j": 0'))

    said = joulewise("finetune", "curves", "curves.json", "--json")

    assert 1 == said.code
    assert ("curves.json", "curves[0].costs[1].energy_j") == (
        said.document["file"],
        said.document["field"],
    )


def test_a_sweep_keeps_every_other_file_that_lay_in_its_place(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    write_curves(tmp_path / "c.json", [ONE.curve, OTHER.curve])
    few = ("finetune", "sweep", "--jobs", "bert-base/sst2", "--out", "c.json", "--sm-clocks")

    first = joulewise(*few, "612")
    again = joulewise(*few, "612")
    third = joulewise(*few, "714", "--json").document

    assert (ONE.curve, OTHER.curve) == read_curves(tmp_path / "c.json.former")
    assert "The file that lay there: c.json.former" in first.out
    # The same numbers once more are no other file.
    assert "lay there" not in again.out
    assert "c.json.former2" == third["former_curves"]
    assert (612, 1300) == read_curves(tmp_path / "c.json.former2")[0].sm_clocks_mhz


def test_of_one_clock_nothing_was_chosen(joulewise: Joulewise, tmp_path: Path) -> None:
    write_curves(tmp_path / "c.json", [replace(ONE.curve, costs=ONE.curve.costs[:1])])

    assert "SelectionBias" not in joulewise("finetune", "curves", "c.json").out
