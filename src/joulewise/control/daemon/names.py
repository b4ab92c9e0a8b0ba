"""Names of the accounts that connect, from a directory that may take long to answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial

from joulewise.control.daemon.peer import user_name
from joulewise.control.daemon.serial_thread import SerialThread

PATIENCE_S = 0.5
_MOST_NAMES_COUNT = 1024
_MOST_ASKED_COUNT = 64


class AccountNames:
    """Looks names up in a thread of its own; nobody waits long for one, nor behind another's.

    A name is for people: who has none is known by number.
    """

    def __init__(
        self,
        look_up: Callable[[int], str | None] = user_name,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Look up root and the own user, of whom the machine itself knows."""
        self._look_up = look_up
        self._patience_s = patience_s
        self._own = {uid: look_up(uid) for uid in (0, os.geteuid())}
        self._known: dict[int, str | None] = {}
        self._asked: dict[int, asyncio.Future[str | None]] = {}
        self._is_late = False
        self._thread = SerialThread("names")

    async def name(self, uid: int) -> str | None:
        """The name of this user; `None` where it has none, or none in time."""
        if uid in self._own:
            return self._own[uid]
        if uid in self._known:
            return self._known[uid]
        asked = self._asked.get(uid)
        if asked is None:
            if len(self._asked) >= _MOST_ASKED_COUNT:
                return None
            asked = self._asked[uid] = self._thread.start(partial(self._look_up, uid))
            asked.add_done_callback(partial(self._keep, uid))
        # Behind a look-up that is late already nobody else waits.
        if not self._is_late:
            await asyncio.wait({asked}, timeout=self._patience_s)
        if not asked.done():
            self._is_late = True
            return None
        return self._known.get(uid)

    def close(self) -> None:
        """End the thread after what it has to do."""
        self._thread.stop()

    def _keep(self, uid: int, asked: asyncio.Future[str | None]) -> None:
        self._asked.pop(uid, None)
        self._is_late = False
        if len(self._known) >= _MOST_NAMES_COUNT:
            self._known.clear()
        is_told = not asked.cancelled() and asked.exception() is None
        self._known[uid] = asked.result() if is_told else None
