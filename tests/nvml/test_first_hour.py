"""`scripts/first_hour.py` on the fake driver, and on a machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "first_hour.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstHour:
    """Runs the script in a process of its own, on a fake RTX 3080 Ti in virtual time."""

    library: Path
    folder: Path

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        fake = {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKE_NVML_STATE": str(self.folder / "driver.state"),
            "FAKE_NVML_LOG": str(self.folder / "calls.log"),
            "FAKE_NVML_TIME": "virtual",
            "FAKE_NVML_PRIV": "1",
            "JOULEWISE_STATE_DIR": str(self.folder / "leases"),
        }
        return subprocess.run(
            [sys.executable, str(SCRIPT), *arguments],
            env={**os.environ, **fake, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def ask(self, *arguments: str, **environment: str) -> dict[str, object]:
        out = self.folder / "answers.json"
        done = self.run("--out", str(out), *arguments, **environment)
        assert (0, "") == (done.returncode, done.stderr)
        document = json.loads(out.read_text(encoding="utf-8"))
        assert isinstance(document, dict)
        return document

    def calls(self) -> list[str]:
        return (self.folder / "calls.log").read_text(encoding="utf-8").splitlines()

    def setting_calls(self) -> list[str]:
        return [line for line in self.calls() if "Set" in line or "Reset" in line]


@pytest.fixture
def first_hour(fake_library: Path, tmp_path: Path) -> FirstHour:
    return FirstHour(library=fake_library, folder=tmp_path)


def answers(document: dict[str, object]) -> list[dict[str, object]]:
    found = document["answers"]
    assert isinstance(found, list)
    return found


def figures(answer: dict[str, object]) -> dict[str, float]:
    found = answer["figures"]
    assert isinstance(found, dict)
    return found


def wave_spread(found: dict[str, float]) -> float:
    """How far apart waves of different periods are counted; shares of what they draw."""
    ratios = [ratio for name, ratio in found.items() if name.startswith("wave")]
    assert 3 == len(ratios)
    return max(ratios) - min(ratios)


def test_without_being_allowed_it_sets_nothing_and_says_what_it_left_open(
    first_hour: FirstHour,
) -> None:
    document = first_hour.ask("--only", "1", "3", "4", "5", "6", "7", "8", "9", "10")

    assert first_hour.calls()
    assert [] == first_hour.setting_calls()
    assert not (first_hour.folder / "leases").exists()
    open_ = [a for a in answers(document) if "--allow-control" in str(a["why_not"])]
    assert ["1.", "3.", "4."] == [str(answer["question"])[:2] for answer in open_]
    assert all(bool(a["why_not"]) != bool(a["how"]) for a in answers(document))


def test_the_file_names_gpu_and_driver_and_no_machine(first_hour: FirstHour) -> None:
    document = first_hour.ask("--only", "6", "7")

    assert "NVIDIA GeForce RTX 3080 Ti" == document["device_name"]
    assert (True, 1) == (document["is_simulated"], document["schema_version"])
    assert "." in str(document["driver_version"])
    text = json.dumps(document)
    assert "GPU-" not in text
    assert os.uname().nodename not in text


def test_where_it_is_allowed_it_finds_the_rounding_and_gives_the_clocks_back(
    first_hour: FirstHour,
) -> None:
    document = first_hour.ask("--only", "3", "9", "--allow-control")

    rounding, rights = answers(document)
    assert {
        "asked 1140: seen_mhz": 1140,
        "asked 1143: seen_mhz": 1140,
        "asked 1146: seen_mhz": 1140,
        "asked 1149: seen_mhz": 1155,
        "asked 1152: seen_mhz": 1155,
        "asked 1155: seen_mhz": 1155,
    } == figures(rounding)
    assert figures(rights)["is_permitted"]
    names = [line.split()[2] for line in first_hour.setting_calls()]
    assert "nvmlDeviceSetGpuLockedClocks" in names
    assert "nvmlDeviceResetGpuLockedClocks" in names[-3:]
    assert [] == list((first_hour.folder / "leases").glob("*.journal.json"))


def test_rights_that_are_refused_are_an_answer(first_hour: FirstHour) -> None:
    document = first_hour.ask("--only", "3", "9", "--allow-control", FAKE_NVML_PRIV="0")

    rounding, rights = answers(document)
    assert "nvmlDeviceSetGpuLockedClocks" in str(rounding["why_not"])
    assert figures(rights)["is_permitted"] is False


def test_no_gpu_is_a_clear_error(first_hour: FirstHour) -> None:
    done = first_hour.run(FAKE_NVML_FAIL="nvmlInitWithFlags=9")

    assert (1, "") == (done.returncode, done.stdout)
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: NVML")
    assert hint.startswith("hint: ")


@pytest.mark.integration
def test_the_counter_that_sees_a_quarter_of_the_time_is_found_by_its_waves(
    first_hour: FirstHour,
) -> None:
    (answer,) = answers(
        first_hour.ask(
            "--only", "2", FAKE_NVML_PROFILE="a100-sxm", FAKE_NVML_KNOBS="counter_is_sampled=1"
        )
    )

    assert pytest.approx(0.1, rel=0.01) == figures(answer)["counter_period_s"]
    assert wave_spread(figures(answer)) > 0.1


@pytest.mark.integration
def test_with_control_every_question_that_a_script_can_answer_is_answered(
    first_hour: FirstHour,
) -> None:
    document = first_hour.ask("--allow-control")

    left = {str(answer["question"]).partition(".")[0] for answer in answers(document)}
    assert {str(number) for number in range(1, 11)} == left
    not_answered = [str(a["question"])[:2] for a in answers(document) if a["why_not"]]
    # Unloading, what calls cost in virtual time, and Nsight Compute.
    assert ["5.", "8.", "10"] == not_answered
    assert wave_spread(figures(answers(document)[1])) < 0.02
    lags_s = [value for name, value in figures(answers(document)[0]).items() if "lag_s" in name]
    assert lags_s
    assert all(value == pytest.approx(0.01, rel=0.01) for value in lags_s)
