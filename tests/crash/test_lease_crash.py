"""Processes that hold a lease and end badly. Run as a program, this file is such a process."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.file_gpu import AS_FOUND, LOW, PATIENCE_S, FileGpu, Program, say

from joulewise.control.lease import hold
from joulewise.domain.errors import BusyError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills processes as Unix does")


def _holder(folder: Path, way: str) -> Program:
    """A process of its own that holds the GPU of a folder."""
    return Program(__file__, str(folder), way)


def _gpu(folder: Path) -> FileGpu:
    return FileGpu(folder)


def _state(folder: Path) -> Path:
    return folder / "state"


def test_clocks_left_by_a_killed_process_are_reset_by_the_next_lease(tmp_path: Path) -> None:
    holder = _holder(tmp_path, "wait")
    holder.wait_until_holding()
    assert holder.end(signal.SIGKILL) == -signal.SIGKILL
    gpu = _gpu(tmp_path)
    assert gpu.label() == LOW.label
    with hold(gpu, state_dir=_state(tmp_path)):
        assert gpu.label() == AS_FOUND.label
    with hold(gpu, state_dir=_state(tmp_path)):
        pass
    assert gpu.history() == [AS_FOUND.label, LOW.label, AS_FOUND.label]


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 128 + 15), (signal.SIGHUP, 128 + 1), (signal.SIGINT, -signal.SIGINT)],
)
def test_a_process_ended_by_a_signal_gives_its_clocks_back(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    holder = _holder(tmp_path, "wait")
    holder.wait_until_holding()
    assert holder.end(number) == status
    assert _gpu(tmp_path).label() == AS_FOUND.label
    assert list(_state(tmp_path).glob("*.journal.json")) == []


@pytest.mark.parametrize("way", ["error", "exit", "thread"])
def test_a_process_that_ends_by_itself_gives_its_clocks_back(way: str, tmp_path: Path) -> None:
    holder = _holder(tmp_path, way)
    holder.wait_until_holding()
    assert holder.join() == {"error": 1, "exit": 3, "thread": 0}[way]
    assert _gpu(tmp_path).history()[-2:] == [LOW.label, AS_FOUND.label]


def test_a_forked_child_does_not_end_its_parents_lease(tmp_path: Path) -> None:
    holder = _holder(tmp_path, "fork")
    holder.wait_until_holding()
    assert _gpu(tmp_path).label() == LOW.label
    assert holder.end(signal.SIGTERM) == 128 + 15
    assert _gpu(tmp_path).label() == AS_FOUND.label


def test_a_second_process_is_refused_and_told_who_holds_the_gpu(tmp_path: Path) -> None:
    holder = _holder(tmp_path, "wait")
    holder.wait_until_holding()
    try:
        with (
            pytest.raises(
                BusyError,
                match=rf"held by process {holder.process.pid} \(.*test_lease_crash\.py\)$",
            ),
            hold(_gpu(tmp_path), state_dir=_state(tmp_path)),
        ):
            pass
        assert _gpu(tmp_path).label() == LOW.label
    finally:
        holder.end(signal.SIGKILL)


@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.005, 0.01, 0.02, 0.05])
def test_killed_while_setting_clocks_over_and_over_nothing_stays_set(
    delay_s: float, tmp_path: Path
) -> None:
    holder = _holder(tmp_path, "churn")
    holder.wait_until_holding()
    time.sleep(delay_s)
    holder.end(signal.SIGKILL)
    gpu = _gpu(tmp_path)
    with hold(gpu, state_dir=_state(tmp_path)):
        assert gpu.label() == AS_FOUND.label


def _hold_badly(folder: Path, way: str) -> None:
    gpu = _gpu(folder)
    if way == "thread":
        # A daemon thread is never unwound: it stops where it is when the program ends.
        threading.Thread(target=_hold_badly, args=(folder, "wait"), daemon=True).start()
        while gpu.label() != LOW.label:
            time.sleep(0.01)
        return
    if way == "churn":
        say("holding")
        while True:
            with hold(gpu, state_dir=_state(folder)) as lease:
                lease.apply(LOW)
    with hold(gpu, state_dir=_state(folder)) as lease:
        lease.apply(LOW)
        if way == "fork" and os.fork() == 0:
            lease.release()
            sys.exit(0)
        if way == "fork":
            os.wait()
        say("holding")
        _end(way)


def _end(way: str) -> None:
    if way == "error":
        sys.stderr.close()
        raise RuntimeError(way)
    if way == "exit":
        sys.exit(3)
    time.sleep(PATIENCE_S)


if __name__ == "__main__":
    _hold_badly(Path(sys.argv[1]), sys.argv[2])
