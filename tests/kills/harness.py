"""Runs one scenario: sets everything up, strikes, and sees that nothing is left set."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.kills.processes import (
    HERE,
    PATIENCE_S,
    Found,
    HeardProcess,
    Oracle,
    TroubleError,
    guard_of,
    kill,
    kill_at_once,
    processes_of,
    wait_until_answers,
)
from tests.kills.scenarios import ENDS_AT_NEXT_STEP, WAYS, Scenario, scenario_of

REPOSITORY = HERE.parents[1]
GIVEN_BACK_S = 1.0
LOOK_AGAIN_S = 0.003
POLICY = """
[daemon]
max_changes_per_s = 100000

[[allow]]
users = [{uid}]
gpus = ["*"]
allow_memory_lock = true
allow_power_limit = true
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a scenario went: how long giving back took, and what was wrong, if anything was.

    `given_back_s` is `None` where it took longer than it may, or never came to that.
    """

    seed: int
    title: str
    given_back_s: float | None
    trouble: str | None


def run_seeds(seeds: Sequence[int], job_count: int) -> Iterator[Outcome]:
    """Run the scenarios of these seeds, so many at once; yields each as it ends."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in the background of a shell; what is started from here would ignore it, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    oracles: SimpleQueue[Oracle] = SimpleQueue()
    for _ in range(job_count):
        oracles.put(Oracle(library_path()))

    def run(seed: int) -> Outcome:
        oracle = oracles.get()
        try:
            return run_scenario(scenario_of(seed), oracle, library_path())
        finally:
            oracles.put(oracle)

    try:
        with ThreadPoolExecutor(job_count) as pool:
            for future in as_completed([pool.submit(run, seed) for seed in seeds]):
                yield future.result()
    finally:
        for _ in range(job_count):
            oracles.get().close()


