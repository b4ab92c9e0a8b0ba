"""The life of a guard process: watch, notice that the client is gone, give back, end.

It is started by `guard.GuardProcess`, and it ends with its client: when that closes the socket,
dies, or becomes another program. A forked child of the client may keep the socket open, so the
system is asked for the client's death as well.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from joulewise.control.guard_messages import (
    Forget,
    GiveBack,
    Here,
    Watch,
    Watching,
    receive,
    send,
)
from joulewise.control.holder import is_alive
from joulewise.control.journal import is_left, replay
from joulewise.control.lock import FileLock, is_in_place, name_guard, unlock
from joulewise.control.state import JOURNAL_SUFFIX, LOCK_SUFFIX, remove_half_written
from joulewise.domain.control import Holder
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.ports import Gpu
from joulewise.store.lock import lock_exclusively

OpenGpu = Callable[[str], Gpu]
"""Opens a GPU by its device string. Raises JoulewiseError."""

_LOOK_AGAIN_S = 0.05
_OPENING_S = 5.0
# A driver that refuses may be busy with another GPU, or be loaded again.
_RETRY_PAUSES_S = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, *(2.0,) * 29)
_IGNORED_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGUSR2")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Client:
    """Whom the guard process watches; `pid_descriptor` is readable once that has died."""

    link: socket.socket
    pid_descriptor: int | None
    pid: int


class _OpenGpus:
    """GPUs stay open from one lease to the next, for opening one may take its time."""

    def __init__(self, open_gpu: OpenGpu) -> None:
        self._open_gpu = open_gpu
        self._gpus: dict[str, Gpu] = {}

    def get(self, device: str) -> Gpu:
        """A GPU that answers. Raises JoulewiseError."""
        gpu = self._gpus.get(device)
        if gpu is not None:
            with contextlib.suppress(JoulewiseError):
                gpu.knob_state()
                return gpu
        gpu = self._gpus[device] = self._open_gpu(device)
        gpu.knob_state()
        return gpu

    def drop(self, device: str) -> None:
        """Open it anew next time."""
        self._gpus.pop(device, None)


class _Watched:
    """One GPU of the client, and its copy of the locked file.

    It is opened on a thread of its own, so that a GPU that does not answer is in nobody's way.
    """

    def __init__(self, packet: Watch, lock_descriptor: int, gpus: _OpenGpus) -> None:
        self._packet = packet
        self._lock_descriptor = lock_descriptor
        self._gpus = gpus
        self._opening: threading.Thread | None = None

    def begin(self, link: socket.socket) -> None:
        """Open the GPU now, so that it is ready when it is needed, and tell the client."""
        self._opening = threading.Thread(target=self._open_and_tell, args=(link,), daemon=True)
        self._opening.start()

    def _open_and_tell(self, link: socket.socket) -> None:
        why, hint = None, None
        try:
            self._gpus.get(self._packet.device)
        except JoulewiseError as error:
            why, hint = str(error), error.hint
        except Exception as error:  # noqa: BLE001 - said to the client, which sets nothing then
            why = repr(error)
        with contextlib.suppress(OSError):
            send(link, Watching(ask_count=self._packet.ask_count, why=why, hint=hint))

    def forget(self) -> None:
        """Close the copy of the locked file: the GPU is given back."""
        os.close(self._lock_descriptor)

    def give_back(self, client_pid: int) -> None:
        """Undo the journal under the client's own lock, again and again for a minute."""
        journal = Path(self._packet.journal)
        # Where the client let go, and somebody else holds the GPU, all of it is theirs now.
        try:
            with contextlib.suppress(JoulewiseError), self._locked(journal, client_pid) as is_ours:
                if is_ours and is_left(journal):
                    self._undo(journal)
                if is_ours:
                    remove_half_written(journal)
        finally:
            self.forget()

    @contextlib.contextmanager
    def _locked(self, journal: Path, client_pid: int) -> Iterator[bool]:
        """Have the client's own lock, and that of today where somebody removed the former.

        Raises BusyError where another one has the latter, and InputError where it cannot be had.
        """
        if not lock_exclusively(self._lock_descriptor):
            yield False
            return
        lock_file = journal.with_name(f"{journal.name.removesuffix(JOURNAL_SUFFIX)}{LOCK_SUFFIX}")
        today = FileLock(lock_file)
        try:
            if is_left(journal):
                with contextlib.suppress(OSError):
                    name_guard(self._lock_descriptor, client_pid)
                if not is_in_place(self._lock_descriptor, lock_file):
                    today.acquire("the GPU", Holder(pid=client_pid))
            yield True
        finally:
            today.release()
            unlock(self._lock_descriptor)

    def _undo(self, journal: Path) -> None:
        if self._opening is not None:
            self._opening.join(_OPENING_S)
        for pause_s in (0.0, *_RETRY_PAUSES_S):
            time.sleep(pause_s)
            try:
                replay(journal, self._gpus.get(self._packet.device))
            except Exception:  # noqa: BLE001 - whatever it is, the next try may fare better
                self._gpus.drop(self._packet.device)
            else:
                return


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Charge:
    """What a guard process looks after: its client, and the GPUs that it watches or gives back."""

    client: _Client
    gpus: _OpenGpus
    watched: dict[str, _Watched] = field(default_factory=dict)
    giving_back: list[threading.Thread] = field(default_factory=list)


