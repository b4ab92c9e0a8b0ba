"""One connection of a client: lines in, lines out, and nothing that grows without end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Protocol

from joulewise.control.daemon.client import Client, Why
from joulewise.control.daemon.desk import LeaseDesk
from joulewise.control.daemon.messages import (
    LONGEST_LINE_BYTES,
    Answer,
    AnyQuestion,
    Hello,
    Refused,
    Welcome,
    encode,
    parse_question,
    refusal,
)
from joulewise.control.daemon.peer import Peer
from joulewise.domain.errors import InputError

_MOST_UNREAD_BYTES = 64 * 1024
_ROOM_BYTES = 2 * LONGEST_LINE_BYTES
_SHORTEST_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a connection waits.

    For its first line, for a client that does not read, and for one without a lease that asks
    nothing: it keeps a place from others.
    """

    hello_s: float = 5.0
    unread_s: float = 5.0
    idle_s: float = 60.0


class Host(Protocol):
    """What a connection needs of its server."""

    desk: LeaseDesk
    patience: Patience

    @property
    def heartbeat_timeout_s(self) -> float: ...

    def question_wait_s(self, connection: Connection) -> float:
        """How long the next question of a connection has to wait; 0: it counts, and may pass."""
        ...

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run something beside, to its end."""
        ...

    def is_gone(self, connection: Connection) -> None:
        """The connection has been closed."""
        ...


class Connection(asyncio.BufferedProtocol):
    """Answers one question at a time, in order; the leases of its client end with it.

    What a client sends waits in a buffer of fixed size and then in the kernel; what it does not
    read is bounded, too, and too much of that ends the connection.
    """

    def __init__(self, host: Host, peer: Peer) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self.client = Client(peer, self._tell)
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(_ROOM_BYTES)
        self._filled_count = 0
        self._heard_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._is_greeted = False
        self._is_suspected = False
        self._is_answering = False
        self._asked_gpu: str | None = None
        self._is_reading = True
        self._is_unread = False
        self._has_ended = False
        self._is_over = False

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - the only kind here
        self._transport = transport
        if self._is_over:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_MOST_UNREAD_BYTES)
        self._timer = self._loop.call_later(self._host.patience.hello_s, self._miss_hello)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the room is what it is
        return memoryview(self._buffer)[self._filled_count :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled_count += nbytes
        self._heard_s = self._loop.time()
        self._go_on()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._go_on()
        return True

    def pause_writing(self) -> None:
        self._is_unread = True
        self._unread_timer = self._loop.call_later(self._host.patience.unread_s, self._drop)

    def resume_writing(self) -> None:
        self._is_unread = False
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - gone is gone
        self._end(Why.DISCONNECTED)
        for timer in (self._timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        # Else each would hold the other until the garbage is collected, buffers included.
        self.client.tell = _say_to_nobody
        self._transport = None
        self._host.is_gone(self)

    # What the server calls.

    def end_with_process(self) -> None:
        """The process that connected has ended, whoever else keeps the connection open."""
        self._end(Why.PROCESS_ENDED)
        self._drop()

    def close(self) -> None:
        """Send what was said, and close; at once where nobody reads it."""
        self._is_over = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._unread_timer = self._loop.call_later(self._host.patience.unread_s, self._drop)

    # Lines in.

    def _go_on(self) -> None:
        """Answer the next question, where there is one and nothing is in the way.

        Once the client has said its last word, that is only as long as it holds nothing: no
        question that still waits, or is being answered, keeps clocks from being given back.
        """
        if self._is_over:
            return
        is_holding = self._host.desk.is_holding(self.client)
        if self._has_ended and is_holding:
            self._say_goodbye()
        elif is_holding and self._filled_count == _ROOM_BYTES:
            # Behind all that, the end of the connection would not be seen in time.
            self._break(InputError("who holds a lease waits for an answer before it asks more"))
        elif not (self._is_answering or self._is_unread):
            self._begin_next()
        self._read_while_room()

    def _begin_next(self) -> None:
        length = self._buffer.find(b"\n", 0, self._filled_count)
        if length > LONGEST_LINE_BYTES or (length < 0 and self._filled_count > LONGEST_LINE_BYTES):
            self._break(InputError(f"a question has at most {LONGEST_LINE_BYTES} bytes"))
        elif length >= 0:
            self._wait_or_answer(length)
        elif self._has_ended:
            self._say_goodbye()

    def _wait_or_answer(self, length: int) -> None:
        """Answer the question of so many bytes, after a while where too many came."""
        self._is_answering = True
        wait_s = self._host.question_wait_s(self)
        if wait_s > 0:
            self._loop.call_later(wait_s, self._answer_later)
            return
        line = bytes(self._buffer[:length])
        left_count = self._filled_count - length - 1
        self._buffer[:left_count] = self._buffer[length + 1 : self._filled_count]
        self._filled_count = left_count
        self._host.spawn(self._answer(line))

    def _answer_later(self) -> None:
        self._is_answering = False
        self._go_on()

    async def _answer(self, line: bytes) -> None:
        try:
            await self._answer_to(line)
        except BaseException:
            # One that would never be answered again would hold its leases for ever.
            self._drop()
            raise

    async def _answer_to(self, line: bytes) -> None:
        try:
            question = self._question(line)
        except InputError as error:
            self._break(error)
            return
        self._asked_gpu = getattr(question, "gpu", None)
        answer = await self._host.desk.answer(self.client, question)
        self._asked_gpu = None
        self._tell(answer)
        if not self._is_greeted:
            self._greet(answer)
        self._heard_s = self._loop.time()
        self._is_answering = False
        self._go_on_soon()

    def _question(self, line: bytes) -> AnyQuestion:
        question = parse_question(line)
        if isinstance(question, Hello) == self._is_greeted:
            raise InputError("hello is said once, and first", hint="Open another connection.")
        return question

    def _greet(self, answer: Answer) -> None:
        """Begin after hello, or end where the two do not speak the same language."""
        if self._is_over:
            return
        if not isinstance(answer, Welcome):
            self.close()
            return
        self._is_greeted = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._host.heartbeat_timeout_s, self._listen)

    def _go_on_soon(self) -> None:
        # Others come in between, however many questions wait here.
        if self._filled_count or self._has_ended:
            self._loop.call_soon(self._go_on)

    def _read_while_room(self) -> None:
        transport, is_room = self._transport, self._filled_count < _ROOM_BYTES
        if is_room == self._is_reading or transport is None or transport.is_closing():
            return
        self._is_reading = is_room
        if is_room:
            transport.resume_reading()
        else:
            transport.pause_reading()

    # Lines out.

    def _tell(self, answer: Answer) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(encode(answer))

    def _break(self, error: InputError) -> None:
        """Say what is wrong with the protocol, and end."""
        self._host.desk.note_broken(self.client, error)
        self._tell(refusal(error))
        self._end(Why.DISCONNECTED)
        self.close()

    # The end.

    def _say_goodbye(self) -> None:
        self._is_over = True
        self._host.spawn(self._part())

    async def _part(self) -> None:
        """The client said its last word: close once its clocks are given back."""
        await self._host.desk.leave(self.client, Why.DISCONNECTED)
        self.close()

    def _end(self, why: Why) -> None:
        self._is_over = True
        if not self.client.is_gone:
            self._host.spawn(self._host.desk.leave(self.client, why))

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _miss_hello(self) -> None:
        if not self._is_greeted:
            self._tell(Refused(kind="input", message="joulewised heard no hello in time"))
            self.close()

    def _listen(self) -> None:
        """End the leases of a client that has been silent for too long, or else its connection.

        While it waits for an answer it is silent rightly, but for so long only the lease on the
        GPU that it asked about is kept: that one is not given back before its driver answers.
        """
        if self._is_over:
            return
        is_at_stake = bool(self.client.held - {self._asked_gpu})
        timeout_s = self._host.heartbeat_timeout_s if is_at_stake else self._host.patience.idle_s
        is_excused = not is_at_stake and (self._is_answering or bool(self.client.held))
        silent_s = 0.0 if is_excused else self._loop.time() - self._heard_s
        # A lease may be taken before the next look.
        again_s = min(timeout_s - silent_s, self._host.heartbeat_timeout_s)
        was_suspected, self._is_suspected = self._is_suspected, silent_s >= timeout_s
        # Where this process itself stood still, what was said meanwhile has yet to be read.
        if self._is_suspected and was_suspected:
            if not is_at_stake:
                self._is_over = True
                self.close()
                return
            desk, kept = self._host.desk, self._asked_gpu
            self._host.spawn(desk.end_leases(self.client, Why.SILENT, kept=kept))
            self._is_suspected = False
            again_s = timeout_s
        self._timer = self._loop.call_later(max(again_s, _SHORTEST_S), self._listen)


def _say_to_nobody(_answer: Answer) -> None:
    """Where a connection is gone."""
