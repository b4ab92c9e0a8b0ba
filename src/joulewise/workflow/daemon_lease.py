"""A lease that joulewised holds, as whoever waits beside it sees it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from joulewise.domain.errors import JoulewiseError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Lease

if TYPE_CHECKING:
    from joulewise.control.daemon.messages import Ended
    from joulewise.control.remote import DaemonConnection


class DaemonLease:
    """A lease that joulewised holds for this process; it can be over before it is given back."""

    def __init__(self, remote: Lease, connection: DaemonConnection, uuid: str) -> None:
        """`remote` is the lease on the GPU with this UUID, which lives by this connection."""
        self._remote = remote
        self._connection = connection
        self._uuid = uuid

    def apply(self, point: OperatingPoint) -> None:
        """Ask for a point. Raises as the lease of the connection does."""
        self._remote.apply(point)

    def release(self) -> None:
        """Give the GPU back. Raises as the lease of the connection does."""
        self._remote.release()

    def ended(self) -> Ended | None:
        """Why it is over although nobody here gave it back; `None`: it lives, as far as known."""
        return self._connection.ended(self._uuid)

    def ask_whether_it_lives(self) -> None:
        """Have `ended` tell what is so now, and not what was so when joulewised last answered."""
        from joulewise.control.daemon.messages import Beat  # noqa: PLC0415 - only where it runs

        with suppress(JoulewiseError):
            self._connection.ask(Beat())