def run_guard(arguments: Sequence[str], open_gpu: OpenGpu) -> NoReturn:
    """Guard the client that these arguments of `GuardProcess` name, until it is gone.

    Does not return: a driver that hangs must not keep a process that is done.
    """
    link_descriptor, pid_descriptor, pid = map(int, arguments)
    _stand_alone()
    client = _Client(
        link=socket.socket(fileno=link_descriptor),
        pid_descriptor=None if pid_descriptor < 0 else pid_descriptor,
        pid=pid,
    )
    with client.link:
        with contextlib.suppress(OSError):
            send(client.link, Here(pid=os.getpid()))
        charge = _Charge(client=client, gpus=_OpenGpus(open_gpu))
        _guard(charge)
        _join(charge.giving_back, _given_back_by_threads(charge.watched.values(), client.pid))
    os._exit(0)


def _guard(charge: _Charge) -> None:
    """Watch until the client is gone.

    Whatever comes up ends in giving back where the client is gone, and else in the end of this
    process: the client lives, holds what it set, and starts another.
    """
    try:
        while _wait(charge.client):
            if not _hear(charge):
                break
        _hear_the_rest(charge)
    except Exception:  # noqa: BLE001 - nobody is there to be told
        if not _is_gone(charge.client):
            os._exit(1)


def _is_gone(client: _Client) -> bool:
    """Whether the client has died, become another program, or closed its side."""
    poll = select.poll()
    poll.register(client.link, 0)
    if client.pid_descriptor is not None:
        poll.register(client.pid_descriptor, select.POLLIN)
    return bool(poll.poll(0)) or not is_alive(client.pid)


def _stand_alone() -> None:
    """Be nobody's child, deaf to signals that end others, and as fast as the client may not be."""
    for name in _IGNORED_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    if os.fork():
        os._exit(0)
    # A client may be kept to one core, which it keeps busy, or have stood back for others.
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, min(0, os.getpriority(os.PRIO_PROCESS, 0)))


def _wait(client: _Client) -> bool:
    """Wait for something to hear; `False` once the client has died."""
    poll = select.poll()
    poll.register(client.link, select.POLLIN)
    if client.pid_descriptor is not None:
        poll.register(client.pid_descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(_poll_period_ms(client))}
        if client.pid_descriptor in ready:
            return False
        if ready:
            return True
        if client.pid_descriptor is None and not is_alive(client.pid):
            return False


def _poll_period_ms(client: _Client) -> float | None:
    return _LOOK_AGAIN_S * 1000 if client.pid_descriptor is None else None


def _hear_the_rest(charge: _Charge) -> None:
    """What the client said before it died, a GPU given back at the very end perhaps."""
    with contextlib.suppress(BlockingIOError):
        while _hear(charge):
            pass


def _hear(charge: _Charge) -> bool:
    """Take one packet; whether there was one. Raises BlockingIOError where none has come."""
    client, watched = charge.client, charge.watched
    try:
        packet, descriptor = receive(client.link, waits=False)
    except BlockingIOError:
        raise
    except OSError:
        packet, descriptor = None, None
    if isinstance(packet, Forget | Watch) and packet.uuid in watched:
        watched.pop(packet.uuid).forget()
    if isinstance(packet, Watch) and descriptor is not None:
        watched[packet.uuid] = _Watched(packet, descriptor, charge.gpus)
        watched[packet.uuid].begin(client.link)
    if isinstance(packet, GiveBack) and packet.uuid in watched:
        one = watched.pop(packet.uuid)
        charge.giving_back.extend(_given_back_by_threads([one], client.pid))
    return packet is not None


def _given_back_by_threads(watched: Iterable[_Watched], client_pid: int) -> list[threading.Thread]:
    """All GPUs at once: one that does not answer must not keep the others."""
    threads = []
    for one in watched:
        thread = threading.Thread(target=one.give_back, args=(client_pid,), daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # No more threads are to be had here: one after the other, then.
            with contextlib.suppress(Exception):
                one.give_back(client_pid)
        else:
            threads.append(thread)
    return threads


def _join(*threads: Iterable[threading.Thread]) -> None:
    for thread in itertools.chain(*threads):
        thread.join()
