"""Leases through a daemon, against a small server that follows a script."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scripted_daemon import PID, ScriptedDaemon, scripted_daemon, usual_answer
from tests.watched_gpu import WatchedGpu

from joulewise.control.daemon.messages import (
    Apply,
    Beat,
    Ended,
    Hello,
    Question,
    Refused,
    Release,
    State,
    Status,
    Take,
    Welcome,
    encode,
)
from joulewise.control.remote import DaemonConnection, leased, reach, remote_lease
from joulewise.domain.errors import BusyError, DeviceError, InputError, NotPermitted
from joulewise.domain.points import AUTO, OperatingPoint

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="Unix sockets")

UUID = "GPU-0000abcd-1"
LOW = OperatingPoint(sm_clock_mhz=1200, power_limit_w=200.0)
PATIENCE_S = 10.0


def gpu() -> WatchedGpu:
    found = WatchedGpu(is_shared=True)
    found.identity = replace(found.identity, uuid=UUID)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "joulewised.sock"


def test_a_lease_asks_the_daemon_and_touches_nothing_itself(path: Path) -> None:
    mine = gpu()
    with scripted_daemon(path) as daemon, remote_lease(mine, path) as lease:
        lease.apply(LOW)
        lease.apply(AUTO)

    assert [] == mine.touches
    assert [
        Take(gpu=UUID),
        Apply(gpu=UUID, sm_clock_mhz=1200, power_limit_w=200.0),
        Apply(gpu=UUID),
        Release(gpu=UUID),
    ] == daemon.asked[1:]


def test_hello_names_the_program_within_bounds(path: Path) -> None:
    with scripted_daemon(path) as daemon:
        DaemonConnection(path, "x" * 1000).close()
        DaemonConnection(path).close()
    long, own = daemon.of(Hello)
    assert isinstance(long, Hello)
    assert isinstance(own, Hello)
    assert "x" * 200 == long.program
    assert own.program


@pytest.mark.parametrize(
    ("kind", "error"), [("busy", BusyError), ("not_permitted", NotPermitted), ("odd", DeviceError)]
)
def test_a_refused_lease_raises_what_the_daemon_says(
    path: Path, kind: str, error: type[Exception]
) -> None:
    said = Refused(kind=kind, message="held by process 7 (alice: train.py)", hint="Wait.")
    with (
        scripted_daemon(path, {Take: lambda _: encode(said)}),
        pytest.raises(error, match=r"held by process 7 \(alice: train.py\)"),
        remote_lease(gpu(), path),
    ):
        pass


def test_a_refused_point_leaves_the_lease_as_it_was(path: Path) -> None:
    def refuse_low(question: Question) -> bytes:
        if isinstance(question, Apply) and question.point == LOW:
            return encode(Refused(kind="not_permitted", message="at most 1000 MHz"))
        return encode(usual_answer(question))

    with scripted_daemon(path, {Apply: refuse_low}) as daemon, remote_lease(gpu(), path) as lease:
        with pytest.raises(NotPermitted, match="at most 1000 MHz"):
            lease.apply(LOW)
        lease.apply(AUTO)
    assert 1 == len(daemon.of(Release))


def test_where_nobody_listens_there_is_no_connection(path: Path) -> None:
    assert reach(path) is None
    path.write_text("no socket")
    assert reach(path) is None
    path.unlink()
    left_over = socket.socket(socket.AF_UNIX)
    left_over.bind(str(path))
    left_over.close()
    assert reach(path) is None
    with (
        pytest.raises(DeviceError, match="no joulewised listens") as raised,
        remote_lease(gpu(), path),
    ):
        pass
    assert "systemctl start joulewised" in (raised.value.hint or "")


def test_a_path_that_no_socket_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no socket"):
        reach(tmp_path / ("x" * 200))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may")
def test_a_socket_that_this_account_may_not_use_is_said(path: Path) -> None:
    with scripted_daemon(path):
        path.chmod(0)
        with pytest.raises(NotPermitted, match="may not use the socket"):
            reach(path)


def test_a_daemon_of_another_version_is_refused(path: Path) -> None:
    other = Welcome(version=99, pid=PID, beat_s=1.0)
    with (
        scripted_daemon(path, {Hello: lambda _: encode(other)}),
        pytest.raises(DeviceError, match="Welcome") as raised,
    ):
        DaemonConnection(path)
    assert "same version" in (raised.value.hint or "")


def test_a_lease_that_the_daemon_ended_is_over_and_says_why(path: Path) -> None:
    ended = encode(Ended(gpu=UUID, why="no line came for 10 s"))
    refused = encode(Refused(kind="input", message="no lease on it"))
    with (
        scripted_daemon(path, {Apply: lambda _: ended + refused}) as daemon,
        remote_lease(gpu(), path) as lease,
        pytest.raises(DeviceError, match=r"the lease on .* is over: no line came for 10 s"),
    ):
        lease.apply(LOW)
    # It was told once; the end of the block has nothing to give back.
    assert [] == daemon.of(Release)


def test_a_lease_that_ended_unnoticed_is_told_at_its_end(path: Path) -> None:
    ended = encode(Ended(gpu=UUID, why="joulewised stops"))
    refused = encode(Refused(kind="input", message="no lease on it"))
    with (
        scripted_daemon(path, {Release: lambda _: ended + refused}),
        pytest.raises(DeviceError, match="is over: joulewised stops"),
        remote_lease(gpu(), path) as lease,
    ):
        lease.apply(LOW)


@pytest.mark.parametrize(
    ("is_given_back", "hint"),
    [
        (True, "Its clocks are given back"),
        (False, "Its clocks are still set"),
        (None, "Whether its clocks are given back is not known"),
    ],
)
def test_clocks_are_said_to_be_given_back_only_where_the_daemon_says_so(
    path: Path, *, is_given_back: bool | None, hint: str
) -> None:
    ended = encode(Ended(gpu=UUID, why="joulewised is stopping", is_given_back=is_given_back))
    refused = encode(Refused(kind="input", message="no lease on it"))
    with (
        scripted_daemon(path, {Apply: lambda _: ended + refused}),
        remote_lease(gpu(), path) as lease,
        pytest.raises(DeviceError) as raised,
    ):
        lease.apply(LOW)
    assert (raised.value.hint or "").startswith(hint)


def test_a_daemon_that_hangs_up_ends_the_lease(path: Path) -> None:
    with (
        scripted_daemon(path, {Apply: lambda _: None}),
        remote_lease(gpu(), path) as lease,
    ):
        for _ in range(2):
            with pytest.raises(
                DeviceError, match=r"lease on .* is over: joulewised went away"
            ) as raised:
                lease.apply(LOW)
            assert "are given back is not known" in (raised.value.hint or "")


def test_what_a_daemon_said_before_it_went_away_is_heard(path: Path) -> None:
    """Its last words wait in the socket, also where the question can no longer be sent."""
    told = threading.Event()

    def last_words(question: Question) -> bytes | None:
        if told.is_set():
            return None
        told.set()
        return encode(usual_answer(question)) + encode(Ended(gpu=UUID, why="joulewised stops"))

    def hang_up(_question: Question) -> None:
        return None

    with (
        scripted_daemon(path, {Apply: last_words, Status: hang_up}),
        remote_lease(gpu(), path) as lease,
    ):
        lease.apply(LOW)
        with pytest.raises(DeviceError, match="is over: joulewised stops"):
            lease.apply(LOW)


def test_while_a_lease_is_held_the_client_beats(path: Path) -> None:
    beaten = threading.Event()

    def note(question: Question) -> bytes:
        beaten.set()
        return encode(usual_answer(question))

    with scripted_daemon(path, {Beat: note}, beat_s=0.01):
        with remote_lease(gpu(), path):
            assert beaten.wait(PATIENCE_S)
        beaten.clear()
        with closing(DaemonConnection(path)):
            assert not beaten.wait(0.05), "without a lease there is nothing to keep alive"


def test_beats_and_points_of_several_threads_never_get_each_others_answers(path: Path) -> None:
    points = [OperatingPoint(sm_clock_mhz=clock) for clock in range(300, 340)]
    with scripted_daemon(path, beat_s=0.0005) as daemon, remote_lease(gpu(), path) as lease:

        def apply_all() -> None:
            for point in points:
                lease.apply(point)

        threads = [threading.Thread(target=apply_all) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert 3 * len(points) == len(daemon.of(Apply))


@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
def test_a_question_broken_off_ends_the_connection_and_waits_for_its_end(path: Path) -> None:
    def interrupt(_question: Question) -> bytes:
        os.kill(os.getpid(), signal.SIGINT)
        return b""

    with scripted_daemon(path, {Apply: interrupt}) as daemon:
        with pytest.raises(KeyboardInterrupt), remote_lease(gpu(), path) as lease:
            lease.apply(LOW)
        # The server closes its side only when it has seen the end of ours.
        assert daemon.ended.is_set()
        assert [] == daemon.of(Release)


@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
def test_a_signal_while_giving_back_waits_until_that_is_done(path: Path) -> None:
    def interrupt(question: Question) -> bytes:
        os.kill(os.getpid(), signal.SIGINT)
        return encode(usual_answer(question))

    with (
        scripted_daemon(path, {Release: interrupt}) as daemon,
        closing(DaemonConnection(path)) as to,
    ):
        with pytest.raises(KeyboardInterrupt), leased(to, gpu()) as lease:
            lease.apply(LOW)
        assert isinstance(to.ask(Status()), State), "the connection is still in step"
    assert 1 == len(daemon.of(Release))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_neither_uses_nor_keeps_the_lease(path: Path) -> None:
    with scripted_daemon(path, beat_s=0.01) as daemon:
        with remote_lease(gpu(), path) as lease:
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(writing)
                _use_and_wait(lease, reading)
            os.close(reading)
            lease.apply(LOW)
        # The child lives, and the daemon still sees the connection end.
        assert daemon.ended.wait(PATIENCE_S)
        os.close(writing)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert 1 == len(daemon.of(Apply))
    assert 1 == len(daemon.of(Release))


def _use_and_wait(lease: object, until_closed: int) -> None:
    """Be a child that tries to use its parent's lease; ends with 0 where it could not."""
    from joulewise.control.remote import RemoteLease

    assert isinstance(lease, RemoteLease)
    status = 1
    try:
        lease.release()
        lease.apply(LOW)
    except DeviceError as error:
        status = 0 if "belongs to process" in str(error) else 2
    os.read(until_closed, 1)
    os._exit(status)


