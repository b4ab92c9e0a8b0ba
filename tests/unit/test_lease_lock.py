"""Locks: who is named in them, who is waited for, and what is refused as a lock."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.control.holder import is_alive, this_process
from joulewise.control.journal import JournalEntry, write_journal
from joulewise.control.lock import (
    FileLock,
    Kind,
    name_guard,
    name_holder,
    named_holder,
    open_lock,
    unlock,
)
from joulewise.control.state import (
    ROOT_STATE_DIR,
    default_state_dir,
    first_usable,
    former_state_dirs,
    make_state_dir,
)
from joulewise.domain.control import Holder
from joulewise.domain.errors import BusyError, InputError
from joulewise.store.lock import lock_exclusively

posix_only = pytest.mark.skipif(os.name != "posix", reason="processes and links as Unix has them")
ALICE = Holder(pid=os.getpid(), user="alice", command="train.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "GPU-1.lock"


@pytest.fixture
def descriptor(path: Path) -> Iterator[int]:
    """The lock file, locked by somebody else."""
    descriptor = open_lock(path)
    assert lock_exclusively(descriptor)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def take(path: Path) -> None:
    lock = FileLock(path)
    lock.acquire("the GPU", ALICE)
    lock.release()


def test_a_holder_is_named_in_words_and_nobody_once_it_let_go(path: Path) -> None:
    lock = FileLock(path)
    lock.acquire("the GPU", ALICE)
    (line,) = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {**asdict(ALICE), "kind": "holder", "lock_pid": os.getpid()}
    assert line.startswith('{"pid": ')
    with pytest.raises(BusyError) as caught:
        take(path)
    assert caught.value.message == f"the GPU is held by process {os.getpid()} (alice: train.py)"
    lock.release()
    lock.release()
    assert path.read_bytes() == b""
    with pytest.raises(ValueError, match="is not locked"):
        _ = lock.descriptor
    take(path)


def test_a_long_name_does_not_hide_the_process_behind_it(path: Path) -> None:
    lock = FileLock(path)
    lock.acquire("the GPU", Holder(pid=1, user="ü" * 40, command="x" * 40, daemon_pid=2))
    with pytest.raises(BusyError, match=r"process 1 \(ü+: x+\) through joulewised \(process 2\)$"):
        take(path)
    lock.release()


TEXTS = st.none() | st.text(max_size=300)
PIDS = st.integers(1, 2**31)


@given(
    holder=st.builds(
        Holder,
        pid=PIDS,
        user=TEXTS,
        command=TEXTS,
        daemon_pid=st.none() | PIDS,
        is_idle_policy=st.booleans(),
    ),
    earlier=TEXTS,
)
def test_whatever_a_holder_is_called_it_is_read_as_written_but_for_the_end_of_long_names(
    tmp_path_factory: pytest.TempPathFactory, holder: Holder, earlier: str | None
) -> None:
    path = tmp_path_factory.mktemp("lock") / "GPU-1.lock"
    descriptor = open_lock(path)
    try:
        name_holder(descriptor, Holder(pid=1, user=earlier, command=earlier))
        name_holder(descriptor, holder)
        named = named_holder(descriptor)
        name_guard(descriptor, 1)
        guard = named_holder(descriptor)
    finally:
        os.close(descriptor)
    assert path.stat().st_size < 1024
    assert named is not None
    assert named.holder is not None
    assert (named.kind, named.pid) == (Kind.HOLDER, os.getpid())
    for name, read in ((holder.user, named.holder.user), (holder.command, named.holder.command)):
        assert (name or "").startswith(read or "")
        assert read == name or len(json.dumps(name)) > 256
    assert replace(holder, user=None, command=None) == replace(
        named.holder, user=None, command=None
    )
    # The guard process has it now, and still for the same holder.
    assert guard == replace(named, kind=Kind.GUARD)


@pytest.mark.parametrize(
    "content", [f"{os.getpid()}\n", f"process 1 (bob)\n{os.getpid()}\n"], ids=["number", "words"]
)
def test_the_holder_of_an_older_joulewise_is_another_process(
    path: Path, descriptor: int, content: str
) -> None:
    os.write(descriptor, content.encode())
    with pytest.raises(BusyError, match=r"held by another process$"):
        take(path)


def test_a_holder_that_has_not_written_its_name_yet_is_waited_for(
    path: Path, descriptor: int
) -> None:
    def write_name() -> None:
        time.sleep(0.05)
        name_holder(descriptor, Holder(pid=1, user="bob"))

    writer = threading.Thread(target=write_name)
    writer.start()
    with pytest.raises(BusyError, match=r"held by process 1 \(bob\)$"):
        take(path)
    writer.join()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\n\xff\n",
        b"\n\n\n",
        b"process 1\n\xc2\xb2\n",
        b"{}\n",
        b"[1]\n",
        b'{"pid": true, "kind": "guard"}',
        b"[" * 4096,
    ],
)
def test_whatever_stands_in_a_lock_file_it_is_held(
    path: Path, descriptor: int, content: bytes
) -> None:
    os.write(descriptor, content)
    with pytest.raises(BusyError, match="is held by"):
        take(path)


@posix_only
def test_the_guard_of_a_dead_holder_is_waited_for(
    path: Path, descriptor: int, dead_pid: int
) -> None:
    name_holder(descriptor, Holder(pid=dead_pid))
    fields = json.loads(path.read_bytes())
    path.write_text(json.dumps({**fields, "lock_pid": dead_pid}), encoding="utf-8")

    def give_back() -> None:
        time.sleep(0.2)
        unlock(descriptor)

    giving_back = threading.Thread(target=give_back)
    giving_back.start()
    take(path)
    giving_back.join()


@posix_only
def test_dead_processes_are_told_from_living_ones(dead_pid: int) -> None:
    assert is_alive(os.getpid())
    assert not is_alive(dead_pid)
    assert is_alive(2**70)
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(zombie.pid) or not sys.platform.startswith("linux")
    zombie.wait()


@posix_only
def test_a_lock_is_never_taken_through_a_link_or_on_what_is_no_file(
    path: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep", encoding="utf-8")
    path.symlink_to(precious)
    with pytest.raises(InputError):
        take(path)
    assert precious.read_text(encoding="utf-8") == "keep"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="a lock is a plain file"):
        take(path)


@posix_only
@pytest.mark.parametrize("umask", [0, 0o002, 0o277])
def test_what_a_lease_leaves_on_disk_is_its_owners_alone_whatever_the_umask(
    tmp_path: Path, umask: int
) -> None:
    """Else joulewised would refuse the folder, or others could write what root then sets."""
    folder = tmp_path / "a" / "b" / "state"
    journal = folder / "GPU-1.journal.json"
    (tmp_path / "old.lock").touch()
    (tmp_path / "old.lock").chmod(0o664)
    before = os.umask(umask)
    try:
        os.umask(umask & 0o077)
        make_state_dir(folder)
        os.umask(umask)
        for lock in (folder / "GPU-1.lock", tmp_path / "old.lock"):
            os.close(open_lock(lock))
        write_journal(journal, JournalEntry(device="", device_name="", uuid="", holder=""))
    finally:
        os.umask(before)
    files = [*folder.iterdir(), tmp_path / "old.lock"]
    assert len(files) == 4
    assert {0o600} == {stat.S_IMODE(file.stat().st_mode) for file in files}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    above = [stat.S_IMODE(one.stat().st_mode) & 0o022 for one in (folder.parent, tmp_path / "a")]
    assert above == [0, 0]


@posix_only
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(InputError, match="everybody may write there") as caught:
        make_state_dir(folder)
    assert "JOULEWISE_STATE_DIR" in str(caught.value.hint)
    folder.chmod(0o770)
    with pytest.raises(InputError, match="its group may write there"):
        make_state_dir(folder)
    folder.chmod(0o755)
    make_state_dir(folder)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(InputError, match="it belongs to user 12345"):
        make_state_dir(folder)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="where root's folder is on Linux")
def test_root_has_one_folder_whatever_its_home(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    expected = ROOT_STATE_DIR if os.geteuid() == 0 else tmp_path / "joulewise"
    assert default_state_dir(home) == expected
    assert default_state_dir({**home, "JOULEWISE_STATE_DIR": "/x"}) == Path("/x")


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0, reason="only root of Linux moved"
)
def test_roots_former_folders_are_those_below_its_homes_that_are_there(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "xdg")}
    for base in (tmp_path / "xdg", tmp_path / ".local" / "state"):
        (base / "joulewise").mkdir(parents=True)
    both = (tmp_path / "xdg" / "joulewise", tmp_path / ".local" / "state" / "joulewise")
    assert former_state_dirs(ROOT_STATE_DIR, home)[:2] == both
    assert former_state_dirs(tmp_path, home) == ()
    # A HOME that was kept by sudo is somebody else's, and so is what lies there.
    os.chown(both[1], 12345, 12345)
    assert both[1] not in former_state_dirs(ROOT_STATE_DIR, home)


def test_the_first_folder_that_can_be_written_is_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    none = tmp_path / "file" / "state"
    assert first_usable([none, tmp_path / "state"]) == tmp_path / "state"
    assert first_usable([none]) is None


def test_this_process_is_named_for_people() -> None:
    holder = this_process()
    assert holder.pid == os.getpid()
    assert holder.text.startswith(f"process {os.getpid()} (")
    assert holder.text.isprintable()


@posix_only
def test_a_forked_child_lets_go_of_its_parents_lock(path: Path) -> None:
    lock = FileLock(path)
    lock.acquire("the GPU", ALICE)
    inherited = lock.descriptor
    child = os.fork()
    if child == 0:
        try:
            os.fstat(inherited)
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert named_holder(lock.descriptor) is not None
    with pytest.raises(BusyError):
        take(path)
    lock.release()
