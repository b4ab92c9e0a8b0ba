"""Who else computes on a GPU."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from joulewise.device.nvml import NvmlDevice
from joulewise.device.nvml_reply import Reply
from joulewise.domain.ports import Timer

# A list of processes takes milliseconds under the driver's global lock (MangoHud 2104).
_REFRESH_S = 0.5
# Where nobody asks for a new list, samples look for themselves, and seldom: they are read in
# the midst of what is measured.
_OLDEST_S = 10.0
_NO_PIDS = frozenset({0, 0xFFFFFFFF})


class OtherProcesses:
    """Counts compute processes that are not this one, by a list that is seldom read."""

    def __init__(self, device: NvmlDevice, timer: Timer) -> None:
        """Ask nothing yet."""
        self._device = device
        self._timer = timer
        self._read_s = float("-inf")
        self._count: int | None = None

    def count(self) -> int | None:
        """Other processes as listed last, within ten seconds. Raises DeviceLost.

        `None` where the driver does not tell, or not now.
        """
        self._read(_OLDEST_S)
        return self._count

    def refresh(self) -> None:
        """List them anew, where that was not done just now. Raises DeviceLost."""
        self._read(_REFRESH_S)

    def _read(self, oldest_s: float) -> None:
        now_s = self._timer.now_s()
        if now_s - self._read_s < oldest_s:
            return
        self._read_s = now_s
        pids = compute_processes(self._device).told(self._device.title)
        self._count = None if pids is None else other_process_count(pids)


def compute_processes(device: NvmlDevice) -> Reply[tuple[int, ...]]:
    """Process ids with a compute context (nvmlDeviceGetComputeRunningProcesses_v3)."""
    reply = device.call("nvmlDeviceGetComputeRunningProcesses")
    return reply.mapped(
        lambda processes: tuple(sorted({int(process.pid) for process in processes} - _NO_PIDS))
    )


def other_process_count(pids: Collection[int]) -> int:
    """How many of these are not this process.

    In a container the driver may list ids of the host, among which this process cannot find
    itself. Where it computes (it holds the device file that CUDA opens) and is not listed, one
    of the ids that mean nothing here is taken for its own.
    """
    others = set(pids) - {os.getpid()}
    if len(others) < len(set(pids)) or not _is_computing():
        return len(others)
    strangers = [pid for pid in others if not Path(f"/proc/{pid}").exists()]
    return len(others) - (1 if strangers else 0)


def _is_computing() -> bool:
    """Whether CUDA runs in this process: it keeps /dev/nvidia-uvm open."""
    with contextlib.suppress(OSError):
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if link.readlink().name == "nvidia-uvm":
                    return True
    return False
