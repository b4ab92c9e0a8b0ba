"""The guard: whoever gives a GPU's clocks back when its holder can no longer do so.

A guard process shares the fate of its container, or of its batch job: where all processes are
ended at once, only the next lease gives the clocks back, or joulewised from outside.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from joulewise.control.guard_messages import Forget, Here, Watch, Watching, receive, send
from joulewise.control.guard_program import is_open, reap, started
from joulewise.domain.errors import DeviceError
from joulewise.domain.ports import GpuIdentity

# Opening a GPU takes seconds where the driver has to be loaded for it first.
_PATIENCE_S = 60.0
_ENDING_S = 5.0
# Before a guard process is started again: one that somebody ends is followed at once, one that
# ends again and again is not waited on by the machine.
_PAUSES_S = (0.0, 0.0, 0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
# So many in a row that ended before they watched anything; then it is said and given up.
_START_COUNT = 4
_LASTING_S = 30.0
_HINT = (
    "Without it nothing gives the clocks back should this process be killed, so none are set. "
    "joulewised needs no guard process: let an administrator start it."
)


class Guard(Protocol):
    """Gives back what a dead holder left set, by its journal. Threads may share one."""

    def watch(self, identity: GpuIdentity, journal: Path, lock_descriptor: int) -> None:
        """Ask to watch a GPU that this process has just locked; does not wait."""
        ...

    def ensure(self, uuid: str) -> None:
        """Return once this GPU is watched; cheap where it is already.

        Raises DeviceError, with a hint, where no guard can be had.
        """
        ...

    def unwatch(self, uuid: str) -> None:
        """Forget a GPU that was given back; harmless when repeated."""
        ...

    def close(self) -> None:
        """End it; harmless when repeated."""
        ...


class NoGuard:
    """Nobody: for GPUs that end with their process, and where the next lease is soon enough."""

    def watch(self, identity: GpuIdentity, journal: Path, lock_descriptor: int) -> None:
        """Watch nothing."""

    def ensure(self, uuid: str) -> None:
        """Be content."""

    def unwatch(self, uuid: str) -> None:
        """Forget nothing."""

    def close(self) -> None:
        """End nothing."""


@dataclass(slots=True, kw_only=True)
class _Watched:
    """One GPU, its locked file, and what the guard process that runs now says of it."""

    packet: Watch
    lock_descriptor: int
    answer: Watching | None = None


class GuardProcess:
    """A process of its own that gives back what this one left set when it dies.

    One for all GPUs of this process, started by exec when the first is to be watched. Should it
    die, a thread starts another at once. It is no child of this process, so that a program that
    waits for its children, or forks, meets no stranger. Linux only.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start nothing yet.

        Args:
            command: What runs `guard_loop.run_guard`; three arguments are added.
            environment: Of that process; `None` for that of this one.
        """
        self._command = tuple(command)
        self._environment = environment
        # Entered itself: an exception out of a signal could leave a condition entered for ever.
        self._steps = threading.RLock()
        self._changed = threading.Condition(self._steps)
        self._watched: dict[str, _Watched] = {}
        self._ask_count = 0
        self._link: socket.socket | None = None
        self._keeper: threading.Thread | None = None
        self._trouble: str | None = None
        self._pid: int | None = None
        self._is_closed = False
        _ALL.add(self)

    @property
    def pid(self) -> int | None:
        """The guard process that runs; `None` as long as it has not said so."""
        return self._pid

    def watch(self, identity: GpuIdentity, journal: Path, lock_descriptor: int) -> None:
        """Ask to watch a GPU that this process has just locked; does not wait."""
        with self._steps:
            if self._is_closed:
                raise ValueError("this guard process was closed")
            self.unwatch(identity.uuid)
            packet = Watch(
                ask_count=self._next_count(),
                uuid=identity.uuid,
                device=identity.spec,
                journal=str(journal.absolute()),
            )
            watched = _Watched(packet=packet, lock_descriptor=os.dup(lock_descriptor))
            self._watched[identity.uuid] = watched
            self._ask(watched)
            self._keep_one()

    def ensure(self, uuid: str) -> None:
        """Return once this GPU is watched; some µs where it is already.

        Raises DeviceError where there is no guard process, or it cannot open the GPU.
        """
        deadline_s = time.monotonic() + _PATIENCE_S
        with self._steps:
            self._ask_again_where_refused(uuid)
            while not self._is_watched(uuid):
                self._raise_trouble(uuid)
                self._keep_one()
                left_s = max(0.0, deadline_s - time.monotonic())
                if self._keeper is not None and not self._changed.wait(left_s):
                    raise DeviceError(
                        f"the guard process did not open the GPU within {_PATIENCE_S:g} s",
                        hint=_HINT,
                    )

    def unwatch(self, uuid: str) -> None:
        """Forget a GPU that was given back; harmless when repeated."""
        with self._steps:
            watched = self._watched.pop(uuid, None)
            if watched is None:
                return
            os.close(watched.lock_descriptor)
            if self._link is not None:
                with contextlib.suppress(OSError):
                    send(self._link, Forget(uuid=uuid))

    def close(self) -> None:
        """End the guard process, which gives back what it still watches; harmless when repeated."""
        with self._steps:
            self._is_closed = True
            keeper = self._keeper
            if self._link is not None:
                with contextlib.suppress(OSError):
                    self._link.shutdown(socket.SHUT_WR)
        if keeper is not None:
            keeper.join(_ENDING_S)
        with self._steps:
            for uuid in list(self._watched):
                self.unwatch(uuid)

    def forget_in_child(self) -> None:
        """Let go of everything in a forked child: the guard process watches its parent."""
        for watched in self._watched.values():
            os.close(watched.lock_descriptor)
        if self._link is not None:
            self._link.close()
        # Entered itself: an exception out of a signal could leave a condition entered for ever.
        self._steps = threading.RLock()
        self._changed = threading.Condition(self._steps)
        self._watched, self._link, self._keeper, self._pid = {}, None, None, None

    def _is_watched(self, uuid: str) -> bool:
        watched = self._watched.get(uuid)
        if watched is None or watched.answer is None or watched.answer.why is not None:
            return False
        return self._link is not None and is_open(self._link)

    def _raise_trouble(self, uuid: str) -> None:
        watched = self._watched.get(uuid)
        if watched is None:
            raise DeviceError("no guard process watches this GPU any longer", hint=_HINT)
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise DeviceError(trouble, hint=_HINT)
        answer = watched.answer
        if answer is not None and answer.why is not None:
            raise DeviceError(
                f"the guard process cannot watch the GPU: {answer.why}",
                hint=answer.hint or _HINT,
            )

    def _ask_again_where_refused(self, uuid: str) -> None:
        watched = self._watched.get(uuid)
        if watched is not None and watched.answer is not None and watched.answer.why is not None:
            watched.packet = replace(watched.packet, ask_count=self._next_count())
            watched.answer = None
            self._ask(watched)

    def _next_count(self) -> int:
        self._ask_count += 1
        return self._ask_count

    def _ask(self, watched: _Watched) -> None:
        if self._link is not None:
            # One that is gone is noticed by who listens to it, and the next one is asked again.
            with contextlib.suppress(OSError):
                send(self._link, watched.packet, watched.lock_descriptor)

    def _keep_one(self) -> None:
        """Have a thread start the guard process, and another whenever it dies."""
        if self._keeper is not None:
            return
        keeper = threading.Thread(target=self._keep, name="guard process", daemon=True)
        try:
            keeper.start()
        except RuntimeError as error:
            self._trouble = f"no thread can be started that keeps a guard process: {error}"
            self._changed.notify_all()
        else:
            self._keeper = keeper

    def _keep(self) -> None:
        trouble, failure_count, end_count = None, 0, 0
        while True:
            with self._steps:
                is_given_up = failure_count == _START_COUNT
                if not is_given_up:
                    pause_s = _PAUSES_S[min(end_count, len(_PAUSES_S) - 1)]
                    self._changed.wait_for(self._is_idle, pause_s)
                if is_given_up or self._is_idle():
                    self._keeper = None
                    self._trouble = trouble if failure_count else None
                    self._changed.notify_all()
                    return
            began_s = time.monotonic()
            has_watched, trouble = self._run_one()
            failure_count = 0 if has_watched else failure_count + 1
            is_lasting = has_watched and time.monotonic() - began_s >= _LASTING_S
            end_count = 0 if is_lasting else end_count + 1

    def _is_idle(self) -> bool:
        return self._is_closed or not self._watched

    def _run_one(self) -> tuple[bool, str]:
        """Start one and listen to it to its end: whether it ever watched, and what ended it.

        This thread must outlive whatever comes up: without it no other guard process is started.
        """
        try:
            with self._steps:
                process, link = self._start()
        except Exception as error:  # noqa: BLE001 - said to whoever wants to set clocks
            return False, f"no guard process can be started: {error}"
        trouble = None
        try:
            has_watched = self._listen(process, link)
        except Exception as error:  # noqa: BLE001 - likewise
            has_watched, trouble = False, f"the guard process is not understood: {error}"
        return has_watched, trouble or (
            f"the guard process ends before it watches anything (exit status {process.returncode})"
        )

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """Start one and ask it everything; what it cannot hear yet waits for it."""
        process, self._link = started(self._command, self._environment)
        for watched in self._watched.values():
            self._ask(watched)
        return process, self._link

    def _listen(self, process: subprocess.Popen[bytes], link: socket.socket) -> bool:
        """Take its answers until it is gone; whether it ever watched a GPU.

        Raises ValueError for an answer that is none; it is let go of then.
        """
        pid, has_watched = None, False
        try:
            while True:
                try:
                    packet, _ = receive(link)
                except OSError:
                    packet = None
                if packet is None:
                    return has_watched
                if isinstance(packet, Here):
                    pid = packet.pid
                    # It has forked itself away, so what was started is at its end.
                    process.wait()
                has_watched = has_watched or isinstance(packet, Watching)
                with self._steps:
                    self._take(packet)
        finally:
            if self._let_go(link, pid):
                process.kill()
                process.wait()
                reap(pid)

    def _let_go(self, link: socket.socket, pid: int | None) -> bool:
        """Forget one that is gone or is not understood; whether it was the one that runs."""
        with self._steps:
            if self._link is not link:
                return False
            if pid is not None and is_open(link):
                # It lives, and must not give back: what is set is the next one's to watch.
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            for watched in self._watched.values():
                watched.answer = None
            self._link, self._pid = None, None
            link.close()
        return True

    def _take(self, packet: object) -> None:
        if isinstance(packet, Here):
            self._pid = packet.pid
        elif isinstance(packet, Watching):
            for watched in self._watched.values():
                if watched.packet.ask_count == packet.ask_count:
                    watched.answer = packet
        self._changed.notify_all()


_ALL: weakref.WeakSet[GuardProcess] = weakref.WeakSet()


def _forget_all_in_child() -> None:
    for guard in list(_ALL):
        guard.forget_in_child()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_all_in_child)
