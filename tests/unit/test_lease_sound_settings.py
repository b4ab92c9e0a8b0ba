"""What a board reads is kept only where it could be put back; another board's is put nowhere."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.board_gpu import HZ, STOCK, UNLOCKED, BoardGpu, Killed

from joulewise.control.by_hand import commands_of
from joulewise.control.found_settings import is_same
from joulewise.control.guard_port import NoGuard
from joulewise.control.journal import damage, damaged_journal, is_left, read_journal
from joulewise.control.lease import hold, take_lease
from joulewise.control.restoring import Outcome, Restored, restore_all
from joulewise.control.state import journal_file
from joulewise.domain.errors import DeviceError
from joulewise.domain.points import FoundSetting, KnobState, OperatingPoint

LOW = OperatingPoint(sm_clock_mhz=612)
LOCKED = OperatingPoint(sm_clock_mhz=612, mem_clock_mhz=665)
PINNED = {"governor": "userspace", "min_freq": HZ[816], "max_freq": HZ[816]}


class KernelGpu(BoardGpu):
    """Takes no clock beyond its list, and no flag but 0 and 1, as a kernel does."""

    def put(self, name: str, text: str) -> None:
        if name == "max_freq":
            text = str(min(int(text), int(HZ[1300])))
        if name == "mrq_rate_locked":
            text = "0" if text == "0" else "1"
        super().put(name, text)


def _left_behind(folder: Path, gpu: BoardGpu | None = None) -> Path:
    """The journal of a killed holder that set both clocks of a board found pinned."""
    gpu = BoardGpu(folder / "board") if gpu is None else gpu
    for name, text in PINNED.items():
        gpu.put(name, text)
    gpu.steps_to_live = 5
    with suppress(Killed), hold(gpu, state_dir=folder / "state") as lease:
        lease.apply(LOCKED)
    journal = journal_file(gpu.identity, folder / "state")
    assert read_journal(journal) is not None
    return journal


def _edit(journal: Path, change: Callable[[str], tuple[str, object] | None]) -> None:
    """Change a field of each setting as its file's name says."""
    fields: dict[str, Any] = json.loads(journal.read_text(encoding="utf-8"))
    for one in fields["found"]["settings"]:
        changed = change(Path(one["path"]).name)
        if changed is not None:
            one[changed[0]] = changed[1]
    for file in (journal, journal.with_name(f"{journal.name}.copy")):
        file.write_text(json.dumps(fields), encoding="utf-8")


def _restored(journal: Path, gpu: BoardGpu) -> Restored:
    (done,) = restore_all(journal.parent, lambda _: gpu)
    return done


@pytest.mark.parametrize(
    "found",
    [
        {"governor": "g" * 257},
        {"governor": "a\tb"},
        {"governor": "schédutil"},
        {"min_freq": "9" * 5000},
        {"min_freq": HZ[1300], "max_freq": HZ[816]},
    ],
    ids=["long", "control character", "not ASCII", "5000 digits", "least above most"],
)
def test_what_no_journal_could_tell_of_is_refused_before_anything_is_set(
    found: dict[str, str], tmp_path: Path
) -> None:
    gpu = BoardGpu(tmp_path / "board")
    for name, text in found.items():
        (gpu.folder / name).write_text(text, encoding="utf-8")
    gpu.read = lambda name: (gpu.folder / name).read_text(encoding="utf-8").strip()  # type: ignore[method-assign]
    before = gpu.state()
    with (
        hold(gpu, state_dir=tmp_path / "state") as lease,
        pytest.raises(DeviceError, match="how Toy Orin is set could not be put back: ") as caught,
    ):
        lease.apply(LOW)
    assert caught.value.hint is not None
    assert gpu.state() == before
    assert not is_left(journal_file(gpu.identity, tmp_path / "state"))


def test_bounds_that_are_read_while_somebody_sets_them_are_read_again(tmp_path: Path) -> None:
    class TornGpu(BoardGpu):
        reads_count = 0

        def knob_state(self) -> KnobState:
            self.reads_count += 1
            if self.reads_count == 1:
                self.put("max_freq", HZ[306])
                self.put("min_freq", HZ[816])
                torn = super().knob_state()
                self.put("max_freq", HZ[816])
                return torn
            return super().knob_state()

    gpu = TornGpu(tmp_path / "board")
    with hold(gpu, state_dir=tmp_path / "state") as lease:
        lease.apply(LOW)
        assert gpu.read("max_freq") == HZ[612]
    assert (gpu.read("min_freq"), gpu.read("max_freq")) == (HZ[816], HZ[816])


