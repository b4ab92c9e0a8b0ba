"""A real `joulewised` on the fake driver in real time, and a client that says what it likes."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeDriver, loaded_driver
from joulewise.store.atomic import write_atomically

PATIENCE_S = 20.0
GIVEN_BACK_S = 1.0
LOOK_AGAIN_S = 0.005

ALLOW_ALL = """
[daemon]
max_changes_per_s = 100000

[[allow]]
users = [0, {uid}]
gpus = ["*"]
allow_memory_lock = true
allow_power_limit = true
"""

Line = dict[str, Any]


@dataclass(kw_only=True)
class RunningDaemon:
    """One `joulewised` process, and where everything of it is.

    `environment` is what a client process needs to see the same fake GPUs and the same daemon.
    """

    process: subprocess.Popen[str]
    socket: Path
    state_dir: Path
    config: Path
    library: Path
    driver_state: Path
    environment: dict[str, str]
    log: list[Line] = field(default_factory=list)
    """Lines that it logged so far, read by a thread; those that are no JSON as {"text": …}."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def truth(self) -> FakeDriver:
        """The harness in this process, attached to the daemon's GPUs."""
        ctypes.CDLL(str(self.library))
        harness = loaded_driver()
        assert harness is not None
        harness.attach(self.driver_state)
        return harness

    def uuids(self) -> tuple[str, ...]:
        """Its GPUs."""
        with closing(Talker(self.socket)) as talker:
            talker.hello()
            return tuple(gpu["gpu"] for gpu in talker.ask("status")["gpus"])

    def events(self, event: str) -> list[Line]:
        """Lines of the log so far about this."""
        return [line for line in self.log if line.get("event") == event]

    def wait_for_event(self, event: str, *, count: int = 1) -> Line:
        """Wait until the log says so; returns the last such line."""
        wait_until(
            lambda: len(self.events(event)) >= count, f"not {count} times {event} in {self.log}"
        )
        return self.events(event)[-1]

    def journals(self) -> list[Path]:
        """Journals of leases that have touched something and not given it back."""
        return sorted(self.state_dir.glob("*.journal.json"))

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Have it end; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@contextmanager
def started_daemon(
    library: Path,
    folder: Path,
    *,
    config: str = ALLOW_ALL,
    driver: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[RunningDaemon]:
    """Start `joulewised` and wait until it answers; it is killed at the end, if it still lives.

    Args:
        library: The fake driver's library.
        folder: For its driver state, locks, journals and policy; used again, they are kept.
        config: The policy file; `{uid}` in it is this user's number.
        driver: Environment of the fake driver, such as FAKE_NVML_KNOBS or FAKE_NVML_DEVICES.
        arguments: More of the command line.
    """
    # Paths of sockets may have about a hundred characters, which those of tests often exceed.
    short = Path(tempfile.mkdtemp(prefix="jw"))
    try:
        process = _process(library, folder, short, config, driver or {}, arguments)
        daemon = RunningDaemon(
            process=process,
            socket=short / "d.sock",
            state_dir=folder / "state",
            config=folder / "joulewised.toml",
            library=library,
            driver_state=folder / "driver.state",
            environment={
                **_environment(library, folder, driver or {}),
                "JOULEWISE_SOCKET": str(short / "d.sock"),
                "JOULEWISE_STATE_DIR": str(folder / "state"),
            },
        )
        reading = threading.Thread(target=_read_log, args=(daemon,), daemon=True)
        reading.start()
        try:
            _wait_until_it_answers(daemon)
            yield daemon
        finally:
            process.kill()
            process.wait(PATIENCE_S)
            reading.join(PATIENCE_S)
            assert process.stderr is not None
            process.stderr.close()
    finally:
        shutil.rmtree(short, ignore_errors=True)


def _process(
    library: Path,
    folder: Path,
    short: Path,
    config: str,
    driver: Mapping[str, str],
    arguments: Sequence[str],
) -> subprocess.Popen[str]:
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "joulewised.toml"
    write_atomically(policy, config.replace("{uid}", str(os.getuid())).encode())
    policy.chmod(0o644)
    command = [sys.executable, "-c", "from joulewise.cli.daemon import main; main()"]
    command += ["--config", str(policy), "--socket", str(short / "d.sock")]
    command += ["--state-dir", str(folder / "state"), "--nvml-library", str(library), *arguments]
    return subprocess.Popen(
        command,
        # The library that it names is enough.
        env={**_environment(library, folder, driver), "LD_LIBRARY_PATH": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _environment(library: Path, folder: Path, driver: Mapping[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(library.parent),
        "FAKE_NVML_STATE": str(folder / "driver.state"),
        "FAKE_NVML_PRIV": "1",
        "FAKE_NVML_TIME": "real",
        **driver,
    }


def _read_log(daemon: RunningDaemon) -> None:
    assert daemon.process.stderr is not None
    for text in daemon.process.stderr:
        try:
            daemon.log.append(json.loads(text))
        except ValueError:
            daemon.log.append({"text": text})


def _wait_until_it_answers(daemon: RunningDaemon) -> None:
    def answers() -> bool:
        assert daemon.process.poll() is None, f"joulewised ended: {daemon.log}"
        try:
            with closing(Talker(daemon.socket)) as talker:
                return bool(talker.hello()["say"] == "welcome")
        except (FileNotFoundError, ConnectionRefusedError):
            return False

    wait_until(answers, "joulewised does not listen")


def wait_until(is_so: Callable[[], bool], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """Wait for something to be so; fails with `what` where it takes too long."""
    deadline_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline_s, what
        time.sleep(LOOK_AGAIN_S)


def wait_until_free(
    daemon: RunningDaemon, *, index: int = 0, patience_s: float = GIVEN_BACK_S
) -> None:
    """Wait until nothing is locked on a GPU and no journal is left, at most a second."""
    truth = daemon.truth()

    def is_free() -> bool:
        locks = truth.true_locks(index)
        return locks.sm_max_mhz is None and locks.memory_max_mhz is None and not daemon.journals()

    wait_until(is_free, "clocks are not given back", patience_s=patience_s)


class Talker:
    """A client that says what it likes, right or wrong."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE_S)
        self._received = b""
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise

    def hello(self, program: str = "test") -> Line:
        return self.ask("hello", version=1, program=program)

    def is_let_in(self) -> bool:
        """Whether the daemon takes one more connection; says hello."""
        try:
            self.send(b'{"ask":"hello","version":1}\n')
        except BrokenPipeError:
            return False
        line = self.line()
        return line is not None and line["say"] == "welcome"

    def take(self, gpu: str) -> Line:
        return self.ask("take", gpu=gpu)

    def apply(self, gpu: str, point: OperatingPoint) -> Line:
        knobs = {name: getattr(point, name) for name in OperatingPoint.__dataclass_fields__}
        return self.ask("apply", gpu=gpu, **knobs)

    def release(self, gpu: str) -> Line:
        return self.ask("release", gpu=gpu)

    def ask(self, kind: str, **fields: object) -> Line:
        """Ask, and return the answer; fails where the connection ends instead."""
        self.send(json.dumps({"ask": kind, **fields}).encode() + b"\n")
        answer = self.line()
        assert answer is not None, "the connection ended"
        return answer

    def send(self, raw: bytes) -> None:
        self.socket.sendall(raw)

    def line(self) -> Line | None:
        """The next line; `None` where the connection ends before it."""
        while b"\n" not in self._received:
            try:
                chunk = self.socket.recv(65536)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                return None
            self._received += chunk
        raw, self._received = self._received.split(b"\n", 1)
        line: Line = json.loads(raw)
        return line

    def close(self) -> None:
        self.socket.close()


def held(daemon: RunningDaemon, gpu: str, point: OperatingPoint) -> Talker:
    """A client that holds a GPU and has asked for a point."""
    talker = Talker(daemon.socket)
    assert "welcome" == talker.hello()["say"]
    granted = talker.take(gpu)
    assert "granted" == granted["say"], granted
    applied = talker.apply(gpu, point)
    assert "applied" == applied["say"], applied
    return talker
