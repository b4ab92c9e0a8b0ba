"""Devices on the command line: which there are, which was taken, and which cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from joulewise.workload.transformer.presets import preset_names
from tests.cli.conftest import FEW_POINTS, Joulewise


def test_devices_and_workloads_are_listed(joulewise: Joulewise) -> None:
    devices = joulewise("devices")
    workloads = joulewise("workloads")

    assert (0, 0) == (devices.code, workloads.code)
    assert devices.out == snapshot("""\
device                   name                   kind                     SM  memory       lag  stall
virtual:rtx3080ti        NVIDIA GeForce RTX     simulated               127       5  10.00 ms   none
                         3080 Ti
virtual:a100-sxm         NVIDIA A100-SXM4       simulated                81       1  15.00 ms   none
virtual:h100-sxm         NVIDIA H100 SXM5       simulated,              119       1  20.00 ms   none
                                                uncalibrated
virtual:rtx4090          NVIDIA GeForce RTX     simulated,              194       5  10.00 ms   none
                         4090                   uncalibrated
virtual:agx-orin         NVIDIA Jetson AGX      simulated                11       4  5.500 ms   none
                         Orin 64 GB
virtual:orin-nano-super  NVIDIA Jetson Orin     simulated                 8       4  5.500 ms   none
                         Nano Super

SM and memory are numbers of clocks. A new operating point comes late by the lag, and at every
change the GPU waits for the stall; set them with lag=5ms or stall=1ms. joulewise doctor tells what
can be read and set on the GPUs here.
""")
    lines = workloads.out.splitlines()
    assert "\n".join(lines[:4]) == snapshot("""\
workload       what it is
gpt3-xl        one training iteration of GPT-3 XL (1.3 B) in llm.c: 46 kernels, 897 launches;
               options batch=40, tp=1, node_gpus=
gpt2           124 M decoder: 12 layers, hidden 768; seq=1024\
""")
    assert set(preset_names()) == {line.split()[0] for line in lines[3:]}


@pytest.mark.parametrize("width", ["60", "80"])
def test_device_strings_are_never_broken(
    joulewise: Joulewise, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)

    lines = joulewise("devices").out.splitlines()

    assert max(map(len, lines)) <= int(width)
    first_words = {line.split()[0] for line in lines if line.strip()}
    assert {"virtual:rtx3080ti", "virtual:a100-sxm", "virtual:h100-sxm"} <= first_words


def test_piped_output_is_as_wide_as_columns_says(
    joulewise: Joulewise, sweep_csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = joulewise("plan", sweep_csv).out
    monkeypatch.setenv("COLUMNS", "60")
    narrow = joulewise("plan", sweep_csv).out

    assert 60 < max(map(len, wide.splitlines())) <= 100
    assert max(map(len, narrow.splitlines())) <= 60
    assert wide.split() == narrow.split()


def test_every_closing_sentence_says_that_it_is_simulated_and_on_what(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    said = [
        joulewise("measure", *FEW_POINTS),
        joulewise("plan", "sweep.parquet", "--workload", "gpt3-xl", "--out", "plan.json"),
        joulewise("verify", "plan.json", "--pairs", "2", "--out", "verification.json"),
        joulewise("report", tmp_path),
        joulewise("replay", "plan.json", "--iterations", "1"),
    ]

    assert [0] * len(said) == [one.code for one in said]
    for one in said:
        assert "Simulated NVIDIA GeForce RTX 3080 Ti (virtual:rtx3080ti" in " ".join(
            one.out.split()
        )
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h1>Simulated NVIDIA GeForce RTX 3080 Ti (virtual:rtx3080ti" in page


def test_a_sweep_tells_programs_what_was_measured_on_what(joulewise: Joulewise) -> None:
    asked = ("--sm-clocks", "auto,1680", "--mem-clocks", "9501", "--power-limits", "300")

    document = joulewise("measure", *asked, "--json").document

    points = document.pop("points")
    assert points == [
        {"sm_clock_mhz": None, "mem_clock_mhz": None, "power_limit_w": None},
        {"sm_clock_mhz": None, "mem_clock_mhz": 9501, "power_limit_w": 300.0},
        {"sm_clock_mhz": 1680, "mem_clock_mhz": 9501, "power_limit_w": 300.0},
    ]
    expected = {
        "device_name": "NVIDIA GeForce RTX 3080 Ti",
        "is_simulated": True,
        "workload": "gpt3-xl",
        "kernel_count": 46,
        "point_count": 3,
        "window_count": 46 * 3 * 3,
    }
    assert expected == {name: document[name] for name in expected}
    assert str(document["device"]).startswith("virtual:rtx3080ti")


@pytest.mark.parametrize("command", ["transitions", "sensors"])
def test_a_recording_is_not_probed(joulewise: Joulewise, command: str) -> None:
    said = joulewise("probe", command, "--device", "recorded:sweep.parquet")

    assert 1 == said.code
    assert "error: recorded:sweep.parquet is a recording" in said.err
    assert "hint: Probe the device that was recorded" in said.err


def test_a_replayed_recording_is_not_called_physics(joulewise: Joulewise, sweep_csv: Path) -> None:
    workload = sweep_csv.with_name("own.json")
    launches = [{"kernel": name, "pass": "forward"} for name in ("a", "b")]
    own = {"schema_version": 1, "name": "own", "launches": launches}
    workload.write_text(json.dumps(own), encoding="utf-8")

    said = joulewise("measure", "--device", "recorded:table.csv", "--workload", workload)

    assert 0 == said.code, said.err
    told = " ".join(said.out.split())
    assert "RecordingReplayed: replays table.csv (device: not named in a CSV file;" in told
    assert "Replayed from recorded:table.csv. 2 kernels at 3 operating points" in told
    assert "physics" not in told
    assert "Simulated" not in told


@pytest.mark.parametrize("device", ["nvml:0", "virtual:rtx4090,noise=0", "nvml"])
def test_a_device_without_its_option_is_told_the_option(joulewise: Joulewise, device: str) -> None:
    said = joulewise("measure", device)

    assert 1 == said.code
    assert f"hint: Did you mean --device {device}?" in said.err


@pytest.mark.parametrize("text", ["210-2100", "210..2100", "210:2100:15", "auto,210 - 2100"])
def test_ranges_of_clocks_are_told_from_slips(joulewise: Joulewise, text: str) -> None:
    said = joulewise("measure", "--sm-clocks", text)

    assert "hint: Ranges are not supported; name the clocks: --sm-clocks auto,1680," in said.err
    assert "Ranges" not in joulewise("measure", "--sm-clocks", "fast").err


def test_a_folder_that_is_none_is_told_what_it_should_hold(joulewise: Joulewise) -> None:
    said = joulewise("report", "nodir")

    assert "error: nodir: there is no such run folder" in said.err
    assert "sweep.parquet and a plan.json" in said.err


def test_a_table_of_changes_fits_eighty_columns(
    joulewise: Joulewise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = ("--sm-clocks", "840,1155", "--mem-clocks", "9501", "--power-limits", "auto,250")

    lines = joulewise("probe", "transitions", "--device", "virtual:rtx3080ti", *asked).out

    rows = [line for line in lines.splitlines() if line.startswith(("840/9501", "1155/9501"))]
    assert len(rows) >= 2 * 4
    assert all(len(row) <= 80 and "…" not in row for row in rows)
    assert "1155/9501 @250W" in lines
