"""A client that sets clocks over and over until something ends it. Run as a program.

It says on its standard output how far it is, a word a line, so that it can be struck there.
SIGUSR2 has it end by itself, in the way that its arguments name.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import socket
import sys
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from joulewise.control.remote import remote_lease
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.points import ClockGrid, OperatingPoint
from joulewise.domain.ports import Gpu, Lease
from joulewise.workflow.leasing import lease_on

DEVICE = "nvml:0,memory_lock=on"
LONGEST_PAUSE_S = 0.01


class Client:
    """Takes leases, as many as it should, and sets random points under each."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._draw = random.Random(settings["seed"])  # noqa: S311
        self._way: str = settings["way"]
        self._socket = None if settings["socket"] is None else Path(settings["socket"])
        self._lease_count: int | None = settings["lease_count"]
        self._is_endless: bool = settings["is_endless"]
        self._has_to_end = False
        signal.signal(signal.SIGUSR2, self._hear)
        faulthandler.register(signal.SIGUSR1)

    def run(self) -> None:
        """Go on until the leases are used up or this is to end."""
        gpu = open_nvml(DEVICE)
        # Before a limit is lowered: later the limits that it takes are fewer.
        grid = gpu.clock_grid()
        say("opened")
        while self._lease_count is None or self._lease_count > 0:
            with self._lease(gpu) as lease:
                say("leased")
                self._set_points(lease, grid)
                say("releasing")
            say("released")
            self._lease_count = None if self._lease_count is None else self._lease_count - 1

    def _lease(self, gpu: Gpu) -> AbstractContextManager[Lease]:
        return lease_on(gpu) if self._socket is None else remote_lease(gpu, self._socket)

    def _set_points(self, lease: Lease, grid: ClockGrid) -> None:
        left_count = self._draw.randint(1, 12)
        while self._is_endless or left_count:
            point = random_point(self._draw, grid)
            begin_s = time.monotonic()
            lease.apply(point)
            if not point.is_auto:
                say("set", begin_s)
            self._end_where_told()
            left_count -= 1
            time.sleep(self._draw.choice((0.0, LONGEST_PAUSE_S)) * self._draw.random())

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        if self._way == "cut":
            cut_connections(self._socket)
            return
        # Where the error is lost, as it is within a destructor, the next step ends.
        self._has_to_end = True
        if self._way == "error anywhere":
            raise RuntimeError(self._way)

    def _end_where_told(self) -> None:
        if not self._has_to_end:
            return
        say("ending")
        if self._way == "exit":
            sys.exit(3)
        if self._way == "exit at once":
            os._exit(4)
        raise RuntimeError(self._way)


def random_point(draw: random.Random, grid: ClockGrid) -> OperatingPoint:
    """A point that this grid has; each knob is left alone in three of ten."""
    limits = grid.power_limits
    assert limits is not None
    assert grid.mem_clocks_mhz
    limit_w = float(round(draw.uniform(limits.least_w, limits.found_w)))
    return OperatingPoint(
        sm_clock_mhz=draw.choice(grid.sm_clocks_mhz) if draw.random() < 0.7 else None,
        mem_clock_mhz=draw.choice(grid.mem_clocks_mhz) if draw.random() < 0.7 else None,
        power_limit_w=min(limit_w, limits.found_w) if draw.random() < 0.7 else None,
    )


def cut_connections(path: Path | None) -> None:
    """Cut every connection of this process to this socket, behind the back of who uses it."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - descriptors, not files
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as link:
            if link.family == socket.AF_UNIX and link.getpeername() == str(path):
                link.shutdown(socket.SHUT_RDWR)


def say(word: str, begin_s: float = 0.0) -> None:
    """Tell how far this is, at once and whole, and when what was done began."""
    os.write(1, f"{word} {begin_s}\n".encode())


if __name__ == "__main__":
    Client(json.loads(sys.argv[1])).run()
