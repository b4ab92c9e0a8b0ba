"""Leases through a daemon that does not do as it should: a client waits and believes no more."""

from __future__ import annotations

import socket
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.scripted_daemon import scripted_daemon, usual_answer
from tests.unit.test_remote_lease import LOW, PATIENCE_S, UUID, gpu

from joulewise.control.daemon.messages import (
    Alive,
    Answer,
    Applied,
    Apply,
    Beat,
    Ended,
    Granted,
    Hello,
    Question,
    Release,
    Status,
    Take,
    encode,
)
from joulewise.control.remote import DaemonConnection, remote_lease
from joulewise.domain.errors import DeviceError

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="Unix sockets")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "joulewised.sock"


@pytest.mark.parametrize(
    ("question", "answer"),
    [(Take, Granted(gpu="GPU-other")), (Apply, Applied(gpu="GPU-other")), (Take, Alive())],
)
def test_an_answer_about_another_gpu_is_none(
    path: Path, question: type[Question], answer: Answer
) -> None:
    with (
        scripted_daemon(path, {question: lambda _: encode(answer)}),
        pytest.raises(DeviceError, match="to another question"),
        remote_lease(gpu(), path) as lease,
    ):
        lease.apply(LOW)


@pytest.mark.parametrize("beat_s", ["1e308", "-1", "0"])
def test_a_daemon_that_wants_a_beat_at_no_time_is_refused(path: Path, beat_s: str) -> None:
    said = f'{{"say":"welcome","version":1,"pid":1,"beat_s":{beat_s}}}\n'.encode()
    with (
        scripted_daemon(path, {Hello: lambda _: said}),
        pytest.raises(DeviceError, match="joulewised answered what"),
    ):
        DaemonConnection(path)


@pytest.mark.parametrize("piece", [b" ", encode(Ended(gpu="GPU-1234", why="x" * 100))])
def test_a_daemon_that_says_things_without_end_is_given_up_in_time(
    path: Path, piece: bytes
) -> None:
    ours, theirs = socket.socketpair()
    stop = threading.Event()

    def talk() -> None:
        with suppress(OSError):
            theirs.recv(4096)
            theirs.sendall(encode(usual_answer(Hello(version=1))))
            while not stop.is_set():
                theirs.sendall(piece)
                stop.wait(0.01)

    talking = threading.Thread(target=talk)
    talking.start()
    with closing(theirs), closing(DaemonConnection(path, connected=ours, answer_s=0.2)) as to:
        with pytest.raises(DeviceError, match="does not answer"):
            to.ask(Status())
        # What it said of a GPU that nobody took is not kept.
        assert Ended(gpu="GPU-1234", why="joulewised does not answer") == to.ended("GPU-1234")
        stop.set()
        talking.join()


def test_a_question_waits_for_no_other_ones_answer_longer_than_its_own_time(path: Path) -> None:
    """A beat that nobody answers does not keep a lease from being released, or given up."""
    beaten = threading.Event()

    def keep_silent(_question: Question) -> bytes:
        beaten.set()
        return b""

    with (
        scripted_daemon(path, {Beat: keep_silent}, beat_s=0.01),
        closing(DaemonConnection(path)) as to,
    ):
        to.take(UUID)
        assert beaten.wait(PATIENCE_S)
        with pytest.raises(DeviceError, match="does not answer"):
            to.ask(Release(gpu=UUID), answer_s=0.05)


@pytest.mark.parametrize("said", [b"\xff\n", b"{}\n", b"x" * (2 << 20)])
def test_what_is_no_answer_ends_the_connection(path: Path, said: bytes) -> None:
    with scripted_daemon(path, {Status: lambda _: said}), closing(DaemonConnection(path)) as to:
        with pytest.raises(DeviceError, match="joulewised answer"):
            to.ask(Status())
        with pytest.raises(DeviceError, match="is over"):
            to.ask(Status())


def test_a_daemon_that_does_not_answer_is_given_up(path: Path) -> None:
    with (
        scripted_daemon(path, {Status: lambda _: b""}),
        closing(DaemonConnection(path, answer_s=0.05)) as to,
        pytest.raises(DeviceError, match="does not answer"),
    ):
        to.ask(Status())
