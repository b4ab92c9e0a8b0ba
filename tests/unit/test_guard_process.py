"""A guard process from within the process that it guards: there, confirmed, and gone."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.file_gpu import (
    AS_FOUND,
    LOW,
    FileGpu,
    comes_true,
    guard_command,
    guarding,
    is_gone,
)

from joulewise.control.guard import GuardProcess, NoGuard
from joulewise.control.guard_messages import Here, Watch, Watching, receive, send
from joulewise.control.guard_program import started
from joulewise.control.holder import this_process
from joulewise.control.journal import JournalEntry, is_left, write_journal
from joulewise.control.lease import hold, take_lease
from joulewise.control.lock import FileLock, holder_at
from joulewise.control.restoring import Outcome, restore_all
from joulewise.domain.errors import BusyError, DeviceError
from joulewise.domain.points import AUTO

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="guard processes are for Linux"
)


@pytest.fixture
def gpu(tmp_path: Path) -> FileGpu:
    return FileGpu(tmp_path)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[FileLock]:
    lock = FileLock(tmp_path / "GPU-file.lock")
    lock.acquire("File GPU", this_process())
    yield lock
    lock.release()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_guard_has_confirmed_before_anything_is_set_and_is_gone_at_the_end(
    gpu: FileGpu, tmp_path: Path, state_dir: Path
) -> None:
    before = open_descriptors()
    with guarding(tmp_path) as guard:
        with hold(gpu, state_dir=state_dir, guard=guard) as lease:
            lease.apply(LOW)
            pid = guard.pid
            assert pid is not None
            assert os.getsid(pid) != os.getsid(0)
            assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
        assert gpu.label() == AS_FOUND.label
    assert comes_true(lambda: is_gone(pid))
    assert before == open_descriptors()
    assert "guard process" not in {thread.name for thread in threading.enumerate()}
    # It is nobody's child, so there is nothing to wait for.
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_one_guard_process_watches_several_gpus_and_stays_between_leases(
    tmp_path: Path, state_dir: Path
) -> None:
    one, two = FileGpu(tmp_path, "one"), FileGpu(tmp_path, "two")
    with guarding(tmp_path) as guard:
        pids = []
        for gpus in ((one, two), (two, one), (one,)):
            for gpu in gpus:
                with hold(gpu, state_dir=state_dir, guard=guard) as lease:
                    lease.apply(LOW)
                    pids.append(guard.pid)
        assert len(set(pids)) == 1
        with (
            hold(one, state_dir=state_dir, guard=guard) as first,
            hold(two, state_dir=state_dir, guard=guard) as second,
        ):
            first.apply(LOW)
            second.apply(LOW)
    assert (one.label(), two.label()) == (AS_FOUND.label, AS_FOUND.label)


def test_a_guard_that_is_killed_is_followed_by_another_without_being_asked(
    gpu: FileGpu, tmp_path: Path, state_dir: Path
) -> None:
    with guarding(tmp_path) as guard, hold(gpu, state_dir=state_dir, guard=guard) as lease:
        lease.apply(LOW)
        for _ in range(3):
            first = guard.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            assert comes_true(lambda first=first: guard.pid not in {None, first})  # type: ignore[misc]
            guard.ensure(gpu.identity.uuid)
        assert gpu.label() == LOW.label


def test_nothing_is_set_while_the_guard_is_dead(
    gpu: FileGpu, tmp_path: Path, state_dir: Path
) -> None:
    """Killed right before, it is not taken for alive: the system is asked."""
    with guarding(tmp_path) as guard, hold(gpu, state_dir=state_dir, guard=guard) as lease:
        lease.apply(LOW)
        first = guard.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert comes_true(lambda: is_gone(first))
        lease.apply(LOW)
        assert guard.pid not in {None, first}


def test_a_gpu_that_the_guard_cannot_open_is_not_set(
    gpu: FileGpu, tmp_path: Path, state_dir: Path
) -> None:
    (tmp_path / "file.closed").touch()
    with guarding(tmp_path) as guard, hold(gpu, state_dir=state_dir, guard=guard) as lease:
        with pytest.raises(DeviceError, match="cannot watch the GPU: it does not open") as caught:
            lease.apply(LOW)
        assert caught.value.hint == "Open it."
        assert gpu.history() == [AS_FOUND.label]
        (tmp_path / "file.closed").unlink()
        lease.apply(LOW)
    assert gpu.label() == AS_FOUND.label


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            [sys.executable, "-c", "raise SystemExit(7)"],
            r"ends before it watches anything \(exit status 7\)",
        ),
        (["/no/such/program"], "no guard process can be started"),
        (["\0"], "no guard process can be started"),
    ],
)
def test_without_a_guard_process_nothing_is_set_and_the_reason_is_told(
    gpu: FileGpu, state_dir: Path, command: list[str], said: str
) -> None:
    guard = GuardProcess(command)
    with hold(gpu, state_dir=state_dir, guard=guard) as lease:
        for _ in range(2):
            with pytest.raises(DeviceError, match=said) as caught:
                lease.apply(LOW)
            assert "joulewised" in str(caught.value.hint)
        assert [path.name for path in state_dir.iterdir()] == ["GPU-file.lock"]
        # What sets nothing needs nobody to give it back.
        lease.apply(AUTO)
    guard.close()
    assert LOW.label not in gpu.history()


def test_a_guard_that_is_closed_watches_nothing_more(
    gpu: FileGpu, tmp_path: Path, lock: FileLock
) -> None:
    guard = GuardProcess(guard_command(tmp_path))
    guard.watch(gpu.identity, tmp_path / "journal", lock.descriptor)
    guard.ensure(gpu.identity.uuid)
    for _ in range(2):
        guard.unwatch(gpu.identity.uuid)
    for _ in range(2):
        guard.close()
    with pytest.raises(DeviceError, match="no guard process watches"):
        guard.ensure(gpu.identity.uuid)
    with pytest.raises(ValueError, match="was closed"):
        guard.watch(gpu.identity, tmp_path / "journal", lock.descriptor)


def test_a_guard_that_was_never_needed_starts_no_process() -> None:
    guard = GuardProcess(["/no/such/program"])
    guard.unwatch("GPU-file")
    guard.close()
    assert guard.pid is None


SAYS = """
import os, pathlib, socket, sys, time
folder, what, stays_s, link = sys.argv[1], *sys.argv[2:5]
with pathlib.Path(folder, "starts").open("a") as starts:
    print(os.getpid(), file=starts)
