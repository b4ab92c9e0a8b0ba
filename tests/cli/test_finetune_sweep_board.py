"""`finetune sweep` through the files of a board, and baselines that are what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulewise.domain.caveats import CaveatKind
from joulewise.simulator.jetson_layouts import layout, write_layout
from joulewise.store.clock_curves import read_curves
from tests.cli.conftest import Joulewise, Said

NODE = Path("sys/class/devfreq/17000000.gpu")
SETTINGS = ("governor", "min_freq", "max_freq")


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """The files of an AGX Orin, in virtual time."""
    root = tmp_path / "board"
    root.mkdir()
    write_layout(layout("agx-orin-jp6"), root)
    return root


def found(board: Path) -> list[str]:
    return [(board / NODE / name).read_text(encoding="utf-8").strip() for name in SETTINGS]


def swept(joulewise: Joulewise, board: Path, clocks: str) -> Said:
    return joulewise(
        *("finetune", "sweep", "--device", f"jetson,root={board}", "--jobs", "bert-base/sst2"),
        *("--sm-clocks", clocks, "--window", "1", "--out", "curves.json", "--json"),
    )


def kinds(said: Said) -> set[str]:
    caveats = said.document["caveats"]
    assert isinstance(caveats, list)
    return {caveat["kind"] for caveat in caveats}


@pytest.mark.integration
def test_a_sweep_through_the_files_of_a_board_pins_its_clocks_and_gives_them_back(
    joulewise: Joulewise, board: Path, tmp_path: Path
) -> None:
    before = found(board)
    said = swept(joulewise, board, "306,816,1300")

    assert (0, "") == (said.code, said.err), said.out
    curve = read_curves(tmp_path / "curves.json")[0]
    assert (306, 816, 1300) == curve.sm_clocks_mhz
    # Whatever the physics: the lowest clock takes the longest, by far.
    assert curve.costs[0].time_s > 2.0 * curve.costs[2].time_s
    assert {3199} == {cost.mem_clock_mhz for cost in (curve.baseline, *curve.costs)}
    assert before == found(board)
    assert CaveatKind.BASELINE_PINNED not in kinds(said)


def test_a_board_that_an_earlier_script_pinned_is_no_baseline_and_is_left_pinned(
    joulewise: Joulewise, board: Path
) -> None:
    # What the published sweep scripts did: all pinned at 816 MHz, then the governor alone reset.
    for name in ("min_freq", "max_freq"):
        (board / NODE / name).write_text("816000000\n", encoding="utf-8")
    before = found(board)
    said = swept(joulewise, board, "816")

    assert 0 == said.code, said.out
    assert CaveatKind.BASELINE_PINNED in kinds(said)
    assert before == found(board)
    jobs = said.document["jobs"]
    assert isinstance(jobs, list)
    # The baseline is 816 MHz in truth, so that pinning 816 MHz saves nothing.
    pinned = jobs[0]["costs"][0]
    assert jobs[0]["baseline"]["energy_j"] == pytest.approx(pinned["energy_j"], rel=0.05)
