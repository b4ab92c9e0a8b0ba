"""A fake board that a process moves in real time, and a stand-in for what trains on it."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from joulewise.domain.errors import BusyError, InputError
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.simulator.fake_training import (
    LIMIT_VARIABLE,
    STEPS_VARIABLE,
    STOP_VARIABLE,
    StepClock,
    StepMarks,
    Training,
    read_work,
    train,
)
from joulewise.simulator.jetson_layouts import TreeMarker, layout, read_marker, write_layout
from joulewise.simulator.jetson_live import (
    LOAD_PATH,
    LivingBoard,
    Load,
    is_process,
    run_living,
    start_living,
    write_load,
)

BOARD = "agx-orin-jp6"
NODE = "sys/class/devfreq/17000000.gpu"
WORK = KernelWork(
    kernel="tiny/step",
    kind=KernelKind.OTHER,
    dtype=Dtype.FP32,
    flop_count=4e9,
    traffic_bytes=1e7,
    compute_efficiency_ratio=0.8,
    memory_efficiency_ratio=0.8,
    core_activity_ratio=0.8,
    memory_activity_ratio=0.8,
)
# No process has the number that the kernel begins with.
NOBODY = 2**22 + 1


def _clock_mhz(root: Path) -> int:
    return int((root / NODE / "cur_freq").read_text(encoding="utf-8")) // 1_000_000


def _follow(board: LivingBoard, duration_s: float = 0.02) -> None:
    time.sleep(duration_s)
    board.follow()


def test_a_living_board_says_which_process_moves_it_and_when_it_no_longer_does(
    tmp_path: Path,
) -> None:
    board = start_living(tmp_path / "tree", BOARD, options="noise=0")
    marker = TreeMarker(board=BOARD, time="real", pid=os.getpid())
    assert read_marker(tmp_path / "tree") == marker
    board.leave()
    assert read_marker(tmp_path / "tree") == TreeMarker(board=BOARD, time="virtual", pid=None)


def test_what_is_loaded_runs_until_it_is_unloaded(tmp_path: Path) -> None:
    board = start_living(tmp_path, BOARD, options="noise=0")
    _follow(board)
    assert _clock_mhz(tmp_path) == 306
    write_load(tmp_path, Load(kernel=WORK.kernel, work=WORK, pid=os.getpid()))
    _follow(board)
    _follow(board)
    assert _clock_mhz(tmp_path) == 1300
    write_load(tmp_path, None)
    _follow(board)
    _follow(board)
    assert _clock_mhz(tmp_path) == 306
    assert not (tmp_path / LOAD_PATH.lstrip("/")).exists()


def test_a_load_ends_with_the_process_that_made_it(tmp_path: Path) -> None:
    board = start_living(tmp_path, BOARD, options="noise=0")
    write_load(tmp_path, Load(kernel=WORK.kernel, work=WORK, pid=NOBODY))
    assert not is_process(NOBODY)
    for _ in range(3):
        _follow(board)
    assert _clock_mhz(tmp_path) == 306


@pytest.mark.parametrize("text", ["{", "[]", '{"kernel": "a"}', ""])
def test_a_load_that_makes_no_sense_is_told_and_nothing_runs(tmp_path: Path, text: str) -> None:
    board = start_living(tmp_path, BOARD, options="noise=0")
    (tmp_path / LOAD_PATH.lstrip("/")).write_text(text, encoding="utf-8")
    _follow(board)
    assert "no load" in (board.trouble or "")
    write_load(tmp_path, Load(kernel=WORK.kernel, work=replace(WORK, dtype=Dtype.FP8)))
    _follow(board)
    assert "fp8" in (board.trouble or "")
    write_load(tmp_path, Load(kernel=WORK.kernel, work=WORK))
    _follow(board)
    assert board.trouble is None


def test_a_tree_that_somebody_else_moves_and_a_folder_with_other_things_are_left_alone(
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("all of it", encoding="utf-8")
    with pytest.raises(InputError, match="not empty"):
        start_living(other, BOARD)
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]
    tree = tmp_path / "tree"
    write_layout(layout(BOARD), tree)
    with pytest.raises(InputError, match="thor-jp7"):
        start_living(tree, "thor-jp7")
    marker = tree / "joulewise-fake-board.json"
    said = msgspec.json.encode(TreeMarker(board=BOARD, time="real", pid=os.getppid()))
    marker.write_bytes(said)
    with pytest.raises(BusyError, match=str(os.getppid())):
        start_living(tree, None)
    marker.write_bytes(msgspec.json.encode(TreeMarker(board=BOARD, time="real", pid=NOBODY)))
    start_living(tree, None).leave()


def test_a_board_whose_tree_is_gone_ends(tmp_path: Path) -> None:
    board = start_living(tmp_path, BOARD, options="noise=0")
    (tmp_path / "joulewise-fake-board.json").unlink()
    run_living(board, threading.Event().wait, pytest.fail, 0.001)
    assert read_marker(tmp_path) is None


def _marks(file: Path) -> list[tuple[int, float]]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [(line["step"], line["time_s"]) for line in lines]


@pytest.fixture
def pinned(tmp_path: Path) -> Path:
    """A tree that stands still, with its clock at 612 MHz."""
    root = tmp_path / "tree"
    write_layout(layout(BOARD), root)
    (root / NODE / "cur_freq").write_text("612000000\n", encoding="utf-8")
    return root


def test_steps_take_as_long_as_the_physics_says_at_the_clock_that_the_files_tell(
    pinned: Path, tmp_path: Path
) -> None:
    training = Training(work=WORK, step_count=20, noise="0")
    durations_s = {}
    clock = StepClock(pinned, layout(BOARD), training)
    for clock_hz in (612_000_000, 1_224_000_000):
        (pinned / NODE / "cur_freq").write_text(f"{clock_hz}\n", encoding="utf-8")
        marks = StepMarks({STEPS_VARIABLE: str(tmp_path / f"{clock_hz}")})
        assert train(pinned, training, marks, threading.Event()) == 20
        told = _marks(tmp_path / f"{clock_hz}")
        assert [step for step, _ in told] == list(range(21))
        durations_s[clock_hz] = told[-1][1] - told[0][1]
        assert durations_s[clock_hz] == pytest.approx(20 * clock.step_s(0), rel=1e-3)
    assert durations_s[612_000_000] > 1.5 * durations_s[1_224_000_000]


def test_training_ends_after_the_steps_that_are_allowed_and_when_it_is_asked_to(
    pinned: Path, tmp_path: Path
) -> None:
    training = Training(work=WORK, step_count=10_000, noise="0")
    over = threading.Event()
    assert train(pinned, training, StepMarks({LIMIT_VARIABLE: "7"}), over) == 7
    stop = tmp_path / "stop"
    stop.touch()
    assert train(pinned, training, StepMarks({STOP_VARIABLE: str(stop)}), over) == 0
    over.set()
    assert train(pinned, training, StepMarks({}), over) == 0
    assert not (pinned / LOAD_PATH.lstrip("/")).exists()


def test_a_work_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "work.json"
    file.write_bytes(msgspec.json.encode(WORK))
    assert read_work(file) == WORK
    file.write_text('{"kernel": 3}', encoding="utf-8")
    with pytest.raises(InputError, match=r"work\.json"):
        read_work(file)
    with pytest.raises(InputError, match="no fake board"):
        train(tmp_path, Training(work=WORK, step_count=1), StepMarks({}), threading.Event())