ours = socket.socket(fileno=int(link))
ours.send(what.replace("PID", str(os.getpid())).encode())
time.sleep(float(stays_s))
"""
HERE = '{"kind": "Here", "pid": PID}'


@pytest.mark.parametrize(
    ("what", "stays_s", "said"),
    [
        (HERE, 0.0, "ends before it watches anything"),
        ("nonsense", 30.0, "is not understood"),
        ('{"kind": "Watching", "news": 1}', 30.0, "is not understood"),
        ("[]", 30.0, "is not understood"),
    ],
)
def test_guards_that_never_watch_are_given_up_after_some_and_none_stays(
    gpu: FileGpu, tmp_path: Path, state_dir: Path, what: str, stays_s: float, said: str
) -> None:
    guard = GuardProcess([sys.executable, "-c", SAYS, str(tmp_path), what, str(stays_s)])
    with hold(gpu, state_dir=state_dir, guard=guard) as lease:
        with pytest.raises(DeviceError, match=said):
            lease.apply(LOW)
        pids = (tmp_path / "starts").read_text(encoding="utf-8").split()
        assert 1 < len(pids) < 10
        assert comes_true(lambda: all(is_gone(int(pid)) for pid in pids))
        assert said in str(guard.trouble)
        assert lease.unguarded == guard.trouble
    # Once nothing is to be watched nobody tries any more.
    assert comes_true(lambda: "guard process" not in {one.name for one in threading.enumerate()})
    assert guard.trouble is None
    guard.close()
    assert LOW.label not in gpu.history()


@pytest.mark.parametrize("is_gone_too", [False, True], ids=["lives", "is gone"])
def test_a_guard_that_does_not_understand_gives_back_only_where_its_client_is_gone(
    gpu: FileGpu, tmp_path: Path, state_dir: Path, lock: FileLock, *, is_gone_too: bool
) -> None:
    """Else another one takes over, and what is set stays."""
    journal = state_dir / "GPU-file.journal.json"
    state_dir.mkdir()
    write_journal(
        journal,
        JournalEntry(
            device="file:file",
            device_name="it",
            uuid="GPU-file",
            holder="it",
            touched=("sm_clock_mhz",),
        ),
    )
    gpu.request(LOW)
    process, link = started(guard_command(tmp_path), None)
    with link:
        here, _ = receive(link)
        assert isinstance(here, Here)
        packet = Watch(ask_count=1, uuid="GPU-file", device="file:file", journal=str(journal))
        send(link, packet, lock.descriptor)
        assert receive(link)[0] == Watching(ask_count=1)
        # So that it does not read before the client is gone.
        os.kill(here.pid, signal.SIGSTOP)
        link.send(b"nonsense")
        if is_gone_too:
            link.close()
        os.kill(here.pid, signal.SIGCONT)
        assert comes_true(lambda: is_gone(here.pid))
    process.wait()
    assert is_left(journal) is not is_gone_too
    assert (gpu.label() == LOW.label) is not is_gone_too


@pytest.mark.integration
def test_a_guard_that_still_tries_for_a_living_process_is_named(
    gpu: FileGpu, tmp_path: Path, state_dir: Path
) -> None:
    """It is waited for a while, and counts as not given back."""
    guard = GuardProcess(guard_command(tmp_path))
    end_refused(gpu, tmp_path, guard, refusal_count=1000)
    pid = guard.pid
    closing = threading.Thread(target=guard.close)
    closing.start()
    lock = state_dir / "GPU-file.lock"
    assert comes_true(lambda: lock.read_bytes() != b"")
    said = f"is being given back by the guard of process {os.getpid()}"
    with pytest.raises(BusyError, match=said) as caught:
        take_lease(gpu, state_dir=state_dir, guard=NoGuard())
    assert f"If it does not end: kill -KILL {pid}." in str(caught.value.hint)
    (one,) = restore_all(state_dir, lambda device: FileGpu(tmp_path, device.removeprefix("file:")))
    assert one.outcome is Outcome.NOT_GIVEN_BACK
    assert said in str(one.why)
    assert comes_true(gpu.is_accepting_and_given_back)
    closing.join()


def end_refused(gpu: FileGpu, folder: Path, guard: GuardProcess, *, refusal_count: int = 1) -> None:
    """End a lease whose clocks the GPU does not take back at first."""
    lease = take_lease(gpu, state_dir=folder / "state", guard=guard)
    lease.apply(LOW)
    (folder / "refusals").write_text("." * refusal_count, encoding="utf-8")
    with pytest.raises(DeviceError, match="not now"):
        lease.release()


def test_what_is_refused_at_the_end_the_guard_tries_again_at_once(
    gpu: FileGpu, tmp_path: Path, state_dir: Path
) -> None:
    """Also while another lease keeps the guard process busy, and where it dies meanwhile."""
    other = FileGpu(tmp_path, "other")
    with guarding(tmp_path) as guard, hold(other, state_dir=state_dir, guard=guard) as lease:
        lease.apply(LOW)
        for refusal_count in (3, 1000):
            end_refused(gpu, tmp_path, guard, refusal_count=refusal_count)
            if refusal_count == 1000:
                os.kill(guard.pid or 0, signal.SIGKILL)
                assert comes_true(gpu.is_accepting_and_given_back)
            assert comes_true(lambda: not is_left(state_dir / "GPU-file.journal.json"))
            assert gpu.label() == AS_FOUND.label
        assert other.label() == LOW.label


def test_a_guard_that_cannot_be_started_at_first_is_there_once_it_can(
    gpu: FileGpu, tmp_path: Path, state_dir: Path
) -> None:
    program = tmp_path / "guard"
    guard = GuardProcess([str(program)])
    with hold(gpu, state_dir=state_dir, guard=guard) as lease:
        for _ in range(2):
            with pytest.raises(DeviceError, match="no guard process can be started"):
                lease.apply(LOW)
        assert "no guard process can be started" in str(lease.unguarded)
        beside = tmp_path / "beside"
        command = shlex.join(guard_command(tmp_path))
        beside.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        beside.chmod(0o700)
        beside.rename(program)
        # Nobody asks for it.
        assert comes_true(lambda: guard.pid is not None)
        lease.apply(LOW)
        assert lease.unguarded is None
    guard.close()
    assert gpu.label() == AS_FOUND.label


def test_the_guard_is_named_in_the_lock_so_that_one_that_hangs_can_be_ended(
    gpu: FileGpu, tmp_path: Path, state_dir: Path
) -> None:
    with guarding(tmp_path) as guard, hold(gpu, state_dir=state_dir, guard=guard) as lease:
        lease.apply(LOW)
        named = holder_at(state_dir / "GPU-file.lock")
        assert named is not None
        assert named.guard_pid == guard.pid
        # Its holder lives, so that nobody gives back.
        assert named.giver_pid is None


def test_a_later_lease_of_the_same_process_takes_over_what_was_refused(
    gpu: FileGpu, tmp_path: Path, state_dir: Path
) -> None:
    with guarding(tmp_path) as guard:
        end_refused(gpu, tmp_path, guard)
        with hold(gpu, state_dir=state_dir, guard=guard) as lease:
            assert gpu.label() == AS_FOUND.label
            lease.apply(LOW)
        assert gpu.label() == AS_FOUND.label
    assert not is_left(state_dir / "GPU-file.journal.json")


def test_many_threads_may_take_and_end_leases_under_one_guard(
    tmp_path: Path, state_dir: Path
) -> None:
    gpus = [FileGpu(tmp_path, f"gpu{number}") for number in range(6)]

    def work(gpu: FileGpu) -> None:
        for _ in range(5):
            with hold(gpu, state_dir=state_dir, guard=guard) as lease:
                lease.apply(LOW)

    with guarding(tmp_path) as guard:
        threads = [threading.Thread(target=work, args=(gpu,)) for gpu in gpus]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [gpu.history().count(LOW.label) for gpu in gpus] == [5] * 6
    assert {gpu.label() for gpu in gpus} == {AS_FOUND.label}


def test_a_program_that_waits_for_all_its_children_does_not_wait_for_the_guard(
    gpu: FileGpu, tmp_path: Path, state_dir: Path
) -> None:
    with guarding(tmp_path) as guard, hold(gpu, state_dir=state_dir, guard=guard) as lease:
        lease.apply(LOW)
        child = subprocess.Popen([sys.executable, "-c", "pass"])
        assert os.wait()[0] == child.pid
        with pytest.raises(ChildProcessError):
            os.wait()
        child.wait()
