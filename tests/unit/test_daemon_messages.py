"""How errors and GPUs read as answers, and who is at the other end."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path

import pytest

from joulewise.control.daemon.messages import (
    AskedPoint,
    SeenCaveat,
    error_of,
    refusal,
    shown,
    state_of,
)
from joulewise.control.daemon.peer import peer_of, process_descriptor
from joulewise.control.daemon.serial_thread import SerialThread
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.control import ControlledGpu, Holder
from joulewise.domain.errors import DeviceLost, JoulewiseError, MeasurementError
from joulewise.domain.points import OperatingPoint

linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux who connected")
CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"


def test_a_refusal_says_what_was_noted_of_the_error() -> None:
    error = DeviceLost("it is gone", hint="Look.")
    error.add_note("Clocks may still be set.")
    back = error_of(refusal(error))

    assert DeviceLost is type(back)
    assert ("it is gone", "Look. Clocks may still be set.") == (back.message, back.hint)


@pytest.mark.parametrize("error", [MeasurementError("no number"), JoulewiseError("no")])
def test_errors_that_no_daemon_has_are_those_of_a_device(error: JoulewiseError) -> None:
    assert ("device", None) == (refusal(error).kind, refusal(error).hint)


def test_names_are_shown_without_what_steers_a_terminal() -> None:
    assert "?]0;x?train.py?" == shown(" \x1b]0;x\x07train.py\u202e ")


def test_a_gpu_that_does_not_answer_has_no_readings() -> None:
    gpu = ControlledGpu(
        uuid="GPU-1",
        name="A GPU",
        device="nvml:GPU-1",
        is_simulated=False,
        holder=Holder(pid=7, user="alice", command="a.py", daemon_pid=8),
        asked=OperatingPoint(sm_clock_mhz=1200),
        caveats=(Caveat(kind=CaveatKind.POWER_CAPPED, seen="half the time"),),
    )
    state = state_of(gpu)

    assert "process 7 (alice: a.py) through joulewised (process 8)" == state.holder
    assert AskedPoint(sm_clock_mhz=1200) == state.asked
    assert (SeenCaveat(kind="PowerCapped", seen="half the time"),) == state.caveats
    assert not state.is_answering
    assert (None, None, None) == (state.sm_clock_mhz, state.power_w, state.power_limit_w)


@linux
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives groups away")
@pytest.mark.parametrize("count", [0, 3, 256, 257, 2000])
def test_a_peer_has_all_its_groups_however_many(count: int) -> None:
    groups = range(30_000, 30_000 + count)
    with tempfile.TemporaryDirectory(prefix="jw") as name, socket.socket(socket.AF_UNIX) as here:
        path = str(Path(name) / "s")
        here.bind(path)
        here.listen()
        command = [sys.executable, "-c", CONNECT, path]
        with subprocess.Popen(command, extra_groups=list(groups)) as process:
            accepted, _ = here.accept()
            with accepted:
                peer = peer_of(accepted)

    assert process.pid == peer.pid
    assert {os.getgid(), *groups} == peer.gids


@linux
def test_the_end_of_a_process_shows_whichever_way_the_kernel_knows() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with socket.socket(socket.AF_INET) as unrelated:
        # A socket of another kind does not know its peer's process, as an old kernel would not.
        descriptor = process_descriptor(unrelated, process.pid)
        nobody = process_descriptor(unrelated, 0)
        process.communicate(b"\n")
        with pytest.raises(ProcessLookupError):
            process_descriptor(unrelated, process.pid)
    assert descriptor is not None
    os.close(descriptor)

    assert nobody is None


# Leaves the connection to a child, and ends.
HAND_ON = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
if os.fork() == 0:
    s.recv(1)
os._exit(0)
"""


@linux
def test_who_has_the_number_of_a_peer_that_ended_is_not_taken_for_it() -> None:
    with tempfile.TemporaryDirectory(prefix="jw") as name, socket.socket(socket.AF_UNIX) as here:
        path = str(Path(name) / "s")
        here.bind(path)
        here.listen()
        process = subprocess.Popen([sys.executable, "-c", HAND_ON, path])
        accepted, _ = here.accept()
        process.wait()
        with accepted:
            try:
                # Such as this living process, had the kernel given that number to it.
                descriptor = process_descriptor(accepted, os.getpid())
            except ProcessLookupError:
                return
    assert descriptor is not None
    readable, _, _ = select.select([descriptor], [], [], 0)
    os.close(descriptor)

    assert [descriptor] == readable


def test_a_thread_does_one_thing_after_the_other_and_hands_back_errors() -> None:
    async def act() -> list[object]:
        done: list[int] = []
        serial = SerialThread("test")
        for number in range(100):
            serial.start(partial(done.append, number))
        failing = serial.start(lambda: 1 // 0)
        thread = serial.start(threading.current_thread)
        await asyncio.wait([failing])
        await thread
        serial.stop()
        return [done == list(range(100)), failing.exception(), thread.result().daemon]

    is_in_order, error, is_daemon = asyncio.run(act())

    assert is_in_order
    assert isinstance(error, ZeroDivisionError)
    assert is_daemon


def test_what_ends_after_its_loop_is_nobodys_trouble() -> None:
    begin, is_done = threading.Event(), threading.Event()

    def work() -> None:
        begin.wait()

    async def act() -> SerialThread:
        serial = SerialThread("test")
        serial.start(work)
        return serial

    serial = asyncio.run(act())
    begin.set()
    serial.stop()
    asyncio.run(_finish(serial, is_done))

    assert not is_done.is_set()


async def _finish(serial: SerialThread, is_done: threading.Event) -> None:
    """Whatever is handed to a thread that was stopped is not done."""
    future = serial.start(is_done.set)
    await asyncio.wait([future], timeout=0.05)
    future.cancel()
