"""What the service manager and the daemon say to each other: sockets, readiness, watchdog."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from contextlib import suppress

from joulewise.domain.errors import InputError

_FIRST_DESCRIPTOR = 3
_MICROSECONDS_PER_S = 1e6
_MOST_DIGITS_COUNT = 18


def handed_socket(environment: MutableMapping[str, str] | None = None) -> socket.socket | None:
    """The listening socket that systemd opened for this process; `None` where there is none.

    Of `LISTEN_FDS` (sd_listen_fds(3)); the variables are taken out, for they are not meant for
    child processes.

    Raises:
        InputError: more than one socket, or one that is no Unix stream socket.
    """
    environment = os.environ if environment is None else environment
    named = {name: environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS")}
    environment.pop("LISTEN_FDNAMES", None)
    count = _number(named["LISTEN_FDS"])
    if named["LISTEN_PID"] != str(os.getpid()) or not count:
        return None
    hint = "Give the socket unit of joulewised one ListenStream= with a path."
    if count > 1:
        raise InputError(f"the service manager hands over {count} sockets, not one", hint=hint)
    try:
        os.set_inheritable(_FIRST_DESCRIPTOR, False)  # noqa: FBT003 - the signature of the system's
        handed = socket.socket(fileno=_FIRST_DESCRIPTOR)
    except OSError as error:
        raise InputError(f"what it hands over is no socket: {error.strerror}", hint=hint) from error
    if not _listens(handed):
        handed.detach()
        raise InputError("the service manager hands over no Unix stream socket", hint=hint)
    return handed


def _listens(handed: socket.socket) -> bool:
    is_unix = handed.family == socket.AF_UNIX and handed.type == socket.SOCK_STREAM
    return is_unix and bool(handed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


class ServiceManager:
    """Tells systemd how the daemon is (sd_notify(3)); does nothing where none listens."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        named = environment.get("NOTIFY_SOCKET", "")
        # An @ stands for the NUL that abstract addresses begin with.
        self._address = f"\0{named[1:]}" if named.startswith("@") else named
        self.watchdog_period_s = _watchdog_period_s(environment)
        """How often to say that the daemon is alive; `None`: nobody waits for that."""

    def ready(self, status: str) -> None:
        """The socket answers from now on."""
        self._say(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """The event loop turns."""
        self._say("WATCHDOG=1")

    def stopping(self) -> None:
        """The end has begun."""
        self._say("STOPPING=1")

    def _say(self, text: str) -> None:
        if not self._address:
            return
        # What the service manager is told is a courtesy; nothing fails for it.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
            speaking.settimeout(0)
            speaking.sendto(text.encode(), self._address)


def _watchdog_period_s(environment: Mapping[str, str]) -> float | None:
    """Half of the time after which systemd gives the daemon up."""
    told, whose = _number(environment.get("WATCHDOG_USEC", "")), environment.get("WATCHDOG_PID", "")
    if not told or whose not in ("", str(os.getpid())):
        return None
    return told / _MICROSECONDS_PER_S / 2


def _number(told: str) -> int | None:
    """What the service manager wrote; `None` for what is no number that it could have meant."""
    return int(told) if told.isdecimal() and len(told) <= _MOST_DIGITS_COUNT else None
