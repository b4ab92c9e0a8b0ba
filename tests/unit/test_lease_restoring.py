"""Giving back, all at once, what dead holders left on any GPU."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.file_gpu import AS_FOUND, LOW, FileGpu
from tests.other_users import SOMEBODY, as_root, as_user

from joulewise.control.holder import this_process
from joulewise.control.journal import (
    JournalEntry,
    damage,
    damaged_journal,
    is_left,
    write_journal,
)
from joulewise.control.lease import hold
from joulewise.control.lock import FileLock
from joulewise.control.restoring import Outcome, Restored, replay_former, restore_all
from joulewise.domain.errors import DeviceError, InputError
from joulewise.domain.points import KnobState
from joulewise.domain.ports import Gpu


class Folder:
    """GPUs of which each has a journal of a dead holder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.state_dir = folder / "state"
        self.state_dir.mkdir(mode=0o700)

    def left_set(self, name: str) -> FileGpu:
        gpu = FileGpu(self.path, name)
        gpu.request(LOW)
        write_journal(
            self.journal(name),
            JournalEntry(
                device=gpu.identity.spec,
                device_name=gpu.identity.name,
                uuid=gpu.identity.uuid,
                holder="process 1",
                touched=("mem_clock_mhz", "power_limit_w", "sm_clock_mhz"),
                found=KnobState(power_limit_w=AS_FOUND.power_limit_w),
                asked_limits_w=(200.0,),
            ),
        )
        return gpu

    def journal(self, name: str) -> Path:
        return self.state_dir / f"GPU-{name}.journal.json"

    def copy(self, name: str) -> Path:
        return self.state_dir / f"GPU-{name}.journal.json.copy"

    def open_gpu(self, device: str) -> Gpu:
        return FileGpu(self.path, device.removeprefix("file:").removeprefix("nvml:GPU-"))

    def restore(self) -> dict[str, Restored]:
        return {one.uuid: one for one in restore_all(self.state_dir, self.open_gpu)}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_every_journal_is_replayed_and_a_second_time_there_is_none(folder: Folder) -> None:
    gpus = [folder.left_set(name) for name in ("a", "b")]
    done = folder.restore()
    assert {uuid: one.outcome for uuid, one in done.items()} == dict.fromkeys(
        ("GPU-a", "GPU-b"), Outcome.GIVEN_BACK
    )
    assert done["GPU-a"].entry is not None
    assert done["GPU-a"].entry.holder == "process 1"
    assert [gpu.label() for gpu in gpus] == [AS_FOUND.label] * 2
    assert not is_left(folder.journal("a"))
    assert folder.restore() == {}


def test_a_gpu_that_somebody_holds_is_left_to_its_holder(folder: Folder) -> None:
    held, left = folder.left_set("held"), folder.left_set("left")
    lock = FileLock(folder.state_dir / "GPU-held.lock")
    lock.acquire("it", this_process())
    done = folder.restore()
    lock.release()
    assert done["GPU-held"].outcome is Outcome.BUSY
    assert f"held by process {os.getpid()}" in str(done["GPU-held"].why)
    assert (held.label(), left.label()) == (LOW.label, AS_FOUND.label)
    assert is_left(folder.journal("held"))


def test_what_is_refused_is_told_with_what_to_type_and_hides_no_other(folder: Folder) -> None:
    folder.left_set("a")
    gpu = folder.left_set("b")
    (folder.path / "refusals").write_text(".", encoding="utf-8")
    done = folder.restore()
    assert done["GPU-a"].outcome is Outcome.NOT_GIVEN_BACK
    assert done["GPU-a"].why == "not now"
    assert "-rgc && nvidia-smi -i GPU-a -rmc && nvidia-smi -i GPU-a -pl 320" in str(
        done["GPU-a"].hint
    )
    assert done["GPU-b"].outcome is Outcome.GIVEN_BACK
    assert gpu.label() == AS_FOUND.label
    assert folder.restore()["GPU-a"].outcome is Outcome.GIVEN_BACK


