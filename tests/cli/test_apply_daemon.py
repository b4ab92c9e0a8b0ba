"""`joulewise apply`, `status` and `restore` beside a running joulewised."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from joulewise.simulator.fake_driver import FakeDriver, FakeLocks
from joulewise.simulator.fake_runner import open_fake_session_parts
from tests.cli.conftest import Joulewise
from tests.fake_nvml import DriverMaker
from tests.nvml.works import WORKS

pytestmark = pytest.mark.integration
PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A joulewised that answers, and the driver that it controls."""

    process: subprocess.Popen[bytes]
    driver: FakeDriver


@pytest.fixture
def daemon(
    make_driver: DriverMaker, fake_library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Running]:
    driver = make_driver(is_virtual_time=False)
    socket = tmp_path / "joulewised.sock"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_library.parent))
    monkeypatch.setenv("FAKE_NVML_STATE", str(driver.state_path))
    monkeypatch.setenv("JOULEWISE_SOCKET", str(socket))
    own = ("--socket", str(socket), "--state-dir", str(tmp_path / "daemon"))
    process = subprocess.Popen(
        [sys.executable, "-c", "from joulewise.cli.daemon import main; main()", *own],
        env={**os.environ, "FAKE_NVML_PRIV": "1"},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    # Whoever runs the tests, it is the daemon alone that may set clocks.
    monkeypatch.setenv("FAKE_NVML_PRIV", "0")
    deadline_s = time.monotonic() + PATIENCE_S
    while not socket.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    yield Running(process=process, driver=driver)
    process.kill()
    process.wait(PATIENCE_S)


def is_free(driver: FakeDriver) -> bool:
    time.sleep(2 * driver.knob(0, "lag_s"))
    return driver.true_locks(0) == FakeLocks(sm_max_mhz=None, memory_max_mhz=None)


def test_the_daemon_sets_what_this_account_may_not(
    joulewise: Joulewise, daemon: Running, tmp_path: Path
) -> None:
    status = f"{sys.executable} -m joulewise status --json > seen"
    said = joulewise("apply", "--sm-clock", "1005", "--json", "--", "sh", "-c", status)
    (seen,) = json.loads((tmp_path / "seen").read_bytes())["gpus"]

    assert 0 == said.code, said.err
    assert 1005 == seen["asked"]["sm_clock_mhz"]
    assert "through joulewised" in seen["holder"]
    assert json.loads(said.err.splitlines()[-1])["is_given_back"]
    assert is_free(daemon.driver)
    assert "nobody" in joulewise("status").out


def test_a_dry_run_says_that_the_daemon_would_do_it(joulewise: Joulewise, daemon: Running) -> None:
    said = joulewise("apply", "--sm-clock", "1005", "--dry-run").out

    assert "joulewised does it" in said
    assert is_free(daemon.driver)


def test_a_daemon_that_dies_meanwhile_is_an_error_after_the_command(
    joulewise: Joulewise, daemon: Running, tmp_path: Path
) -> None:
    killing = threading.Timer(0.8, daemon.process.kill)
    killing.start()
    said = joulewise("apply", "--sm-clock", "1005", "--", "sh", "-c", "sleep 1.5; touch ran")
    killing.join()

    said_of_it = " ".join(said.err.split())
    assert 1 == said.code
    assert "error: the lease on NVIDIA GeForce RTX 3080 Ti is over" in said_of_it
    assert "Whether what was set is given back, joulewise status tells." in said.err
    assert (tmp_path / "ran").exists()
    assert is_free(daemon.driver)


def test_a_daemon_that_dies_meanwhile_is_told_of_at_once_and_is_no_drift(
    joulewise: Joulewise, daemon: Running
) -> None:
    runner, _, _ = open_fake_session_parts(daemon.driver, 0, WORKS)
    killing = threading.Timer(1.5, daemon.process.kill)
    killing.start()
    with runner.loop("gemm", run="load"):
        said = joulewise("apply", "--sm-clock", "1005", "--json", "--", "sleep", "5")
    killing.join()

    document = json.loads(said.err.splitlines()[-1])
    assert "joulewise: the lease is over: joulewised went away" in said.err.splitlines()[0]
    assert "ForeignControl" not in said.err
    assert 1.0 < document["held_s"] < 4.5 < document["time_s"]
    assert document["is_given_back"] is None
    assert is_free(daemon.driver)
