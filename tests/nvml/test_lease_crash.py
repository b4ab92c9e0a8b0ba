"""A process killed under a lease on a GPU that others reach. Run as a program, it is that process.

The GPU is the fake driver's, so locks and limits outlive their process as on hardware.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from joulewise.control.journal import read_journal
from joulewise.control.lease import hold
from joulewise.control.state import state_file
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.errors import BusyError
from joulewise.domain.points import KnobState, OperatingPoint
from joulewise.simulator.fake_driver import FakeDriver

LOW = OperatingPoint(sm_clock_mhz=1200, power_limit_w=200.0)
FOUND = KnobState(power_limit_w=300.0)
PATIENCE_S = 30.0


@contextmanager
def _holder(library: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that has lowered the limit and locked the clock."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder / "state")],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(library.parent),
            "FAKE_NVML_STATE": str(folder / "driver-0.state"),
            "FAKE_NVML_PRIV": "1",
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "holding\n"
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        process.stdout.close()


def _lowered_before_anybody_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody set a limit below the board's highest, so that this is what was found."""
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    open_nvml("nvml:0").request(OperatingPoint(power_limit_w=FOUND.power_limit_w))


def test_a_limit_lowered_by_a_killed_process_is_put_back_by_the_next_lease(
    driver: FakeDriver, fake_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lowered_before_anybody_came(monkeypatch)
    with _holder(fake_library, tmp_path):
        pass
    gpu = open_nvml("nvml:0", timer=driver.timer)
    journal = state_file(gpu.identity, tmp_path / "state", ".journal.json")
    entry = read_journal(journal)
    left = gpu.knob_state()
    with hold(gpu, state_dir=tmp_path / "state") as lease:
        limits = gpu.clock_grid().power_limits
        assert limits is not None
        assert (FOUND.power_limit_w, FOUND) == (limits.found_w, gpu.knob_state())
        lease.apply(OperatingPoint(power_limit_w=250.0))

    assert entry is not None
    assert (KnobState(power_limit_w=200.0), FOUND) == (left, entry.found)
    assert ("power_limit_w", "sm_clock_mhz") == entry.touched
    assert FOUND == gpu.knob_state()
    assert not journal.exists()


def test_a_gpu_that_another_process_holds_is_refused_by_its_uuid(
    driver: FakeDriver, fake_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lowered_before_anybody_came(monkeypatch)
    gpu = open_nvml("nvml:0", timer=driver.timer)
    with _holder(fake_library, tmp_path) as process:
        with (
            pytest.raises(
                BusyError, match=rf"held by process {process.pid} \(.*test_lease_crash\.py\)$"
            ),
            hold(gpu, state_dir=tmp_path / "state"),
        ):
            pass
        assert LOW.power_limit_w == gpu.knob_state().power_limit_w
    assert f"{gpu.uuid}.lock" == state_file(gpu.identity, tmp_path, ".lock").name


def _hold_and_wait(state_dir: Path) -> None:
    with hold(open_nvml("nvml:0"), state_dir=state_dir) as lease:
        lease.apply(LOW)
        sys.stdout.write("holding\n")
        sys.stdout.flush()
        time.sleep(PATIENCE_S)


if __name__ == "__main__":
    _hold_and_wait(Path(sys.argv[1]))
