"""Processes that hold a lease and end badly. Run as a program, this file is such a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from joulewise.control.lease import hold
from joulewise.domain.errors import BusyError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import (
    ClockGrid,
    KnobState,
    OperatingPoint,
    PowerLimitRange,
    Touched,
)
from joulewise.domain.ports import GpuIdentity

LOW = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=5001, power_limit_w=200.0)
FOUND_W = 320.0
AS_FOUND = OperatingPoint(power_limit_w=FOUND_W)
PATIENCE_S = 30.0

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills processes as Unix does")


class FileGpu:
    """A GPU whose knobs outlive the processes that set them: they are kept in a file.

    Its limit was lowered to `FOUND_W` before anybody came, so that the highest is not the one
    to go back to.
    """

    identity = GpuIdentity(spec="file", name="File GPU", uuid="GPU-file", is_simulated=False)
    energy_counter_period_s = 0.1

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found_w = self._limit_w()

    def label(self) -> str:
        """The point in force."""
        return self._state()[-1]

    def history(self) -> list[str]:
        """Every point since the beginning."""
        return self._state()

    def clock_grid(self) -> ClockGrid:
        limits = PowerLimitRange(least_w=100.0, found_w=self._limit_w())
        return ClockGrid(
            sm_clocks_mhz=(1200, 1500), mem_clocks_mhz=(5001, 9501), power_limits=limits
        )

    def knob_state(self) -> KnobState:
        return KnobState(power_limit_w=self._limit_w())

    def sample(self) -> GpuSample:
        return GpuSample(
            time_s=time.monotonic(),
            energy_j=None,
            power_w=None,
            sm_clock_mhz=None,
            mem_clock_mhz=None,
            temp_c=None,
            power_capped_s=None,
            thermally_throttled_s=None,
            other_process_count=None,
        )

    def now_s(self) -> float:
        return time.monotonic()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        return None, None

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        self.wait(timeout_s)
        return self.sample()

    def wait(self, duration_s: float) -> None:
        time.sleep(duration_s)

    def request(self, point: OperatingPoint) -> None:
        self._set(point)

    def reset(self, touched: Touched | None = None) -> None:
        found = None if touched is None else touched.found
        limit_w = self._found_w if found is None else found.power_limit_w
        self._set(OperatingPoint(power_limit_w=limit_w))

    def _set(self, point: OperatingPoint) -> None:
        limit_w = point.power_limit_w or self._found_w
        set_point = replace(point, power_limit_w=limit_w)
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps([*self._state(), set_point.label]), encoding="utf-8")
        beside.replace(self._path)

    def _limit_w(self) -> float:
        return float(self.label().partition("@")[2].removesuffix("W"))

    def _state(self) -> list[str]:
        if not self._path.exists():
            return [AS_FOUND.label]
        labels: list[str] = json.loads(self._path.read_text(encoding="utf-8"))
        return labels


class Holder:
    """A process of its own that holds the GPU of a folder."""

    def __init__(self, folder: Path, way: str) -> None:
        command = [sys.executable, __file__, str(folder), way]
        # Its own group, so that a signal to it does not reach the tests.
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def wait_until_holding(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "holding\n"

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end; the exit status."""
        self.process.send_signal(number)
        return self.join()

    def join(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(PATIENCE_S)


def _gpu(folder: Path) -> FileGpu:
    return FileGpu(folder / "gpu.json")


def _state(folder: Path) -> Path:
    return folder / "state"


def test_clocks_left_by_a_killed_process_are_reset_by_the_next_lease(tmp_path: Path) -> None:
    holder = Holder(tmp_path, "wait")
    holder.wait_until_holding()
    assert holder.end(signal.SIGKILL) == -signal.SIGKILL
    gpu = _gpu(tmp_path)
    assert gpu.label() == LOW.label
    with hold(gpu, state_dir=_state(tmp_path)):
        assert gpu.label() == AS_FOUND.label
    with hold(gpu, state_dir=_state(tmp_path)):
        pass
    # The first lease began by dropping what others may have left locked.
    assert gpu.history() == [AS_FOUND.label, AS_FOUND.label, LOW.label, AS_FOUND.label]


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 128 + 15), (signal.SIGHUP, 128 + 1), (signal.SIGINT, -signal.SIGINT)],
)
def test_a_process_ended_by_a_signal_gives_its_clocks_back(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    holder = Holder(tmp_path, "wait")
    holder.wait_until_holding()
    assert holder.end(number) == status
    assert _gpu(tmp_path).label() == AS_FOUND.label
    assert list(_state(tmp_path).glob("*.journal.json")) == []


@pytest.mark.parametrize("way", ["error", "exit", "thread"])
def test_a_process_that_ends_by_itself_gives_its_clocks_back(way: str, tmp_path: Path) -> None:
    holder = Holder(tmp_path, way)
    holder.wait_until_holding()
    assert holder.join() == {"error": 1, "exit": 3, "thread": 0}[way]
    assert _gpu(tmp_path).history()[-2:] == [LOW.label, AS_FOUND.label]


def test_a_forked_child_does_not_end_its_parents_lease(tmp_path: Path) -> None:
    holder = Holder(tmp_path, "fork")
    holder.wait_until_holding()
    assert _gpu(tmp_path).label() == LOW.label
    assert holder.end(signal.SIGTERM) == 128 + 15
    assert _gpu(tmp_path).label() == AS_FOUND.label


def test_a_second_process_is_refused_and_told_who_holds_the_gpu(tmp_path: Path) -> None:
    holder = Holder(tmp_path, "wait")
    holder.wait_until_holding()
    try:
        with (
            pytest.raises(BusyError, match=f"held by process {holder.process.pid}$"),
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
    holder = Holder(tmp_path, "churn")
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
        _say_holding()
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
        _say_holding()
        _end(way)


def _end(way: str) -> None:
    if way == "error":
        sys.stderr.close()
        raise RuntimeError(way)
    if way == "exit":
        sys.exit(3)
    time.sleep(PATIENCE_S)


def _say_holding() -> None:
    sys.stdout.write("holding\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _hold_badly(Path(sys.argv[1]), sys.argv[2])
