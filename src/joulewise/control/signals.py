"""Signals while a lease is held: unwind, so that the clocks are given back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
_FIRST_SIGNAL_EXIT_CODE = 128

_Handler = Callable[[int, FrameType | None], object] | signal.Handlers


class SignalGuard:
    """Turns signals that would end the process at once into an exception that unwinds it.

    SIGINT becomes KeyboardInterrupt, the others SystemExit(128 + number), as a shell reports
    them. A signal that is ignored or that the program handles by itself is left alone. While
    the clocks are given back, a signal waits. Only the main thread may install handlers; in
    any other thread this does nothing, and an ending signal leaves its work to the guard or,
    where there is none, to the journal.
    """

    def __init__(self) -> None:
        self._previous: dict[int, _Handler] = {}
        self._pending: list[int] = []
        self._is_deferring = False

    def install(self) -> None:
        """Take over the signals that would otherwise end the process."""
        if threading.current_thread() is not threading.main_thread():
            return
        for name in _ENDING_SIGNALS:
            number = getattr(signal, name, None)
            if number is None:
                continue
            previous = signal.getsignal(number)
            if previous is signal.SIG_DFL:
                self._previous[number] = signal.SIG_DFL
            elif previous is signal.default_int_handler:
                self._previous[number] = signal.default_int_handler
            else:
                continue
            signal.signal(number, self._handle)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let signals wait inside the block, and act after it as they did before `install`."""
        self.defer()
        try:
            yield
        finally:
            self.restore()

    def defer(self) -> None:
        """From here to `restore` signals wait."""
        self._is_deferring = True

    def restore(self) -> None:
        """Put the former handlers back and let waiting signals act; harmless when repeated."""
        if threading.current_thread() is threading.main_thread():
            while self._previous:
                number, handler = self._previous.popitem()
                # Somebody who took the signal over since keeps it.
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, handler)
        while self._pending:
            signal.raise_signal(self._pending.pop(0))

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._is_deferring:
            self._pending.append(number)
            return
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(_FIRST_SIGNAL_EXIT_CODE + number)
