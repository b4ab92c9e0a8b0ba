"""Accepts connections, within limits, and ends them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace

from joulewise.control.daemon.changes_log import ChangesLog
from joulewise.control.daemon.connection import Connection, Patience
from joulewise.control.daemon.desk import LeaseDesk
from joulewise.control.daemon.messages import encode, refusal
from joulewise.control.daemon.names import AccountNames
from joulewise.control.daemon.peer import Peer, peer_of, process_descriptor
from joulewise.control.daemon.rate import TokenBucket, UserRates
from joulewise.domain.control import DaemonCounts
from joulewise.domain.errors import BusyError

_GIVING_BACK_PATIENCE_S = 5.0
_FAREWELL_S = 1.0
_ACCEPT_AGAIN_S = 0.2
_TICK_S = 1.0
_QUESTIONS_PER_CHANGE = 2.0
_FEWEST_QUESTIONS_PER_S = 100.0
# One connection that asks all the time leaves room for others of the same user.
_CONNECTIONS_PER_USER = 2.0
# Beyond the bound of all: whoever looks after the machine gets in however many others there are.
_KEPT_FOR_OWN_COUNT = 8
# New connections of each user; each costs far more than a question does.
_ACCEPTS_PER_S = 50.0
_ACCEPTS_BURST_S = 2.0
# A flood of refused ones waits in the kernel now and then, so that it leaves time for answers.
_REFUSED_AT_ONCE_COUNT = 16
_REFUSED_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What an open connection takes up.

    `is_named` says whether a rule named its user when it came, and `descriptor` is its process's.
    """

    peer: Peer
    is_named: bool
    descriptor: int | None = None


