"""A GPU whose knobs outlive the processes that set them, and processes that hold or guard it.

Run as a program, this file is such a process: `hold FOLDER WAY`, or `guard FOLDER …`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from joulewise.control.guard import GuardProcess
from joulewise.control.guard_loop import run_guard
from joulewise.control.holder import is_alive
from joulewise.domain.errors import DeviceError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import ClockGrid, KnobState, OperatingPoint, PowerLimitRange, Touched
from joulewise.domain.ports import GpuIdentity

LOW = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=5001, power_limit_w=200.0)
FOUND_W = 320.0
AS_FOUND = OperatingPoint(power_limit_w=FOUND_W)
PATIENCE_S = 30.0
GIVING_BACK_S = 1.0
ROOT = Path(__file__).resolve().parents[1]


class FileGpu:
    """A GPU whose knobs outlive the processes that set them: they are kept in a file.

    Its limit was lowered to `FOUND_W` before anybody came, so that the highest is not the one
    to go back to. It refuses to be reset as often as the file `refusals` is long.
    """

    energy_counter_period_s = 0.1

    def __init__(self, folder: Path, name: str = "file") -> None:
        self.identity = GpuIdentity(
            spec=f"file:{name}", name="File GPU", uuid=f"GPU-{name}", is_simulated=False
        )
        self._folder = folder
        self._path = folder / f"{name}.json"
        self._found_w = self._limit_w()

    def label(self) -> str:
        """The point in force."""
        return self.history()[-1]

    def history(self) -> list[str]:
        """Every point since the beginning."""
        if not self._path.exists():
            return [AS_FOUND.label]
        labels: list[str] = json.loads(self._path.read_text(encoding="utf-8"))
        return labels

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
        self._refuse()
        found = None if touched is None else touched.found
        limit_w = self._found_w if found is None else found.power_limit_w
        self._set(OperatingPoint(power_limit_w=limit_w))

    def is_accepting_and_given_back(self) -> bool:
        """Refuse no more; whether the knobs are as found. Ask until they are.

        Somebody who is refused right then writes down what was left of the refusals.
        """
        (self._folder / "refusals").write_text("", encoding="utf-8")
        return self.label() == AS_FOUND.label

    def _refuse(self) -> None:
        refusals = self._folder / "refusals"
        left = refusals.read_text(encoding="utf-8") if refusals.exists() else ""
        if left:
            refusals.write_text(left[1:], encoding="utf-8")
            raise DeviceError("not now")

    def _set(self, point: OperatingPoint) -> None:
        limit_w = point.power_limit_w or self._found_w
        set_point = replace(point, power_limit_w=limit_w)
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps([*self.history(), set_point.label]), encoding="utf-8")
        beside.replace(self._path)

    def _limit_w(self) -> float:
        return float(self.label().partition("@")[2].removesuffix("W"))


class Program:
    """A process of its own, in its own group, so that a signal to it does not reach the tests."""

    def __init__(self, file: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, file, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def hear(self) -> str:
        """The next line that it says; empty once it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def wait_until_holding(self) -> None:
        assert self.hear() == "holding"

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end; the exit status."""
        self.process.send_signal(number)
        return self.join()

    def join(self) -> int:
        """Wait for the end; the exit status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        status = self.process.wait(PATIENCE_S)
        self.process.stdin.close()
        self.process.stdout.close()
        return status


def say(line: str) -> None:
    """Tell the test that started this program."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def guard_command(folder: Path, *, is_old: bool = False) -> list[str]:
    """What guards the GPUs of a folder; `is_old` as where no pidfd tells of a death."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.file_gpu import guard; "
    forget = "sys.argv[-2] = '-1'; " if is_old else ""
    return [sys.executable, "-P", "-c", f"{code}{forget}guard()", str(folder)]


def guard() -> None:
    """Be the guard process of the GPUs of a folder."""
    folder = Path(sys.argv[1])

    def open_gpu(device: str) -> FileGpu:
        name = device.removeprefix("file:")
        if (folder / f"{name}.closed").exists():
            raise DeviceError("it does not open", hint="Open it.")
        return FileGpu(folder, name)

    run_guard(sys.argv[2:], open_gpu)


@contextmanager
def guarding(folder: Path, *, is_old: bool = False) -> Iterator[GuardProcess]:
    """A guard process for the GPUs of a folder."""
    guard = GuardProcess(guard_command(folder, is_old=is_old))
    try:
        yield guard
    finally:
        guard.close()


def comes_true(is_so: Callable[[], bool], within_s: float = PATIENCE_S) -> bool:
    """Whether something becomes so in time."""
    end_s = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.005)
    return True


def is_gone(pid: int) -> bool:
    """Whether there is no such process, but for one that its own parent has not reaped yet."""
    return not is_alive(pid)
