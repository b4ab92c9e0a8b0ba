"""`joulewise run`: what any command takes, on the fake driver in real time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from joulewise.cli.app import run
from joulewise.control.journal import JournalEntry, write_journal
from joulewise.control.state import journal_file
from joulewise.device.nvml_gpu import open_nvml
from joulewise.simulator.fake_driver import FakeDriver
from tests.cli.conftest import Joulewise
from tests.cli.test_json_schema import assert_obeys
from tests.fake_nvml import DriverMaker


@pytest.fixture
def driver(make_driver: DriverMaker, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Two GPUs in real time, all of them to be seen."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return make_driver(device_count=2, is_virtual_time=False)


def test_the_command_has_its_own_output_and_exit_code(
    driver: FakeDriver, capfd: pytest.CaptureFixture[str]
) -> None:
    assert 0 < driver.true_energy_j(0)
    code = run(["run", "--device", "nvml:0", "sh", "-c", "echo out; echo err >&2; exit 5"])
    seen = capfd.readouterr()

    assert (5, "out\n") == (code, seen.out)
    assert seen.err.startswith("err\n")
    assert "exit 5' took" in seen.err


def test_every_gpu_has_a_row_and_the_sum_is_told(joulewise: Joulewise, driver: FakeDriver) -> None:
    before_j = driver.true_energy_j(0) + driver.true_energy_j(1)
    said = joulewise("run", "--json", "sleep", "0.2")

    assert (0, "") == (said.code, said.out)
    document = json.loads(said.err)
    assert_obeys(document, "CommandResult")
    first, second = document["gpus"]
    assert document["energy_j"] == first["energy_j"] + second["energy_j"]
    assert first["device"] != second["device"]
    assert (["sleep", "0.2"], 0, True) == (
        document["command"],
        document["exit_code"],
        document["is_simulated"],
    )
    drawn_j = driver.true_energy_j(0) + driver.true_energy_j(1) - before_j
    assert 0.2 * 2 * 30.0 < document["energy_j"] < drawn_j
    assert 0.2 <= document["time_s"]


def test_people_read_a_table_and_a_sentence(joulewise: Joulewise, driver: FakeDriver) -> None:
    said = joulewise("run", "--out", "result.json", "--", "sleep", "0.1")

    assert driver.profile(0) == driver.profile(1)
    assert "all" in said.err
    assert "Simulated. sleep 0.1 took" in said.err
    assert "on 2 GPUs. All of them stayed idle all the while." in " ".join(said.err.split())
    assert {"CounterTooCoarse", "SimulatedDevice"} == {
        caveat["kind"] for caveat in json.loads(Path("result.json").read_bytes())["caveats"]
    }


def test_clocks_that_a_dead_holder_left_set_are_told(
    joulewise: Joulewise, driver: FakeDriver, tmp_path: Path
) -> None:
    assert driver.true_energy_j(0) > 0
    gpu = open_nvml("nvml:0")
    entry = JournalEntry(
        device="nvml:0",
        device_name=gpu.identity.name,
        uuid=gpu.uuid,
        holder="process 1",
        touched=("sm_clock_mhz",),
    )
    (tmp_path / "state").mkdir(mode=0o700)
    write_journal(journal_file(gpu.identity, tmp_path / "state"), entry)
    said = joulewise("run", "--json", "--device", "nvml:0", "--", "sleep", "0.1")

    (told,) = [one for one in json.loads(said.err)["caveats"] if one["kind"] == "ForeignControl"]
    assert "SM clock" in told["seen"]
    assert "joulewise restore" in told["helps"]


@pytest.mark.integration
def test_a_gpu_that_was_lost_meanwhile_is_an_error_and_no_figure(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    driver.set_knob(0, "lost_at_s", driver.now_s() + 0.6)
    said = joulewise("run", "--json", "--device", "nvml:0", "--", "sleep", "0.8")

    document = json.loads(said.err)
    assert (1, "error", None, 0) == (
        said.code,
        document["status"],
        document["energy_j"],
        document["exit_code"],
    )
    assert "lost" in document["gpus"][0]["message"]


@pytest.mark.parametrize(
    ("arguments", "said_of_it"),
    [
        ((), "no command was given"),
        (("--", "no-such-program"), "no program 'no-such-program'"),
        (("--", "/"), "is a folder, and no program"),
        (("--device", "virtual:rtx3080ti", "--", "touch", "ran"), "no command runs on"),
        (("--device", "nvml:7", "--", "touch", "ran"), "no GPU is called '7'"),
        (("--out", "no/where.json", "--", "touch", "ran"), "no/where.json"),
    ],
)
def test_what_cannot_be_measured_does_not_run(
    joulewise: Joulewise, driver: FakeDriver, arguments: tuple[str, ...], said_of_it: str
) -> None:
    said = joulewise("run", *arguments)

    assert driver.true_energy_j(0) > 0
    assert (1, "") == (said.code, said.out)
    assert said_of_it in said.err
    assert not Path("ran").exists()


def test_without_a_gpu_nothing_runs_and_the_doctor_is_named(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    driver.fail("nvmlInitWithFlags", 9)
    driver.fail("nvmlInit_v2", 9)
    said = joulewise("run", "--json", "--", "touch", "ran")

    document = json.loads(said.err)
    assert_obeys(document, "CommandError")
    assert "joulewise doctor" in document["hint"]
    assert (1, "") == (said.code, said.out)
    assert not Path("ran").exists()


def test_what_follows_the_command_is_its_own(joulewise: Joulewise, driver: FakeDriver) -> None:
    code = "import sys, pathlib; pathlib.Path('told').write_text(' '.join(sys.argv[1:]))"
    said = joulewise("run", "--device", "nvml:0", sys.executable, "-c", code, "--json", "--", "-x")

    assert driver.true_energy_j(0) > 0
    assert 0 == said.code
    assert "--json -- -x" == Path("told").read_text()
    assert "took" in said.err
