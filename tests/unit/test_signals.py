"""Signals around leases: what interrupts no giving back, and what is left once a lease is over."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType

import pytest
from tests.watched_gpu import WatchedGpu

from joulewise.control.lease import hold
from joulewise.domain.points import OperatingPoint, Touched

LOW = OperatingPoint(sm_clock_mhz=1200)
GIVEN_BACK = ["1200/auto", "reset", "sample"]
NUMBERS = [getattr(signal, name, signal.SIGINT) for name in ("SIGINT", "SIGTERM", "SIGQUIT")]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of Unix")


@pytest.fixture(autouse=True)
def handlers_as_found() -> Iterator[None]:
    found = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in found.items():
        signal.signal(number, handler)


class InterruptedGpu(WatchedGpu):
    """A GPU during whose giving back signals come."""

    def __init__(self, *numbers: int, device: str = "virtual:rtx3080ti") -> None:
        super().__init__(device)
        self.numbers = numbers

    def reset(self, touched: Touched | None = None) -> None:
        for number in self.numbers:
            signal.raise_signal(number)
        super().reset(touched)


def apply_within(gpu: WatchedGpu, state_dir: Path) -> None:
    with hold(gpu, state_dir=state_dir) as lease:
        lease.apply(LOW)


def test_a_signal_waits_for_the_giving_back_of_a_lease_within_another(tmp_path: Path) -> None:
    inner, outer = InterruptedGpu(signal.SIGINT), WatchedGpu("virtual:rtx3080ti,seed=7")
    with hold(outer, state_dir=tmp_path) as lease:
        lease.apply(LOW)
        with pytest.raises(KeyboardInterrupt):
            apply_within(inner, tmp_path)
        assert inner.touches == GIVEN_BACK
        assert outer.touches == GIVEN_BACK[:1]
        # The outer one goes on, and is still unwound by the next.
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
    assert outer.touches == GIVEN_BACK
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_that_raises_does_so_once_the_clocks_are_given_back(tmp_path: Path) -> None:
    class ProgramEnd(Exception):
        pass

    def end(_number: int, _frame: FrameType | None) -> None:
        raise ProgramEnd

    for number in (signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, end)
    gpu = InterruptedGpu(signal.SIGTERM, signal.SIGQUIT)
    with pytest.raises(ProgramEnd):
        apply_within(gpu, tmp_path)
    assert gpu.touches == GIVEN_BACK
    assert signal.getsignal(signal.SIGQUIT) is end


def test_a_lease_that_another_thread_ended_swallows_no_signal(tmp_path: Path) -> None:
    gpu, stack = WatchedGpu(), ExitStack()
    stack.enter_context(hold(gpu, state_dir=tmp_path)).apply(LOW)
    ending = threading.Thread(target=stack.close)
    ending.start()
    ending.join()
    assert gpu.touches == GIVEN_BACK
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_forked_child_ends_by_signals_as_if_there_were_no_lease(tmp_path: Path) -> None:
    with hold(WatchedGpu(), state_dir=tmp_path) as lease:
        lease.apply(LOW)
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                time.sleep(30.0)
            os._exit(1)
        time.sleep(0.05)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
