"""Lines to and from `joulewised` over a socket, each within a time that is over at some moment."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from joulewise.control.daemon_socket import LOOK_AT_LOG
from joulewise.domain.errors import DeviceError

_LONGEST_LINE_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


class DaemonLines:
    """One connected socket; the deadlines are those of `time.monotonic`."""

    def __init__(self, connected: socket.socket) -> None:
        """Take the socket over; `close` closes it."""
        self._socket = connected
        self._received = bytearray()

    def send(self, line: bytes, deadline_s: float) -> None:
        """Send a line. Raises OSError, but for a daemon that went away.

        That one may have said why, which is still to be read.
        """
        with suppress(BrokenPipeError, ConnectionResetError):
            self._wait_until(deadline_s)
            self._socket.sendall(line)

    def next(self, deadline_s: float) -> bytes:
        """The next line, without its end.

        Raises:
            OSError: the connection ended, or the time is over.
            DeviceError: a line without end.
        """
        while True:
            # Also where lines come all the time: none of them may be the one waited for.
            self._wait_until(deadline_s)
            end = self._received.find(b"\n")
            if end >= 0:
                line = bytes(self._received[:end])
                del self._received[: end + 1]
                return line
            chunk = self._socket.recv(_CHUNK_BYTES)
            if not chunk:
                raise ConnectionResetError
            self._received += chunk
            if len(self._received) > _LONGEST_LINE_BYTES:
                raise DeviceError("joulewised answers without end", hint=LOOK_AT_LOG)

    def say_no_more(self) -> None:
        """Let the daemon see the end of the connection, and give back."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def hear_no_more(self) -> None:
        """The same, and wake a thread that waits for a line."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def see_end(self, deadline_s: float) -> None:
        """Wait until the daemon closes its side, which it does when all is given back."""
        with suppress(OSError):
            self._wait_until(deadline_s)
            while self._socket.recv(_CHUNK_BYTES):
                self._wait_until(deadline_s)

    def close(self) -> None:
        """Close this process's copy of the socket."""
        self._socket.close()

    def _wait_until(self, deadline_s: float) -> None:
        """Let the socket wait for so long. Raises TimeoutError where that is over."""
        left_s = deadline_s - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError
        self._socket.settimeout(left_s)
