"""Running a command of the user's beside us, as if it had been started by hand.

It has the terminal, the environment and the exit code to itself. Ctrl-C in a terminal reaches
it without our doing, for the terminal sends SIGINT to everything in front; what else is sent to
us is handed on to it. Where no terminal is, it has a process group of its own, so that what is
sent to our whole group reaches it once, through us. We wait until it has ended whatever comes,
and what has to be put back is put back after that.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import FrameType

from joulewise.domain.errors import InputError

# What is told of a command line that begins with one of these is the script that it runs.
_INTERPRETERS = ("python", "bash", "sh", "perl", "node", "torchrun")
_LONGEST_NAME_COUNT = 40
_ENDING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
# These end nobody: before the command runs and after it they are none of our business.
_HARMLESS = ("SIGCONT", "SIGWINCH")
_FIRST_SIGNAL_EXIT_CODE = 128
_HEAR_MS = 250


class _Stage(Enum):
    BEFORE = "before"
    STARTING = "starting"
    RUNNING = "running"
    OVER = "over"


class Command:
    """One command line, started once.

    Inside `signals` what asks this process to end is handed on to the running command; before
    it has started it unwinds this process as a lease does, and after it has ended it waits, for
    then all that is left to do is short and must not be cut off.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        """Look the program up. Raises InputError where there is none that can be run."""
        if not arguments:
            raise InputError(
                "no command was given",
                field="COMMAND",
                hint="Write it after two dashes: -- python train.py",
            )
        if "/" in arguments[0] and Path(arguments[0]).is_dir():
            raise InputError(f"{arguments[0]!r} is a folder, and no program", field="COMMAND")
        if shutil.which(arguments[0]) is None:
            raise InputError(
                f"no program {arguments[0]!r} is found that can be run",
                field="COMMAND",
                hint="Name it as a shell would; aliases, pipes and && need one: "
                "-- bash -c 'first && second'.",
            )
        self._arguments = tuple(arguments)
        self._stage = _Stage.BEFORE
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: list[int] = []
        self._has_own_group = False

    @property
    def arguments(self) -> tuple[str, ...]:
        """The program and what it is given."""
        return self._arguments

    @property
    def name(self) -> str:
        """The program or script, without folders and arguments, as others may be told."""
        program, *given = (Path(text).name for text in self._arguments[:2])
        is_script = program.rstrip("0123456789.") in _INTERPRETERS and given
        told = given[0] if is_script and not given[0].startswith("-") else program
        return "".join(letter for letter in told if letter.isprintable())[:_LONGEST_NAME_COUNT]

    @property
    def has_run(self) -> bool:
        """Whether it was started and has ended."""
        return self._stage is _Stage.OVER

    def run(self) -> int:
        """Start it, wait for its end, and return its exit code; 128 + n where signal n ended it.

        Raises:
            InputError: the system does not start it; nothing has run.
        """
        self._stage = _Stage.STARTING
        self._has_own_group = sys.platform != "win32" and not _is_any_terminal()
        group = 0 if self._has_own_group else None
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command
                self._arguments, process_group=group
            )
        except OSError as error:
            self._stage = _Stage.BEFORE
            raise InputError(
                f"{self._arguments[0]!r} does not start: {error.strerror or error}",
                field="COMMAND",
            ) from error
        self._process, self._stage = process, _Stage.RUNNING
        while self._waiting:
            self._hand_on(self._waiting.pop(0))
        code = _ended(process)
        self._stage = _Stage.OVER
        return code if code >= 0 else _FIRST_SIGNAL_EXIT_CODE - code

    def run_alone(self) -> int:
        """Run it with its `signals`; before and after it this process ends as any other does.

        For what sets nothing, so that nothing has to be given back. Raises as `run`.
        """
        with self.signals():
            return self.run()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handle signals inside the block; enter it before a lease is taken.

        Only the main thread can. A signal that is ignored, as under nohup, stays ignored, for
        the command as well; but for SIGCHLD, without which the system would not tell how the
        command ended.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        found = {}
        for name in (*_ENDING, *_HARMLESS):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) not in {signal.SIG_IGN, None}:
                found[number] = signal.signal(number, self._handle)
        child = getattr(signal, "SIGCHLD", None)
        if child is not None and signal.getsignal(child) is signal.SIG_IGN:
            found[child] = signal.signal(child, signal.SIG_DFL)
        try:
            yield
        finally:
            for number, handler in found.items():
                signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._stage is _Stage.STARTING:
            # Between its birth and our knowing it.
            self._waiting.append(number)
        elif self._stage is _Stage.RUNNING:
            self._hand_on(number)
        elif self._stage is _Stage.BEFORE and signal.Signals(number).name in _ENDING:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(_FIRST_SIGNAL_EXIT_CODE + number)

    def _hand_on(self, number: int) -> None:
        if self._process is None:
            return
        if self._has_own_group or not (_is_of_terminal(number) and _has_terminal()):
            self._process.send_signal(number)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for its end, and hear signals meanwhile.

    One that comes just before a wait is heard only after it, so there is no wait without end.
    """
    if not hasattr(os, "pidfd_open"):
        return process.wait()
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return process.wait()
    try:
        ends = select.poll()
        ends.register(descriptor, select.POLLIN)
        while not ends.poll(_HEAR_MS):
            pass
    finally:
        os.close(descriptor)
    return process.wait()


def _is_of_terminal(number: int) -> bool:
    return signal.Signals(number).name in {"SIGINT", "SIGQUIT", "SIGWINCH"}


def _is_any_terminal() -> bool:
    """Whether this session has a terminal, in front of which we may come to be."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _has_terminal() -> bool:
    """Whether the keyboard's signals come to us, and so to the command, from a terminal.

    A terminal sends them to the processes in front of it. Elsewhere, as under a scheduler, they
    were meant for this process alone. Nothing tells a handler who sent a signal, so in front of
    a terminal one that somebody else sends is taken for the terminal's.
    """
    if sys.platform == "win32":
        return True
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