@pytest.mark.parametrize("damage", [b"", b"{", b"\x00" * 100, b"[" * 100_000, b" " * (2 << 20)])
def test_a_damaged_journal_is_replayed_from_its_copy(folder: Folder, damage: bytes) -> None:
    gpu = folder.left_set("a")
    folder.journal("a").write_bytes(damage)
    done = folder.restore()["GPU-a"]
    assert (done.outcome, done.why) == (Outcome.GIVEN_BACK, None)
    assert gpu.label() == AS_FOUND.label
    assert not damaged_journal(folder.journal("a")).exists()


def test_a_copy_alone_is_replayed_too(folder: Folder) -> None:
    gpu = folder.left_set("a")
    folder.journal("a").unlink()
    assert folder.restore()["GPU-a"].outcome is Outcome.GIVEN_BACK
    assert gpu.label() == AS_FOUND.label
    assert not is_left(folder.journal("a"))


def test_where_both_are_damaged_clocks_are_given_back_and_the_limit_is_told_of(
    folder: Folder,
) -> None:
    gpu = folder.left_set("a")
    folder.journal("a").write_bytes(b"{")
    folder.copy("a").write_bytes(b"{")
    done = folder.restore()["GPU-a"]
    assert done.outcome is Outcome.GIVEN_BACK
    assert gpu.label().startswith("auto/auto")
    told = Path(f"{damaged_journal(folder.journal('a'))}.told")
    assert told.read_bytes() == b"{"
    assert "but a power limit may still be lowered: nvidia-smi -q -d POWER" in str(done.why)
    assert str(told) in str(done.why)
    assert folder.restore() == {}


def test_what_a_damaged_journal_leaves_open_is_told_once_whoever_undid_it(folder: Folder) -> None:
    gpu = folder.left_set("a")
    folder.journal("a").write_bytes(b"{")
    folder.copy("a").write_bytes(b"{")
    with hold(gpu, state_dir=folder.state_dir):
        assert "joulewise restore tells this once" in str(damage(folder.journal("a")))
    done = folder.restore()["GPU-a"]
    assert done.outcome is Outcome.LEFT_OPEN
    assert "a power limit may still be lowered" in str(done.why)
    assert damage(folder.journal("a")) is None
    assert folder.restore() == {}


def test_what_an_older_joulewise_left_in_another_folder_is_given_back_unless_it_lives(
    folder: Folder,
) -> None:
    gpu = folder.left_set("a")
    lock = FileLock(folder.state_dir / "GPU-a.lock")
    lock.acquire("it", this_process())
    replay_former(gpu, [folder.path / "none", folder.state_dir])
    assert gpu.label() == LOW.label
    lock.release()
    folder.state_dir.chmod(0o777)
    replay_former(gpu, [folder.state_dir])
    assert gpu.label() == (LOW.label if os.name == "posix" else AS_FOUND.label)
    folder.state_dir.chmod(0o700)
    (folder.path / "refusals").write_text(".", encoding="utf-8")
    with pytest.raises(DeviceError, match="not now"):
        replay_former(gpu, [folder.state_dir])
    replay_former(gpu, [folder.state_dir])
    assert gpu.label() == AS_FOUND.label
    assert not is_left(folder.journal("a"))


@pytest.mark.skipif(os.name != "posix", reason="links and owners as Unix has them")
def test_a_link_in_a_journals_place_is_not_read_and_not_written_through(folder: Folder) -> None:
    gpu = folder.left_set("a")
    precious = folder.path / "precious"
    precious.write_bytes(folder.journal("a").read_bytes())
    folder.journal("a").unlink()
    folder.journal("a").symlink_to(precious)
    folder.copy("a").unlink()
    assert "could not be read" in str(folder.restore()["GPU-a"].why)
    assert gpu.label().startswith("auto/auto")
    before = precious.read_bytes()
    folder.journal("b").symlink_to(precious)
    folder.left_set("b")
    assert precious.read_bytes() == before
    assert not folder.journal("b").is_symlink()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_a_journal_of_somebody_else_is_not_believed(folder: Folder) -> None:
    gpu = folder.left_set("a")
    for path in (folder.journal("a"), folder.copy("a")):
        os.chown(path, 12345, 12345)
    done = folder.restore()["GPU-a"]
    assert (done.outcome, done.entry) == (Outcome.GIVEN_BACK, None)
    assert "could not be read" in str(done.why)
    assert gpu.label().startswith("auto/auto")


