"""What systemd hands over and is told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from joulewise.control.daemon.activation import ServiceManager, handed_socket

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is of Linux")


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_PID": "1", "LISTEN_FDS": "1"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "0"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "-1"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "many"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1" * 5000},
    ],
)
def test_a_process_that_was_handed_nothing_finds_nothing(named: dict[str, str]) -> None:
    environment = {**named, "LISTEN_FDNAMES": "a", "HOME": "/"}

    assert handed_socket(environment) is None
    assert {"HOME": "/"} == environment


def test_a_descriptor_that_is_not_there_is_said() -> None:
    code = (
        "import os; from joulewise.control.daemon.activation import handed_socket\n"
        "os.closerange(3, 64)\n"
        "try: handed_socket({'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'})\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("InputError what it hands over is no socket: Bad file")


def test_the_manager_hears_that_the_daemon_is_ready(tmp_path: Path) -> None:
    path = Path(os.path.relpath(tmp_path / "n"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        manager = ServiceManager({"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "3000000"})
        manager.ready("2 GPUs")
        manager.alive()
        manager.stopping()
        heard = [listening.recv(100).decode() for _ in range(3)]

    assert ["READY=1\nSTATUS=2 GPUs", "WATCHDOG=1", "STOPPING=1"] == heard
    assert 1.5 == manager.watchdog_period_s


def test_abstract_addresses_are_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0joulewise-test-{os.getpid()}")
        ServiceManager({"NOTIFY_SOCKET": f"@joulewise-test-{os.getpid()}"}).alive()

        assert b"WATCHDOG=1" == listening.recv(100)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "1" * 5000},
        {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
    ],
)
def test_nobody_is_told_where_nobody_listens(environment: dict[str, str]) -> None:
    manager = ServiceManager({**environment, "NOTIFY_SOCKET": "/nowhere/at/all"})
    manager.ready("1 GPU")

    assert manager.watchdog_period_s is None
