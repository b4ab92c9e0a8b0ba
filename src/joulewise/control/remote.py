"""A lease that `joulewised` holds for this process, for as long as a connection to it lives.

The daemon sets the clocks; reading them needs no rights and stays with whoever opened the GPU.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

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
)
from joulewise.control.daemon_socket import LOOK_AT_LOG, connected_socket, required_socket
from joulewise.control.holder import this_process
from joulewise.control.signals import SignalGuard
from joulewise.domain.errors import DeviceError, JoulewiseError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import FoundKeeper, GpuIdentity, Lease, WatchedGpu

_ANSWER_S = 30.0
# How long a daemon that was left in the middle of a question has to give the clocks back.
_FAREWELL_S = 3.0
_LONGEST_ANSWER_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
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
        self._received = bytearray()
        self._ended: dict[str, str] = {}
        self._lost: str | None = None
        self._closing = threading.Event()
        self._beating: threading.Thread | None = None
        self._socket = required_socket(path) if connected is None else connected
        try:
            self._socket.settimeout(answer_s)
            self.welcome = self._hello(program or this_process().command or "python")
        except BaseException:
            self._socket.close()
            raise
        _connections.add(self)

    def take(self, gpu: str) -> Granted:
        """Take the lease on the GPU with this UUID. Raises BusyError, NotPermitted, DeviceError."""
        answer = self.ask(Take(gpu=gpu))
        if not isinstance(answer, Granted):
            raise _out_of_turn(answer)
        self._ended.pop(gpu, None)
        if self._beating is None:
            beating = threading.Thread(target=self._beat, name="joulewise lease", daemon=True)
            self._beating = beating
            beating.start()
        return answer

    def ask(self, question: Question) -> AnyAnswer:
        """Ask one question and wait for its answer.

        Raises what the daemon refuses with; DeviceError where it went away or does not answer,
        and in a forked child: the connection is its parent's.
        """
        if os.getpid() != self._pid:
            raise DeviceError(
                f"this connection to joulewised belongs to process {self._pid}",
                hint="Set clocks in the process that took the lease.",
            )
        with self._lock:
            if self._lost is not None:
                raise self._lost_error()
            try:
                self._send(encode(question))
                answer = self._answer()
            except OSError as error:
                self._give_up(_reason(error))
                raise self._lost_error() from error
            except BaseException as error:
                self._give_up(f"{type(error).__name__} came while joulewised had to answer")
                raise
        if isinstance(answer, Refused):
            raise error_of(answer)
        return answer

    def why_ended(self, gpu: str) -> str | None:
        """Why the lease on this GPU is over, as far as is known; `None`: it is not."""
        return self._ended.get(gpu) or self._lost

    def close(self) -> None:
        """End the connection and with it all its leases; harmless when repeated."""
        if os.getpid() != self._pid:
            # A fork copied it: let go, so that the copy does not keep the parent's lease alive.
            self._socket.close()
            return
        self._closing.set()
        with self._lock:
            if self._lost is not None:
                self._see_it_end()
            self._lost = self._lost or "it was closed"
            self._socket.close()
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
        while self._lost is None and not self._closing.wait(self.welcome.beat_s):
            with suppress(JoulewiseError):
                self.ask(Beat())

    def _send(self, line: bytes) -> None:
        # A daemon that went away may have said why: that is still to be read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(line)

    def _answer(self) -> AnyAnswer:
        """The next line that answers; what nobody asked for is kept in mind."""
        while True:
            answer = parse_answer(self._line())
            if not isinstance(answer, Ended):
                return answer
            self._ended[answer.gpu] = answer.why

    def _line(self) -> bytes:
        while True:
            end = self._received.find(b"\n")
            if end >= 0:
                line = bytes(self._received[:end])
                del self._received[: end + 1]
                return line
            chunk = self._socket.recv(_CHUNK_BYTES)
            if not chunk:
                raise ConnectionResetError
            self._received += chunk
            if len(self._received) > _LONGEST_ANSWER_BYTES:
                raise DeviceError("joulewised answers without end", hint=LOOK_AT_LOG)

    def _give_up(self, why: str) -> None:
        """Ask nothing more; the daemon sees the end of the connection, and gives back."""
        self._lost = why
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _see_it_end(self) -> None:
        """Wait until the daemon closes its side, which it does when all is given back."""
        with suppress(OSError):
            self._socket.settimeout(_FAREWELL_S)
            while self._socket.recv(_CHUNK_BYTES):
                pass

    def _lost_error(self) -> DeviceError:
        return DeviceError(
            f"the connection to joulewised at {self._path} is over: {self._lost}",
            hint=f"What it had set is given back. {LOOK_AT_LOG}",
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
        if not isinstance(answer, Applied):
            raise _out_of_turn(answer)

    def release(self) -> None:
        """Give the GPU back; that is done when this returns. Harmless when repeated.

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
                answer = self._ask(Release(gpu=self._gpu.uuid))
                if not isinstance(answer, Released):
                    raise _out_of_turn(answer)
        finally:
            self._signals.restore()

    def _ask(self, question: Question) -> AnyAnswer:
        """Ask; where the lease is over, that is the error, and why."""
        try:
            return self._connection.ask(question)
        except BaseException as error:
            why = self._connection.why_ended(self._gpu.uuid)
            self._is_loss_told = why is not None
            if why is None or not isinstance(error, JoulewiseError):
                raise
            raise DeviceError(
                f"the lease on {self._gpu.name} is over: {why}",
                hint=f"Its clocks are given back; take a new lease to set them. {LOOK_AT_LOG}",
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


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "joulewised does not answer"
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
