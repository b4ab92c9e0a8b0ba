"""Names of accounts from a directory that may not answer."""

from __future__ import annotations

import asyncio
import os
import threading

from joulewise.control.daemon.names import AccountNames

PATIENCE_S = 0.05


class Directory:
    """Knows everybody, but answers about some only once it is let to."""

    def __init__(self, *silent_about: int) -> None:
        self.asked: list[int] = []
        self.answers = threading.Event()
        self._silent_about = silent_about

    def __call__(self, uid: int) -> str | None:
        self.asked.append(uid)
        if uid in self._silent_about:
            self.answers.wait(10.0)
        return f"user-{uid}"


def test_a_name_is_looked_up_once() -> None:
    directory = Directory()

    async def act() -> list[str | None]:
        names = AccountNames(directory)
        try:
            return [await names.name(1000), await names.name(1000), await names.name(1001)]
        finally:
            names.close()

    assert ["user-1000", "user-1000", "user-1001"] == asyncio.run(act())
    assert 1 == directory.asked.count(1000)


def test_a_directory_that_does_not_answer_keeps_nobody_waiting() -> None:
    directory = Directory(4000)

    async def act() -> tuple[list[str | None], float]:
        names = AccountNames(directory, patience_s=PATIENCE_S)
        loop = asyncio.get_running_loop()
        try:
            first = await names.name(4000)
            began_s = loop.time()
            others = [await names.name(uid) for uid in (0, os.geteuid(), *range(5000, 5200))]
            took_s = loop.time() - began_s
            directory.answers.set()
            async with asyncio.timeout(10.0):
                while (later := await names.name(4000)) is None:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.005)
            return [first, *others[:3], later], took_s
        finally:
            names.close()

    (first, root, own, other, later), took_s = asyncio.run(act())

    assert (None, "user-0", f"user-{os.geteuid()}", None) == (first, root, own, other)
    assert "user-4000" == later
    # Not as long as each of two hundred would have waited by itself.
    assert took_s < 200 * PATIENCE_S


def test_a_look_up_that_fails_leaves_no_name() -> None:
    def broken(uid: int) -> str | None:
        if uid == 7000:
            raise OSError("no directory")
        return "somebody"

    async def act() -> str | None:
        names = AccountNames(broken)
        try:
            return await names.name(7000)
        finally:
            names.close()

    assert asyncio.run(act()) is None
