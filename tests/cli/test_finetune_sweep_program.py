"""`finetune sweep -- COMMAND` on a board of files that lives in real time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.store.clock_curves import read_curves
from tests.jetson_trees import living_tree, training_command

pytestmark = pytest.mark.integration

NODE = Path("sys/class/devfreq/17000000.gpu")
CONFIG = {
    "model_type": "bert",
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
}
# Some 70 ms a step at the highest clock.
WORK = KernelWork(
    kernel="small/step",
    kind=KernelKind.OTHER,
    dtype=Dtype.FP32,
    flop_count=2e11,
    traffic_bytes=5e8,
    compute_efficiency_ratio=0.6,
    memory_efficiency_ratio=0.8,
    core_activity_ratio=0.8,
    memory_activity_ratio=0.8,
)


def test_a_training_program_is_swept_within_one_run_and_the_board_is_as_found(
    tmp_path: Path,
) -> None:
    root = tmp_path / "board"
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    program = training_command(root, WORK, tmp_path, "--steps", "2000", "--load-s", "0.5")
    ours = [sys.executable, "-m", "joulewise", "finetune", "sweep", "--name", "mine/own"]
    with living_tree(root, "agx-orin-jp6"):
        before = [(root / NODE / name).read_text().strip() for name in ("min_freq", "max_freq")]
        done = subprocess.run(
            [
                *(*ours, "--device", f"jetson,root={root}", "--sm-clocks", "612"),
                *("--rounds", "2", "--config", "config.json", "--avg-seq-len", "48"),
                *("--out", "mine.json", "--html", "mine.html", "--json", "--", *program),
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                "JOULEWISE_STATE_DIR": str(tmp_path / "state"),
                "JOULEWISE_SOCKET": "off",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        after = [(root / NODE / name).read_text().strip() for name in ("min_freq", "max_freq")]

    assert 0 == done.returncode, done.stderr
    assert before == after
    # Standard output is the program's; the object ends standard error.
    assert "small/step" in done.stdout
    document = json.loads(done.stderr.splitlines()[-1])
    curve = read_curves(tmp_path / "mine.json")[0]
    # The highest clock is measured, too, though nobody named it.
    assert ("mine/own", (612, 1300)) == (curve.job, curve.sm_clocks_mhz)
    assert curve.features is not None
    assert (12, 48.0) == (curve.features.layer_count, curve.features.mean_sequence_count)
    # Twice the clock: not quite half the time, for traffic waits for the memory.
    assert 1.6 < curve.costs[0].time_s / curve.costs[1].time_s < 2.2
    assert document["saving_ratio"] == pytest.approx(
        1.0 - curve.best.energy_j / curve.baseline.energy_j
    )
    assert (tmp_path / "mine.html").exists()


def test_a_program_that_marks_no_step_has_no_curve(tmp_path: Path) -> None:
    root = tmp_path / "board"
    with living_tree(root, "agx-orin-jp6"):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "joulewise", "finetune", "sweep", "--out", "none.json"),
                *("--device", f"jetson,root={root}", "--", "sleep", "0.2"),
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                "JOULEWISE_STATE_DIR": str(tmp_path / "state"),
                "JOULEWISE_SOCKET": "off",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    assert 1 == done.returncode
    assert "never marked the end of a training step" in done.stderr
    assert not (tmp_path / "none.json").exists()


def _swept(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "joulewise", "finetune", "sweep", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "JOULEWISE_STATE_DIR": str(folder / "state"),
            "JOULEWISE_SOCKET": "off",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_program_that_fails_before_its_first_step_is_told_as_failed(tmp_path: Path) -> None:
    root = tmp_path / "board"
    with living_tree(root, "agx-orin-jp6"):
        done = _swept(tmp_path, "--device", f"jetson,root={root}", "--", "false")

    assert "ended with exit code 1 before it had marked a step" in done.stderr
    assert not (tmp_path / "curves.json").exists()


def test_a_training_that_ends_before_its_last_round_says_so_in_its_curve(tmp_path: Path) -> None:
    root = tmp_path / "board"
    program = training_command(root, WORK, tmp_path, "--steps", "120")
    with living_tree(root, "agx-orin-jp6"):
        done = _swept(
            tmp_path,
            *("--device", f"jetson,root={root}", "--sm-clocks", "1300", "--rounds", "999"),
            *("--out", "part.json", "--", *program),
        )

    assert 0 == done.returncode, done.stderr
    assert "of 999 rounds were measured, for training ended" in " ".join(done.stderr.split())
    kinds = [caveat.kind for caveat in read_curves(tmp_path / "part.json")[0].caveats]
    assert "NotVerified" in kinds
