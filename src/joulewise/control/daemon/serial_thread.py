"""A thread that does one thing after the other, so that a driver call that hangs stops no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

R = TypeVar("R")


class SerialThread:
    """Runs what it is handed, in order, off the event loop.

    Nobody waits for it at the end of the process: a driver call may never return, and then the
    guard process gives the clocks back.
    """

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def start(self, do: Callable[[], R]) -> asyncio.Future[R]:
        """Have it done after everything before it; call this on the event loop alone.

        It is done in any case, whatever becomes of the future.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()

        def work() -> None:
            try:
                result = do()
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
                _post(loop, _fail, future, error)
            else:
                _post(loop, _succeed, future, result)

        self._work.put(work)
        return future

    def stop(self) -> None:
        """End the thread after what it has to do."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def _post(loop: asyncio.AbstractEventLoop, act: Callable[..., None], *arguments: object) -> None:
    # The loop may be gone by now, and with it whoever waited.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(act, *arguments)


def _succeed(future: asyncio.Future[R], result: R) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[R], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