@settings(deadline=None, max_examples=25)
@given(cuts=st.lists(st.integers(1, 400), max_size=12), seed=st.integers(0, 99))
def test_answers_are_read_alike_however_they_are_cut(cuts: list[int], seed: int) -> None:
    """Unasked lines and answers come in one piece or in many; each question gets its own."""
    draw = random.Random(seed)  # noqa: S311
    said = b"".join(
        encode(Ended(gpu=f"GPU-{draw.randrange(10**6):06d}", why="x" * draw.randrange(200)))
        for _ in range(draw.randrange(4))
    ) + encode(State(pid=seed + 1, gpus=()))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        ours, theirs = socket.socketpair()
        server = threading.Thread(target=_serve_in_pieces, args=(theirs, said, sorted(cuts)))
        server.start()
        with closing(DaemonConnection(path, connected=ours)) as to:
            answers = [to.ask(Status()) for _ in range(2)]
        server.join()
    assert [State(pid=seed + 1, gpus=())] * 2 == answers


def _serve_in_pieces(connection: socket.socket, said: bytes, cuts: list[int]) -> None:
    with connection, connection.makefile("rb") as lines:
        while line := lines.readline():
            if b"hello" in line:
                connection.sendall(encode(usual_answer(Hello(version=1))))
                continue
            stops = [*(cut for cut in cuts if cut < len(said)), len(said)]
            for start, stop in zip([0, *stops], stops, strict=False):
                connection.sendall(said[start:stop])


def test_scripted_daemons_serve_one_connection_after_another(path: Path) -> None:
    with scripted_daemon(path) as daemon:
        for _ in range(2):
            with remote_lease(gpu(), path):
                pass
    assert isinstance(daemon, ScriptedDaemon)
    assert 2 == len(daemon.of(Take))
