"""tegrastats as it runs: lines with the time at which they came, and its process surely ended.

One that was never stopped went on writing over the logs of all later runs (jetson_dvfs, TX2).
Its output is a pipe that this process alone reads: where this process is gone, killed or not,
tegrastats ends at its next line. One that ignores SIGPIPE would not: Linux could end it with its
parent (PR_SET_PDEATHSIG), but means by that the thread that started it, and so would end it with
any worker thread; and asking for it between fork and exec is not safe where threads run.
"""

from __future__ import annotations

import contextlib
import math
import queue
import subprocess
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Self

from joulewise.device.jetson_rails import RailScope, rail_scope
from joulewise.device.real_time import MonotonicTimer
from joulewise.device.tegrastats import parse_line
from joulewise.device.tegrastats_log import line_power_w
from joulewise.domain.errors import DeviceError, InputError, NotPermitted, NotSupported
from joulewise.domain.ports import Timer
from joulewise.domain.tegrastats import TimedLine

_LEAST_INTERVAL_S = 0.001
_MILLI_COUNT = 1000
# How long it may take to end when asked nicely.
_END_WITHIN_S = 0.5
_END = None


class LiveTegrastats:
    """A running tegrastats: `with LiveTegrastats(0.1) as live: for line in live: ...`.

    Lines are stamped when they come, on the timer's clock, however late they are asked for.
    """

    def __init__(
        self,
        interval_s: float,
        *,
        program: str = "tegrastats",
        timer: Timer | None = None,
    ) -> None:
        """Start nothing yet; `program` is a path, or a name on PATH. Raises InputError."""
        if not (math.isfinite(interval_s) and interval_s >= _LEAST_INTERVAL_S):
            raise InputError(
                f"{interval_s} s is no interval that tegrastats takes",
                field="interval",
                hint="It takes whole milliseconds from 1 up; below 100 ms rails only repeat.",
            )
        self._interval_ms = round(interval_s * _MILLI_COUNT)
        self._program = program
        self._timer: Timer = MonotonicTimer() if timer is None else timer
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._scope: RailScope | None = None
        self._lines: queue.SimpleQueue[tuple[float, str] | None] = queue.SimpleQueue()

    @property
    def scope(self) -> RailScope | None:
        """Which rails make up the module's power; `None` before a line told of any."""
        return self._scope

    @property
    def pid(self) -> int | None:
        """Of the process that runs; `None` where none does."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Self:
        """Start it. Raises NotSupported where there is none, NotPermitted."""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the caller names the program
                [self._program, "--interval", str(self._interval_ms)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
        except PermissionError as error:
            raise NotPermitted(
                f"{self._program} may not be run by this account", hint="Run as root."
            ) from error
        except OSError as error:
            raise NotSupported(
                f"{self._program} cannot be run: {(error.strerror or str(error)).lower()}",
                hint="tegrastats comes with JetPack, in /usr/bin; containers mount it from there.",
            ) from error
        self._thread = threading.Thread(target=self._listen, args=(self._process.stdout,))
        self._thread.daemon = True
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it, whatever happened."""
        self.close()

    def __iter__(self) -> Iterator[TimedLine]:
        """Lines as they come, until `close`. Raises DeviceError where it ends by itself."""
        if self._thread is None:
            return
        while (came := self._lines.get()) is not None:
            time_s, text = came
            line = parse_line(text)
            if line.is_recognised:
                # Once for all lines: one that lacks a rail must not pass for a smaller module.
                if self._scope is None and line.rails:
                    self._scope = rail_scope(line.labels)
                power_w = None if self._scope is None else line_power_w(line, self._scope)
                yield TimedLine(time_s=time_s, line=line, module_power_w=power_w)
        self._lines.put(_END)
        if self._process is not None:
            code = self._process.wait()
            raise DeviceError(
                f"{self._program} ended by itself with {code}",
                hint="Another one may run already: tegrastats --stop.",
            )

    def close(self) -> None:
        """End and reap the process; harmless when repeated."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            process.terminate()
        try:
            process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._thread is not None:
            # A child of its own may hold the pipe open: that is no reason to wait for it.
            self._thread.join(_END_WITHIN_S)
            if not self._thread.is_alive() and process.stdout is not None:
                process.stdout.close()
        self._lines.put(_END)

    def _listen(self, output: IO[str] | None) -> None:
        if output is not None:
            with contextlib.suppress(ValueError):
                for text in output:
                    self._lines.put((self._timer.now_s(), text))
        self._lines.put(_END)
