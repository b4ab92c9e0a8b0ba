"""One JSON object a line of everything that was changed, and by whom; floods are summed up."""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from joulewise.control.daemon.client import Client
from joulewise.control.daemon.rate import UserRates

_MOST_WAITING_COUNT = 20_000
_REFUSALS_PER_S = 5.0
_REFUSALS_BURST_S = 4.0


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event. `asked` and `result` are sentences or points as people write them."""

    time: str
    event: str
    gpu: str | None = None
    pid: int | None = None
    uid: int | None = None
    user: str | None = None
    program: str | None = None
    asked: str | None = None
    why: str | None = None
    result: str | None = None
    count: int | None = None


class ChangesLog:
    """Writes lines in a thread of its own: a reader that stalls stops no question.

    What cannot be written in time is dropped, and said later how much that was.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to `stream`; `None` for the standard error stream."""
        self._stream = sys.stderr if stream is None else stream
        self._waiting: deque[LogLine] = deque()
        self._dropped_count = 0
        self._is_closed = False
        self._wake = threading.Condition()
        self._encoder = msgspec.json.Encoder()
        self._thread = threading.Thread(target=self._run, name="changes log", daemon=True)
        self._thread.start()

    def write(
        self,
        event: str,
        *,
        client: Client | None = None,
        gpu: str | None = None,
        asked: str | None = None,
        why: str | None = None,
        result: str | None = None,
    ) -> None:
        """Note that something happened; returns at once."""
        peer = None if client is None else client.peer
        self._put(
            LogLine(
                time=_now(),
                event=event,
                gpu=gpu,
                pid=None if peer is None else peer.pid,
                uid=None if peer is None else peer.uid,
                user=None if peer is None else peer.user,
                program=None if client is None else client.program,
                asked=asked,
                why=why,
                result=result,
            )
        )

    def sum_up(self, event: str, count: int, *, uid: int | None = None) -> None:
        """Say how often something happened that was not written one by one."""
        self._put(LogLine(time=_now(), event=event, uid=uid, count=count))

    def close(self, patience_s: float = 1.0) -> bool:
        """Write what waits; returns whether that came to an end in time."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _put(self, line: LogLine) -> None:
        with self._wake:
            if len(self._waiting) >= _MOST_WAITING_COUNT:
                self._dropped_count += 1
                return
            self._waiting.append(line)
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._waiting or self._is_closed):
                    self._wake.wait()
                lines = list(self._waiting)
                self._waiting.clear()
                if self._dropped_count:
                    lost = LogLine(time=_now(), event="lines lost", count=self._dropped_count)
                    lines.append(lost)
                    self._dropped_count = 0
                is_last = self._is_closed
            self._emit(lines)
            if is_last:
                return

    def _emit(self, lines: list[LogLine]) -> None:
        try:
            self._stream.write("".join(map(self._text, lines)))
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody reads the log any more; the leases go on.
            return

    def _text(self, line: LogLine) -> str:
        try:
            raw = self._encoder.encode(line)
        except UnicodeEncodeError:
            # Names of accounts may be bytes that are no text.
            fields = {name: _as_text(getattr(line, name)) for name in line.__struct_fields__}
            raw = self._encoder.encode(msgspec.structs.replace(line, **fields))
        return f"{raw.decode()}\n"


class Refusals:
    """Lets some refusals of each user into the log, and counts the rest."""

    def __init__(self, log: ChangesLog, now_s: Callable[[], float]) -> None:
        self._log = log
        self._now_s = now_s
        self._rates = UserRates(_REFUSALS_PER_S, burst_s=_REFUSALS_BURST_S)
        self._unsaid: Counter[int] = Counter()

    def note(self, client: Client, *, gpu: str | None, asked: str | None, result: str) -> None:
        """Write that something was refused, or count it where that happens all the time."""
        if self._rates.take(client.peer.uid, self._now_s()):
            self._log.write("refused", client=client, gpu=gpu, asked=asked, result=result)
        else:
            self._unsaid[client.peer.uid] += 1

    def sum_up(self) -> None:
        """Say what was counted since the last time."""
        unsaid, self._unsaid = self._unsaid, Counter()
        for uid, count in unsaid.items():
            self._log.sum_up("refused more", count, uid=uid)


def _as_text(value: str | int | None) -> str | int | None:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
