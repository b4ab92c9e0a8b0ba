"""A fake Jetson board as a process, its adapter beside it, and a training program on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from tests.jetson_trees import living_tree, training_command

from joulewise.device.jetson_gpu import open_jetson
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.simulator.jetson_layouts import layout_names, read_marker

pytestmark = pytest.mark.integration

WORK = KernelWork(
    kernel="small/step",
    kind=KernelKind.OTHER,
    dtype=Dtype.FP32,
    flop_count=6e10,
    traffic_bytes=1e8,
    compute_efficiency_ratio=0.8,
    memory_efficiency_ratio=0.8,
    core_activity_ratio=0.8,
    memory_activity_ratio=0.8,
)


def _training(root: Path, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        training_command(root, WORK, folder, "--noise", "0", *arguments),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "JOULEWISE_STEPS": str(folder / "steps")},
    )


def _comes_true(is_so: Callable[[], bool], within_s: float = 10.0) -> bool:
    end_s = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.01)
    return True


def _step_times_s(folder: Path) -> list[float]:
    lines = (folder / "steps").read_text(encoding="utf-8").splitlines()
    marks = [json.loads(line)["time_s"] for line in lines]
    return [later - earlier for earlier, later in pairwise(marks)]


@pytest.mark.parametrize("name", layout_names())
def test_the_adapter_reads_and_sets_every_board_while_it_lives(name: str, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    with living_tree(root, name, "--noise", "0"):
        gpu = open_jetson(f"jetson,root={root}")
        clock = gpu.clock_grid().sm_clocks_mhz[3]
        found = gpu.knob_state()
        gpu.request(OperatingPoint(sm_clock_mhz=clock))
        assert _comes_true(lambda: 0.97 * clock <= (gpu.sample().sm_clock_mhz or 0) <= clock)
        gpu.reset()
        assert gpu.knob_state() == found
        assert (gpu.sample().power_w or 0.0) > 0
    marker = read_marker(root)
    assert marker is not None
    assert (marker.time, marker.pid) == ("virtual", None)


def test_a_training_program_runs_faster_at_a_higher_clock_and_draws_more(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    with living_tree(root, "agx-orin-jp6", "--noise", "0"):
        gpu = open_jetson(f"jetson,root={root}")
        powers_w, times_s = [], []
        for clock in (408, 1224):
            gpu.request(OperatingPoint(sm_clock_mhz=clock))
            folder = tmp_path / str(clock)
            folder.mkdir()
            program = _training(root, folder, "--steps", "40", "--load-s", "0.2")
            assert _comes_true((folder / "steps").exists)
            time.sleep(0.5)
            sample = gpu.sample()
            powers_w.append(sample.power_w or 0.0)
            assert sample.busy_ratio is not None
            assert sample.busy_ratio > 0.5
            assert "40 steps" in program.communicate(timeout=60)[0]
            assert program.returncode == 0
            steps_s = _step_times_s(folder)
            assert len(steps_s) == 40
            times_s.append(sum(steps_s) / len(steps_s))
        assert times_s[0] / times_s[1] == pytest.approx(3.0, rel=0.15)
        assert powers_w[1] > 1.5 * powers_w[0]
        assert _comes_true(lambda: gpu.sample().busy_ratio == 0.0)


def test_a_training_program_that_is_killed_leaves_the_board_idle(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    with living_tree(root, "agx-orin-jp6", "--noise", "0"):
        gpu = open_jetson(f"jetson,root={root}")
        program = _training(root, tmp_path, "--steps", "100000")
        assert _comes_true(lambda: (gpu.sample().busy_ratio or 0.0) > 0.5)
        program.send_signal(signal.SIGKILL)
        program.communicate(timeout=10)
        assert _comes_true(lambda: gpu.sample().busy_ratio == 0.0)


def test_a_training_program_ends_at_a_signal_with_its_status(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    with living_tree(root, "agx-orin-jp6"):
        program = _training(root, tmp_path, "--steps", "100000")
        assert _comes_true((tmp_path / "steps").exists)
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=10)
        assert program.returncode == 128 + signal.SIGTERM


def test_a_second_process_does_not_take_a_tree_that_one_moves(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    with living_tree(root, "agx-orin-jp6") as process:
        command = [sys.executable, "-m", "joulewise.simulator.fake_jetson", str(root)]
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert second.returncode == 2
        assert str(process.pid) in second.stderr


def test_a_board_that_was_killed_is_taken_over_as_it_was_left(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    with living_tree(root, "agx-orin-jp6") as process:
        open_jetson(f"jetson,root={root}").request(OperatingPoint(sm_clock_mhz=612))
        process.kill()
        process.wait(10)
    with living_tree(root, "agx-orin-jp6"):
        gpu = open_jetson(f"jetson,root={root}")
        assert gpu.board_state().sm_clock_max_mhz == 612
