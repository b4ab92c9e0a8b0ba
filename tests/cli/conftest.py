"""The command line as a user calls it, within this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from joulewise.cli.app import run
from tests.fake_nvml import driver, fake_library, make_driver

__all__ = ["driver", "fake_library", "make_driver"]

# Ten kernels would do; the point is few operating points, so that a sweep takes a second.
FEW_POINTS = ("--sm-clocks", "auto,1680,1050", "--mem-clocks", "auto,9501")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Exit code and what was written where."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, object]:
        """The one JSON object on stdout."""
        loaded = json.loads(self.out)
        assert isinstance(loaded, dict)
        return loaded


Joulewise = Callable[..., Said]


@pytest.fixture
def joulewise(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Joulewise:
    """Run one command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path / "state"))

    def call(*arguments: str | Path) -> Said:
        code = run([str(argument) for argument in arguments])
        seen = capsys.readouterr()
        return Said(code=code, out=seen.out, err=seen.err)

    return call


SWEEP_CSV = """kernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j
a,,,1.0,100
a,1000,,1.1,80
a,1500,,1.0,95
b,,,2.0,300
b,1000,,2.0,240
b,1500,,2.0,280
"""


@pytest.fixture
def sweep_csv(tmp_path: Path) -> Path:
    """A small table by hand: kernel b is memory-bound, kernel a is not."""
    path = tmp_path / "table.csv"
    path.write_text(SWEEP_CSV, encoding="utf-8")
    return path


# Kernel a loses time at every lower clock, kernel b none down to 1000 MHz.
LOSSY_CSV = """kernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j
a,,,1.0,100
a,1000,,1.1,80
a,1500,,1.02,97
b,,,2.0,300
b,1000,,2.0,240
b,1500,,2.0,280
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A small table in which a lower clock is not free for every kernel."""
    path = tmp_path / "table.csv"
    path.write_text(LOSSY_CSV, encoding="utf-8")
    return path
