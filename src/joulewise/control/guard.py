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

from joulewise.control.guard_messages import (
    Forget,
    GiveBack,
    Here,
    Packet,
    Watch,
    Watching,
    receive,
    send,
)
from joulewise.control.guard_port import Guard, NoGuard
from joulewise.control.guard_program import is_open, reap, started
from joulewise.control.lock import above_standard
from joulewise.domain.errors import DeviceError
from joulewise.domain.ports import GpuIdentity

__all__ = ["Guard", "GuardProcess", "NoGuard"]

# Opening a GPU takes seconds where the driver has to be loaded for it first.
_PATIENCE_S = 60.0
_ENDING_S = 5.0
# Before a guard process is started again: one that somebody ends is followed at once, one that
# ends again and again is not waited on by the machine.
_PAUSES_S = (0.0, 0.0, 0.0, 0.1, 0.3, 1.0, 2.0, 5.0)
# So many in a row that ended before they watched anything; then it is said, and still tried.
_START_COUNT = 4
_LASTING_S = 30.0
_HINT = (
    "Without it nothing gives the clocks back should this process be killed, so none are set. "
    "joulewised needs no guard process: let an administrator start it."
)


@dataclass(slots=True, kw_only=True)
class _Watched:
    """One GPU, its locked file, and what the guard process that runs now says of it."""

    packet: Watch
    lock_descriptor: int
    answer: Watching | None = None
    is_to_give_back: bool = False


class GuardProcess:
    """A process of its own that gives back what this one left set when it dies.

    One for all GPUs of this process, started by exec when the first is to be watched. Should it
    die, a thread starts another at once, and tries for as long as a GPU is to be watched: a
    machine that is short of something has it again later. It is no child of this process, so that
    a program that waits for its children, or forks, meets no stranger. Linux only.
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
        self._try_count = 0
        self._failure_count = 0
        self._is_hurried = False
        self._pid: int | None = None
        self._is_closed = False
        _ALL.add(self)

    @property
    def pid(self) -> int | None:
        """The guard process that runs; `None` as long as it has not said so."""
        return self._pid

    @property
    def trouble(self) -> str | None:
        """Why no guard process runs, where it is tried again and again to start one."""
        with self._steps:
            return self._trouble if self._failure_count >= _START_COUNT else None

    def watch(self, identity: GpuIdentity, journal: Path, lock_descriptor: int) -> None:
        """Ask to watch a GPU that this process has just locked; does not wait.

        Raises DeviceError where this process may open no more files.
        """
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
            try:
                copy = above_standard(os.dup(lock_descriptor))
            except OSError as error:
                raise DeviceError(
                    f"no guard process can be told of the GPU: {error.strerror}", hint=_HINT
                ) from error
            watched = _Watched(packet=packet, lock_descriptor=copy)
            self._watched[identity.uuid] = watched
            self._ask(watched)
            self._keep_one()

    def ensure(self, uuid: str) -> int | None:
        """Return once this GPU is watched, with the guard process; some µs where it is already.

        Raises DeviceError where there is no guard process, or it cannot open the GPU.
        """
        deadline_s = time.monotonic() + _PATIENCE_S
        with self._steps:
            self._ask_again_where_refused(uuid)
            tried_count = self._try_count
            while not self._is_watched(uuid):
                self._raise_trouble(uuid, tried_count)
                self._keep_one()
                self._hurry()
                left_s = max(0.0, deadline_s - time.monotonic())
                if self._keeper is not None and not self._changed.wait(left_s):
                    raise DeviceError(
                        f"the guard process did not open the GPU within {_PATIENCE_S:g} s",
                        hint=_HINT,
                    )
            return self._pid

    def give_back(self, uuid: str) -> None:
        """Have the guard process give this GPU back now, or the next one; does not wait."""
        with self._steps:
            watched = self._watched.get(uuid)
            if watched is not None:
                watched.is_to_give_back = True
                self._say(GiveBack(uuid=uuid))

    def unwatch(self, uuid: str) -> None:
        """Forget a GPU that was given back; harmless when repeated."""
        with self._steps:
            watched = self._watched.pop(uuid, None)
            if watched is None:
                return
            os.close(watched.lock_descriptor)
            self._say(Forget(uuid=uuid))
            self._changed.notify_all()

    def close(self) -> None:
        """End the guard process, which gives back what it still watches; harmless when repeated."""
        with self._steps:
            self._is_closed = True
            self._changed.notify_all()
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

    def _raise_trouble(self, uuid: str, tried_count: int) -> None:
        watched = self._watched.get(uuid)
        if watched is None:
            raise DeviceError("no guard process watches this GPU any longer", hint=_HINT)
        # What kept the last one may be over, so that it is tried once more for whoever asks.
        if self._failure_count >= _START_COUNT and self._try_count > tried_count:
            raise DeviceError(str(self._trouble), hint=_HINT)
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
        self._say(watched.packet, watched.lock_descriptor)
        if watched.is_to_give_back:
            self._say(GiveBack(uuid=watched.packet.uuid))

    def _say(self, packet: Packet, descriptor: int | None = None) -> None:
        if self._link is not None:
            # One that is gone is noticed by who listens to it, and the next one is asked again.
            with contextlib.suppress(OSError):
                send(self._link, packet, descriptor)

    def _keep_one(self) -> None:
        """Have a thread start the guard process, and another whenever it dies."""
        if self._keeper is not None:
            return
        keeper = threading.Thread(target=self._keep, name="guard process", daemon=True)
        try:
            keeper.start()
        except RuntimeError as error:
            self._failure_count = _START_COUNT - 1
            self._tried(f"no thread can be started that keeps a guard process: {error}")
        else:
            self._keeper = keeper

    def _keep(self) -> None:
        end_count = 0
        while True:
            with self._steps:
                pause_s = _PAUSES_S[min(end_count, len(_PAUSES_S) - 1)]
                self._changed.wait_for(self._is_awaited, pause_s)
                self._is_hurried = False
                if self._is_idle():
                    self._keeper, self._failure_count = None, 0
                    self._changed.notify_all()
                    return
            began_s = time.monotonic()
            has_watched, trouble = self._run_one()
            is_lasting = has_watched and time.monotonic() - began_s >= _LASTING_S
            end_count = 0 if is_lasting else end_count + 1
            with self._steps:
                self._tried(None if has_watched else trouble)

    def _tried(self, trouble: str | None) -> None:
        """One more has ended; with the trouble, where it ended before it watched anything."""
        self._try_count += 1
        self._failure_count = 0 if trouble is None else self._failure_count + 1
        self._trouble = trouble
        self._changed.notify_all()

    def _hurry(self) -> None:
        """Do not let somebody wait for a pause that may be long by now."""
        self._is_hurried = self._failure_count >= _START_COUNT
        self._changed.notify_all()

    def _is_awaited(self) -> bool:
        return self._is_hurried or self._is_idle()

    def _is_idle(self) -> bool:
        return self._is_closed or not self._watched

    def _run_one(self) -> tuple[bool, str]:
        """Start one and listen to it to its end: whether it ever watched, and what ended it.

        This thread must outlive whatever comes up: without it no other guard process is started.
        """
        try:
            with self._steps:
                if self._is_idle():
                    # Closed since it was last looked at: nobody would end this one.
                    return True, ""
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
            self._failure_count = 0
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
