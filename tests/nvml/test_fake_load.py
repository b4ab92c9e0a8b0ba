"""The load that is shipped with the fake driver, as people start it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fake_nvml import REPOSITORY

LOAD = REPOSITORY / "tools" / "fake-nvml" / "load.py"


def load(folder: Path, *arguments: str, time: str = "real") -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "FAKE_NVML_STATE": str(folder / "load.state"),
        "FAKE_NVML_TIME": time,
    }
    return subprocess.run(
        [sys.executable, str(LOAD), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("kind", [(), ("--memory-bound",)], ids=["compute", "memory"])
@pytest.mark.usefixtures("fake_library")
def test_it_works_for_so_long_and_tells_how_much(tmp_path: Path, kind: tuple[str, ...]) -> None:
    said = load(tmp_path, "--seconds", "0.2", *kind)

    assert (0, "") == (said.returncode, said.stderr)
    launch_count, words = said.stdout.split(" ", 1)
    assert "launches in 0.2 s\n" == words
    assert 20 < int(launch_count) < 2000


@pytest.mark.usefixtures("fake_library")
def test_where_time_stands_still_or_there_is_no_such_gpu_it_says_so(tmp_path: Path) -> None:
    missing = load(tmp_path, "--gpu", "3", "--seconds", "0.1")
    (tmp_path / "load.state").unlink()
    still = load(tmp_path, "--seconds", "0.1", time="virtual")

    assert (1, 1) == (missing.returncode, still.returncode)
    assert "GPU 3 takes no work" in missing.stderr
    assert "time stands still" in still.stderr
