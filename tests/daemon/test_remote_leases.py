"""Leases through a real daemon, as programs take them; and who gets a GPU that two want.

Run as a program, this file is a process that holds one, directly or through the daemon.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.daemon.running import (
    ALLOW_ALL,
    PATIENCE_S,
    RunningDaemon,
    started_daemon,
    wait_until,
    wait_until_free,
)
from tests.fake_nvml import DriverMaker

from joulewise.control.lease import hold
from joulewise.control.remote import remote_lease
from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.domain.errors import BusyError, DeviceError, NotPermitted
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import Lease
from joulewise.simulator.fake_driver import FakeDriver, FakeLocks
from joulewise.workflow.leasing import lease_on

ROOT = Path(__file__).resolve().parents[2]
LOW = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=5001, power_limit_w=200.0)
SET = FakeLocks(sm_max_mhz=1200, memory_max_mhz=5001)
FREE = FakeLocks(sm_max_mhz=None, memory_max_mhz=None)
SLOW_S = 0.1


@pytest.fixture
def gpu(daemon: RunningDaemon, make_driver: DriverMaker) -> NvmlGpu:
    """The daemon's first GPU, opened here to be read; nothing of it stays open after the test."""
    make_driver()
    seen(daemon)
    return open_nvml("nvml:0")


def seen(daemon: RunningDaemon) -> FakeDriver:
    """What is true of the daemon's GPUs; what is asked of them is in force at once."""
    truth = daemon.truth()
    truth.set_knob(0, "lag_s", 0.0)
    return truth