def test_a_journal_that_was_copied_to_another_gpu_is_not_replayed_there(folder: Folder) -> None:
    gpu = folder.left_set("a")
    folder.journal("a").replace(folder.journal("b"))
    folder.copy("a").unlink()
    other = FileGpu(folder.path, "b")
    other.request(LOW)
    done = folder.restore()["GPU-b"]
    assert done.outcome is Outcome.GIVEN_BACK
    assert "a power limit may still be lowered" in str(done.why)
    assert (gpu.label(), other.label()) == (LOW.label, "auto/auto@200W")


@pytest.mark.parametrize("ends", [("",), (".copy",), ("", ".copy")])
def test_folders_in_a_journals_place_are_put_aside(folder: Folder, ends: tuple[str, ...]) -> None:
    gpu = folder.left_set("a")
    damaged_journal(folder.journal("a")).mkdir()
    for end in ends:
        place = folder.state_dir / f"GPU-a.journal.json{end}"
        place.unlink()
        place.mkdir()
        (place / "file").touch()
    with hold(gpu, state_dir=folder.state_dir) as lease:
        lease.apply(LOW)
    assert gpu.label() == AS_FOUND.label
    assert not is_left(folder.journal("a"))
    assert folder.restore()["GPU-a"].outcome is Outcome.LEFT_OPEN
    assert folder.restore() == {}


def test_a_journal_of_a_newer_joulewise_is_told_as_such(folder: Folder) -> None:
    gpu = folder.left_set("a")
    for path in (folder.journal("a"), folder.copy("a")):
        path.write_text('{"schema_version": 2}', encoding="utf-8")
    assert "is of a newer joulewise" in str(folder.restore()["GPU-a"].why)
    assert gpu.label().startswith("auto/auto")


@as_root
def test_what_this_account_may_not_look_at_is_said_to_be_unseen(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An account of its own, in a folder of root's that it may enter."""
    gpu = folder.left_set("a")
    lock = FileLock(folder.state_dir / "GPU-a.lock")
    lock.acquire("it", this_process())
    folder.state_dir.chmod(0o755)
    monkeypatch.chdir(folder.state_dir)
    with as_user(SOMEBODY, SOMEBODY):
        (one,) = restore_all(Path(), folder.open_gpu)
    lock.release()
    assert one.outcome is Outcome.UNSEEN
    assert "this account may not look" in str(one.why)
    assert gpu.label() == LOW.label


def test_virtual_gpus_of_dead_processes_need_nothing(folder: Folder) -> None:
    files = [
        folder.state_dir / f"GPU-virtual-x-0.999999999{end}" for end in (".journal.json", ".lock")
    ]
    for file in files:
        file.touch()
    assert folder.restore() == {}
    assert not any(file.exists() for file in files)


@pytest.mark.skipif(os.name != "posix", reason="modes as Unix has them")
def test_a_folder_that_anybody_may_write_to_is_not_believed(folder: Folder) -> None:
    gpu = folder.left_set("a")
    folder.state_dir.chmod(0o777)
    with pytest.raises(InputError, match="everybody may write there"):
        folder.restore()
    assert gpu.label() == LOW.label


def test_a_folder_that_is_not_there_has_no_journals(tmp_path: Path) -> None:
    assert restore_all(tmp_path / "none", lambda device: FileGpu(tmp_path, device)) == ()


def test_a_journal_says_by_itself_which_gpu_it_is_of(folder: Folder) -> None:
    folder.left_set("a")
    (one,) = folder.restore().values()
    assert replace(one, entry=None) == Restored(
        uuid="GPU-a", journal=folder.journal("a"), entry=None, outcome=Outcome.GIVEN_BACK
    )
