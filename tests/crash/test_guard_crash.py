"""Processes that are killed under a lease, and their guard process, which gives back for them.

Run as a program, this file is such a process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.file_gpu import (
    AS_FOUND,
    GIVING_BACK_S,
    LOW,
    PATIENCE_S,
    FileGpu,
    Program,
    comes_true,
    guarding,
    is_gone,
    say,
)

from joulewise.control.guard import GuardProcess, NoGuard
from joulewise.control.journal import is_left
from joulewise.control.lease import GpuLease, hold, take_lease
from joulewise.control.restoring import Outcome, restore_all
from joulewise.domain.errors import BusyError
from joulewise.domain.ports import Gpu

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="guard processes are for Linux"
)
CORE_KILL_COUNT = 10
BUSY_PROCESS_COUNT = 6


@pytest.fixture
def gpu(tmp_path: Path) -> FileGpu:
    return FileGpu(tmp_path)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@contextmanager
def _client(folder: Path, *way: str) -> Iterator[tuple[Program, int]]:
    """A process that holds the GPU in this way, and the number of its guard process."""
    program = Program(__file__, str(folder), *way)
    try:
        yield program, int(program.hear())
    finally:
        program.end(signal.SIGKILL)


def _is_given_back(gpu: FileGpu, state_dir: Path) -> bool:
    """Whether the point is as found, and nothing says otherwise."""
    return gpu.label() == AS_FOUND.label and not is_left(state_dir / "GPU-file.journal.json")


def _comes_back(gpu: FileGpu, state_dir: Path) -> bool:
    return comes_true(lambda: _is_given_back(gpu, state_dir), GIVING_BACK_S)


@pytest.mark.parametrize("way", ["wait", "fork", "hidden fork", "hidden fork, old kernel"])
def test_what_a_killed_process_left_is_given_back_within_a_second(
    way: str, gpu: FileGpu, state_dir: Path, tmp_path: Path
) -> None:
    """Whatever children it forked still live, with all that it had open."""
    with _client(tmp_path, way) as (program, guard_pid):
        assert gpu.label() == LOW.label
        program.process.kill()
        assert _comes_back(gpu, state_dir)
        assert comes_true(lambda: is_gone(guard_pid))
        # The lock is free as well, though a child may have it open.
        with hold(gpu, state_dir=state_dir):
            pass


def test_a_process_that_becomes_another_program_no_longer_holds_the_gpu(
    gpu: FileGpu, state_dir: Path, tmp_path: Path
) -> None:
    with _client(tmp_path, "exec") as (program, guard_pid):
        assert _comes_back(gpu, state_dir)
        assert program.process.poll() is None
        assert comes_true(lambda: is_gone(guard_pid))


def test_the_guard_survives_what_ends_others_and_the_terminal(
    gpu: FileGpu, state_dir: Path, tmp_path: Path
) -> None:
    with _client(tmp_path, "deaf") as (program, guard_pid):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.killpg(program.process.pid, number)
            os.kill(guard_pid, number)
        program.process.kill()
        assert _comes_back(gpu, state_dir)


def test_a_guard_that_follows_a_killed_one_gives_back_too(
    gpu: FileGpu, state_dir: Path, tmp_path: Path
) -> None:
    with _client(tmp_path, "wait") as (program, guard_pid):
        os.kill(guard_pid, signal.SIGKILL)
        assert int(program.hear()) != guard_pid
        program.process.kill()
        assert _comes_back(gpu, state_dir)


def test_where_the_guard_is_killed_as_well_restoring_gives_back(
    gpu: FileGpu, state_dir: Path, tmp_path: Path
) -> None:
    def open_gpu(device: str) -> Gpu:
        return FileGpu(tmp_path, device.removeprefix("file:"))

    with _client(tmp_path, "wait") as (program, guard_pid):
        (busy,) = restore_all(state_dir, open_gpu)
        assert (busy.outcome, gpu.label()) == (Outcome.BUSY, LOW.label)
        # Stopped first, so that it cannot start another guard.
        program.process.send_signal(signal.SIGSTOP)
        os.kill(guard_pid, signal.SIGKILL)
        program.process.kill()
        program.process.wait()
        assert comes_true(lambda: is_gone(guard_pid))
        assert gpu.label() == LOW.label
        (done,) = restore_all(state_dir, open_gpu)
        assert done.outcome is Outcome.GIVEN_BACK
        assert _is_given_back(gpu, state_dir)
        assert restore_all(state_dir, open_gpu) == ()


def test_nobody_gets_the_gpu_before_the_guard_of_a_dead_holder_is_done(
    gpu: FileGpu, state_dir: Path, tmp_path: Path
) -> None:
    with _client(tmp_path, "wait") as (program, _):
        (tmp_path / "refusals").write_text("." * 4, encoding="utf-8")
        program.process.kill()
        program.process.wait()
        # Taking waits for the guard, and finds everything as it was.
        with hold(gpu, state_dir=state_dir):
            assert gpu.label() == AS_FOUND.label
            assert (tmp_path / "refusals").read_text(encoding="utf-8") == ""


@pytest.mark.integration
def test_a_guard_that_still_tries_is_told_to_whoever_wants_the_gpu(
    gpu: FileGpu, state_dir: Path, tmp_path: Path
) -> None:
    with _client(tmp_path, "wait") as (program, guard_pid):
        (tmp_path / "refusals").write_text("." * 100, encoding="utf-8")
        program.process.kill()
        program.process.wait()
        with pytest.raises(BusyError, match="is being given back by the guard of process "):
            take_lease(gpu, state_dir=state_dir, guard=NoGuard())
        assert comes_true(gpu.is_accepting_and_given_back)
        assert comes_true(lambda: _is_given_back(gpu, state_dir))
        assert comes_true(lambda: is_gone(guard_pid))


def test_a_guard_leaves_a_gpu_alone_that_a_later_holder_has(
    gpu: FileGpu, state_dir: Path, tmp_path: Path
) -> None:
    """The first holder is killed after it let go of the lock, before its guard heard of it."""
    with _client(tmp_path, "let go") as (program, guard_pid):
        with hold(gpu, state_dir=state_dir) as lease:
            lease.apply(LOW)
            program.process.kill()
            assert comes_true(lambda: is_gone(guard_pid))
            assert gpu.label() == LOW.label
            assert is_left(state_dir / "GPU-file.journal.json")
        assert _is_given_back(gpu, state_dir)


def test_a_guard_leaves_a_gpu_to_the_guard_of_a_later_holder_that_was_killed_too(
    gpu: FileGpu, state_dir: Path, tmp_path: Path
) -> None:
    with _client(tmp_path, "let go") as (first, _), _client(tmp_path, "wait") as (second, _):
        assert gpu.label() == LOW.label
        first.process.kill()
        second.process.kill()
        assert _comes_back(gpu, state_dir)


def test_giving_back_takes_no_longer_on_a_busy_machine(
    gpu: FileGpu, state_dir: Path, tmp_path: Path
) -> None:
    """The client is kept to one busy core and has stood back for others, but not its guard."""
    with ExitStack() as stack:
        for _ in range(BUSY_PROCESS_COUNT):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        program, _ = stack.enter_context(_client(tmp_path, "humble"))
        program.process.kill()
        assert _comes_back(gpu, state_dir)


def test_a_client_that_ends_by_itself_leaves_no_guard(
    gpu: FileGpu, state_dir: Path, tmp_path: Path
) -> None:
    with _client(tmp_path, "end") as (program, guard_pid):
        assert program.join() == 0
        assert _is_given_back(gpu, state_dir)
        assert comes_true(lambda: is_gone(guard_pid))


def _kill_at(folder: Path, step: int) -> int:
    """A process that is killed at this step of a lease; how many there were before its end."""
    folder.mkdir()
    program = Program(__file__, str(folder), "steps", str(step))
    heard = program.hear()
    status = program.join()
    gpu, state_dir = FileGpu(folder), folder / "state"
    assert status == (0 if heard else -signal.SIGKILL)
    assert _comes_back(gpu, state_dir), f"killed at step {step}: {gpu.history()}"
    with hold(gpu, state_dir=state_dir):
        assert gpu.label() == AS_FOUND.label
    return int(heard) if heard else step


def test_killed_at_any_of_some_steps_nothing_stays_set(tmp_path: Path) -> None:
    """Steps are what Python tells auditors of: files opened, renamed, removed, locked."""
    last = _kill_at(tmp_path / "whole", 1_000_000)
    assert last > CORE_KILL_COUNT
    for number in range(1, CORE_KILL_COUNT + 1):
        step = last * number // (CORE_KILL_COUNT + 1)
        _kill_at(tmp_path / f"step-{step}", step)


@pytest.mark.integration
def test_killed_at_any_step_at_all_nothing_stays_set(tmp_path: Path) -> None:
    last = _kill_at(tmp_path / "whole", 1_000_000)
    for step in range(1, last + 1):
        _kill_at(tmp_path / f"step-{step}", step)


def _hold_badly(folder: Path, way: str, *rest: str) -> None:
    gpu, state_dir = FileGpu(folder), folder / "state"
    if way == "steps":
        _die_at(gpu, state_dir, folder, int(rest[0]))
        return
    _prepare(way)
    is_old = way.endswith("old kernel")
    with (
        guarding(folder, is_old=is_old) as guard,
        hold(gpu, state_dir=state_dir, guard=guard) as lease,
    ):
        lease.apply(LOW)
        if way == "let go":
            _let_go(lease)
        say(str(guard.pid))
        _go_on(way, guard, gpu.identity.uuid)


def _prepare(way: str) -> None:
    if way == "deaf":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
    elif way == "humble":
        os.nice(19)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _go_on(way: str, guard: GuardProcess, uuid: str) -> None:
    """Hold on until killed, and tell of every new guard process."""
    if "fork" in way:
        _fork(is_hidden=way.startswith("hidden"))
    elif way == "exec":
        os.execvp("sleep", ["sleep", str(PATIENCE_S)])  # noqa: S606
    pid = guard.pid
    while way != "end":
        if guard.pid not in {None, pid}:
            pid = guard.pid
            guard.ensure(uuid)
            say(str(pid))
        time.sleep(0.01)


def _fork(*, is_hidden: bool) -> None:
    """A child that outlives its parent for a while; hidden, Python does not know of it."""
    child = ctypes.CDLL(None).fork() if is_hidden else os.fork()
    if child == 0:
        time.sleep(3.0)
        os._exit(0)


def _let_go(lease: GpuLease) -> None:
    """All that releasing does but for the last step."""
    object.__setattr__(lease._hold, "guard", NoGuard())  # noqa: SLF001
    lease.release()


def _die_at(gpu: FileGpu, state_dir: Path, folder: Path, step: int) -> None:
    count = 0

    def see(_event: str, _arguments: object) -> None:
        nonlocal count
        count += 1
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(see)
    with guarding(folder) as guard, hold(gpu, state_dir=state_dir, guard=guard) as lease:
        lease.apply(LOW)
        lease.apply(AS_FOUND)
        lease.apply(LOW)
    say(str(count))


if __name__ == "__main__":
    _hold_badly(Path(sys.argv[1]), *sys.argv[2:])