class DaemonServer:
    """Serves one listening Unix socket on the running event loop."""

    def __init__(
        self,
        desk: LeaseDesk,
        log: ChangesLog,
        patience: Patience | None = None,
    ) -> None:
        self.desk = desk
        self.patience = Patience() if patience is None else patience
        self._heartbeat_timeout_s = desk.policy.settings.heartbeat_timeout_s
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._listening: socket.socket | None = None
        self._connections: dict[Connection, _Place] = {}
        self._is_left_alone = asyncio.Event()
        self._question_rates: dict[Connection, TokenBucket] = {}
        self._user_question_rates = UserRates(_CONNECTIONS_PER_USER * self._questions_per_s)
        self._accept_rates = UserRates(_ACCEPTS_PER_S, burst_s=_ACCEPTS_BURST_S)
        self._per_user: Counter[int] = Counter()
        self._open_count = 0
        self._unnamed_count = 0
        """Of users whom no rule names."""
        self._refused_count = 0
        self._unsaid: Counter[int] = Counter()
        self._names = AccountNames()

    @property
    def heartbeat_timeout_s(self) -> float:
        """How long a client that holds a lease may be silent."""
        # Clients were told when they came how often to beat.
        return self._heartbeat_timeout_s

    @property
    def _questions_per_s(self) -> float:
        changes_per_s = self.desk.policy.settings.max_changes_per_s
        return max(_FEWEST_QUESTIONS_PER_S, _QUESTIONS_PER_CHANGE * changes_per_s)

    def question_wait_s(self, connection: Connection) -> float:
        """How long the next question has to wait; 0: it counts, and may pass.

        Of any kind, each connection has its share, and each user a larger one.
        """
        now_s = asyncio.get_running_loop().time()
        own = self._question_rates[connection]
        users = self._user_question_rates.bucket(connection.client.peer.uid, now_s)
        wait_s = max(own.wait_s(now_s), users.wait_s(now_s))
        if wait_s == 0.0:
            own.take(now_s)
            users.take(now_s)
        return wait_s

    def counts(self) -> DaemonCounts:
        """What was asked and done since the start; any thread may ask."""
        return DaemonCounts(
            connection_count=self._open_count,
            refused_connection_count=self._refused_count,
            answer_count=dict(self.desk.answer_count),
            ended_lease_count=dict(self.desk.ended_lease_count),
        )

    def start(self, listening: socket.socket) -> None:
        """Accept connections from now on."""
        listening.settimeout(0)
        self._listening = listening
        self._accepting = asyncio.create_task(self._accept(listening))
        self.spawn(self._tick())

    async def close(self) -> bool:
        """Accept nobody any more, give every GPU back, tell its holder, and close.

        Returns whether every GPU is given back: a driver that hangs is not waited for.
        """
        await self._stop_accepting()
        is_all_given_back = True
        try:
            await asyncio.wait_for(self.desk.close(), _GIVING_BACK_PATIENCE_S)
        except TimeoutError:
            is_all_given_back = False
        for connection in list(self._connections):
            connection.close()
        self._is_left_alone.clear()
        if self._connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_left_alone.wait(), _FAREWELL_S)
        for task in list(self._tasks):
            task.cancel()
        self._names.close()
        return is_all_given_back

    async def _stop_accepting(self) -> None:
        if self._accepting is not None and self._listening is not None:
            self._accepting.cancel()
            with suppress(asyncio.CancelledError):
                await self._accepting
            # Only now does nobody wait for this descriptor.
            self._listening.close()

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run something beside, to its end."""
        task = asyncio.create_task(work)
        # The loop itself does not keep it.
        self._tasks.add(task)
        task.add_done_callback(self._see_task_end)

    def is_gone(self, connection: Connection) -> None:
        """A connection was closed: make room for another."""
        place = self._connections.pop(connection)
        self._question_rates.pop(connection, None)
        if place.descriptor is not None:
            asyncio.get_running_loop().remove_reader(place.descriptor)
            os.close(place.descriptor)
        self._let_go(place)
        if not self._connections:
            self._is_left_alone.set()

    def _see_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.write("fault", result=f"{type(error).__name__}: {error}")

    async def _accept(self, listening: socket.socket) -> None:
        loop, paused_at_count = asyncio.get_running_loop(), 0
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                # Such as too many open files, in the whole system.
                self._log.write("fault", result=f"no connection can be accepted: {error}")
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            try:
                self._admit(accepted, peer_of(accepted))
            except OSError:
                accepted.close()
            if self._refused_count - paused_at_count >= _REFUSED_AT_ONCE_COUNT:
                paused_at_count = self._refused_count
                await asyncio.sleep(_REFUSED_PAUSE_S)

    def _admit(self, accepted: socket.socket, peer: Peer) -> None:
        """Take a connection, unless there are too many."""
        error = self._in_the_way(peer)
        if error is None:
            is_own = peer.uid in {0, os.geteuid()}
            place = _Place(peer=peer, is_named=is_own or self.desk.policy.names(peer))
            self._open_count += 1
            self._per_user[peer.uid] += 1
            self._unnamed_count += not place.is_named
            self.spawn(self._begin(accepted, place))
            return
        self._refused_count += 1
        self._unsaid[peer.uid] += 1
        with suppress(OSError), accepted:
            accepted.send(encode(refusal(error)))

    def _in_the_way(self, peer: Peer) -> BusyError | None:
        """Why a peer gets no connection; `None`: it gets one, and that counts."""
        settings, now_s = self.desk.policy.settings, asyncio.get_running_loop().time()
        is_own = peer.uid in {0, os.geteuid()}
        # Whom no rule names keeps nobody out whom one does.
        is_known = is_own or self.desk.policy.names(peer)
        is_full = not is_known and self._unnamed_count >= max(1, settings.max_connection_count // 2)
        most_count = settings.max_connection_count + (_KEPT_FOR_OWN_COUNT if is_own else 0)
        if self._per_user[peer.uid] >= settings.max_connection_per_user_count:
            said = f"user {peer.uid} has too many connections open"
        elif is_full or self._open_count >= most_count:
            said = "joulewised has too many connections open"
        elif not is_own and not self._accept_rates.take(peer.uid, now_s):
            said = f"user {peer.uid} connects too often"
        else:
            return None
        return BusyError(said, hint="Close some connections, or try again later.")

    async def _begin(self, accepted: socket.socket, place: _Place) -> None:
        loop, peer = asyncio.get_running_loop(), place.peer
        try:
            named = replace(peer, user=await self._names.name(peer.uid))
            descriptor = process_descriptor(accepted, peer.pid)
        except (OSError, asyncio.CancelledError):
            self._let_go(place)
            accepted.close()
            return
        connection = Connection(self, named)
        self._connections[connection] = replace(place, descriptor=descriptor)
        self._question_rates[connection] = TokenBucket(self._questions_per_s)
        if descriptor is not None:
            loop.add_reader(descriptor, self._see_process_end, connection)
        await loop.connect_accepted_socket(lambda: connection, accepted)

    def _see_process_end(self, connection: Connection) -> None:
        descriptor = self._connections[connection].descriptor
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
        connection.end_with_process()

    def _let_go(self, place: _Place) -> None:
        uid = place.peer.uid
        self._open_count -= 1
        self._unnamed_count -= not place.is_named
        self._per_user[uid] -= 1
        if not self._per_user[uid]:
            del self._per_user[uid]

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.desk.tick()
            unsaid, self._unsaid = self._unsaid, Counter()
            for uid, count in unsaid.items():
                self._log.sum_up("connections refused", count, uid=uid)
