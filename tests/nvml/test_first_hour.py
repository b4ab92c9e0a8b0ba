"""`scripts/first_hour.py` on the fake driver, and on a machine without a GPU."""

from __future__ import annotations

import importlib.util
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
        return self._run(str(SCRIPT), *arguments, **environment)

    def run_script(self, text: str) -> None:
        """Run another program on the same driver."""
        done = self._run("-c", text)
        assert (0, "") == (done.returncode, done.stderr)

    def _run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        fake = {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKE_NVML_STATE": str(self.folder / "driver.state"),
            "FAKE_NVML_LOG": str(self.folder / "calls.log"),
            "FAKE_NVML_TIME": "virtual",
            "FAKE_NVML_PRIV": "1",
            "JOULEWISE_STATE_DIR": str(self.folder / "leases"),
        }
        return subprocess.run(
            [sys.executable, *arguments],
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


def assert_nothing_tells_machines_apart(document: dict[str, object]) -> None:
    assert "NVIDIA GeForce RTX 3080 Ti" == document["device_name"]
    assert (True, 1) == (document["is_simulated"], document["schema_version"])
    assert "." in str(document["driver_version"])
    text = json.dumps(document)
    assert "GPU-" not in text
    assert os.uname().nodename not in text


def test_without_being_allowed_it_sets_nothing_and_says_what_it_left_open_and_no_names(
    first_hour: FirstHour,
) -> None:
    document = first_hour.ask("--only", "1", "3", "4", "5", "6", "7", "8", "9", "10")

    assert first_hour.calls()
    assert [] == first_hour.setting_calls()
    assert not (first_hour.folder / "leases").exists()
    open_ = [a for a in answers(document) if "--allow-control" in str(a["why_not"])]
    assert ["1.", "3.", "4.", "5.", "10"] == [str(answer["question"])[:2] for answer in open_]
    assert_nothing_tells_machines_apart(document)
    newer = figures(answers(document)[4])
    assert {"is_clock_accumulated", "is_activity_accumulated"} < set(newer)
    assert all(bool(a["why_not"]) != bool(a["how"]) for a in answers(document))


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
    # What calls cost in virtual time, and Nsight Compute where it is not installed.
    assert {"8."} <= set(not_answered) <= {"8.", "10"}
    assert wave_spread(figures(answers(document)[1])) < 0.02
    lags_s = [value for name, value in figures(answers(document)[0]).items() if "lag_s" in name]
    assert lags_s
    assert all(value == pytest.approx(0.01, rel=0.01) for value in lags_s)


@pytest.mark.integration
@pytest.mark.parametrize("is_persistent", [False, True])
def test_what_a_driver_that_unloads_does_to_a_lock_is_seen_and_the_lock_given_back(
    first_hour: FirstHour, *, is_persistent: bool
) -> None:
    first_hour.run_script(
        "import pynvml; pynvml.nvmlInit()\n"
        "gpu = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
        f"pynvml.nvmlDeviceSetPersistenceMode(gpu, {int(is_persistent)})\n"
    )

    (answer,) = answers(first_hour.ask("--only", "5", "--allow-control"))

    found = figures(answer)
    assert is_persistent == found["is_persistent"]
    assert is_persistent != found["is_dropped"]
    assert is_persistent != found["is_counter_reset"]
    assert is_persistent == (found["seen_mhz"] == found["locked_mhz"])
    names = [line.split()[2] for line in first_hour.setting_calls()]
    assert "nvmlDeviceResetGpuLockedClocks" == names[-1]
    assert [] == list((first_hour.folder / "leases").glob("*.journal.json"))


@pytest.mark.integration
def test_a_profiler_that_sets_clocks_is_caught_in_the_act(first_hour: FirstHour) -> None:
    """A stand-in for `ncu`, which locks the clock at its base as that does by default."""
    program = first_hour.folder / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys, pynvml\n"
        "if sys.argv[1:3] == ['--clock-control', 'base']:\n"
        "    pynvml.nvmlInit()\n"
        "    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
        "    pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 1365, 1365)\n",
        encoding="utf-8",
    )
    program.chmod(0o700)

    (answer,) = answers(
        first_hour.ask(
            "--only", "10", "--allow-control", PATH=f"{program.parent}:{os.environ['PATH']}"
        )
    )

    found = figures(answer)
    assert found["locked_mhz"] == found["none: lowest_mhz"] == found["none: highest_mhz"]
    assert found["locked_mhz"] == found["none: after_mhz"]
    assert 1365 == found["base: highest_mhz"] == found["base: after_mhz"]


@pytest.mark.integration
def test_reading_is_timed_with_and_without_load(first_hour: FirstHour) -> None:
    (answer,) = answers(first_hour.ask("--only", "8", FAKE_NVML_TIME="real"))

    assert {"sample_idle_s", "sample_under_load_s"} == set(figures(answer))
    assert all(0 < time_s < 0.1 for time_s in figures(answer).values())


def test_what_goes_wrong_in_one_question_takes_no_other_answer_along() -> None:
    """PyTorch, for one, raises errors of its own."""
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        spec = importlib.util.spec_from_file_location("first_hour", SCRIPT)
        assert spec is not None
        assert spec.loader is not None
        script = importlib.util.module_from_spec(spec)
        sys.modules["first_hour"] = script
        spec.loader.exec_module(script)
    finally:
        sys.path.remove(str(SCRIPT.parent))

    def fail() -> None:
        raise RuntimeError("CUDA error: out of memory")

    answer = script.answered("2. Why?", fail)

    assert ("2. Why?", {}) == (answer.question, answer.figures)
    assert "RuntimeError: CUDA error: out of memory" == answer.why_not
