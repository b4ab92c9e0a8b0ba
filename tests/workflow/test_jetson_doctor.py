"""The doctor says what a board does not tell, and never that it is as it should be."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.jetson_kernel import KernelFiles

from joulewise.workflow import jetson_diagnosis
from joulewise.workflow.findings import Availability, Finding


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path))


def _found(board: KernelFiles, monkeypatch: pytest.MonkeyPatch) -> dict[str, Finding]:
    monkeypatch.setattr(jetson_diagnosis, "open_board", lambda _device: board.open())
    diagnosis = jetson_diagnosis.diagnose_board(jetson_diagnosis.see_board("jetson"), None)
    return {one.subject: one for one in diagnosis.gpus[0].findings}


@pytest.mark.parametrize(
    ("file", "seen"),
    [
        ("min_freq", "unknown bounds, governor nvhost_podgov"),
        ("governor", "306 to 1300 MHz, governor unknown"),
        ("available_governors", "306 to 1300 MHz, governor nvhost_podgov"),
    ],
)
def test_clocks_that_cannot_be_read_are_not_as_the_board_starts(
    file: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = KernelFiles("agx-orin-jp6")
    board.put(file, "?" if file == "min_freq" else "")

    state = _found(board, monkeypatch)["state of the clocks"]

    assert (state.status, state.seen) == (Availability.UNKNOWN, seen)
    assert "does not tell" in (state.why or "")


def test_rails_of_which_one_is_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    board = KernelFiles("agx-orin-jp6")
    label = next(path for path, text in board.files.items() if text == "VIN_SYS_5V0")
    del board.files[label]

    power = _found(board, monkeypatch)["power of the module"]

    assert power.status is Availability.ABSENT
    assert "VIN_SYS_5V0 cannot be read" in (power.why or "")


@pytest.mark.parametrize(("mode", "is_told"), [(0, True), (1, False), (2, False)])
def test_the_cap_of_the_memory_is_part_of_the_power_mode(
    mode: int,
    is_told: bool,  # noqa: FBT001 - a case of the table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = _found(KernelFiles("orin-nano-super-jp6", power_mode=mode), monkeypatch)

    assert ("memory clock at 2133 MHz of 3199 MHz" in found["power mode"].seen) == is_told
