"""`tune` killed or stopped at any stage, then repeated in the same folder: the same result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from joulewise.store.cells import journal_path

PATIENCE_S = 60
POINTS = ("--sm-clocks", "auto,1680", "--mem-clocks", "auto,9501", "--pairs", "20")
NAMES = ("sweep.parquet", "remeasured.parquet", "plan.json", "verification.json")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are a Unix matter")


def tune(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "joulewise", "tune", "--out", str(folder), *POINTS, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "JOULEWISE_STATE_DIR": str(folder.parent / "state")},
    )


def stop_once_there(folder: Path, name: str, number: signal.Signals) -> tuple[int, bytes]:
    """Begin or go on, and send a signal as soon as a file is newly there."""
    path = folder / name
    path.unlink(missing_ok=True)
    process = tune(folder)
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s and process.poll() is None:
        if path.exists() and path.stat().st_size > 0:
            break
        time.sleep(0.002)
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in NAMES}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    process = tune(folder)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert 0 == process.returncode, err.decode()
    return folder


@pytest.mark.integration
def test_a_tune_killed_at_each_stage_and_repeated_gives_the_same_files(
    undisturbed: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    for name in ("sweep.parquet.cells", "sweep.parquet", "plan.json"):
        code, _ = stop_once_there(folder, name, signal.SIGKILL)
        assert -signal.SIGKILL == code
        # What was measured stays until the report is written, however late the kill.
        assert journal_path(folder / "sweep.parquet").exists()

    process = tune(folder)
    _, err = process.communicate(timeout=PATIENCE_S)

    assert 0 == process.returncode, err.decode()
    assert contents(undisturbed) == contents(folder)
    assert not journal_path(folder / "sweep.parquet").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_tune_says_so_in_one_json_object(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "run"

    code, out = stop_once_there(folder, "sweep.parquet", number)

    said = json.loads(out)
    assert (1, "error") == (code, said["status"])
    assert "stopped; what was measured so far is kept" == said["message"]
    assert journal_path(folder / "sweep.parquet").exists()