def run_scenario(scenario: Scenario, oracle: Oracle, library: Path) -> Outcome:
    """Run one scenario in a folder of its own. Leaves no process behind, whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="jwk"))
    run = Run(scenario, oracle, library, folder)
    try:
        run.go()
    except Exception as trouble:  # noqa: BLE001 - it is this scenario's, and others go on
        return Outcome(
            seed=scenario.seed,
            title=scenario.title,
            given_back_s=run.given_back_s,
            trouble=f"{type(trouble).__name__}: {trouble} [{scenario}] {run.said_on_stderr()}",
        )
    finally:
        run.close()
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(
        seed=scenario.seed, title=scenario.title, given_back_s=run.given_back_s, trouble=None
    )


class Run:
    """One scenario, while it runs."""

    def __init__(self, scenario: Scenario, oracle: Oracle, library: Path, folder: Path) -> None:
        self.given_back_s: float | None = None
        self._scenario = scenario
        self._oracle = oracle
        self._library = library
        self._folder = folder
        self._driver_state = folder / "driver"
        self._state_dir = folder / "state"
        self._socket = folder / "d.sock"
        self._closing = ExitStack()
        self._found: dict[str, Any] = {}
        self._client: HeardProcess | None = None
        self._daemon: HeardProcess | None = None

    def go(self) -> None:
        """From the first start to the last process's end. Raises TroubleError."""
        scenario = self._scenario
        self._found = self._oracle.ask(
            "create",
            state=str(self._driver_state),
            limit_w=scenario.found_limit_w,
            is_persistent=scenario.is_persistent,
            set_call_s=scenario.set_call_s,
        )
        if scenario.has_daemon:
            self._start_daemon()
        client = self._start_client()
        if scenario.mark != "start":
            client.wait_for(scenario.mark, scenario.mark_count)
        time.sleep(scenario.delay_s)
        struck_s = _STRIKES.get(scenario.kind, Run._end_by_itself)(self, client)
        self._see_given_back(struck_s)
        self._see_leasable(struck_s)
        self._see_the_end()

    def close(self) -> None:
        """End whatever still lives."""
        kill_at_once(self._driver_state)
        self._closing.close()

    def said_on_stderr(self) -> str:
        """The last of what processes said, and where the client is, if it still lives."""
        if self._client is not None and not self._client.has_ended:
            _struck(self._client, signal.SIGUSR1)
            time.sleep(0.2)
        said = [path.read_text(errors="replace")[-1500:] for path in self._folder.glob("*.err")]
        return "\n".join(said)

    # Starting.

    def _environment(self) -> dict[str, str]:
        others = {
            name: text for name, text in os.environ.items() if not name.startswith("FAKE_NVML")
        }
        return {
            **others,
            "LD_LIBRARY_PATH": str(self._library.parent),
            "FAKE_NVML_STATE": str(self._driver_state),
            "FAKE_NVML_PRIV": "1",
            "JOULEWISE_STATE_DIR": str(self._state_dir),
            "JOULEWISE_SOCKET": "off",
        }

    def _start(self, name: str, command: list[str], *, is_heard: bool = False) -> HeardProcess:
        started = HeardProcess(
            [sys.executable, *command],
            self._environment(),
            self._folder / f"{name}.err",
            is_heard=is_heard,
        )
        self._closing.callback(started.close)
        return started

    def _start_daemon(self) -> None:
        wait_until_answers(self._begin_daemon(), self._socket)

    def _begin_daemon(self) -> HeardProcess:
        config = self._folder / "joulewised.toml"
        if not config.exists():
            config.write_text(POLICY.replace("{uid}", str(os.getuid())))
            config.chmod(0o600)
        main = "from joulewise.cli.daemon import main; main()"
        command = ["-c", main, "--config", str(config), "--socket", str(self._socket)]
        daemon = self._start("daemon", [*command, "--state-dir", str(self._state_dir)])
        self._daemon = daemon
        return daemon

    def _start_client(self) -> HeardProcess:
        scenario = self._scenario
        settings = {
            "seed": scenario.seed,
            "way": WAYS.get(scenario.kind, "none"),
            "socket": str(self._socket) if scenario.has_daemon else None,
            "lease_count": scenario.lease_count,
            "is_endless": scenario.is_endless,
        }
        command = [str(HERE / "client.py"), json.dumps(settings)]
        self._client = self._start("client", command, is_heard=True)
        return self._client

    # Strikes: each returns the moment from which a second counts.

    def _end_by_itself(self, client: HeardProcess) -> float:
        struck_s = _struck(client, signal.SIGUSR2)
        if WAYS[self._scenario.kind] in ENDS_AT_NEXT_STEP:
            # Its last step may have to wait for a guard process first, as any other does.
            client.wait_for("ending")
            return time.monotonic()
        return struck_s

    def _kill_guard_then_client(self, client: HeardProcess) -> float:
        self._kill_guard(client)
        numbers = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
        return _struck(client, numbers[self._scenario.seed % len(numbers)])

    def _kill_guard_then_daemon(self, client: HeardProcess) -> float:
        self._kill_guard(client)
        return self._kill_daemon(client)

    def _kill_guard(self, client: HeardProcess) -> None:
        """Kill the guard process of whoever sets clocks, and wait until there is another.

        A point asked for after that is only set once the new one watches.
        """
        setter = self._daemon if self._daemon is not None else client
        kill([guard_of(self._driver_state, setter.pid)])
        client.wait_for("set", after_s=time.monotonic())

    def _kill_daemon(self, _client: HeardProcess) -> float:
        assert self._daemon is not None
        struck_s = _struck(self._daemon, signal.SIGKILL)
        self._daemon = None
        return struck_s

    def _term_daemon(self, _client: HeardProcess) -> float:
        assert self._daemon is not None
        daemon, self._daemon = self._daemon, None
        struck_s = _struck(daemon, signal.SIGTERM)
        _see_exit(daemon)
        return struck_s

    def _restart_daemon(self, client: HeardProcess) -> float:
        struck_s = self._kill_daemon(client)
        time.sleep(self._scenario.gap_s)
        # The guard process of the killed one gives back; how long a start takes is no matter.
        self._begin_daemon()
        return struck_s

    def _kill_all(self, _client: HeardProcess) -> float:
        kill_at_once(self._driver_state)
        self._daemon = None
        way = self._scenario.restart
        if way == "daemon":
            self._start_daemon()
        elif way == "restore":
            restore = self._start("restore", ["-m", "joulewise", "restore"])
            _see_exit(restore)
        elif way == "lease":
            self._lease(None)
        return time.monotonic()

    # What has to be so after it.

    def _see_given_back(self, struck_s: float) -> None:
        """Wait until all is as it was found, for a second at most.

        The look that shows it began before the deadline; how late a busy machine lets it be
        read is not what is judged.
        """
        while True:
            looked_s = time.monotonic()
            wrong = self._wrong()
            if wrong is None:
                self.given_back_s = looked_s - struck_s
                return
            if looked_s - struck_s > GIVEN_BACK_S:
                raise TroubleError(f"after {GIVEN_BACK_S:g} s: {wrong}")
            time.sleep(LOOK_AGAIN_S)

    def _wrong(self, *, is_tidied: bool = False) -> str | None:
        """What is not as it was found; `None` where nothing is.

        A journal that was being written when its writer was killed says nothing, and is hidden;
        the next lease tidies it away.
        """
        seen = self._oracle.ask("look")
        found = {name: self._found[name] for name in seen}
        if seen != found:
            return f"{seen}, and found was {found}"
        left = sorted(path.name for path in self._state_dir.glob("*journal*"))
        left = [name for name in left if is_tidied or not name.startswith(".")]
        if left:
            return f"left in the state folder: {left}"
        alive = [one for one in processes_of(self._driver_state) if not self._may_live(one)]
        return f"processes live on: {alive}" if alive else None

    def _may_live(self, one: Found) -> bool:
        return self._daemon is not None and self._daemon.pid in (one.pid, one.guarded_pid)

    def _see_leasable(self, struck_s: float) -> None:
        """The GPU is had again within the same second: a daemon may have yet to see the end."""
        if self._daemon is not None:
            wait_until_answers(self._daemon, self._socket)
        while True:
            asked_s = time.monotonic()
            try:
                self._lease(None if self._daemon is None else self._socket)
                break
            except TroubleError:
                if asked_s - struck_s > GIVEN_BACK_S:
                    raise
            time.sleep(LOOK_AGAIN_S)
        # A process that was just starting when all else was as found shows a moment later.
        while (wrong := self._wrong(is_tidied=True)) is not None:
            if time.monotonic() - max(struck_s, asked_s) > GIVEN_BACK_S:
                raise TroubleError(f"after another lease: {wrong}")
            time.sleep(LOOK_AGAIN_S)

    def _lease(self, socket: Path | None) -> None:
        path = None if socket is None else str(socket)
        answer = self._oracle.ask("lease", state_dir=str(self._state_dir), socket=path)
        if "error" in answer:
            raise TroubleError(f"no other lease: {answer['error']}")

    def _see_the_end(self) -> None:
        """Where a daemon still runs, it ends when it is told, and leaves nothing behind."""
        if self._daemon is None:
            return
        daemon, self._daemon = self._daemon, None
        stopped_s = _struck(daemon, signal.SIGTERM)
        _see_exit(daemon)
        given_back_s = self.given_back_s
        self._see_given_back(stopped_s)
        self.given_back_s = given_back_s


