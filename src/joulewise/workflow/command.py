"""Running a command of the user's beside us, as if it had been started by hand.

It has the terminal, the environment and the exit code to itself. Ctrl-C in a terminal reaches
it without our doing, for the terminal sends SIGINT to everything in front; what else asks us to
end is handed on to it. We wait until it has ended whatever comes, and what has to be put back
is put back after that.
"""

from __future__ import annotations

import os
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
_HANDED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
_FIRST_SIGNAL_EXIT_CODE = 128


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
        try:
            process = subprocess.Popen(self._arguments)  # noqa: S603 - the user's own command
        except OSError as error:
            self._stage = _Stage.BEFORE
            raise InputError(
                f"{self._arguments[0]!r} does not start: {error.strerror or error}",
                field="COMMAND",
            ) from error
        self._process, self._stage = process, _Stage.RUNNING
        while self._waiting:
            self._hand_on(self._waiting.pop(0))
        code = process.wait()
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
        the command as well.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        found = {}
        for name in _HANDED_ON:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                found[number] = signal.signal(number, self._handle)
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
        elif self._stage is _Stage.BEFORE:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(_FIRST_SIGNAL_EXIT_CODE + number)

    def _hand_on(self, number: int) -> None:
        if self._process is None or (_is_of_keyboard(number) and _has_terminal()):
            return
        self._process.send_signal(number)


def _is_of_keyboard(number: int) -> bool:
    return number in {signal.SIGINT, getattr(signal, "SIGQUIT", None)}


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
