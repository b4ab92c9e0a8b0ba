"""A small server on a Unix socket that answers as joulewised would, but for what a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from joulewise.control.daemon.messages import (
    Alive,
    Allowed,
    Answer,
    Applied,
    Apply,
    Beat,
    Granted,
    Hello,
    May,
    Question,
    Release,
    Released,
    State,
    Status,
    Take,
    Welcome,
    encode,
    parse_question,
)

PID = 4242
Reply = Callable[[Question], bytes | None]
"""The bytes to answer with; `None` hangs up."""


def usual_answer(question: Question, beat_s: float = 60.0) -> Answer:
    """What a daemon answers that grants everything."""
    match question:
        case Hello(version=version):
            return Welcome(version=version, pid=PID, beat_s=beat_s)
        case Take(gpu=gpu):
            return Granted(gpu=gpu)
        case Apply(gpu=gpu) | May(gpu=gpu):
            return Applied(gpu=gpu) if isinstance(question, Apply) else Allowed(gpu=gpu)
        case Release(gpu=gpu):
            return Released(gpu=gpu)
        case Beat():
            return Alive()
        case Status():
            return State(pid=PID, gpus=())
        case _:
            raise AssertionError(question)


class ScriptedDaemon:
    """Serves one connection after the other, and keeps what it was asked."""

    def __init__(self, path: Path, replies: dict[type[Question], Reply], beat_s: float) -> None:
        """Listen; `replies` takes the place of the usual answers to these questions."""
        self.path = path
        self.asked: list[Question] = []
        self.ended = threading.Event()
        """Set once a client has ended its connection, before this side is closed."""
        self._replies = replies
        self._beat_s = beat_s
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def of(self, kind: type[Question]) -> list[Question]:
        """Questions of this kind, in order."""
        return [question for question in self.asked if isinstance(question, kind)]

    def stop(self) -> None:
        """Listen no more; the connection that is served ends first."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10.0)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                self._talk(connection, lines.readline)
                self.ended.set()

    def _talk(self, connection: socket.socket, next_line: Callable[[], bytes]) -> None:
        with suppress(OSError):
            while line := next_line():
                question = parse_question(line)
                self.asked.append(question)
                reply = self._replies.get(type(question))
                answer = encode(usual_answer(question, self._beat_s)) if reply is None else None
                answer = reply(question) if reply is not None else answer
                if answer is None:
                    return
                connection.sendall(answer)


@contextmanager
def scripted_daemon(
    path: Path, replies: dict[type[Question], Reply] | None = None, *, beat_s: float = 60.0
) -> Iterator[ScriptedDaemon]:
    """A daemon that listens at `path` for the length of the block."""
    daemon = ScriptedDaemon(path, replies or {}, beat_s)
    try:
        yield daemon
    finally:
        daemon.stop()
