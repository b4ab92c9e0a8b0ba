"""`joulewise apply` on a fake board that another process moves in real time, and its sudden end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from joulewise.control.journal import is_left
from joulewise.control.state import journal_file
from joulewise.device.jetson_gpu import open_jetson
from joulewise.domain.points import KnobState
from tests.file_gpu import comes_true
from tests.jetson_trees import living_tree

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boards run Linux"),
]
BOARD = "agx-orin-jp6"
PINNED_HZ = "816000000"
GIVING_BACK_S = 3.0


def _bounds(state: KnobState) -> dict[str, str]:
    kept = ("governor", "min_freq", "max_freq")
    return {Path(one.path).name: one.text for one in state.settings if Path(one.path).name in kept}


def test_killed_while_a_command_runs_the_board_is_pinned_as_it_was_found(tmp_path: Path) -> None:
    root, state_dir = tmp_path / "board", tmp_path / "state"
    device = f"jetson,root={root}"
    with living_tree(root, BOARD):
        gpu = open_jetson(device)
        node = Path(gpu.knob_state().settings[0].path).parent
        for name in ("max_freq", "min_freq"):
            (node / name).write_text(PINNED_HZ, encoding="ascii")
        found = _bounds(gpu.knob_state())
        program = subprocess.Popen(
            [
                *(sys.executable, "-m", "joulewise", "apply", "--device", device),
                *("--sm-clock", "612", "--", "sleep", "60"),
            ],
            env={**os.environ, "JOULEWISE_STATE_DIR": str(state_dir), "JOULEWISE_SOCKET": "off"},
            start_new_session=True,
        )
        try:
            assert comes_true(lambda: _bounds(gpu.knob_state())["max_freq"] == "612000000", 30.0)
            journal = journal_file(gpu.identity, state_dir)
            assert is_left(journal)
        finally:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        assert comes_true(lambda: _bounds(gpu.knob_state()) == found, GIVING_BACK_S)
        assert comes_true(lambda: not is_left(journal), GIVING_BACK_S)
        assert found["min_freq"] == found["max_freq"] == PINNED_HZ
