"""The block of docs/trying-a-fake-board.md ends in a verified saving, and nothing is left set."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boards run Linux"),
]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "trying-a-fake-board.md"
NODE = "fake-board/sys/class/devfreq/17000000.gpu"
AT_MOST_S = 400.0


def test_the_block_ends_in_a_verified_saving(tmp_path: Path) -> None:
    block = re.search(
        r"^```text\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert block is not None
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("python", ""), ("joulewise", "-m joulewise")):
        file = programs / name
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', "ascii")
        file.chmod(0o755)
    done = subprocess.run(
        ["bash", "-e", "-c", block[1]],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "JOULEWISE_STATE_DIR": str(tmp_path / "state"),
            "JOULEWISE_SOCKET": "off",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=AT_MOST_S,
    )
    said = " ".join(done.stderr.split())

    assert done.returncode == 0, done.stderr
    assert "bert-base/qnli: 1200 steps" in done.stdout
    assert re.search(r"joulewise: trying \d+, \d+ and \d+ MHz from step \d+ on", said)
    assert re.search(r"joulewise: holding \d+ MHz, which saves .* from step \d+ on", said)
    assert re.search(r"MHz saves \d.* by \d+ pairs of blocks against the governor", said)
    assert (tmp_path / NODE / "min_freq").read_text("ascii").strip() == "306000000"
    assert (tmp_path / NODE / "max_freq").read_text("ascii").strip() == "1300500000"
