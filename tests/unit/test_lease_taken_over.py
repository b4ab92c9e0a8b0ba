"""Lock files and folders that somebody removes under a holder."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest
from tests.watched_gpu import WatchedGpu, journal_of

from joulewise.control.guard import NoGuard
from joulewise.control.holder import mark_of
from joulewise.control.journal import is_left, read_journal
from joulewise.control.lease import GpuLease, take_lease
from joulewise.control.lock import FileLock, name_guard
from joulewise.control.restoring import Outcome, restore_all
from joulewise.control.state import lock_file
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.control import Holder
from joulewise.domain.errors import BusyError, DeviceError
from joulewise.domain.points import OperatingPoint
from joulewise.workflow.point_watch import PointWatch

LOW = OperatingPoint(sm_clock_mhz=1200)
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="open files that are removed, and marks of Linux"
)


@pytest.fixture
def gpu() -> WatchedGpu:
    return WatchedGpu(is_shared=True)


@pytest.fixture
def lease(gpu: WatchedGpu, tmp_path: Path) -> GpuLease:
    lease = take_lease(gpu, state_dir=tmp_path / "state", guard=NoGuard())
    lease.apply(LOW)
    return lease


def remove_lock(gpu: WatchedGpu, folder: Path) -> None:
    lock_file(gpu.identity, folder).unlink()


def test_whoever_finds_no_lock_but_the_journal_of_a_living_holder_leaves_it_alone(
    gpu: WatchedGpu, lease: GpuLease, tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    remove_lock(gpu, folder)
    other = WatchedGpu(is_shared=True)
    said = f"is held by process {os.getpid()} .*, whose lock file somebody removed"
    with pytest.raises(BusyError, match=said):
        take_lease(other, state_dir=folder, guard=NoGuard())
    (one,) = restore_all(folder, lambda _device: other)
    assert one.outcome is Outcome.BUSY
    assert other.touches == []
    assert "others may set it meanwhile" in str(lease.taken_over)
    lease.release()
    assert gpu.touches[-2:] == ["reset", "sample"]
    assert not is_left(journal_of(gpu, folder))


def test_a_journal_that_its_living_author_could_not_undo_is_undone_by_the_next(
    gpu: WatchedGpu, lease: GpuLease, tmp_path: Path
) -> None:
    """It let go of the lock, which is still the same file."""
    gpu.refusal = DeviceError("busy")
    with pytest.raises(DeviceError, match="busy"):
        lease.release()
    entry = read_journal(journal_of(gpu, tmp_path / "state"))
    assert entry is not None
    assert entry.author == mark_of(os.getpid())
    other = WatchedGpu(is_shared=True)
    take_lease(other, state_dir=tmp_path / "state", guard=NoGuard()).release()
    assert other.touches == ["reset", "sample"]


def test_a_process_of_another_boot_or_with_the_same_number_is_no_living_author() -> None:
    mark = mark_of(os.getpid())
    assert mark is not None
    assert mark != mark_of(os.getppid())
    assert mark_of(2**22 + 1) is None


def test_what_another_holder_has_set_since_is_left_alone_and_told(
    gpu: WatchedGpu, lease: GpuLease, tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    shutil.rmtree(folder)
    other = take_lease(
        WatchedGpu(is_shared=True), state_dir=folder, guard=NoGuard(), holder=Holder(pid=7)
    )
    other.apply(LOW)
    touches = list(gpu.touches)
    assert "process 7 has it now" in str(lease.taken_over)
    with pytest.raises(DeviceError, match=r"process 7 has .* by now"):
        lease.apply(LOW)
    with pytest.raises(DeviceError, match="what is set there is left alone"):
        lease.release()
    assert lease.still_set() is None
    assert gpu.touches == touches
    assert is_left(journal_of(gpu, folder))
    other.release()
    assert not is_left(journal_of(gpu, folder))


def test_a_lock_file_that_is_gone_is_told_while_a_command_runs(
    gpu: WatchedGpu, lease: GpuLease, tmp_path: Path
) -> None:
    told: list[str] = []
    watch = PointWatch(gpu, told.append)
    with watch.watching(lease, LOW, gpu.clock_grid()):
        remove_lock(gpu, tmp_path / "state")
    lease.release()
    (caveat,) = watch.caveats()
    assert caveat.kind is CaveatKind.FOREIGN_CONTROL
    assert "somebody removed the lock file" in caveat.seen
    assert [one for one in told if caveat.seen in one]


def test_a_removed_folder_keeps_no_clocks_from_being_given_back(
    gpu: WatchedGpu, lease: GpuLease, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "state")
    lease.release()
    assert gpu.touches[-2:] == ["reset", "sample"]
    assert lease.still_set() is None


def test_a_lock_is_not_taken_on_a_file_that_was_removed(tmp_path: Path) -> None:
    """As whoever waits opened it before it went; others meet at the next."""
    path = tmp_path / "GPU-1.lock"
    former, lock = FileLock(path, is_kept=False), FileLock(path)
    former.acquire("the GPU", Holder(pid=1))
    # Its guard process is waited for.
    name_guard(former.descriptor, 1)
    ending = threading.Timer(0.1, former.release)
    ending.start()
    lock.acquire("the GPU", Holder(pid=1))
    ending.join()
    assert lock.is_in_place
    with pytest.raises(BusyError):
        FileLock(path).acquire("the GPU", Holder(pid=1))
    lock.release()


def test_a_relative_folder_is_the_same_one_wherever_the_program_goes(
    gpu: WatchedGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lease = take_lease(gpu, state_dir=Path("state"), guard=NoGuard())
    lease.apply(LOW)
    monkeypatch.chdir("/")
    lease.release()
    assert not is_left(journal_of(gpu, tmp_path / "state"))


def test_what_is_opened_takes_no_number_of_a_closed_stream(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        for number in (0, 1, 2):
            os.close(number)
        lock = FileLock(tmp_path / "GPU-1.lock")
        lock.acquire("the GPU", Holder(pid=1))
        os._exit(lock.descriptor)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) > 2


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    import resource

    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            FileLock(tmp_path / "GPU-1.lock").acquire("the GPU", Holder(pid=1))
        except Exception as error:  # noqa: BLE001 - judged by the exit status
            said = f"{type(error).__name__} {error}"
            os._exit(0 if "InputError" in said and "GPU-1.lock" in said else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
