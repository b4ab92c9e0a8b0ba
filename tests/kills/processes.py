"""Processes of one scenario: starting, hearing, finding and striking them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joulewise.control.holder import is_alive
from joulewise.control.remote import reach
from joulewise.domain.errors import DeviceError

PATIENCE_S = 30.0
HERE = Path(__file__).resolve().parent
LOOK_AGAIN_S = 0.002
_GUARD = b"joulewise.workflow.guarding"


class TroubleError(Exception):
    """A scenario did not go as it should."""


class Oracle:
    """The process that makes drivers and knows what is true of them; see oracle.py."""

    def __init__(self, library: Path) -> None:
        environment = {
            name: text for name, text in os.environ.items() if not name.startswith("FAKE_NVML")
        }
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "oracle.py")],
            env={**environment, "LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML_PRIV": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str, **details: object) -> dict[str, Any]:
        """Ask one question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **details}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise TroubleError("the oracle ended; what it said is on stderr")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=PATIENCE_S)


class HeardProcess:
    """A process that says words, a line each, and where its errors go."""

    def __init__(
        self, command: list[str], environment: dict[str, str], errors: Path, *, is_heard: bool
    ) -> None:
        with errors.open("ab") as stderr:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if is_heard else subprocess.DEVNULL,
                stderr=stderr,
                text=True,
            )
        self.errors = errors
        self._words: list[tuple[str, float]] = []
        self._heard = threading.Condition()
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait_for(self, word: str, count: int = 1, *, after_s: float = 0.0) -> bool:
        """Wait until it has said this so often; whether it has, before it ended.

        Only what began after that moment counts.
        """

        def is_said() -> bool:
            begins_s = [begin_s for said, begin_s in self._words if said == word]
            return sum(begin_s >= after_s for begin_s in begins_s) >= count

        with self._heard:
            if not self._heard.wait_for(lambda: is_said() or ("", 0.0) in self._words, PATIENCE_S):
                raise TroubleError(f"the client did not say {word!r} {count} times")
            return is_said()

    def strike(self, number: signal.Signals) -> None:
        """Send a signal, where it still lives."""
        self.process.send_signal(number)

    def close(self) -> None:
        """See it end."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._listening.join(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            word, _, begin_s = line.strip().partition(" ")
            self._note(word, float(begin_s))
        self._note("", 0.0)

    def _note(self, word: str, begin_s: float) -> None:
        with self._heard:
            self._words.append((word, begin_s))
            self._heard.notify_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A process of a scenario, found by its environment; a guard's client, where it is one."""

    pid: int
    guarded_pid: int | None


def processes_of(driver_state: Path) -> list[Found]:
    """Every living process that has this driver state in its environment."""
    mark = b"FAKE_NVML_STATE=" + os.fsencode(driver_state)
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            if mark not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            command = (folder / "cmdline").read_bytes()
            words = command.rstrip(b"\0").split(b"\0")
            is_guard = _GUARD in command and words[-1].isdigit()
            found.append(
                Found(pid=int(folder.name), guarded_pid=int(words[-1]) if is_guard else None)
            )
    return found


def guard_of(driver_state: Path, pid: int) -> int:
    """The guard process of this one; waits until there is one."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        for one in processes_of(driver_state):
            if one.guarded_pid == pid:
                return one.pid
        time.sleep(LOOK_AGAIN_S)
    raise TroubleError(f"process {pid} has no guard process")


def kill(pids: Collection[int]) -> None:
    """Kill processes; returns when they have ended, and everybody can see that."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline_s = time.monotonic() + PATIENCE_S
    # One that is ending shows no environment any more, and may still hold locks.
    while any(map(is_alive, pids)):
        if time.monotonic() > deadline_s:
            raise TroubleError("processes outlive SIGKILL")
        time.sleep(LOOK_AGAIN_S)


def kill_at_once(driver_state: Path) -> None:
    """End every process of a scenario, none of which sees another end; returns when all have."""
    stopped: set[int] = set()
    # What one starts before it is stopped itself is found the next time round.
    while new := {one.pid for one in processes_of(driver_state)} - stopped:
        for pid in new:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= new
    kill(stopped)


def wait_until_answers(daemon: HeardProcess, socket: Path) -> None:
    """Wait until a daemon that was started answers."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if daemon.has_ended:
            raise TroubleError(f"joulewised ended: {daemon.errors.read_text()[-500:]}")
        # Where one was killed before, its socket may take a last connection.
        with suppress(DeviceError):
            connection = reach(socket)
            if connection is not None:
                connection.close()
                return
        time.sleep(LOOK_AGAIN_S)
    raise TroubleError("joulewised does not answer")