def _struck(process: HeardProcess, number: signal.Signals) -> float:
    struck_s = time.monotonic()
    with suppress(ProcessLookupError):
        process.strike(number)
    return struck_s


def _see_exit(process: HeardProcess) -> None:
    status = process.process.wait(PATIENCE_S)
    if status != 0:
        raise TroubleError(f"{process.errors.stem} ended with {status}")


def _strike_with(number: signal.Signals) -> Callable[[Run, HeardProcess], float]:
    def strike(_run: Run, client: HeardProcess) -> float:
        return _struck(client, number)

    return strike


_STRIKES: dict[str, Callable[[Run, HeardProcess], float]] = {
    "kill client": _strike_with(signal.SIGKILL),
    "term client": _strike_with(signal.SIGTERM),
    "int client": _strike_with(signal.SIGINT),
    "kill guard, then client": Run._kill_guard_then_client,  # noqa: SLF001
    "kill guard, then daemon": Run._kill_guard_then_daemon,  # noqa: SLF001
    "kill daemon": Run._kill_daemon,  # noqa: SLF001
    "term daemon": Run._term_daemon,  # noqa: SLF001
    "kill and restart daemon": Run._restart_daemon,  # noqa: SLF001
    "kill all at once": Run._kill_all,  # noqa: SLF001
}
"""Every other kind has the client end by itself."""


def library_path() -> Path:
    """The fake driver, where `make fake-nvml` builds it."""
    return REPOSITORY / "build" / "fake-nvml" / "libnvidia-ml.so.1"
