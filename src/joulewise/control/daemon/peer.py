"""Who is at the other end of a Unix socket, as the kernel tells it."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from dataclasses import dataclass
from functools import lru_cache

_CREDENTIALS = struct.Struct("3i")
_UNSIGNED = 0xFFFFFFFF
# Of Linux's <asm-generic/socket.h>; Python has no names for them.
_SO_PEERGROUPS = 59
_SO_PEERPIDFD = 77
# Of a peer that has ended; which of the two hangs on the kernel's age.
_ENDED = frozenset({errno.ESRCH, errno.EINVAL})
_GROUP_BYTES = 4
_MOST_GROUPS_BYTES = 65536 * _GROUP_BYTES
_PYTHONS_MOST_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The process that connected: what it may do hangs on `uid` and `gids` as they were then.

    `pid` is 0 where the peer lives in a process namespace that is not seen from here. `user` is
    for people: `None` where the account has no name on this machine.
    """

    pid: int
    uid: int
    gids: frozenset[int]
    user: str | None = None

    @property
    def title(self) -> str:
        """How people know this account."""
        return self.user or f"uid {self.uid}"


def peer_of(connection: socket.socket) -> Peer:
    """Who connected, without a look at the names of accounts, which may take long.

    Raises OSError where the kernel does not tell.
    """
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(packed)
    gids = frozenset((gid & _UNSIGNED, *_supplementary_groups(connection)))
    return Peer(pid=pid, uid=uid & _UNSIGNED, gids=gids)


def _supplementary_groups(connection: socket.socket) -> tuple[int, ...]:
    """Groups beside the first one; none where the kernel does not know the question."""
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _PYTHONS_MOST_BYTES)
    except OSError as error:
        if error.errno != errno.ERANGE:
            return ()
        packed = _long_option(connection, _SO_PEERGROUPS, _MOST_GROUPS_BYTES)
    return struct.unpack(f"{len(packed) // _GROUP_BYTES}I", packed)


def _long_option(connection: socket.socket, option: int, most_bytes: int) -> bytes:
    """A socket option that is longer than Python's own call takes. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(most_bytes)
    length = ctypes.c_uint32(most_bytes)
    if library.getsockopt(
        connection.fileno(), socket.SOL_SOCKET, option, buffer, ctypes.byref(length)
    ):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return buffer.raw[: length.value]


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str | None:
    """The account's name; asks whatever directory the machine uses, which may take long."""
    import pwd  # noqa: PLC0415 - Unix only

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def process_descriptor(connection: socket.socket, pid: int) -> int | None:
    """A descriptor that becomes readable when the peer's process ends.

    A process that forked may end while its children keep the connection open. `None` where the
    kernel has no such descriptors, or does not see the process.

    Raises:
        ProcessLookupError: the process has ended.
    """
    try:
        # Since Linux 6.5; unlike a process id it cannot have been given to another meanwhile.
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno in _ENDED:
            # Whoever has its number by now is a stranger.
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error
    if pid <= 0:
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (OSError, AttributeError):
        return None
