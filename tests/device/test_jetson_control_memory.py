"""The memory clock of a Jetson beside its GPU clock: both are set, or neither."""

from __future__ import annotations

import pytest
from tests.jetson_kernel import KernelFiles

from joulewise.domain.errors import DeviceError, NotPermitted, NotSupported
from joulewise.domain.points import AUTO, OperatingPoint, Touched

EMC = "/sys/kernel/debug/bpmp/debug/clk/emc"
LOCK, RATE = f"{EMC}/mrq_rate_locked", f"{EMC}/rate"
POINT = OperatingPoint(sm_clock_mhz=612, mem_clock_mhz=2133)
MEMORY = frozenset({"mem_clock_mhz"})


def bounds(board: KernelFiles) -> tuple[int, int]:
    return int(board.at_node("min_freq")), int(board.at_node("max_freq"))


def test_a_memory_clock_is_locked_only_where_the_device_string_says_so() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()

    assert gpu.clock_grid().mem_clocks_mhz == ()
    assert gpu.clock_grid().read_mem_clocks_mhz == (204, 665, 2133, 3199)
    with pytest.raises(NotSupported, match="locks of the memory clock are off") as caught:
        gpu.request(POINT)
    assert "jetson,memory_lock=on" in (caught.value.hint or "")
    assert board.written == []


def test_both_clocks_are_set_seen_and_given_back_as_found() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.files[RATE] = "3199000000"
    gpu = board.open(",memory_lock=on")
    found = gpu.knob_state()

    gpu.request(POINT)
    assert gpu.clocks_mhz() == (612, 2133)
    assert gpu.sample().mem_clock_mhz == 2133
    assert gpu.board_state().mem_clock_locked_mhz == 2133
    assert (board.files[LOCK], board.files[RATE]) == ("1", "2133000000")
    gpu.request(OperatingPoint(sm_clock_mhz=612))
    assert board.files[LOCK] == found.settings[-1].text == "0"
    gpu.reset()

    assert gpu.board_state().mem_clock_locked_mhz is None
    assert gpu.knob_state().settings[:3] == found.settings[:3]


def test_a_memory_clock_that_was_found_locked_is_locked_again() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.files[LOCK], board.files[RATE] = "1", "665600000"
    gpu = board.open(",memory_lock=on")

    gpu.request(POINT)
    gpu.request(OperatingPoint(mem_clock_mhz=3199))
    gpu.reset()

    assert (board.files[LOCK], board.files[RATE]) == ("1", "665600000")
    assert bounds(board) == (306_000_000, 1_300_500_000)


def test_a_gpu_clock_goes_back_where_the_memory_clock_beside_it_is_refused() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open(",memory_lock=on")
    gpu.request(OperatingPoint(sm_clock_mhz=1020))
    board.refusals["rate"] = ["invalid argument"]

    with pytest.raises(DeviceError, match="invalid argument"):
        gpu.request(POINT)

    assert bounds(board) == (1_020_000_000, 1_020_000_000)
    assert board.files[LOCK] == "0"
    gpu.reset()
    assert bounds(board) == (306_000_000, 1_300_500_000)


def test_a_memory_lock_that_cannot_be_undone_is_kept_in_mind() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open(",memory_lock=on")
    board.refusals["rate"] = ["invalid argument", "invalid argument"]

    def write_once(path: str, text: str) -> None:
        board.take(path, text)
        board.refusals["mrq_rate_locked"] = ["input/output error"] * 2

    board.writer = write_once
    with pytest.raises(DeviceError, match="invalid argument"):
        gpu.request(OperatingPoint(mem_clock_mhz=2133))
    assert board.files[LOCK] == "1"
    board.writer = board.take
    board.refusals.clear()

    gpu.reset()

    assert board.files[LOCK] == "0"


def test_a_memory_clock_that_somebody_else_locked_meanwhile_stays() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open(",memory_lock=on")
    gpu.request(POINT)
    board.files[RATE] = "3199000000"

    gpu.request(AUTO)

    assert (board.files[LOCK], board.files[RATE]) == ("1", "3199000000")
    assert bounds(board) == (306_000_000, 1_300_500_000)


