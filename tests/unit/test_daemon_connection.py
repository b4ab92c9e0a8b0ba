"""One connection on a real socket, with a desk that does what a test wants."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from joulewise.control.daemon.changes_log import ChangesLog
from joulewise.control.daemon.client import Client
from joulewise.control.daemon.connection import Patience
from joulewise.control.daemon.desk import LeaseDesk
from joulewise.control.daemon.messages import Answer, AnyQuestion, Beat, Status
from joulewise.control.daemon.policy import DaemonSettings, Policy
from joulewise.control.daemon.server import DaemonServer
from joulewise.domain.control import DaemonCounts

if sys.platform != "linux":
    pytest.skip("joulewised runs on Linux", allow_module_level=True)

R = TypeVar("R")
HELLO = b'{"ask":"hello","version":1}\n'
SETTINGS = DaemonSettings(
    state_dir=Path("/nowhere"),
    max_changes_per_s=50,
    max_connection_count=1,
    heartbeat_timeout_s=0.1,
)
QUICK = Patience(hello_s=0.15, unread_s=0.15, idle_s=0.15)


class OddDesk(LeaseDesk):
    """A desk without GPUs that fails at a beat, and says a lot when asked for its state."""

    async def answer(self, client: Client, question: AnyQuestion) -> Answer:
        if isinstance(question, Beat):
            raise ZeroDivisionError
        if isinstance(question, Status):
            await asyncio.sleep(0)
            for _ in range(2000):
                client.tell(await super().answer(client, question))
        return await super().answer(client, question)


Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter, DaemonServer], Awaitable[R]]


async def nobody_left(server: DaemonServer) -> None:
    """Wait until every connection is closed."""
    while server.counts().connection_count:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.005)


def connected(act: Act[R]) -> tuple[R, list[dict[str, object]], DaemonCounts]:
    """Run this with a connection to a server; returns what it does, the log, and the counts."""
    stream = io.StringIO()

    async def run(path: Path) -> tuple[R, DaemonCounts]:
        log = ChangesLog(stream)
        desk = OddDesk((), Policy(settings=SETTINGS), log)
        server = DaemonServer(desk, log, QUICK)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(path))
            listening.listen()
            server.start(listening)
            reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 26)
            try:
                result = await act(reader, writer, server)
                writer.close()
                await nobody_left(server)
                return result, server.counts()
            finally:
                await server.close()
                log.close()

    with tempfile.TemporaryDirectory(prefix="jw") as name:
        result, counts = asyncio.run(run(Path(name) / "d.sock"))
    return result, [json.loads(line) for line in stream.getvalue().splitlines()], counts


def test_more_connections_than_allowed_in_all_are_refused_in_one_line() -> None:
    async def act(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _server: DaemonServer
    ) -> bytes:
        writer.write(HELLO)
        assert b"welcome" in await reader.readline()
        path = writer.get_extra_info("peername")
        # Eight more for the daemon's own user, who looks after the machine.
        kept = [await asyncio.open_unix_connection(path) for _ in range(8)]
        for one, asking in kept:
            asking.write(HELLO)
            assert b"welcome" in await one.readline()
        more, closing = await asyncio.open_unix_connection(path)
        said = await more.read()
        for _, open_still in (*kept, (more, closing)):
            open_still.close()
        return said

    said, _, counts = connected(act)

    assert b"joulewised has too many connections open" in said
    assert 1 == said.count(b"\n")
    assert 1 == counts.refused_connection_count


def test_who_says_nothing_is_told_so_and_let_go() -> None:
    async def act(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _server: DaemonServer
    ) -> bytes:
        writer.write(HELLO[:-1])
        return await reader.read()

    said, _, _ = connected(act)

    assert b"heard no hello" in said
    assert 1 == said.count(b"\n")


def test_who_holds_no_lease_and_asks_nothing_makes_room_after_a_while() -> None:
    async def act(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _server: DaemonServer
    ) -> bytes:
        writer.write(HELLO)
        return await reader.read()

    said, log, _ = connected(act)

    assert 1 == said.count(b"\n")
    assert b"welcome" in said
    assert [] == log


def test_who_does_not_read_is_dropped() -> None:
    async def act(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: DaemonServer
    ) -> int:
        writer.write(HELLO)
        assert b"welcome" in await reader.readline()
        transport = writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        writer.write(200 * b'{"ask":"status"}\n')
        before = server.counts().connection_count
        await nobody_left(server)
        return before

    before, _, counts = connected(act)

    assert 1 == before
    assert 0 == counts.connection_count
    # One answer was too long for whoever does not read, so no other question was taken up.
    assert counts.answer_count["status", "state"] <= 4100


def test_a_connection_that_meets_a_fault_of_ours_ends_rather_than_hangs() -> None:
    async def act(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _server: DaemonServer
    ) -> bytes:
        writer.write(HELLO)
        assert b"welcome" in await reader.readline()
        writer.write(b'{"ask":"beat"}\n')
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""

    said, log, _ = connected(act)

    assert b"" == said
    assert [("fault", "ZeroDivisionError: ")] == [(line["event"], line["result"]) for line in log]


def test_more_questions_than_allowed_wait_and_none_is_lost() -> None:
    async def act(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _server: DaemonServer
    ) -> tuple[list[str], float]:
        loop = asyncio.get_running_loop()
        unknown = b'{"ask":"release","gpu":"GPU-1234"}\n'
        began_s = loop.time()
        writer.write(HELLO + 129 * unknown)
        said = [json.loads(await reader.readline())["say"] for _ in range(130)]
        return said, loop.time() - began_s

    (said, took_s), _, counts = connected(act)

    # A hundred at once, and thirty more at a hundred in a second.
    assert took_s > 0.25
    assert ["welcome", *129 * ["refused"]] == said
    assert 129 == counts.answer_count["release", "refused"]
