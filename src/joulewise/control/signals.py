"""Signals while a lease is held: unwind, so that the clocks are given back."""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
# These end no process that handles them, but a handler may raise wherever it finds its process.
_HANDLED_SIGNALS = ("SIGQUIT", "SIGUSR1", "SIGUSR2")
_FIRST_SIGNAL_EXIT_CODE = 128

_Handler = Callable[[int, FrameType | None], object] | signal.Handlers


def _numbers(names: tuple[str, ...]) -> list[int]:
    return [int(getattr(signal, name)) for name in names if hasattr(signal, name)]


class _Deferral:
    """Puts off what would interrupt the main thread, whoever handles it; blocks may nest.

    Other threads need none: nothing is raised in them.
    """

    def __init__(self) -> None:
        self.previous: dict[int, _Handler] = {}
        self._pending: list[int] = []
        self._depth = 0

    def begin(self) -> bool:
        """Let signals wait until as many calls of `end`; whether there is one to make."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self._depth += 1
        try:
            if self._depth == 1:
                self._take_over()
        except BaseException:
            self.end()
            raise
        return True

    def end(self) -> None:
        """Let signals that have waited act, once every block has ended."""
        self._depth -= 1
        if self._depth:
            return
        self._hand_back()
        # What the first one raises is the end of all that the others could ask for.
        pending, self._pending = self._pending, []
        for number in dict.fromkeys(pending):
            signal.raise_signal(number)

    def forget_in_child(self) -> None:
        """A forked child gives nothing back, so that nothing is put off there."""
        self._hand_back()
        self._pending, self._depth = [], 0

    def _take_over(self) -> None:
        ending = _numbers(_ENDING_SIGNALS)
        for number in (*ending, *_numbers(_HANDLED_SIGNALS)):
            handler = signal.getsignal(number)
            if callable(handler) or (handler is signal.SIG_DFL and number in ending):
                self.previous[number] = handler
                signal.signal(number, self._put_off)

    def _hand_back(self) -> None:
        while self.previous:
            number, handler = self.previous.popitem()
            # Somebody who took the signal over since keeps it.
            if signal.getsignal(number) == self._put_off:
                signal.signal(number, handler)

    def _put_off(self, number: int, _frame: FrameType | None) -> None:
        self._pending.append(number)


_DEFERRAL = _Deferral()


class SignalGuard:
    """Turns signals that would end the process at once into an exception that unwinds it.

    SIGINT becomes KeyboardInterrupt, the others SystemExit(128 + number), as a shell reports
    them. A signal that is ignored or that the program handles by itself is left alone. While
    the clocks are given back, every signal waits, whoever handles it. Only the main thread may
    install handlers; in any other thread this does nothing, and an ending signal leaves its work
    to the guard or, where there is none, to the journal.
    """

    def __init__(self) -> None:
        self._previous: dict[int, _Handler] = {}
        self._is_deferring = False
        self._is_over = False

    def install(self) -> None:
        """Take over the signals that would otherwise end the process."""
        if threading.current_thread() is not threading.main_thread():
            return
        _INSTALLED.add(self)
        for number in _numbers(_ENDING_SIGNALS):
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
        if not self._is_deferring:
            self._is_deferring = _DEFERRAL.begin()

    def restore(self) -> None:
        """Put the former handlers back and let waiting signals act; harmless when repeated.

        In another thread than the main one handlers stay, and do as the former ones did.
        """
        self._is_over = True
        if threading.current_thread() is threading.main_thread():
            self.put_back()
        if self._is_deferring:
            self._is_deferring = False
            _DEFERRAL.end()

    def put_back(self) -> None:
        """Put the former handlers back, in the main thread; harmless when repeated."""
        while self._previous:
            number, handler = self._previous.popitem()
            # Somebody who took the signal over since keeps it.
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)
            elif _DEFERRAL.previous.get(number) == self._handle:
                _DEFERRAL.previous[number] = handler

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._is_over:
            self.put_back()
            signal.raise_signal(number)
            return
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(_FIRST_SIGNAL_EXIT_CODE + number)


_INSTALLED: weakref.WeakSet[SignalGuard] = weakref.WeakSet()


def _forget_all_in_child() -> None:
    """A forked child holds no lease: it ends as if nobody had handled its signals."""
    _DEFERRAL.forget_in_child()
    for guard in list(_INSTALLED):
        guard.put_back()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_all_in_child)
