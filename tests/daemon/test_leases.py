"""The connection is the lease: however it ends, the clocks are given back within a second."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.daemon.running import (
    ALLOW_ALL,
    PATIENCE_S,
    RunningDaemon,
    Talker,
    held,
    started_daemon,
    wait_until,
    wait_until_free,
)

from joulewise.domain.points import OperatingPoint

LOW = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=5001)
SHORT_HEARTBEAT = ALLOW_ALL.replace("[daemon]", "[daemon]\nheartbeat_timeout_s = 0.8")

# Holds a GPU, says so, and beats; with "fork" a child keeps the connection open.
CLIENT = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from joulewise.domain.points import OperatingPoint
from tests.daemon.running import Talker
talker = Talker(Path(sys.argv[2]))
talker.hello("client")
talker.take(sys.argv[3])
answer = talker.apply(sys.argv[3], OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=5001))
assert answer["say"] == "applied", answer
if sys.argv[4] == "fork" and os.fork() == 0:
    os.close(1)
    time.sleep(60)
print("holding", flush=True)
while talker.ask("beat")["say"] == "alive":
    time.sleep(0.1)
"""
ROOT = Path(__file__).resolve().parents[2]


def locked(daemon: RunningDaemon, index: int = 0) -> bool:
    """Whether the SM clock is locked, in truth."""
    return daemon.truth().true_locks(index).sm_max_mhz == LOW.sm_clock_mhz


