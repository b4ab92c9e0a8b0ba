"""What a process and its guard process say to each other: one JSON object a packet.

The process asks to watch a GPU, with the open lock file beside the packet, to forget one, or to
give one back that it could not give back by itself. The
guard process says that it is there, and which of what it was asked it watches or cannot.
"""

from __future__ import annotations

import json
import os
import socket
from array import array
from dataclasses import asdict, dataclass

LONGEST_PACKET_BYTES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Watch this GPU; `ask_count` tells one asking from the next, for the answer."""

    ask_count: int
    uuid: str
    device: str
    journal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Watch this GPU no more."""

    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBack:
    """Do now what is done at the end of the process: it let go of this GPU, and could not."""

    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """The guard process runs."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """The GPU is open and its journal known; `why` says why not, where that is so."""

    ask_count: int
    why: str | None = None
    hint: str | None = None


_INT_BYTES = array("i").itemsize

Packet = Watch | Forget | GiveBack | Here | Watching
_KINDS: dict[str, type[Packet]] = {
    kind.__name__: kind for kind in (Watch, Forget, GiveBack, Here, Watching)
}


def send(link: socket.socket, packet: Packet, descriptor: int | None = None) -> None:
    """Send without waiting. Raises OSError where nobody takes it."""
    text = json.dumps({"kind": type(packet).__name__, **asdict(packet)}).encode()
    flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
    # `socket.send_fds` and `recv_fds` take flags and drop them.
    beside = (
        []
        if descriptor is None
        else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))]
    )
    link.sendmsg([text], beside, flags)


def receive(link: socket.socket, *, waits: bool = True) -> tuple[Packet | None, int | None]:
    """The next packet and the open file beside it; no packet once the other side is gone.

    Raises BlockingIOError where there is none yet and it is not waited for; OSError; ValueError
    for what is no such packet, as of another version of joulewise.
    """
    flags = 0 if waits else socket.MSG_DONTWAIT
    text, beside, _, _ = link.recvmsg(LONGEST_PACKET_BYTES, socket.CMSG_SPACE(_INT_BYTES), flags)
    descriptors = array(
        "i",
        b"".join(data for *kind, data in beside if kind == [socket.SOL_SOCKET, socket.SCM_RIGHTS]),
    )
    if not text:
        return None, None
    try:
        return _packet(text), descriptors[0] if descriptors else None
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _packet(text: bytes) -> Packet:
    try:
        fields = json.loads(text)
        kind = _KINDS[fields.pop("kind")]
        return kind(**fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"no packet of a guard process: {text[:100]!r}") from error
