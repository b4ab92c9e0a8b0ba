"""Clients that are too many, too slow, too loud or deaf; and drivers that hang."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.daemon.running import (
    ALLOW_ALL,
    RunningDaemon,
    Talker,
    held,
    started_daemon,
    wait_until,
    wait_until_free,
)

from joulewise.domain.points import OperatingPoint

LOW = OperatingPoint(sm_clock_mhz=1200)
FEW = ALLOW_ALL.replace(
    "[daemon]", "[daemon]\nmax_connection_count = 6\nmax_connection_per_user_count = 4"
)


def descriptor_count(daemon: RunningDaemon) -> int:
    """Files that the daemon has open."""
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


def is_welcome(daemon: RunningDaemon) -> bool:
    """Whether one more client is let in."""
    with closing(Talker(daemon.socket)) as talker:
        return talker.is_let_in()


def test_too_many_connections_of_a_user_are_refused_and_make_room_again(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path, config=FEW) as daemon:
        gpu = daemon.uuids()[0]
        with closing(held(daemon, gpu, LOW)) as holder:
            with ExitStack() as stack:
                let_in = 1
                while stack.enter_context(closing(Talker(daemon.socket))).is_let_in():
                    let_in += 1
                    assert let_in <= 4
                before = descriptor_count(daemon)
                for _ in range(300):
                    with closing(Talker(daemon.socket)) as excess:
                        refused, end = excess.line(), excess.line()
                        assert refused is not None
                        assert ("refused", "busy") == (refused["say"], refused["kind"])
                        assert end is None
                wait_until(lambda: descriptor_count(daemon) <= before, "descriptors pile up")
            assert "applied" == holder.apply(gpu, OperatingPoint(sm_clock_mhz=1005))["say"]
            wait_until(lambda: is_welcome(daemon), "there is no room again")
        summed = daemon.wait_for_event("connections refused")
        wait_until_free(daemon)

    assert summed["count"] > 100
    assert os.getuid() == summed["uid"]


def test_questions_that_come_at_once_are_answered_one_by_one_and_in_order(
    daemon: RunningDaemon,
) -> None:
    gpu = daemon.uuids()[0]
    with closing(held(daemon, gpu, LOW)) as talker:
        questions = []
        for clock in 25 * (1200, 1201):
            questions.append(
                b'{"ask":"apply","gpu":"%s","sm_clock_mhz":%d}\n' % (gpu.encode(), clock)
            )
            questions.append(b'{"ask":"beat"}\n')
        talker.send(b"".join(questions))
        said = [line["say"] for _ in questions if (line := talker.line()) is not None]
    wait_until_free(daemon)

    assert 25 * ["applied", "alive", "refused", "alive"] == said


def test_a_line_that_comes_byte_by_byte_is_understood(daemon: RunningDaemon) -> None:
    with closing(Talker(daemon.socket)) as talker:
        for byte in b'{"ask":"hello","version":1}\n':
            talker.send(bytes([byte]))
        welcome = talker.line()

    assert welcome is not None
    assert "welcome" == welcome["say"]


def test_a_driver_that_blocks_on_one_gpu_delays_no_question_about_another(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path, driver={"FAKE_NVML_DEVICES": "2"}) as daemon:
        slow, fast = daemon.uuids()
        with closing(held(daemon, slow, LOW)) as one, closing(held(daemon, fast, LOW)) as two:
            daemon.truth().set_knob(0, "set_call_s", 0.8)
            one.send(b'{"ask":"apply","gpu":"%s","sm_clock_mhz":1005}\n' % slow.encode())
            one.socket.settimeout(0)
            answered = 0
            for clock in 10 * (1005, 1200):
                assert "applied" == two.apply(fast, OperatingPoint(sm_clock_mhz=clock))["say"]
                assert "state" == two.ask("status")["say"]
                answered += 1
            with pytest.raises(BlockingIOError):
                one.socket.recv(1)
            one.socket.settimeout(20.0)
            slowly = one.line()
            daemon.truth().set_knob(0, "set_call_s", 0.001)
        wait_until_free(daemon)

    assert 20 == answered
    assert slowly is not None
    assert "applied" == slowly["say"]


@pytest.mark.parametrize("end", ["close", "half-close"])
def test_a_driver_that_blocks_on_one_gpu_keeps_no_other_of_a_client_that_left(
    fake_library: Path, tmp_path: Path, end: str
) -> None:
    with started_daemon(fake_library, tmp_path, driver={"FAKE_NVML_DEVICES": "2"}) as daemon:
        slow, fast = daemon.uuids()
        with closing(held(daemon, slow, LOW)) as talker:
            assert "granted" == talker.take(fast)["say"]
            assert "applied" == talker.apply(fast, LOW)["say"]
            daemon.truth().set_knob(0, "set_call_s", 2.0)
            talker.send(b'{"ask":"apply","gpu":"%s","sm_clock_mhz":1005}\n' % slow.encode())
            if end == "close":
                talker.close()
            else:
                talker.socket.shutdown(socket.SHUT_WR)
            wait_until(
                lambda: daemon.truth().true_locks(1).sm_max_mhz is None,
                "the GPU that answers is not given back",
                patience_s=1.0,
            )
            daemon.truth().set_knob(0, "set_call_s", 0.001)


@pytest.mark.integration
def test_of_a_silent_client_that_waits_for_a_hanging_gpu_the_other_ones_are_given_back(
    fake_library: Path, tmp_path: Path
) -> None:
    config = ALLOW_ALL.replace("[daemon]", "[daemon]\nheartbeat_timeout_s = 0.5")
    two = {"FAKE_NVML_DEVICES": "2"}
    with started_daemon(fake_library, tmp_path, config=config, driver=two) as daemon:
        slow, fast = daemon.uuids()
        with closing(held(daemon, slow, LOW)) as talker:
            assert "granted" == talker.take(fast)["say"]
            assert "applied" == talker.apply(fast, LOW)["say"]
            daemon.truth().set_knob(0, "set_call_s", 2.0)
            talker.send(b'{"ask":"apply","gpu":"%s","sm_clock_mhz":1005}\n' % slow.encode())
            said = [talker.line(), talker.line()]
            daemon.truth().set_knob(0, "set_call_s", 0.001)

    ended, applied = said
    assert ended is not None
    assert applied is not None
    assert ("ended", fast) == (ended["say"], ended["gpu"])
    assert ("applied", slow) == (applied["say"], applied["gpu"])


@pytest.mark.integration
def test_a_gpu_that_hangs_is_refused_to_others_and_given_back_by_the_guard_in_the_end(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path) as daemon:
        gpu = daemon.uuids()[0]
        with closing(held(daemon, gpu, LOW)) as holder, closing(Talker(daemon.socket)) as other:
            other.hello()
            daemon.truth().set_knob(0, "set_call_s", 12.0)
            holder.close()
            refused = other.take(gpu)
            status = daemon.stop()
            daemon.truth().set_knob(0, "set_call_s", 0.001)
            wait_until_free(daemon, patience_s=15.0)

    assert "still being given back" in refused["message"]
    assert 1 == status
