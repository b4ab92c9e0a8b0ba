"""A measurement that is killed at any moment loses nothing that it had finished."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from joulewise.store.cells import CellJournal, journal_path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills with SIGKILL")

MEASURE_FOR_EVER = """
import sys
from pathlib import Path
from joulewise.domain.measurement import CellMeasurement, Window
from joulewise.domain.points import OperatingPoint
from joulewise.store.cells import CellJournal

journal = CellJournal.open_for(Path(sys.argv[1]), {"device": "x"}, resume=True)
count = len(journal.finished())
print("open", flush=True)
while True:
    count += 1
    window = Window(window=0, time_s=1.0, energy_j=float(count), duration_s=5.0, launch_count=5,
                    sm_clock_held_mhz=None, temp_c=None)
    journal.append(CellMeasurement(kernel="k", point=OperatingPoint(sm_clock_mhz=count), run="r",
                                   idle_power_w=None, windows=(window,) * 20))
    print(count, flush=True)
"""

WRITE_FOR_EVER = """
import sys
from pathlib import Path
from joulewise.store.atomic import write_atomically

while True:
    for letter in (b"a", b"b"):
        write_atomically(Path(sys.argv[1]), letter * 2_000_000)
        print("written", flush=True)
"""


def kill_soon(program: str, path: Path, after_s: float) -> list[str]:
    """Start a program, let it work a while after its first word, kill it; what it said."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()
    process.stdout.close()
    assert -signal.SIGKILL == process.wait()
    return (first + rest).split()


def test_cells_finished_before_a_kill_are_there_and_at_most_one_more(tmp_path: Path) -> None:
    out = tmp_path / "sweep.parquet"
    for after_s in (0.0, 0.01, 0.1):
        said = kill_soon(MEASURE_FOR_EVER, out, after_s)

        with CellJournal.open_for(out, {"device": "x"}, resume=True) as journal:
            finished = journal.finished()
        clocks = [point.sm_clock_mhz for _, point in finished]
        energies = [cell.windows[0].energy_j for cell in finished.values()]
        assert list(range(1, len(finished) + 1)) == clocks == energies
        if said[-1] != "open":
            assert len(finished) - int(said[-1]) in {0, 1}
    assert [journal_path(out)] == list(tmp_path.iterdir())


def test_a_killed_measurement_gives_its_lock_back(tmp_path: Path) -> None:
    out = tmp_path / "sweep.parquet"
    kill_soon(MEASURE_FOR_EVER, out, 0.0)

    with CellJournal.open_for(out, {"device": "x"}, resume=True):
        pass


def test_a_file_whose_writer_was_killed_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    for after_s in (0.0, 0.02, 0.05):
        kill_soon(WRITE_FOR_EVER, path, after_s)

        content = path.read_bytes()
        assert content in {b"a" * 2_000_000, b"b" * 2_000_000}
        others = [file.name for file in tmp_path.iterdir() if file != path]
        assert all(name.startswith(".plan.json.") and name.endswith(".tmp") for name in others)
