"""SIGKILL in the middle of a sweep, then --resume: the same table as an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from joulewise.store.cells import journal_path
from joulewise.store.sweeps import read_sweep, sweep_sha256

POINTS = ("--sm-clocks", "auto,1680,1050,840", "--mem-clocks", "auto,9501,5001")
DEVICE = "virtual:rtx3080ti,seed=3"
PATIENCE_S = 60

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a Unix matter")


def measure(out: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "joulewise", "measure", "--device", DEVICE, "--out", str(out)]
    return subprocess.Popen(
        [*command, *POINTS, "--json", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def kill_after(out: Path, journal_bytes: int) -> None:
    """Begin or go on, and kill without warning once the journal has grown past a size."""
    process = measure(out, "--resume")
    deadline_s = time.monotonic() + PATIENCE_S
    journal = journal_path(out)
    while time.monotonic() < deadline_s and process.poll() is None:
        if journal.exists() and journal.stat().st_size > journal_bytes:
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    assert -signal.SIGKILL == process.returncode


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "sweep.parquet"
    process = measure(out)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert 0 == process.returncode, err.decode()
    return out


def test_a_sweep_killed_three_times_and_resumed_is_the_same_table(
    undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sweep.parquet"
    for journal_bytes in (40_000, 140_000, 260_000):
        kill_after(out, journal_bytes)
        assert not out.exists()

    process = measure(out, "--resume")
    _, err = process.communicate(timeout=PATIENCE_S)

    assert 0 == process.returncode, err.decode()
    assert not journal_path(out).exists()
    whole, resumed = read_sweep(undisturbed), read_sweep(out)
    assert np.array_equal(whole.time_s, resumed.time_s)
    assert np.array_equal(whole.energy_j, resumed.energy_j)
    assert sweep_sha256(whole) == sweep_sha256(resumed)
    assert whole.cell_caveats == resumed.cell_caveats


def test_a_killed_sweep_without_resume_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "sweep.parquet"
    kill_after(out, 40_000)
    kept = journal_path(out).read_bytes()

    process = measure(out)
    said, _ = process.communicate(timeout=PATIENCE_S)

    assert 1 == process.returncode
    assert b"--resume" in said
    assert journal_path(out).read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])


def test_resuming_with_another_seed_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "sweep.parquet"
    kill_after(out, 40_000)

    process = measure(out, "--resume", "--device", "virtual:rtx3080ti,seed=4")
    said, _ = process.communicate(timeout=PATIENCE_S)

    assert 1 == process.returncode
    assert b"seed=3" in said
    assert b"seed=4" in said
