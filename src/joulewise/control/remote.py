"""A lease that `joulewised` holds for this process, for as long as a connection to it lives.

The daemon sets the clocks; reading them needs no rights and stays with whoever opened the GPU.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from msgspec import structs

from joulewise.control.daemon.messages import (
    PROTOCOL_VERSION,
    AnyAnswer,
    Applied,
    Apply,
    Beat,
    Ended,
    Granted,
    Hello,
    Question,
    Refused,
    Release,
    Released,
    Take,
    Welcome,
    encode,
    error_of,
    parse_answer,
    shown,
)
from joulewise.control.daemon_lines import DaemonLines
from joulewise.control.daemon_socket import LOOK_AT_LOG, connected_socket, required_socket
from joulewise.control.holder import this_process
from joulewise.control.signals import SignalGuard
from joulewise.domain.errors import DeviceError, JoulewiseError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import FoundKeeper, GpuIdentity, Lease, WatchedGpu

_ANSWER_S = 30.0
# How long a daemon may take to give the clocks back, and one that was left in the middle of a
# question; signals wait for so long.
_FAREWELL_S = 3.0
_SHORTEST_BEAT_S = 0.001
_SILENT = "joulewised does not answer"
_LONGEST_REASON_COUNT = 500
_MAYBE_SET = (
    "Whether its clocks are given back is not known: joulewise status tells, and root gives them "
    "back with joulewise restore."
)
_LONGEST_PROGRAM_COUNT = 200


class DaemonConnection:
    """A connection to `joulewised`; leases that it holds end with it. Threads may share it.

    One question at a time is on its way. Where an exception ends the waiting for an answer,
    such as KeyboardInterrupt, nobody knows which answer comes next, so that the connection is
    given up: the daemon gives back what it held, and `close` waits for that.
    """

    def __init__(
        self,
        path: Path,
        program: str | None = None,
        *,
        connected: socket.socket | None = None,
        answer_s: float = _ANSWER_S,
    ) -> None:
        """Connect and say hello; `program` is told to people in logs and refusals.

        `connected` is a socket that is connected already, and is closed with this. `answer_s`
        is how long an answer may take.

        Raises:
            InputError: the path cannot be that of a socket.
            NotPermitted: this account may not use the socket.
            DeviceError: nobody listens there, or what answers is no joulewised of this version.
        """
        self._path = path
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._answer_s = answer_s
        self._taken: set[str] = set()
        self._ended: dict[str, Ended] = {}
        self._lost: str | None = None
        self._closing = threading.Event()
        self._beating: threading.Thread | None = None
        self._lines = DaemonLines(required_socket(path) if connected is None else connected)
        try:
            self.welcome = self._hello(program or this_process().command or "python")
        except BaseException:
            self._lines.close()
            raise
        _connections.add(self)

    def take(self, gpu: str) -> Granted:
        """Take the lease on the GPU with this UUID. Raises BusyError, NotPermitted, DeviceError."""
        self._taken.add(gpu)
        answer = self.ask(Take(gpu=gpu))
        if not isinstance(answer, Granted) or answer.gpu != gpu:
            self._give_up("joulewised answered out of turn")
            raise _out_of_turn(answer)
        # What it said of an earlier lease on this GPU does not count for this one.
        self._ended.pop(gpu, None)
        if self._beating is None:
            beating = threading.Thread(target=self._beat, name="joulewise lease", daemon=True)
            self._beating = beating
            beating.start()
        return answer

    def ask(self, question: Question, *, answer_s: float | None = None) -> AnyAnswer:
        """Ask one question and wait for its answer, `answer_s` long; `None`: as usual.

        Raises what the daemon refuses with; DeviceError where it went away or does not answer,
        and in a forked child: the connection is its parent's.
        """
        if os.getpid() != self._pid:
            raise DeviceError(
                f"this connection to joulewised belongs to process {self._pid}",
                hint="Set clocks in the process that took the lease.",
            )
        deadline_s = time.monotonic() + (self._answer_s if answer_s is None else answer_s)
        # Another thread's question may be the one that is not answered.
        if not self._lock.acquire(timeout=max(0.0, deadline_s - time.monotonic())):
            self._give_up(_SILENT)
            raise self._lost_error()
        try:
            answer = self._asked(question, deadline_s)
        finally:
            self._lock.release()
        if isinstance(answer, Refused):
            raise error_of(answer)
        return answer

    def _asked(self, question: Question, deadline_s: float) -> AnyAnswer:
        if self._lost is not None:
            raise self._lost_error()
        try:
            self._lines.send(encode(question), deadline_s)
            return self._answer(deadline_s)
        except OSError as error:
            self._give_up(_reason(error))
            raise self._lost_error() from error
        except BaseException as error:
            self._give_up(f"{type(error).__name__} came while joulewised had to answer")
            raise

    def ended(self, gpu: str) -> Ended | None:
        """Why the lease on this GPU is over, as far as is known; `None`: it is not."""
        told = self._ended.get(gpu)
        return told if told or self._lost is None else Ended(gpu=gpu, why=self._lost)

    def close(self) -> None:
        """End the connection and with it all its leases; harmless when repeated."""
        if os.getpid() != self._pid:
            # A fork copied it: let go, so that the copy does not keep the parent's lease alive.
            self._lines.close()
            return
        self._closing.set()
        is_free = self._lock.acquire(timeout=_FAREWELL_S)
        try:
            if not is_free:
                self._give_up(_SILENT)
            # One that does not answer was waited for already.
            elif self._lost is not None and self._lost != _SILENT:
                self._lines.see_end(time.monotonic() + _FAREWELL_S)
            self._lost = self._lost or "it was closed"
            self._lines.close()
        finally:
            if is_free:
                self._lock.release()
        if self._beating is not None:
            self._beating.join(_FAREWELL_S)

    def _hello(self, program: str) -> Welcome:
        program = program[:_LONGEST_PROGRAM_COUNT]
        answer = self.ask(Hello(version=PROTOCOL_VERSION, program=program))
        if not isinstance(answer, Welcome) or answer.version != PROTOCOL_VERSION:
            raise _out_of_turn(answer)
        return answer

    def _beat(self) -> None:
        """Tell the daemon that this process lives, and hear whether a lease is over."""
        beat_s = max(_SHORTEST_BEAT_S, self.welcome.beat_s)
        while self._lost is None and not self._closing.wait(beat_s):
            with suppress(JoulewiseError):
                self.ask(Beat())

    def _answer(self, deadline_s: float) -> AnyAnswer:
        """The next line that answers; what nobody asked for is kept in mind."""
        while True:
            answer = parse_answer(self._lines.next(deadline_s))
            if not isinstance(answer, Ended):
                return answer
            # Of GPUs that were never asked for it could name any number.
            if answer.gpu in self._taken:
                why = shown(answer.why[:_LONGEST_REASON_COUNT])
                self._ended[answer.gpu] = structs.replace(answer, why=why)

    def _give_up(self, why: str) -> None:
        """Ask nothing more; the daemon sees the end of the connection, and gives back."""
        self._lost = self._lost or why
        if why == _SILENT:
            # Another thread may wait for an answer, too.
            self._lines.hear_no_more()
        else:
            self._lines.say_no_more()

    def _lost_error(self) -> DeviceError:
        return DeviceError(
            f"the connection to joulewised at {self._path} is over: {self._lost}",
            hint=f"{_MAYBE_SET} {LOOK_AT_LOG}" if self._taken else LOOK_AT_LOG,
        )


class RemoteLease:
    """A lease on a GPU that `joulewised` holds; made by `leased`, which takes it."""

    def __init__(
        self, connection: DaemonConnection, gpu: GpuIdentity, signals: SignalGuard
    ) -> None:
        self._connection = connection
        self._gpu = gpu
        self._signals = signals
        self._pid = os.getpid()
        self._is_over = False
        self._is_loss_told = False

    def apply(self, point: OperatingPoint) -> None:
        """Ask for a point; the daemon journals first, and sets only what this account may.

        Raises:
            NotPermitted, NotSupported, DeviceLost: as the daemon or the device refuses.
            DeviceError: the lease is over, or another process's.
        """
        if self._is_over:
            raise DeviceError(
                "the lease on this GPU is over", hint="Take a new one before setting clocks."
            )
        answer = self._ask(
            Apply(
                gpu=self._gpu.uuid,
                sm_clock_mhz=point.sm_clock_mhz,
                mem_clock_mhz=point.mem_clock_mhz,
                power_limit_w=point.power_limit_w,
            )
        )
        if not isinstance(answer, Applied) or answer.gpu != self._gpu.uuid:
            raise _out_of_turn(answer)

    def release(self) -> None:
        """Give the GPU back; that is done when this returns. Harmless when repeated.

        Signals wait meanwhile, and a daemon that does not answer is waited for 3 s.

        Raises:
            DeviceError: the device did not take its clocks back; or the lease ended earlier and
                nobody was told yet: what ran since did not run at the clocks asked for.
        """
        # A forked child inherits the lease by accident; it is its parent's to end.
        if self._is_over or os.getpid() != self._pid:
            return
        self._signals.defer()
        self._is_over = True
        try:
            if not self._is_loss_told:
                answer = self._ask(Release(gpu=self._gpu.uuid), answer_s=_FAREWELL_S)
                if not isinstance(answer, Released) or answer.gpu != self._gpu.uuid:
                    raise _out_of_turn(answer)
        finally:
            self._signals.restore()

    def _ask(self, question: Question, *, answer_s: float | None = None) -> AnyAnswer:
        """Ask; where the lease is over, that is the error, and why."""
        try:
            return self._connection.ask(question, answer_s=answer_s)
        except BaseException as error:
            ended = self._connection.ended(self._gpu.uuid)
            self._is_loss_told = ended is not None
            if ended is None or not isinstance(error, JoulewiseError):
                raise
            raise DeviceError(
                f"the lease on {self._gpu.name} is over: {ended.why}",
                hint=f"{_whether_set(ended)} {LOOK_AT_LOG}",
            ) from error


def reach(path: Path) -> DaemonConnection | None:
    """A connection to the daemon at this socket; `None` where nobody listens.

    Raises:
        NotPermitted: this account may not use the socket.
        BusyError: who listens there accepts nobody for a while.
        DeviceError: what answers there is no joulewised of this version.
    """
    connected = connected_socket(path)
    return None if connected is None else DaemonConnection(path, connected=connected)


@contextmanager
def leased(connection: DaemonConnection, gpu: WatchedGpu) -> Iterator[Lease]:
    """Hold a GPU through the daemon for the length of a `with` block.

    The clocks are given back at its end, by an exception, SIGINT or SIGTERM; whatever else ends
    this process, the daemon sees it end and gives them back.

    Raises:
        BusyError: another holder has the GPU; the message names it.
        NotPermitted: the daemon's policy does not let this account have it.
        DeviceError: the daemon went away, or does not know the GPU.
    """
    signals = SignalGuard()
    connection.take(gpu.identity.uuid)
    lease = RemoteLease(connection, gpu.identity, signals)
    try:
        if isinstance(gpu, FoundKeeper):
            # The daemon has undone what others left, and set nothing yet.
            gpu.keep_found()
        signals.install()
        yield lease
        lease.release()
    except BaseException as first:
        _release_after(lease, first)
        raise
    finally:
        if isinstance(gpu, FoundKeeper):
            gpu.forget_found()


@contextmanager
def remote_lease(gpu: WatchedGpu, path: Path) -> Iterator[Lease]:
    """Hold a GPU through the daemon at this socket. Raises as `DaemonConnection` and `leased`."""
    with closing(DaemonConnection(path)) as connection, leased(connection, gpu) as lease:
        yield lease


def _release_after(lease: RemoteLease, first: BaseException) -> None:
    """Release without hiding the error that ended the block."""
    try:
        lease.release()
    except JoulewiseError as error:
        first.add_note(f"The clocks could not be given back ({error}).")


def _whether_set(ended: Ended) -> str:
    if ended.is_given_back is None:
        return _MAYBE_SET
    if ended.is_given_back:
        return "Its clocks are given back; take a new lease to set them."
    return "Its clocks are still set: joulewise status tells, and root runs joulewise restore."


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return _SILENT
    return "joulewised went away"


def _out_of_turn(answer: AnyAnswer) -> DeviceError:
    return DeviceError(
        f"joulewised answered {type(answer).__name__} to another question",
        hint="Use the same version of joulewise and joulewised.",
    )


# A fork copies the connections of its parent, and with them what keeps a lease alive.
_connections: weakref.WeakSet[DaemonConnection] = weakref.WeakSet()


def _forget_connections() -> None:
    for connection in list(_connections):
        connection.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_connections)
