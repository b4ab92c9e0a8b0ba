"""Connections without end, passed descriptors and too few of them: the daemon goes on."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from tests.daemon.hostile import (
    BOUNDED,
    SETTINGS,
    connected,
    hello,
    is_untouched,
    line,
    needs_honest_lease,
    said_until_closed,
    settled,
    unharmed,
    vitals,
)
from tests.daemon.running import Line, RunningDaemon, Talker, started_daemon, wait_until
from tests.other_users import SOMEBODY, as_root, as_user

FAKE = {"FAKE_NVML_KNOBS": "set_call_s=0,lag_s=0"}
ROOMY = f"""{SETTINGS}
max_connection_count = 2500
max_connection_per_user_count = 2500
[[allow]]
users = [{{uid}}]
"""


@pytest.fixture(scope="module")
def bounded(
    fake_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("bounded")
    with started_daemon(fake_library, folder, config=BOUNDED, driver=FAKE) as running:
        running.socket.parent.chmod(0o755)
        needs_honest_lease(running, running.uuids()[0], 1005)
        yield running


@pytest.fixture(scope="module", autouse=True)
def _many_files() -> Iterator[None]:
    """This process needs as many descriptors as it makes connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def opened(stack: ExitStack, path: Path, count: int) -> list[socket.socket]:
    """So many connections, all open until the block ends."""
    return [stack.enter_context(closing(connected(path))) for _ in range(count)]


@as_root
def test_a_thousand_connections_of_one_user_leave_room_for_another(bounded: RunningDaemon) -> None:
    gpu = bounded.uuids()[0]
    said: list[list[Line]] = []
    for is_measured in (False, True):
        with ExitStack() as stack:
            if is_measured:
                stack.enter_context(unharmed(bounded))
            raws = stack.enter_context(ExitStack())
            with as_user(SOMEBODY, SOMEBODY):
                flood = opened(raws, bounded.socket, 1000)
            # 32 of them wait for what they say; the others are told why not, and are closed.
            said = [said_until_closed(raw) for raw in flood[32:]]
            needs_honest_lease(bounded, gpu, 1005)

    assert {"busy"} == {answer["kind"] for lines in said for answer in lines}
    assert sum(map(len, said)) > 900
    assert "user 4001 has too many connections open" == said[0][0]["message"]


def test_of_too_many_connections_of_the_own_user_the_first_go_on(bounded: RunningDaemon) -> None:
    gpu = bounded.uuids()[0]
    with unharmed(bounded), ExitStack() as stack:
        first = stack.enter_context(closing(Talker(bounded.socket)))
        first.hello()
        first.take(gpu)
        first.ask("apply", gpu=gpu, sm_clock_mhz=1005)
        flood = opened(stack, bounded.socket, 100)
        refused = [said_until_closed(raw) for raw in flood[31:]]

        assert all("busy" == lines[0]["kind"] for lines in refused)
        assert "applied" == first.ask("apply", gpu=gpu, sm_clock_mhz=600)["say"]
        assert 600 == bounded.truth().true_locks(0).sm_max_mhz
    needs_honest_lease(bounded, gpu, 1005)


def test_connections_that_come_and_go_leave_nothing_behind(bounded: RunningDaemon) -> None:
    def come_and_go(count: int) -> None:
        for number in range(count):
            with closing(connected(bounded.socket)) as raw:
                # Some say something, and some hang up at once.
                if number % 3:
                    with suppress(BrokenPipeError):
                        raw.sendall(hello()[: number % 40])

    come_and_go(300)
    with unharmed(bounded):
        come_and_go(1000)


def test_passed_descriptors_do_not_pile_up(bounded: RunningDaemon) -> None:
    gpu = bounded.uuids()[0]
    read_end, write_end = os.pipe()

    def send(raw: socket.socket, message: bytes, descriptors: Sequence[int]) -> None:
        socket.send_fds(raw, [message], descriptors)

    with closing(Talker(bounded.socket)) as talker, unharmed(bounded):
        talker.hello()
        before = settled(bounded).descriptor_count
        for _ in range(100):
            send(talker.socket, line(ask="beat"), [write_end] * 250)
            assert {"say": "alive"} == talker.line()
        assert before == vitals(bounded).descriptor_count
        assert "granted" == talker.take(gpu)["say"]
        assert "released" == talker.release(gpu)["say"]
    os.close(write_end)

    # Nobody else has the other end any more.
    os.set_blocking(read_end, False)
    wait_until(lambda: b"" == os.read(read_end, 1), "somebody kept it", patience_s=1.0)
    os.close(read_end)


