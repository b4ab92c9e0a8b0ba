"""One connection's client, as the desk knows it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from joulewise.control.daemon.messages import Answer
from joulewise.control.daemon.peer import Peer
from joulewise.domain.control import Holder


class Why(StrEnum):
    """Why a lease ended."""

    RELEASED = "released"
    DISCONNECTED = "disconnected"
    PROCESS_ENDED = "process_ended"
    SILENT = "silent"
    STOPPING = "stopping"

    @property
    def text(self) -> str:
        """In words, for the client."""
        return _WORDS[self]


_WORDS = {
    Why.RELEASED: "it was given back",
    Why.DISCONNECTED: "the connection to joulewised ended",
    Why.PROCESS_ENDED: "the process that connected ended",
    Why.SILENT: "joulewised heard nothing from its holder for too long",
    Why.STOPPING: "joulewised is stopping",
}


class Client:
    """Who asks over one connection, and which GPUs it holds.

    `tell` sends a line that nobody asked for; it does nothing once the connection is gone.
    """

    __slots__ = ("held", "is_gone", "over", "peer", "program", "tell")

    def __init__(self, peer: Peer, tell: Callable[[Answer], None]) -> None:
        self.peer = peer
        self.program: str | None = None
        self.tell = tell
        self.held: set[str] = set()
        """UUIDs of the GPUs that it holds or is about to."""
        self.over: dict[str, Why] = {}
        """Why leases ended that it did not release itself."""
        self.is_gone = False
        """Whether nothing may be taken for it any more."""

    def holder(self, daemon_pid: int) -> Holder:
        """As other people read who holds a GPU."""
        return Holder(
            pid=self.peer.pid,
            user=self.peer.title,
            command=self.program,
            daemon_pid=daemon_pid,
        )
