"""Leases on a GPU whose clocks are files: what was found is put back as found, whoever dies."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.board_gpu import HZ, STOCK, UNLOCKED, BoardGpu, Killed

from joulewise.control.guard_port import NoGuard
from joulewise.control.journal import (
    JournalEntry,
    damage,
    is_left,
    read_journal,
    still_set,
    write_journal,
)
from joulewise.control.lease import hold, take_lease
from joulewise.control.restoring import Outcome, restore_all
from joulewise.control.state import journal_file
from joulewise.domain.errors import DeviceError, NotPermitted
from joulewise.domain.points import AUTO, CLOCK_KNOBS, FoundSetting, KnobState, OperatingPoint

LOW = OperatingPoint(sm_clock_mhz=612)
LOCKED = OperatingPoint(sm_clock_mhz=612, mem_clock_mhz=665)
PINNED = {"governor": "userspace", "min_freq": HZ[816], "max_freq": HZ[816]}
points = st.builds(
    OperatingPoint,
    sm_clock_mhz=st.none() | st.sampled_from(tuple(HZ)),
    mem_clock_mhz=st.none() | st.sampled_from((665, 2133)),
)


def _board(folder: Path, found: dict[str, str] = STOCK, **given: int) -> BoardGpu:
    gpu = BoardGpu(folder / "board", **given)
    for name, text in found.items():
        gpu.put(name, text)
    return gpu


def _die_holding(gpu: BoardGpu, state_dir: Path, *asked: OperatingPoint) -> None:
    """A killed process runs nothing more, so nothing is undone."""
    with suppress(Killed), hold(gpu, state_dir=state_dir) as lease:
        for point in asked:
            lease.apply(point)


@given(
    asked=st.lists(points, min_size=1, max_size=3),
    found=st.sampled_from([STOCK, PINNED, {**STOCK, "mrq_rate_locked": "1", "rate": "665000000"}]),
    steps=st.integers(0, 8),
)
@settings(max_examples=25, deadline=None)
def test_wherever_a_holder_dies_the_next_lease_leaves_every_file_as_found(
    asked: list[OperatingPoint], found: dict[str, str], steps: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gpu = _board(folder, found)
        before = gpu.state()
        gpu.steps_to_live = steps
        _die_holding(gpu, folder / "state", *asked)
        with hold(BoardGpu(folder / "board"), state_dir=folder / "state"):
            pass
        after = gpu.state()
    assert {**after, "rate": ""} == {**before, "rate": ""}


def test_clocks_pinned_as_found_stay_pinned_and_are_never_unpinned_to_the_top(
    tmp_path: Path,
) -> None:
    gpu = _board(tmp_path, PINNED)
    with hold(gpu, state_dir=tmp_path / "state") as lease:
        lease.apply(LOW)
        assert (gpu.read("min_freq"), gpu.read("max_freq")) == (HZ[612], HZ[612])
    assert gpu.state() == {**PINNED, **UNLOCKED}


def test_a_first_point_that_leaves_everything_to_the_driver_frees_no_clock_of_somebody_else(
    tmp_path: Path,
) -> None:
    gpu = _board(tmp_path, PINNED)
    with hold(gpu, state_dir=tmp_path / "state") as lease:
        lease.apply(AUTO)
        assert gpu.state() == {**PINNED, **UNLOCKED}
        assert not is_left(journal_file(gpu.identity, tmp_path / "state"))


def test_the_journal_names_what_every_knob_was_before_its_own_first_touch(tmp_path: Path) -> None:
    """Somebody locks the memory clock after we pinned the GPU, and before we lock it, too."""
    gpu, state_dir = _board(tmp_path), tmp_path / "state"
    journal = journal_file(gpu.identity, state_dir)
    with hold(gpu, state_dir=state_dir) as lease:
        lease.apply(LOW)
        gpu.put("mrq_rate_locked", "1")
        gpu.put("rate", "3199000000")
        lease.apply(LOCKED)
        entry = read_journal(journal)
    assert entry is not None
    assert entry.found is not None
    texts = {Path(one.path).name: one.text for one in entry.found.settings}
    assert texts == {**STOCK, "mrq_rate_locked": "1", "rate": "3199000000"}


def test_what_somebody_else_set_meanwhile_is_not_called_ours(tmp_path: Path) -> None:
    """As nvpmodel does: the adapter leaves it alone, and the lease ends without complaint."""

    class LeavingGpu(BoardGpu):
        def reset(self, touched: object = None) -> None:
            assert touched is None

    gpu, state_dir = LeavingGpu(tmp_path / "board"), tmp_path / "state"
    with hold(gpu, state_dir=state_dir) as lease:
        lease.apply(LOW)
        gpu.put("max_freq", HZ[816])
        gpu.put("min_freq", HZ[306])
    assert not is_left(journal_file(gpu.identity, state_dir))
    assert gpu.read("max_freq") == HZ[816]


def test_a_reset_that_changes_nothing_is_an_error_that_says_what_to_type(tmp_path: Path) -> None:
    class StubbornGpu(BoardGpu):
        def reset(self, touched: object = None) -> None:
            pass

    gpu, state_dir = StubbornGpu(tmp_path / "board"), tmp_path / "state"
    lease = take_lease(gpu, state_dir=state_dir, guard=NoGuard())
    lease.apply(LOW)
    with pytest.raises(DeviceError, match="reads 612000000, and it was 306000000 before") as caught:
        lease.release()
    assert caught.value.hint == (
        f"Set it by hand, as root: echo 306000000 > {tmp_path / 'board' / 'min_freq'}"
    )
    left = lease.still_set()
    assert left is not None
    assert "nvidia-smi" not in left
    # What it says to type does it.
    subprocess.run(["sh", "-c", left.partition("; by hand: ")[2]], check=True)
    assert gpu.state() == {**STOCK, **UNLOCKED}
    assert is_left(journal_file(gpu.identity, state_dir))


def test_by_hand_the_least_clock_is_let_go_of_before_the_most_is_lowered(tmp_path: Path) -> None:
    gpu, state_dir = _board(tmp_path, PINNED), tmp_path / "state"
    lease = take_lease(gpu, state_dir=state_dir, guard=NoGuard())
    lease.apply(OperatingPoint(sm_clock_mhz=1300))
    journal = journal_file(gpu.identity, state_dir)
    typed = still_set(read_journal(journal), journal).partition("; by hand: ")[2]
    board = tmp_path / "board"
    assert typed.split(" && ") == [
        f"echo userspace > {board}/governor",
        f"echo 0 > {board}/min_freq",
        f"echo {HZ[816]} > {board}/max_freq",
        f"echo {HZ[816]} > {board}/min_freq",
    ]
    lease.release()


def test_an_account_that_may_set_nothing_leaves_no_journal(tmp_path: Path) -> None:
    gpu, state_dir = _board(tmp_path), tmp_path / "state"
    gpu.is_denied = True
    with pytest.raises(NotPermitted), hold(gpu, state_dir=state_dir) as lease:
        lease.apply(LOW)
    assert gpu.state() == {**STOCK, **UNLOCKED}
    assert not is_left(journal_file(gpu.identity, state_dir))


def test_a_yielded_clock_stays_as_somebody_else_set_it(tmp_path: Path) -> None:
    gpu = _board(tmp_path)
    with hold(gpu, state_dir=tmp_path / "state") as lease:
        lease.apply(LOCKED)
        gpu.put("min_freq", HZ[816])
        gpu.put("max_freq", HZ[816])
        lease.yield_knob("sm_clock_mhz")
    assert gpu.state() == {
        **STOCK,
        "min_freq": HZ[816],
        "max_freq": HZ[816],
        **UNLOCKED,
        "rate": "665000000",
    }


@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_a_forked_child_puts_nothing_back(tmp_path: Path) -> None:
    gpu = _board(tmp_path)
    with hold(gpu, state_dir=tmp_path / "state") as lease:
        lease.apply(LOW)
        child = os.fork()
        if child == 0:
            lease.release()
            os._exit(0)
        os.waitpid(child, 0)
        assert gpu.read("max_freq") == HZ[612]
    assert gpu.state() == {**STOCK, **UNLOCKED}


lines = st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1, max_size=40)
any_settings = st.lists(
    st.builds(
        FoundSetting,
        knob=st.sampled_from(CLOCK_KNOBS),
        path=lines.map("/sys/{}".format),
        text=lines,
    ),
    max_size=8,
    unique_by=lambda one: one.path,
)


@given(listed=any_settings, limit_w=st.none() | st.floats(1.0, 1000.0))
@settings(max_examples=20, deadline=None)
def test_what_was_found_reads_back_from_the_journal_as_written(
    listed: list[FoundSetting], limit_w: float | None
) -> None:
    entry = JournalEntry(
        device="jetson",
        device_name="Toy Orin",
        uuid="GPU-jetson-1",
        holder="process 1",
        touched=("sm_clock_mhz",),
        found=KnobState(power_limit_w=limit_w, settings=tuple(listed)),
    )
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "board.json"
        write_journal(journal, entry)
        assert read_journal(journal) == entry


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", ""),
        ("text", "1\nrm -rf /"),
        ("text", 306),
        ("text", "9" * 300),
        ("path", "relative/min_freq"),
        ("path", None),
        ("knob", "fan_speed"),
        ("knob", ["sm_clock_mhz"]),
    ],
)
def test_one_bad_field_damages_the_journal_and_the_board_goes_to_its_stock_state(
    field: str, value: object, tmp_path: Path
) -> None:
    gpu, state_dir = _board(tmp_path, PINNED), tmp_path / "state"
    gpu.steps_to_live = 3
    _die_holding(gpu, state_dir, LOW)
    journal = journal_file(gpu.identity, state_dir)
    fields = json.loads(journal.read_text(encoding="utf-8"))
    fields["found"]["settings"][0][field] = value
    for one in (journal, journal.with_name(f"{journal.name}.copy")):
        one.write_text(json.dumps(fields), encoding="utf-8")
    assert read_journal(journal) is None
    assert "nvidia-smi" not in still_set(None, journal)
    with hold(BoardGpu(tmp_path / "board"), state_dir=state_dir):
        pass
    assert {**gpu.state(), "rate": ""} == {**STOCK, **UNLOCKED, "rate": ""}
    told = damage(journal)
    assert told is not None
    assert "put into the state that the board starts with" in told


def test_more_settings_than_a_board_has_are_refused(tmp_path: Path) -> None:
    gpu, state_dir = _board(tmp_path), tmp_path / "state"
    _die_holding(replaced := BoardGpu(gpu.folder, steps_to_live=2), state_dir, LOW)
    journal = journal_file(replaced.identity, state_dir)
    entry = read_journal(journal)
    assert entry is not None
    fields = json.loads(journal.read_text(encoding="utf-8"))
    (first, *_) = fields["found"]["settings"]
    for settings_ in (
        [first, first],
        [{**first, "path": f"/sys/{number}"} for number in range(33)],
    ):
        fields["found"]["settings"] = settings_
        for one in (journal, journal.with_name(f"{journal.name}.copy")):
            one.write_text(json.dumps(fields), encoding="utf-8")
        assert read_journal(journal) is None


def test_a_journal_of_before_boards_tells_of_no_settings_and_is_obeyed(tmp_path: Path) -> None:
    gpu, state_dir = _board(tmp_path, PINNED), tmp_path / "state"
    gpu.steps_to_live = 3
    _die_holding(gpu, state_dir, LOW)
    journal = journal_file(gpu.identity, state_dir)
    fields = json.loads(journal.read_text(encoding="utf-8"))
    fields["found"] = None
    for one in (journal, journal.with_name(f"{journal.name}.copy")):
        one.write_text(json.dumps(fields), encoding="utf-8")
    with hold(BoardGpu(tmp_path / "board"), state_dir=state_dir):
        pass
    assert gpu.state() == {**STOCK, **UNLOCKED}


def test_a_damaged_journal_of_a_board_is_restored_by_the_device_string_of_boards(
    tmp_path: Path,
) -> None:
    gpu, state_dir = _board(tmp_path, PINNED), tmp_path / "state"
    state_dir.mkdir(mode=0o700)
    journal_file(gpu.identity, state_dir).write_text("{", encoding="utf-8")
    opened: list[str] = []

    def open_gpu(device: str) -> BoardGpu:
        opened.append(device)
        return gpu

    (done,) = restore_all(state_dir, open_gpu)
    assert (opened, done.outcome) == (["jetson"], Outcome.GIVEN_BACK)
    assert gpu.state() == {**STOCK, **UNLOCKED}


def test_found_settings_survive_a_change_of_one_knob_alone(tmp_path: Path) -> None:
    gpu, state_dir = _board(tmp_path, PINNED), tmp_path / "state"
    with hold(gpu, state_dir=state_dir) as lease:
        for point in (LOCKED, replace(LOCKED, mem_clock_mhz=None), LOW, LOCKED):
            lease.apply(point)
    assert {**gpu.state(), "rate": ""} == {**PINNED, **UNLOCKED, "rate": ""}
