"""Signals while `joulewise apply` and `joulewise run` have a command running, in processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from joulewise.simulator.fake_driver import FakeDriver, FakeLocks
from tests.fake_nvml import DriverMaker

PATIENCE_S = 20.0
# A command that says which signal it got, and ends with an exit code of its own.
TELLS = """
import pathlib, signal, sys, time
def end(number, frame):
    pathlib.Path('got').write_text(signal.Signals(number).name)
    sys.exit(7)
for name in ('SIGINT', 'SIGTERM', 'SIGHUP'):
    signal.signal(getattr(signal, name), end)
pathlib.Path('ready').touch()
time.sleep(60)
"""


# One that notes every signal, and ends some time after SIGINT with an exit code of its own.
COUNTS = """
import pathlib, signal, sys, time
def note(number, frame):
    with open('got', 'a') as got:
        got.write(signal.Signals(number).name + ' ')
    if number == signal.SIGINT:
        time.sleep(0.3)
        sys.exit(7)
for name in ('SIGINT', 'SIGUSR1', 'SIGUSR2', 'SIGCONT'):
    signal.signal(getattr(signal, name), note)
pathlib.Path('ready').touch()
time.sleep(60)
"""
# Schedulers start programs so at times.
DEAF_TO_CHILDREN = (
    "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    "os.execv(sys.executable, [sys.executable, '-m', 'joulewise', *sys.argv[1:]])"
)


@pytest.fixture
def driver(make_driver: DriverMaker) -> FakeDriver:
    return make_driver(is_virtual_time=False)


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(driver: FakeDriver, fake_library: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts joulewise in a session of its own, in which no terminal is."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(
        arguments: Sequence[str], own: Sequence[str] = ("-m", "joulewise")
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, *own, *arguments],
            cwd=tmp_path,
            env={
                **os.environ,
                "LD_LIBRARY_PATH": str(fake_library.parent),
                "FAKE_NVML_STATE": str(driver.state_path),
                "FAKE_NVML_PRIV": "1",
                "JOULEWISE_SOCKET": "off",
                "JOULEWISE_STATE_DIR": str(tmp_path / "state"),
            },
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        wait_for((tmp_path / "ready").exists)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def wait_for(is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    deadline_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def free(driver: FakeDriver) -> bool:
    return driver.true_locks(0) == FakeLocks(sm_max_mhz=None, memory_max_mhz=None)


@pytest.mark.parametrize(
    "name",
    [
        "SIGTERM",
        pytest.param("SIGHUP", marks=pytest.mark.integration),
        pytest.param("SIGINT", marks=pytest.mark.integration),
    ],
)
def test_what_asks_us_to_end_reaches_the_command_whose_exit_code_we_end_with(
    start: Start, driver: FakeDriver, tmp_path: Path, name: str
) -> None:
    process = start(["apply", "--sm-clock", "1005", "--", sys.executable, "-c", TELLS])
    held = driver.true_locks(0).sm_max_mhz
    process.send_signal(getattr(signal, name))
    _, said = process.communicate(timeout=PATIENCE_S)

    assert (1005, 7) == (held, process.returncode), said.decode()
    assert name == (tmp_path / "got").read_text()
    assert "What was set is given back." in " ".join(said.decode().split())
    wait_for(lambda: free(driver), 1.0)


def test_signals_of_schedulers_reach_the_command_once_and_its_exit_code_is_known(
    start: Start, tmp_path: Path
) -> None:
    """Sent to joulewise alone, or to its whole group; also where SIGCHLD is ignored."""
    process = start(["run", "--", sys.executable, "-c", COUNTS], own=("-c", DEAF_TO_CHILDREN))
    got = tmp_path / "got"
    for told, name in enumerate(("SIGUSR1", "SIGUSR2", "SIGCONT"), 1):
        process.send_signal(getattr(signal, name))
        wait_for(lambda count=told: got.exists() and len(got.read_text().split()) == count)  # type: ignore[misc]
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)

    assert 7 == process.returncode, said.decode()
    assert ["SIGUSR1", "SIGUSR2", "SIGCONT", "SIGINT"] == got.read_text().split()
    assert b" took " in said


@pytest.mark.integration
def test_a_measured_command_gets_its_signals_too_and_is_measured(
    start: Start, tmp_path: Path
) -> None:
    process = start(["run", "--", sys.executable, "-c", TELLS])
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_S)

    assert 7 == process.returncode
    assert "SIGTERM" == (tmp_path / "got").read_text()
    assert b" took " in said


@pytest.mark.integration
def test_ctrl_c_in_a_terminal_reaches_the_command_once(
    driver: FakeDriver, fake_library: Path, tmp_path: Path
) -> None:
    """The terminal sends it to both; handed on as well, the command would get it twice."""
    import pty

    counts = TELLS.replace("write_text(signal.Signals(number).name)", "open('a').write('I')")
    counts = counts.replace("sys.exit(7)", "time.sleep(0.3); sys.exit(7)")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        own = (sys.executable, "-m", "joulewise", "apply", "--sm-clock", "1005", "--")
        os.execvpe(  # noqa: S606 - a process in front of a terminal of its own
            sys.executable,
            [*own, sys.executable, "-c", counts],
            {
                **os.environ,
                "LD_LIBRARY_PATH": str(fake_library.parent),
                "FAKE_NVML_STATE": str(driver.state_path),
                "FAKE_NVML_PRIV": "1",
                "JOULEWISE_SOCKET": "off",
                "JOULEWISE_STATE_DIR": str(tmp_path / "state"),
            },
        )
    wait_for((tmp_path / "ready").exists)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)

    assert 7 == os.waitstatus_to_exitcode(status)
    assert "I" == (tmp_path / "got").read_text()
    wait_for(lambda: free(driver), 1.0)


@pytest.mark.integration
def test_killed_outright_the_guard_gives_back_and_the_command_goes_on(
    start: Start, driver: FakeDriver, tmp_path: Path
) -> None:
    code = f"open('pid', 'w').write(str(__import__('os').getpid()))\n{TELLS}"
    process = start(["apply", "--sm-clock", "1005", "--", sys.executable, "-c", code])
    process.kill()
    wait_for(lambda: free(driver), 1.0)

    command = int((tmp_path / "pid").read_text())
    os.kill(command, signal.SIGTERM)
    wait_for((tmp_path / "got").exists)
    wait_for(lambda: not list((tmp_path / "state").glob("*.journal.json")), 1.0)
