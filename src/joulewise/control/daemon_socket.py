"""Connecting to the socket of `joulewised`."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from joulewise.domain.errors import BusyError, DeviceError, InputError, JoulewiseError, NotPermitted

DEFAULT_SOCKET_PATH = Path("/run/joulewise/joulewised.sock")
LOOK_AT_LOG = "Look at its log: journalctl -u joulewised."
"""What helps where the daemon does not do as expected."""
_CONNECT_S = 2.0
_PAUSE_S = 0.02


def connected_socket(path: Path) -> socket.socket | None:
    """A socket connected to this path; `None` where nobody listens.

    Raises:
        NotPermitted: this account may not use it.
        BusyError: who listens there accepts nobody for a while.
        InputError: the path cannot be that of a socket.
    """
    if not hasattr(socket, "AF_UNIX"):
        return None
    deadline_s = time.monotonic() + _CONNECT_S
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(_CONNECT_S)
        # A daemon that has yet to accept many connections takes no more for a moment.
        while not _connects(connected, path, is_last_try=time.monotonic() > deadline_s):
            time.sleep(_PAUSE_S)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        connected.close()
        return None
    except OSError as error:
        connected.close()
        raise _unreachable(path, error) from error
    except BaseException:
        connected.close()
        raise
    return connected


def _connects(connected: socket.socket, path: Path, *, is_last_try: bool) -> bool:
    try:
        connected.connect(str(path))
    except BlockingIOError:
        if is_last_try:
            raise
        return False
    return True


def _unreachable(path: Path, error: OSError) -> JoulewiseError:
    if isinstance(error, PermissionError):
        return NotPermitted(
            f"this account may not use the socket of joulewised, {path}",
            hint="Ask who runs the machine for it, or set JOULEWISE_SOCKET=off to do without.",
        )
    if isinstance(error, BlockingIOError | TimeoutError):
        return BusyError(
            f"joulewised at {path} has accepted no connection for {_CONNECT_S:g} s",
            hint=f"{LOOK_AT_LOG} JOULEWISE_SOCKET=off does without it.",
        )
    return InputError(
        f"no socket can be reached there: {error.strerror or error}",
        file=str(path),
        hint="Name the socket of joulewised in JOULEWISE_SOCKET.",
    )


def required_socket(path: Path) -> socket.socket:
    """The same. Raises DeviceError where nobody listens."""
    connected = connected_socket(path)
    if connected is None:
        raise DeviceError(
            f"no joulewised listens at {path}",
            hint="Start it: systemctl start joulewised. JOULEWISE_SOCKET names another socket.",
        )
    return connected