def test_a_dead_holders_memory_lock_is_put_back_and_without_its_word_taken_off() -> None:
    board = KernelFiles("agx-orin-jp6")
    found = board.open().knob_state()
    board.open(",memory_lock=on").request(POINT)

    board.open().reset(Touched(knobs=MEMORY, found=found))
    assert board.files[LOCK] == "0"
    assert bounds(board) == (612_000_000, 612_000_000)

    board.files[LOCK] = "1"
    board.open().reset(Touched(knobs=MEMORY))
    assert board.files[LOCK] == "0"


def test_a_lock_that_this_account_does_not_see_is_not_said_to_be_given_back() -> None:
    board = KernelFiles("agx-orin-jp6")
    found = board.open().knob_state()
    gone = board.remove(EMC)

    with pytest.raises(NotPermitted, match="does not see") as caught:
        board.open().reset(Touched(knobs=MEMORY, found=found))
    assert "root" in (caught.value.hint or "")
    board.files.update(gone)
    board.open().reset(Touched(knobs=MEMORY, found=found))


def test_without_root_no_memory_clock_is_taken_and_it_says_why() -> None:
    board = KernelFiles("agx-orin-jp6", is_root=False)
    gpu = board.open(",memory_lock=on")

    assert gpu.clock_grid().mem_clocks_mhz == ()
    with pytest.raises(NotSupported, match="tells no clock") as caught:
        gpu.request(OperatingPoint(mem_clock_mhz=2133))
    assert "root" in (caught.value.hint or "")
    assert not gpu.board_state().is_mem_lock_known


def test_a_memory_clock_that_is_not_listed_is_refused_with_its_neighbours() -> None:
    board = KernelFiles("agx-orin-jp6")

    with pytest.raises(NotSupported, match="no memory clock of 1600 MHz") as caught:
        board.open(",memory_lock=on").request(OperatingPoint(mem_clock_mhz=1600))
    assert caught.value.hint == "Nearest: 204, 665, 2133."


def test_every_failure_of_giving_back_is_told() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open(",memory_lock=on")
    gpu.request(POINT)
    board.refusals["mrq_rate_locked"] = ["first refused"]
    board.refusals["max_freq"] = ["second refused"]

    with pytest.raises(DeviceError, match="first refused") as caught:
        gpu.reset()
    assert "second refused" in "".join(caught.value.__notes__)
    gpu.reset()

    assert board.files[LOCK] == "0"
    assert bounds(board) == (306_000_000, 1_300_500_000)


@pytest.mark.parametrize(("name", "clock_mhz"), [("nano-jp4", 1600), ("thor-jp7", 2750)])
def test_boards_with_another_way_to_the_memory_clock_give_it_back_as_well(
    name: str, clock_mhz: int
) -> None:
    board = KernelFiles(name)
    follow_memory(board)
    gpu = board.open(",memory_lock=on")
    found = gpu.knob_state()

    gpu.request(OperatingPoint(mem_clock_mhz=clock_mhz))
    assert gpu.clocks_mhz()[1] == clock_mhz
    assert gpu.board_state().mem_clock_locked_mhz == clock_mhz
    gpu.reset()

    assert gpu.board_state().mem_clock_locked_mhz is None
    assert gpu.knob_state().settings[:3] == found.settings[:3]


def follow_memory(board: KernelFiles) -> None:
    """The memory runs at what is asked for, as soon as time passes."""
    asked = {
        "/sys/kernel/debug/clk/override.emc/clk_update_rate": (
            "/sys/kernel/debug/clk/override.emc/clk_rate"
        ),
        f"{board.layout.emc.folder}/max_freq": f"{board.layout.emc.folder}/cur_freq",
    }

    def tick(_now_s: float) -> None:
        for path, shown in asked.items():
            if path in board.files:
                board.files[shown] = board.files[path]

    board.timer.tick = tick
