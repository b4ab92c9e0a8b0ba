"""Leases on every fake board: whatever a dead holder left, the next one finds all as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulewise.control.guard_port import NoGuard
from joulewise.control.journal import is_left, read_journal
from joulewise.control.lease import GpuLease, hold, take_lease
from joulewise.control.state import journal_file
from joulewise.device.jetson_gpu import JetsonGpu, open_jetson
from joulewise.domain.points import FoundSetting, KnobState, OperatingPoint
from joulewise.domain.ports import AskedKeeper, ReadBackGpu
from joulewise.simulator.jetson_layouts import layout, layout_names, write_layout
from joulewise.workflow.doctor import examine

CORE = ("agx-orin-jp6", "nano-jp4", "thor-jp7")
BOARDS = [
    pytest.param(name, marks=() if name in CORE else pytest.mark.integration)
    for name in layout_names()
]


def _open(folder: Path, name: str) -> JetsonGpu:
    write_layout(layout(name), folder / "board")
    return open_jetson(f"jetson,root={folder / 'board'},memory_lock=on")


def _pin(gpu: JetsonGpu, hz: int) -> None:
    """As a script does that knows nothing of leases: the upper bound first."""
    at = {Path(one.path).name: Path(one.path) for one in _of_gpu(gpu.knob_state())}
    for name in ("max_freq", "min_freq"):
        at[name].write_text(f"{hz}\n", encoding="ascii")


def _of_gpu(state: KnobState) -> list[FoundSetting]:
    return [one for one in state.settings if one.knob == "sm_clock_mhz"]


def _dead(lease: GpuLease, gpu: JetsonGpu, state_dir: Path) -> None:
    """Its holder is gone, with all that it had set, and so is its guard."""
    journal = journal_file(gpu.identity, state_dir)
    kept = journal.read_bytes()
    left = {one.path: one.text for one in gpu.knob_state().settings}
    lease.release()
    for path, text in left.items():
        Path(path).write_text(f"{text}\n", encoding="ascii")
    journal.write_bytes(kept)


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("found", ["as it starts", "pinned"])
def test_the_next_lease_leaves_all_as_it_was_before_the_dead_one(
    name: str, found: str, tmp_path: Path
) -> None:
    gpu, state_dir = _open(tmp_path, name), tmp_path / "state"
    listed = layout(name).sm_clocks_hz
    if found == "pinned":
        _pin(gpu, listed[len(listed) // 2])
    before = gpu.knob_state()
    grid = gpu.clock_grid()
    lease = take_lease(gpu, state_dir=state_dir, guard=NoGuard())
    lease.apply(OperatingPoint(sm_clock_mhz=grid.sm_clocks_mhz[-1]))
    lease.apply(
        OperatingPoint(sm_clock_mhz=grid.sm_clocks_mhz[0], mem_clock_mhz=grid.mem_clocks_mhz[0])
    )
    entry = read_journal(journal_file(gpu.identity, state_dir))
    assert entry is not None
    assert entry.found == before
    _dead(lease, gpu, state_dir)
    with hold(open_jetson(gpu.identity.spec), state_dir=state_dir):
        pass
    assert not is_left(journal_file(gpu.identity, state_dir))
    after = gpu.knob_state()
    # The rate of a memory clock that nobody locked is the board's own matter.
    assert [one for one in after.settings if "rate" not in Path(one.path).name] == [
        one for one in before.settings if "rate" not in Path(one.path).name
    ]


@pytest.mark.parametrize("name", BOARDS)
def test_the_doctor_reads_every_board(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path / "state"))
    diagnosis = examine(_open(tmp_path, name).identity.spec)
    assert (diagnosis.can_read, diagnosis.can_set) == (True, True)
    assert diagnosis.verdict.startswith("1 simulated Jetson board; it can be read; clocks may be")


def test_a_board_can_be_read_back_and_keeps_what_it_was_asked(tmp_path: Path) -> None:
    gpu = _open(tmp_path, "agx-orin-jp6")
    assert isinstance(gpu, ReadBackGpu)
    assert isinstance(gpu, AskedKeeper)