@pytest.mark.integration
def test_a_daemon_out_of_descriptors_goes_on_with_whom_it_has(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path, config=ROOMY, driver=FAKE) as daemon:
        gpu = daemon.uuids()[0]
        needs_honest_lease(daemon, gpu, 1005)
        holder = Talker(daemon.socket)
        holder.hello("train.py")
        holder.take(gpu)
        holder.ask("apply", gpu=gpu, sm_clock_mhz=1005)
        room = settled(daemon).descriptor_count + 20
        kept = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (room, kept[1]))
        with ExitStack() as stack:
            flood = opened(stack, daemon.socket, 100)
            wait_until(lambda: bool(daemon.events("fault")), "nothing was scarce")
            # What its journal says already needs no descriptor.
            assert "applied" == holder.ask("apply", gpu=gpu, sm_clock_mhz=600)["say"]
            assert "alive" == holder.ask("beat")["say"]
            holder.close()
            wait_until(
                lambda: daemon.truth().true_locks(0).sm_max_mhz is None,
                "clocks are set",
                patience_s=1.0,
            )
            assert len(flood) == 100
        wait_until(lambda: is_untouched(daemon), "it does not recover", patience_s=10.0)
        needs_honest_lease(daemon, gpu, 1005)


@pytest.mark.integration
def test_a_thousand_connections_at_once_are_all_served_and_their_memory_comes_back(
    fake_library: Path, tmp_path: Path
) -> None:
    def all_at_once(daemon: RunningDaemon) -> None:
        settled(daemon)
        with ExitStack() as stack:
            flood = opened(stack, daemon.socket, 1000)
            for raw in flood:
                raw.sendall(hello() + line(ask="status"))
            for raw in flood:
                answers = b""
                while answers.count(b"\n") < 2:
                    answers += raw.recv(65536)
                assert b'"say":"state"' in answers
            needs_honest_lease(daemon, daemon.uuids()[0], 1005)

    with started_daemon(fake_library, tmp_path, config=ROOMY, driver=FAKE) as daemon:
        for _ in range(3):
            all_at_once(daemon)
        with unharmed(daemon):
            for _ in range(3):
                all_at_once(daemon)


@pytest.mark.integration
def test_connections_that_say_nothing_are_closed_after_a_while(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path, config=ROOMY, driver=FAKE) as daemon:
        before = settled(daemon).descriptor_count
        with ExitStack() as stack:
            began_s = time.monotonic()
            flood = opened(stack, daemon.socket, 1000)
            said = [said_until_closed(raw) for raw in flood]
            took_s = time.monotonic() - began_s
            wait_until(lambda: vitals(daemon).descriptor_count <= before, "connections stay open")

    assert {"joulewised heard no hello in time"} == {lines[0]["message"] for lines in said}
    assert took_s < 15.0


@pytest.mark.integration
def test_leases_taken_and_lost_hundreds_of_times_leave_nothing_behind(
    bounded: RunningDaemon,
) -> None:
    gpu = bounded.uuids()[0]

    def take_and_vanish(count: int) -> None:
        for _ in range(count):
            with closing(Talker(bounded.socket)) as talker, suppress(AssertionError):
                talker.hello()
                talker.take(gpu)
                talker.ask("apply", gpu=gpu, sm_clock_mhz=1005)

    take_and_vanish(100)
    with unharmed(bounded):
        take_and_vanish(400)


@as_root
@pytest.mark.integration
@pytest.mark.parametrize("ask", ["status", "beat", "take"])
def test_a_stranger_that_floods_takes_nobody_elses_lease_nor_much_time(
    bounded: RunningDaemon, ask: str
) -> None:
    gpu = bounded.uuids()[0]
    flood = line(ask=ask, **({"gpu": gpu} if ask == "take" else {})) * 50
    stop = threading.Event()

    def keep_flooding() -> None:
        while not stop.is_set():
            for raw in raws:
                with suppress(BlockingIOError, ConnectionError):
                    raw.send(flood)
                with suppress(BlockingIOError, ConnectionError):
                    raw.recv(1 << 20)

    with ExitStack() as stack:
        with as_user(SOMEBODY, SOMEBODY):
            raws = opened(stack, bounded.socket, 32)
        for raw in raws:
            raw.sendall(hello())
            raw.settimeout(0.0)
        honest = stack.enter_context(closing(Talker(bounded.socket)))
        honest.hello()
        honest.take(gpu)
        thread = threading.Thread(target=keep_flooding)
        thread.start()
        try:
            slowest_s = 0.0
            for number in range(200):
                asked_s = time.monotonic()
                clock_mhz = 1005 if number % 2 else 600
                assert "applied" == honest.ask("apply", gpu=gpu, sm_clock_mhz=clock_mhz)["say"]
                slowest_s = max(slowest_s, time.monotonic() - asked_s)
                time.sleep(0.01)
        finally:
            stop.set()
            thread.join()

    # The heartbeat allows two seconds here.
    assert slowest_s < 1.0
    wait_until(lambda: is_untouched(bounded), "clocks are set", patience_s=2.0)