def test_a_setting_of_a_knob_that_is_left_alone_hinders_nobody_until_it_is_asked_for(
    tmp_path: Path,
) -> None:
    gpu, state_dir = BoardGpu(tmp_path / "board"), tmp_path / "state"
    gpu.put("rate", "a\tb")
    before = gpu.state()
    with hold(gpu, state_dir=state_dir) as lease:
        lease.apply(LOW)
        entry = read_journal(journal_file(gpu.identity, state_dir))
        assert entry is not None
        assert entry.found is not None
        assert {one.knob for one in entry.found.settings} == {"sm_clock_mhz"}
        with pytest.raises(DeviceError, match="rate reads what is no setting"):
            lease.apply(LOCKED)
        assert gpu.read("rate") == "a\tb"
    assert gpu.state() == before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("min_freq", HZ[1300]),
        ("max_freq", HZ[306]),
        ("max_freq", "9" * 21),
        ("max_freq", "٨١٦٠٠٠٠٠٠"),
        ("rate", "٢"),
    ],
)
def test_a_journal_of_what_no_kernel_shows_is_damaged_and_the_board_goes_to_stock(
    file: str, text: str, tmp_path: Path
) -> None:
    journal = _left_behind(tmp_path)
    _edit(journal, lambda name: ("text", text) if name == file else None)
    assert read_journal(journal) is None
    gpu = BoardGpu(tmp_path / "board")
    opened: list[str] = []

    def open_gpu(device: str) -> BoardGpu:
        opened.append(device)
        return gpu

    (done,) = restore_all(journal.parent, open_gpu)
    assert done.outcome is Outcome.GIVEN_BACK
    # What is sound of it still tells where the board's files lie.
    assert opened == [gpu.identity.spec]
    assert done.why is not None
    assert "A journal of what was set could not be read" in done.why
    assert {**gpu.state(), "rate": ""} == {**STOCK, **UNLOCKED, "rate": ""}


@pytest.mark.parametrize(
    ("file", "text", "after"),
    [
        ("max_freq", "5000000000", {**STOCK, "mrq_rate_locked": "0"}),
        ("mrq_rate_locked", "7", {**PINNED, "mrq_rate_locked": "0"}),
    ],
)
def test_a_journal_of_what_the_board_never_takes_is_kept_aside_once_and_its_knob_goes_to_stock(
    file: str, text: str, after: dict[str, str], tmp_path: Path
) -> None:
    journal = _left_behind(tmp_path, KernelGpu(tmp_path / "board"))
    _edit(journal, lambda name: ("text", text) if name == file else None)
    gpu = KernelGpu(tmp_path / "board")
    with hold(gpu, state_dir=tmp_path / "state"):
        pass
    assert {name: gpu.read(name) for name in after} == after
    assert damaged_journal(journal).exists()
    told = damage(journal)
    assert told is not None
    assert "or of what this one never takes" in told
    assert not is_left(journal)


def test_a_refusal_that_may_pass_is_no_damage_and_the_journal_stays(tmp_path: Path) -> None:
    class StubbornGpu(BoardGpu):
        def reset(self, touched: object = None) -> None:
            pass

    journal = _left_behind(tmp_path)
    for _ in range(2):
        done = _restored(journal, StubbornGpu(tmp_path / "board"))
        assert done.outcome is Outcome.NOT_GIVEN_BACK
        assert done.entry is not None
    assert _restored(journal, gpu := BoardGpu(tmp_path / "board")).outcome is Outcome.GIVEN_BACK
    assert {name: gpu.read(name) for name in PINNED} == PINNED


def test_a_journal_of_another_tree_with_the_same_serial_is_kept_and_sets_nothing_there(
    tmp_path: Path,
) -> None:
    journal = _left_behind(tmp_path)
    other = BoardGpu(tmp_path / "other")
    before = other.state()
    done = _restored(journal, other)
    assert done.outcome is Outcome.NOT_GIVEN_BACK
    assert done.why is not None
    assert "is no file of Toy Orin as it was opened" in done.why
    with pytest.raises(DeviceError, match="is no file of Toy Orin"):
        take_lease(other, state_dir=tmp_path / "state", guard=NoGuard())
    assert other.state() == before
    assert is_left(journal)
    assert _restored(journal, gpu := BoardGpu(tmp_path / "board")).outcome is Outcome.GIVEN_BACK
    assert {name: gpu.read(name) for name in PINNED} == PINNED


def test_a_memory_lock_whose_files_the_board_does_not_have_is_never_called_given_back(
    tmp_path: Path,
) -> None:
    journal = _left_behind(tmp_path)
    _edit(
        journal,
        lambda name: ("path", f"/nowhere/{name}") if name in UNLOCKED else None,
    )
    done = _restored(journal, BoardGpu(tmp_path / "board"))
    assert done.outcome is Outcome.NOT_GIVEN_BACK
    assert is_left(journal)


def test_the_same_board_by_another_path_is_the_same_board(tmp_path: Path) -> None:
    journal = _left_behind(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "board")
    gpu = BoardGpu(tmp_path / "link")
    assert _restored(journal, gpu).outcome is Outcome.GIVEN_BACK
    assert {name: gpu.read(name) for name in PINNED} == PINNED
    assert not is_left(journal)


def test_numbers_of_any_length_are_compared() -> None:
    assert not is_same("9" * 5000, "306000000")
    assert is_same("9" * 5000, "9" * 5000)
    assert is_same("306000000", "306000999")
    assert not is_same("٣", "3")


def test_what_to_type_takes_nothing_in_a_path_or_a_text_for_a_command(tmp_path: Path) -> None:
    folder = tmp_path / "a b; touch c"
    folder.mkdir()
    (folder / "governor").touch()
    setting = FoundSetting(knob="sm_clock_mhz", path=str(folder / "governor"), text="x; touch d")
    (typed,) = commands_of([setting])
    subprocess.run(["sh", "-c", typed], check=True, cwd=tmp_path)
    assert (folder / "governor").read_text(encoding="utf-8") == "x; touch d\n"
    assert not {"c", "d"} & {one.name for one in tmp_path.iterdir()}
