"""Training programs under `joulewise finetune` on a living fake board, and killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.jetson_trees import living_tree, training_command

from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.finetune.step_marks import StepTail
from joulewise.store.clock_curves import read_curves

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "finetune_bert.py"
NODE = "sys/class/devfreq/17000000.gpu"
# Some 70 ms at the highest clock, bound by the SM clock.
WORK = KernelWork(
    kernel="tiny/step",
    kind=KernelKind.OTHER,
    dtype=Dtype.FP32,
    flop_count=2.4e11,
    traffic_bytes=1e9,
    compute_efficiency_ratio=0.8,
    memory_efficiency_ratio=0.7,
    core_activity_ratio=1.0,
    memory_activity_ratio=1.0,
)


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Path]:
    """An AGX Orin made of files, which lives in real time."""
    root = tmp_path / "board"
    with living_tree(root, "agx-orin-jp6"):
        yield root


def bounds(root: Path) -> tuple[str, ...]:
    names = ("min_freq", "max_freq", "governor")
    return tuple((root / NODE / name).read_text(encoding="utf-8").strip() for name in names)


def joulewise(root: Path, *arguments: str) -> list[str]:
    program = (sys.executable, "-m", "joulewise", "finetune", *arguments)
    return [word.replace("BOARD", f"jetson,root={root}") for word in program]


def comes_true(is_so: Callable[[], bool], within_s: float) -> bool:
    end_s = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True


def test_a_training_program_is_probed_proven_and_given_back(board: Path, tmp_path: Path) -> None:
    found = bounds(board)
    training = training_command(board, WORK, tmp_path, "--steps", "250", "--load-s", "0.5")
    # As if it were a long job: else there would be too few steps to learn from.
    options = ("--verify-pairs", "3", "--steps", "9000", "--json")
    command = joulewise(board, "run", "--device", "BOARD", *options, "--")
    done = subprocess.run([*command, *training], capture_output=True, text=True, check=False)
    said = json.loads(done.stderr.splitlines()[-1])

    assert done.returncode == 0
    assert done.stdout == "tiny/step: 250 steps\n"
    assert said["step_count"] == 250
    assert len(said["probed"]) == 3
    assert said["verification"]["pair_count"] >= 3
    assert said["outcome"] == "saves"
    assert said["saving_ratio"] > 0.03
    assert said["is_given_back"] is True
    assert "SimulatedDevice" in {caveat["kind"] for caveat in said["caveats"]}
    assert bounds(board) == found == ("306000000", "1300500000", "nvhost_podgov")


def test_the_exit_code_of_a_program_that_fails_is_ours_and_clocks_go_back(board: Path) -> None:
    found = bounds(board)
    command = joulewise(board, "run", "--device", "BOARD", "--")
    program = [sys.executable, "-c", "raise SystemExit(7)"]
    done = subprocess.run([*command, *program], capture_output=True, text=True, check=False)

    assert done.returncode == 7
    assert "StepsUnmarked" in done.stderr
    assert bounds(board) == found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_in_the_middle_of_probing_the_board_is_as_found(
    board: Path, tmp_path: Path, number: signal.Signals
) -> None:
    found = bounds(board)
    training = training_command(board, WORK, tmp_path, "--steps", "100000")
    command = joulewise(board, "run", "--device", "BOARD", "--")
    process = subprocess.Popen(
        [*command, *training],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert comes_true(lambda: bounds(board)[0] == bounds(board)[1], 30.0)
        process.send_signal(number)
        assert process.wait(15) != 0
        assert comes_true(lambda: bounds(board) == found, 15.0)
    finally:
        # The program outlives a joulewise that was killed: it is in a group of its own.
        end_training(tmp_path)


def end_training(folder: Path) -> None:
    """End the training whose work lies in this folder, by its process number."""
    load = folder / "board" / "joulewise-load.json"
    if load.is_file():
        pid = json.loads(load.read_text(encoding="utf-8") or "{}").get("pid")
        if pid:
            os.kill(pid, signal.SIGTERM)


def test_one_run_of_a_program_tells_its_curve(board: Path, tmp_path: Path) -> None:
    found = bounds(board)
    out = tmp_path / "curves.json"
    training = training_command(board, WORK, tmp_path, "--steps", "100000")
    options = ("--sm-clocks", "408,714,1300", "--rounds", "1", "--out", str(out))
    command = joulewise(board, "sweep", "--device", "BOARD", *options, "--")
    done = subprocess.run([*command, *training], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (curve,) = read_curves(out)

    # It was asked to end, long before its last step.
    assert curve.sm_clocks_mhz == (408, 714, 1300)
    assert curve.best.sm_clock_mhz == 714
    assert curve.is_simulated
    assert bounds(board) == found


def test_a_run_per_clock_tells_the_curve_as_well(board: Path, tmp_path: Path) -> None:
    out = tmp_path / "curves.json"
    training = training_command(board, WORK, tmp_path, "--steps", "100000")
    options = ("--whole-runs", "--sm-clocks", "714", "--steps", "30", "--out", str(out))
    command = joulewise(board, "sweep", "--device", "BOARD", *options, "--")
    done = subprocess.run([*command, *training], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (curve,) = read_curves(out)

    assert curve.costs[0].energy_j < curve.baseline.energy_j
    assert curve.costs[0].time_s > 1.5 * curve.baseline.time_s
    assert (curve.costs[0].step_count or 0) >= 15


def test_a_tiny_bert_marks_its_steps_and_a_load_of_none_saves_nothing(board: Path) -> None:
    # It computes on the CPU, so that the clock of this board is nothing to it.
    command = joulewise(board, "run", "--device", "BOARD", "--verify-pairs", "3", "--json", "--")
    program = [sys.executable, str(EXAMPLE), "--loop", "--steps", "500"]
    done = subprocess.run([*command, *program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stderr.splitlines()[-1])

    assert done.stdout == "trained 500 steps\n"
    assert said["step_count"] == 500
    assert said["outcome"] != "saves"
    assert said["saving_ratio"] is None


def test_the_trainer_of_transformers_trains_as_ever_without_joulewise(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    program = [sys.executable, str(EXAMPLE), "--steps", "12"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "trained 12 steps"
    # The trainer says what it says at its end; a loop of one's own does not.
    assert "train_runtime" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_trainer_of_transformers_marks_its_steps_and_ends_at_the_limit(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    marks = tmp_path / "steps"
    asked = {"JOULEWISE_STEPS": str(marks), "JOULEWISE_STEP_LIMIT": "6"}
    program = [sys.executable, str(EXAMPLE), "--steps", "400"]
    done = subprocess.run(
        program, capture_output=True, text=True, check=False, env={**os.environ, **asked}
    )
    assert done.returncode == 0, done.stderr
    tail = StepTail(marks)

    assert done.stdout.splitlines()[-1] == "trained 6 steps"
    assert [mark.step for mark in tail.read(time.monotonic())] == [0, 1, 2, 3, 4, 5, 6]
    assert (400, None) == (tail.planned_count, tail.doubt)


def test_the_trainer_of_transformers_is_steered_through_its_callback(
    board: Path,
) -> None:
    pytest.importorskip("accelerate")
    found = bounds(board)
    advice = ("--config", str(EXAMPLE.parent / "config.json"), "--avg-seq-len", "16")
    options = (*advice, "--no-probe", "--verify-pairs", "3", "--json")
    command = joulewise(board, "run", "--device", "BOARD", *options, "--")
    program = [sys.executable, str(EXAMPLE), "--steps", "900"]
    done = subprocess.run([*command, *program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stderr.splitlines()[-1])

    assert "train_runtime" in done.stdout
    assert done.stdout.splitlines()[-1] == "trained 900 steps"
    assert said["step_count"] == 900
    kinds = {caveat["kind"] for caveat in said["caveats"]}
    assert "StepsUnmarked" not in kinds
    # It computes on the CPU: nothing on this board depends on the clock.
    assert said["outcome"] != "saves"
    assert said["saving_ratio"] is None
    assert said["is_given_back"] is True
    assert bounds(board) == found
