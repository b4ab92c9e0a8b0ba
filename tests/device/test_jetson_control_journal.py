"""Clocks of a Jetson that a holder who is gone left set: put back by what its journal says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.jetson_kernel import KernelFiles

from joulewise.domain.errors import DeviceError
from joulewise.domain.points import FoundSetting, KnobState, OperatingPoint, Touched

SM = frozenset({"sm_clock_mhz"})


def bounds(board: KernelFiles) -> tuple[int, int]:
    return int(board.at_node("min_freq")), int(board.at_node("max_freq"))


def test_a_dead_holders_board_goes_back_to_what_it_found() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.pin_found(408_000_000, 918_000_000)
    board.put("governor", "performance")
    found = board.open().knob_state()
    board.open().request(OperatingPoint(sm_clock_mhz=1300))
    board.put("governor", "userspace")

    board.open().reset(Touched(knobs=SM, found=found))

    assert board.open().knob_state() == found
    assert all(least <= most for least, most in board.bounds_hz)


def test_a_dead_holder_of_whom_nothing_is_known_leaves_the_stock_state() -> None:
    board = KernelFiles("orin-nano-super-jp6", power_mode=0)
    board.pin_found(612_000_000, 612_000_000)
    board.put("governor", "userspace")

    board.open().reset(Touched(knobs=SM))

    # The mode's ceiling, and not the top of the list.
    assert bounds(board) == (306_000_000, 612_000_000)
    assert board.at_node("governor") == "nvhost_podgov"
    assert board.open().board_state().off_stock is None


@pytest.mark.parametrize(
    "foreign",
    [
        "/etc/passwd",
        "/board/sys/class/devfreq/15340000.vic/max_freq",
        "/board/sys/class/devfreq/17000000.gpu/../15340000.vic/max_freq",
        "/board/sys/class/devfreq/17000000.gpu/max_freq/max",
        "/board/sys/class/devfreq/17000000.gpu/power/control",
    ],
)
def test_a_journal_that_names_other_files_writes_none_of_them(foreign: str) -> None:
    board = KernelFiles("agx-orin-jp6")
    board.is_following = False
    before = dict(board.files)
    named = FoundSetting(knob="sm_clock_mhz", path=foreign, text="408000000")

    with pytest.raises(DeviceError, match="is no file of"):
        board.open().reset(Touched(knobs=SM, found=KnobState(settings=(named,))))

    assert board.files == before


@pytest.mark.parametrize("root", ["", "/host", "/x/link"])
def test_a_board_goes_back_by_a_journal_that_saw_it_under_another_root(root: str) -> None:
    board = KernelFiles("agx-orin-jp6")
    board.pin_found(408_000_000, 918_000_000)
    found = board.open().knob_state()
    board.open().request(OperatingPoint(sm_clock_mhz=1300))
    seen = tuple(
        replace(one, path=f"{root}{one.path.removeprefix('/board')}") for one in found.settings
    )

    board.open().reset(Touched(knobs=SM, found=KnobState(settings=seen)))

    assert board.open().knob_state() == found


@pytest.mark.parametrize("text", ["rm -rf", "-1", "", "9" * 40])
def test_a_journal_whose_texts_are_no_clocks_leads_to_the_stock_state(text: str) -> None:
    board = KernelFiles("agx-orin-jp6")
    board.pin_found(816_000_000, 816_000_000)
    settings = [replace(one, text=text) for one in board.open().knob_state().settings]

    board.open().reset(Touched(knobs=SM, found=KnobState(settings=tuple(settings))))

    assert bounds(board) == (306_000_000, 1_300_500_000)
    assert board.at_node("governor") == "nvhost_podgov"


def test_settings_are_put_back_by_any_name_of_the_node() -> None:
    board = KernelFiles("agx-orin-jp6")
    folder = f"/board{board.node}"
    found = (("min_freq", "408000000"), ("max_freq", "714000000"))
    settings = tuple(
        FoundSetting(knob="sm_clock_mhz", path=f"{folder}/{name}", text=text)
        for name, text in found
    )

    board.open().reset(Touched(knobs=SM, found=KnobState(settings=settings)))

    assert bounds(board) == (408_000_000, 714_000_000)


def test_a_governor_that_cannot_be_put_back_keeps_no_bound_from_going_back() -> None:
    board = KernelFiles("agx-orin-jp6")
    found = board.open().knob_state()
    board.pin_found(816_000_000, 816_000_000)
    board.put("governor", "performance")
    board.refusals["governor"] = ["device or resource busy"]

    with pytest.raises(DeviceError, match="device or resource busy"):
        board.open().reset(Touched(knobs=SM, found=found))

    assert bounds(board) == (306_000_000, 1_300_500_000)
