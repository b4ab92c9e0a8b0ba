"""Starting a guard process as a program of its own, and seeing whether it lives."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from joulewise.control.lock import above_standard


def started(
    command: Sequence[str], environment: Mapping[str, str] | None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start one, and the socket to it: our end, its end and this process are its arguments.

    It has its own session, no terminal and nothing else that this process has open. Raises
    OSError.
    """
    ours, theirs = map(_above_standard, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    with theirs:
        pid_descriptor = _own_pid_descriptor()
        passed = [theirs.fileno(), *([] if pid_descriptor is None else [pid_descriptor])]
        named = (theirs.fileno(), -1 if pid_descriptor is None else pid_descriptor, os.getpid())
        try:
            process = subprocess.Popen(  # noqa: S603 - the command of who made this
                [*command, *map(str, named)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=passed,
                start_new_session=True,
                cwd="/",
                env=None if environment is None else dict(environment),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            if pid_descriptor is not None:
                os.close(pid_descriptor)
    return process, ours


def _above_standard(link: socket.socket) -> socket.socket:
    """Where the streams of this process are closed, those of the new one would take its place."""
    return socket.socket(fileno=above_standard(link.detach()))


def _own_pid_descriptor() -> int | None:
    """What tells of this process's end, whoever its parent is; `None` before Linux 5.3."""
    if sys.platform != "linux":
        return None
    with contextlib.suppress(OSError):
        return above_standard(os.pidfd_open(os.getpid()))
    return None


def is_open(link: socket.socket) -> bool:
    """Whether the other side still lives, asked of the system at once."""
    poll = select.poll()
    poll.register(link, 0)
    return not poll.poll(0)


def reap(pid: int | None) -> None:
    """Leave no zombie where orphans come to this process: the first of a container."""
    if pid is not None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