@contextmanager
def holder(daemon: RunningDaemon, way: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the first GPU in this way and has set a point."""
    process = subprocess.Popen(
        [sys.executable, __file__, way, *more],
        env={
            **daemon.environment,
            "PYTHONPATH": str(ROOT),
            "JOULEWISE_SOCKET": "off" if way == "direct" else str(daemon.socket),
        },
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert "holding\n" == process.stdout.readline()
        yield process
    finally:
        # Whatever it forked ends with its session.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
        process.stdout.close()


def test_a_point_is_set_through_the_daemon_and_given_back(
    daemon: RunningDaemon, gpu: NvmlGpu
) -> None:
    truth = daemon.truth()
    found = gpu.knob_state()
    with remote_lease(gpu, daemon.socket) as lease:
        lease.apply(LOW)
        during = truth.true_locks(0), gpu.knob_state().power_limit_w
        lease.apply(AUTO)
        between = truth.true_locks(0), gpu.knob_state()
        lease.apply(LOW)

    assert (SET, LOW.power_limit_w) == during
    assert (FREE, found) == between == (truth.true_locks(0), gpu.knob_state())
    assert [] == daemon.journals()


def test_a_daemon_that_runs_is_used_without_being_asked_for(
    daemon: RunningDaemon, gpu: NvmlGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOULEWISE_SOCKET", str(daemon.socket))
    monkeypatch.setenv("FAKE_NVML_PRIV", "0")
    with lease_on(gpu) as lease:
        lease.apply(LOW)
        assert SET == daemon.truth().true_locks(0)
    assert FREE == daemon.truth().true_locks(0)


def test_an_interrupt_while_the_driver_works_leaves_nothing_set_after_the_block(
    daemon: RunningDaemon, gpu: NvmlGpu
) -> None:
    truth = daemon.truth()
    call_s = truth.knob(0, "set_call_s")
    truth.set_knob(0, "set_call_s", SLOW_S)
    interrupting = threading.Timer(SLOW_S / 2, os.kill, (os.getpid(), signal.SIGINT))

    def apply_and_be_interrupted() -> None:
        with remote_lease(gpu, daemon.socket) as lease:
            interrupting.start()
            lease.apply(LOW)

    try:
        with pytest.raises(KeyboardInterrupt):
            apply_and_be_interrupted()
        assert FREE == truth.true_locks(0)
        assert [] == daemon.journals()
    finally:
        interrupting.join()
        truth.set_knob(0, "set_call_s", call_s)


def test_what_the_policy_does_not_allow_is_refused_and_said(
    fake_library: Path, tmp_path: Path, make_driver: DriverMaker
) -> None:
    config = ALLOW_ALL + "max_sm_clock_mhz = 1500\n"
    with started_daemon(fake_library, tmp_path, config=config) as daemon:
        make_driver()
        truth = seen(daemon)
        with remote_lease(open_nvml("nvml:0"), daemon.socket) as lease:
            lease.apply(OperatingPoint(sm_clock_mhz=1200))
            with pytest.raises(NotPermitted, match="1500"):
                lease.apply(OperatingPoint(sm_clock_mhz=1800))
            assert 1200 == truth.true_locks(0).sm_max_mhz


def test_a_daemon_that_stops_ends_the_lease_and_the_holder_hears_why(
    fake_library: Path, tmp_path: Path, make_driver: DriverMaker
) -> None:
    with started_daemon(fake_library, tmp_path) as daemon:
        make_driver()
        truth = seen(daemon)
        with remote_lease(open_nvml("nvml:0"), daemon.socket) as lease:
            lease.apply(LOW)
            assert 0 == daemon.stop()
            assert FREE == truth.true_locks(0)
            with pytest.raises(DeviceError, match=r"the lease on .* is over: .*stop"):
                lease.apply(LOW)


def test_a_client_that_is_busy_elsewhere_keeps_its_lease(
    fake_library: Path, tmp_path: Path, make_driver: DriverMaker
) -> None:
    """It beats beside its work, also where that keeps Python to itself."""
    config = ALLOW_ALL.replace("[daemon]", "[daemon]\nheartbeat_timeout_s = 0.5")
    with started_daemon(fake_library, tmp_path, config=config) as daemon:
        make_driver()
        truth = seen(daemon)
        with remote_lease(open_nvml("nvml:0"), daemon.socket) as lease:
            lease.apply(LOW)
            until_s = time.monotonic() + 1.2
            while time.monotonic() < until_s:
                pass
            assert SET == truth.true_locks(0)


@pytest.mark.parametrize("way", ["direct", "daemon"])
def test_a_forked_child_keeps_no_lease_alive(daemon: RunningDaemon, gpu: NvmlGpu, way: str) -> None:
    """As of a data loader that outlives the training process that forked it."""
    assert gpu.index == 0
    with holder(daemon, way, "fork") as process:
        assert SET == daemon.truth().true_locks(0)
        process.kill()
        process.wait(PATIENCE_S)
        wait_until_free(daemon)


@pytest.mark.parametrize("second", ["direct", "daemon"])
@pytest.mark.parametrize("first", ["direct", "daemon"])
def test_of_two_that_want_one_gpu_the_second_is_refused_and_told_of_the_first(
    daemon: RunningDaemon, gpu: NvmlGpu, first: str, second: str
) -> None:
    def taken() -> None:
        with _lease(gpu, daemon, second) as lease:
            lease.apply(AUTO)

    with holder(daemon, first) as process:
        with pytest.raises(BusyError) as refused:
            taken()
        assert SET == daemon.truth().true_locks(0), "the first one's point stays"
        process.send_signal(signal.SIGTERM)
        assert 128 + signal.SIGTERM == process.wait(PATIENCE_S)
        # Given back before it ended, so that there is nothing to wait for.
        taken()

    said = str(refused.value)
    assert f"held by process {process.pid} (" in said
    assert "test_remote_leases.py" in said
    assert ("through joulewised" in said) == (first == "daemon")
    assert refused.value.hint


@pytest.mark.parametrize(("first", "second"), [("direct", "daemon"), ("daemon", "direct")])
def test_a_gpu_that_its_killed_holder_left_is_had_by_the_next(
    daemon: RunningDaemon, gpu: NvmlGpu, first: str, second: str
) -> None:
    with holder(daemon, first) as process:
        process.kill()
        process.wait(PATIENCE_S)
        wait_until(lambda: _is_had(gpu, daemon, second), "the next lease is not had")
    assert FREE == daemon.truth().true_locks(0)


def _is_had(gpu: NvmlGpu, daemon: RunningDaemon, way: str) -> bool:
    with suppress(BusyError), _lease(gpu, daemon, way):
        return True
    return False


@contextmanager
def _lease(gpu: NvmlGpu, daemon: RunningDaemon, way: str) -> Iterator[Lease]:
    if way == "daemon":
        with remote_lease(gpu, daemon.socket) as remote:
            yield remote
    else:
        with hold(gpu, state_dir=daemon.state_dir) as held:
            yield held


def _hold_and_wait(*, is_forking: bool) -> None:
    with lease_on(open_nvml("nvml:0,memory_lock=on")) as lease:
        lease.apply(LOW)
        if is_forking and os.fork() == 0:
            os.close(1)
            time.sleep(PATIENCE_S)
            os._exit(0)
        os.write(1, b"holding\n")
        time.sleep(PATIENCE_S)


if __name__ == "__main__":
    _hold_and_wait(is_forking="fork" in sys.argv[2:])
