"""Processes that are killed while they hold a Jetson, and what their guard leaves of its files.

Run as a program, this file is such a process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.file_gpu import ROOT, comes_true

from joulewise.control.journal import is_left
from joulewise.control.state import journal_file
from joulewise.device.jetson_gpu import open_jetson
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.jetson_layouts import TreeMarker, layout, write_layout, write_marker
from joulewise.workflow.leasing import lease_on

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="guard processes are for Linux"
)
NODE = "sys/class/devfreq/17000000.gpu"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
STOCK = ("nvhost_podgov", "306000000", "1300500000", "0")
PINNED = ("userspace", "816000000", "816000000", "1")
LOCKED_HZ = "665600000"
POINTS = (
    OperatingPoint(sm_clock_mhz=612, mem_clock_mhz=2133),
    OperatingPoint(sm_clock_mhz=918),
)
GIVING_BACK_S = 2.0
HOLDING, FEWEST_STEP_COUNT = 0, 15


def _board(folder: Path, found: tuple[str, str, str, str]) -> Path:
    """A fake board as somebody left it, of which this process says that it lives."""
    root = folder / "board"
    write_layout(layout("agx-orin-jp6"), root)
    write_marker(root, TreeMarker(board="agx-orin-jp6", time="real", pid=os.getpid()))
    governor, least, most, lock = found
    texts = {f"{NODE}/governor": governor, f"{NODE}/min_freq": least, f"{NODE}/max_freq": most}
    texts |= {f"{EMC}/mrq_rate_locked": lock}
    texts |= {f"{EMC}/rate": LOCKED_HZ} if lock == "1" else {}
    for path, text in texts.items():
        (root / path).write_text(f"{text}\n", encoding="ascii")
    return root


def _state(root: Path) -> tuple[str, ...]:
    names = (f"{NODE}/governor", f"{NODE}/min_freq", f"{NODE}/max_freq", f"{EMC}/mrq_rate_locked")
    return tuple((root / name).read_text(encoding="ascii").strip() for name in names)


def _kill_at(folder: Path, found: tuple[str, str, str, str], step: int) -> int:
    """A holder that is killed at this step; how many there were, where it came to its end."""
    root = _board(folder, found)
    state_dir = folder / "state"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JOULEWISE_STATE_DIR": str(state_dir),
        "JOULEWISE_SOCKET": "off",
    }
    died = subprocess.run(
        [sys.executable, __file__, str(root), str(step)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    heard = died.stdout.strip()
    assert died.returncode == (0 if heard else -signal.SIGKILL), died.stderr
    journal = journal_file(open_jetson(f"jetson,root={root}").identity, state_dir)
    assert comes_true(lambda: _state(root) == found and not is_left(journal), GIVING_BACK_S), (
        f"killed at step {step}: {_state(root)}, and it was {found}"
    )
    if found[-1] == "1":
        assert (root / EMC / "rate").read_text(encoding="ascii").strip() == LOCKED_HZ
    return int(heard) if heard else step


@pytest.mark.parametrize("found", [PINNED])
def test_killed_while_it_holds_two_clocks_the_guard_leaves_a_pinned_board_pinned_as_found(
    found: tuple[str, str, str, str], tmp_path: Path
) -> None:
    """Least, most, governor and memory lock; never unpinned, and never to the top."""
    _kill_at(tmp_path, found, HOLDING)


@pytest.mark.integration
@pytest.mark.parametrize("found", [STOCK, PINNED])
def test_killed_before_any_write_at_all_everything_is_as_found(
    found: tuple[str, str, str, str], tmp_path: Path
) -> None:
    last = _kill_at(tmp_path / "whole", found, 1_000_000)
    assert last > FEWEST_STEP_COUNT
    for step in range(1 if found is PINNED else 2, last + 1, 2):
        _kill_at(tmp_path / f"step-{step}", found, step)


def _die_at(root: Path, step: int) -> None:
    """Be killed before the so-many-th write to a file of the board or of the lease."""
    seen = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        is_write = event == "open" and arguments[1] != "r" and str(root.parent) in str(arguments[0])
        if is_write or event in {"os.rename", "os.remove"}:
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    gpu = open_jetson(f"jetson,root={root},memory_lock=on")
    sys.addaudithook(count)
    with lease_on(gpu) as lease:
        for point in POINTS:
            lease.apply(point)
        if step == HOLDING:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.write(f"{seen}\n")


if __name__ == "__main__":
    _die_at(Path(sys.argv[1]), int(sys.argv[2]))