def client_process(daemon: RunningDaemon, gpu: str, how: str) -> subprocess.Popen[str]:
    """A process that holds this GPU; its session ends with whatever it forks."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(ROOT), str(daemon.socket), gpu, how],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert "holding\n" == process.stdout.readline()
    process.stdout.close()
    return process


def _half_close(talker: Talker) -> None:
    talker.socket.shutdown(socket.SHUT_WR)


def _close_with_unread_answers(talker: Talker) -> None:
    talker.send(b'{"ask":"status"}\n' * 3)
    talker.close()


def _close_after_more_questions(talker: Talker) -> None:
    raised = b'{"ask":"apply","gpu":"GPU-?","sm_clock_mhz":1500}\n'
    talker.send(raised * 50)
    talker.close()


@pytest.mark.parametrize(
    "end", [Talker.close, _half_close, _close_with_unread_answers, _close_after_more_questions]
)
def test_a_connection_that_ends_gives_the_clocks_back(
    daemon: RunningDaemon, end: Callable[[Talker], None]
) -> None:
    gpu = daemon.uuids()[0]
    talker = held(daemon, gpu, LOW)
    wait_until(lambda: locked(daemon), "the clock is not locked")
    with closing(talker):
        end(talker)
        wait_until_free(daemon)
    wait_until_free(daemon)


def test_no_question_that_still_waits_keeps_clocks_from_a_client_that_said_its_last_word(
    daemon: RunningDaemon,
) -> None:
    gpu = daemon.uuids()[0]
    with closing(Talker(daemon.socket)) as talker:
        talker.send(
            b'{"ask":"hello","version":1}\n{"ask":"take","gpu":"%s"}\n' % gpu.encode()
            + 50 * (b'{"ask":"apply","gpu":"%s","sm_clock_mhz":1200}\n' % gpu.encode())
        )
        talker.socket.shutdown(socket.SHUT_WR)
        said = []
        while (line := talker.line()) is not None:
            said.append(line["say"])

        assert ["welcome", "granted"] == said[:2]
        assert "ended" == said[-1]
        assert said.count("applied") < 50
        assert [] == daemon.journals()
        wait_until_free(daemon)


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_killed_client_gives_the_clocks_back_whoever_keeps_its_connection_open(
    daemon: RunningDaemon, how: str
) -> None:
    gpu = daemon.uuids()[0]
    process = client_process(daemon, gpu, how)
    wait_until(lambda: locked(daemon), "the clock is not locked")
    process.kill()
    try:
        wait_until_free(daemon)
    finally:
        if how == "fork":
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)


def test_a_client_keeps_its_lease_while_it_beats_and_loses_it_once_it_is_stopped(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path, config=SHORT_HEARTBEAT) as daemon:
        gpu = daemon.uuids()[0]
        process = client_process(daemon, gpu, "alone")
        with closing(held_by_nobody(daemon)) as other:
            signal.sigtimedwait([], 1.2)
            assert [] == daemon.events("lease ended")
            assert locked(daemon)
            process.send_signal(signal.SIGSTOP)
            ended = daemon.wait_for_event("lease ended")
            assert "granted" == other.take(gpu)["say"]
            process.kill()
            process.wait(PATIENCE_S)
        wait_until_free(daemon)

    assert ("silent", "given back") == (ended["why"], ended["result"])


def held_by_nobody(daemon: RunningDaemon) -> Talker:
    """A client that has only said hello."""
    talker = Talker(daemon.socket)
    talker.hello()
    return talker


def test_a_silent_client_hears_why_and_may_take_the_gpu_again(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path, config=SHORT_HEARTBEAT) as daemon:
        gpu = daemon.uuids()[0]
        with closing(held(daemon, gpu, LOW)) as talker:
            ended = talker.line()
            refused = talker.apply(gpu, LOW)
            wait_until_free(daemon)
            granted = talker.take(gpu)
            applied = talker.apply(gpu, LOW)

    assert ended is not None
    assert ("ended", gpu) == (ended["say"], ended["gpu"])
    assert "heard nothing" in ended["why"]
    assert ("refused", "device") == (refused["say"], refused["kind"])
    assert "heard nothing" in refused["message"]
    assert ("granted", "applied") == (granted["say"], applied["say"])


def test_a_daemon_that_stood_still_believes_what_was_said_meanwhile(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path, config=SHORT_HEARTBEAT) as daemon:
        gpu = daemon.uuids()[0]
        with closing(held(daemon, gpu, LOW)) as talker:
            daemon.process.send_signal(signal.SIGSTOP)
            talker.send(b'{"ask":"beat"}\n')
            signal.sigtimedwait([], 1.1)
            daemon.process.send_signal(signal.SIGCONT)
            alive = talker.line()
            applied = talker.apply(gpu, LOW)
            assert [] == daemon.events("lease ended")

    assert {"say": "alive"} == alive
    assert "applied" == applied["say"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_that_is_stopped_gives_everything_back_and_tells_the_holders(
    fake_library: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with started_daemon(fake_library, tmp_path, driver={"FAKE_NVML_DEVICES": "2"}) as daemon:
        first, second = daemon.uuids()
        with closing(held(daemon, first, LOW)) as one, closing(held(daemon, second, LOW)) as two:
            wait_until(lambda: locked(daemon, 1), "the clock is not locked")
            daemon.process.send_signal(number)
            told = [one.line(), two.line()]
            after = [one.line(), two.line()]
        status = daemon.process.wait(PATIENCE_S)
        wait_until_free(daemon, index=0)
        wait_until_free(daemon, index=1)

        assert 0 == status
        assert [first, second] == [line["gpu"] for line in told if line is not None]
        assert ["ended", "ended"] == [line["say"] for line in told if line is not None]
        assert [None, None] == after
        assert not daemon.socket.exists()


def test_a_killed_daemon_has_the_clocks_given_back_by_its_guard(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path) as daemon:
        with closing(held(daemon, daemon.uuids()[0], LOW)) as talker:
            wait_until(lambda: locked(daemon), "the clock is not locked")
            daemon.kill()
            assert talker.line() is None
        wait_until_free(daemon)


def test_a_gpu_can_be_taken_as_soon_as_its_holder_gave_it_back(daemon: RunningDaemon) -> None:
    gpu = daemon.uuids()[0]
    for _ in range(5):
        first = held(daemon, gpu, LOW)
        with closing(held_by_nobody(daemon)) as second:
            first.close()
            daemon.wait_for_event("lease ended", count=1)
            wait_until(lambda second=second: second.take(gpu)["say"] == "granted", "not granted")  # type: ignore[misc]
            assert "applied" == second.apply(gpu, OperatingPoint(sm_clock_mhz=1005))["say"]
            assert "released" == second.release(gpu)["say"]
            assert [] == daemon.journals()
    wait_until_free(daemon)


def test_one_connection_holds_several_gpus_and_gives_each_back_alone(
    daemon: RunningDaemon,
) -> None:
    first, second = daemon.uuids()
    with closing(held(daemon, first, LOW)) as talker:
        assert "granted" == talker.take(second)["say"]
        assert "applied" == talker.apply(second, LOW)["say"]
        wait_until(lambda: locked(daemon, 1), "the clock is not locked")
        assert "released" == talker.release(first)["say"]
        wait_until(lambda: not locked(daemon, 0), "the clock is still locked", patience_s=1.0)
        assert locked(daemon, 1)
    wait_until_free(daemon, index=1)
