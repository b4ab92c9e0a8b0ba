"""Clocks of a Jetson: asked for, held, given back as found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jetson_kernel import KernelFiles

from joulewise.domain.errors import DeviceError, DeviceLost, NotPermitted, NotSupported
from joulewise.domain.points import AUTO, OperatingPoint, Touched
from joulewise.simulator.jetson_layouts import layout_names

ORIN = KernelFiles("agx-orin-jp6").layout
SM = frozenset({"sm_clock_mhz"})


def at(clock_mhz: int | None) -> OperatingPoint:
    return OperatingPoint(sm_clock_mhz=clock_mhz)


def bounds(board: KernelFiles) -> tuple[int, int]:
    return int(board.at_node("min_freq")), int(board.at_node("max_freq"))


@pytest.mark.parametrize("name", layout_names())
def test_every_listed_clock_of_every_board_is_pinned_by_its_exact_frequency(name: str) -> None:
    board = KernelFiles(name)
    gpu = board.open()
    found = gpu.knob_state()

    for clock_mhz, clock_hz in zip(
        gpu.clock_grid().sm_clocks_mhz, board.layout.sm_clocks_hz, strict=True
    ):
        gpu.request(at(clock_mhz))
        assert bounds(board) == (clock_hz, clock_hz)
        assert gpu.clocks_mhz()[0] == clock_mhz
    gpu.reset()

    assert gpu.knob_state() == found
    assert {text for name, text in board.written if name == "governor"} == set()


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from(ORIN.sm_clocks_hz), min_size=2, max_size=2),
    st.lists(st.sampled_from([None, *ORIN.sm_clocks_mhz]), max_size=6),
    st.sampled_from(ORIN.governors),
)
def test_whatever_was_found_and_asked_for_goes_back_as_found_and_never_crosses(
    found_hz: list[int], asked_mhz: list[int | None], governor: str
) -> None:
    board = KernelFiles("agx-orin-jp6")
    board.pin_found(*sorted(found_hz))
    board.put("governor", governor)
    gpu = board.open()
    found = gpu.knob_state()

    for clock_mhz in asked_mhz:
        gpu.request(at(clock_mhz))
        asked_hz = sorted(found_hz) if clock_mhz is None else [_hz(clock_mhz)] * 2
        assert list(bounds(board)) == asked_hz
    gpu.reset()

    assert gpu.knob_state() == found
    assert all(least <= most for least, most in board.bounds_hz)


def test_asking_for_auto_gives_back_what_was_found_and_not_the_whole_range() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.pin_found(816_000_000, 816_000_000)
    gpu = board.open()

    gpu.request(at(510))
    gpu.request(AUTO)

    assert bounds(board) == (816_000_000, 816_000_000)


def test_nothing_is_written_where_nothing_was_asked_for() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()

    gpu.request(AUTO)
    gpu.reset()
    gpu.sample()

    assert board.written == []


def test_symptom_asked_for_950_mhz_and_got_998_the_nearest_that_is_listed() -> None:
    # Qengineering/Jover 3: the kernel rounds what it does not list.
    board = KernelFiles("nano-jp4")
    gpu = board.open()

    with pytest.raises(NotSupported, match="no GPU clock of 950 MHz") as caught:
        gpu.request(at(950))

    assert caught.value.hint == "Nearest: 768, 844, 921."
    assert board.written == []


def test_symptom_mode_without_its_clock_because_its_mask_could_not_be_written() -> None:
    # OE4T/meta-tegra 1864: nvpmodel fails at tpc_pg_mask with errno 16, and nothing of the mode
    # is applied. The adapter writes no mask, and asks for its clocks by themselves.
    board = KernelFiles("agx-orin-jp6")
    board.refusals["tpc_pg_mask"] = ["device or resource busy"] * 9
    gpu = board.open()

    gpu.request(at(612))

    assert bounds(board) == (612_000_000, 612_000_000)
    assert {name for name, _ in board.written} == {"min_freq", "max_freq"}
    # It was not even tried.
    assert len(board.refusals["tpc_pg_mask"]) == 9


@pytest.mark.parametrize("words", ["device or resource busy", "invalid argument", "no such device"])
def test_symptom_errno_at_a_write_is_told_in_the_kernels_words_and_nothing_stays_set(
    words: str,
) -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()
    gpu.request(at(1020))
    found = bounds(board)
    board.refusals["max_freq"] = [words]

    with pytest.raises(DeviceError, match=words):
        gpu.request(at(408))

    assert bounds(board) == found
    gpu.reset()
    assert bounds(board) == (306_000_000, 1_300_500_000)


def test_a_power_modes_cap_is_never_exceeded() -> None:
    board = KernelFiles("orin-nano-super-jp6", power_mode=0)
    gpu = board.open()

    assert gpu.clock_grid().sm_clocks_mhz == (306, 408, 510, 612)
    with pytest.raises(NotSupported, match="allows no GPU clock above 612 MHz") as caught:
        gpu.request(at(1020))
    assert "nvpmodel" in (caught.value.hint or "")
    assert board.written == []


def test_a_power_limit_is_refused_for_there_is_none() -> None:
    board = KernelFiles("agx-orin-jp6")

    with pytest.raises(NotSupported, match="no power limit"):
        board.open().request(OperatingPoint(sm_clock_mhz=612, power_limit_w=30.0))
    assert board.written == []
    assert board.open().clock_grid().power_limits is None


def test_bounds_that_somebody_else_set_meanwhile_are_left_alone() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()
    gpu.request(at(1020))
    board.pin_found(306_000_000, 816_000_000)

    gpu.reset()

    assert bounds(board) == (306_000_000, 816_000_000)
    gpu.request(at(510))
    gpu.request(AUTO)
    assert bounds(board) == (306_000_000, 816_000_000)


def test_a_bound_that_is_still_ours_goes_back_beside_one_that_is_not() -> None:
    # A power mode sets the upper bound; the lower one would pin the GPU from below for good.
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()
    gpu.request(at(612))
    board.put("max_freq", "816000000")

    gpu.reset()

    assert bounds(board) == (306_000_000, 816_000_000)


def test_a_bound_that_somebody_else_set_between_two_requests_is_what_goes_back() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()
    gpu.request(at(510))
    # The operator takes another power mode, whose cap is to hold after us.
    board.put("max_freq", "816000000")
    gpu.request(at(714))

    gpu.reset()

    assert bounds(board) == (306_000_000, 816_000_000)


@pytest.mark.parametrize("kind", ["devfreq-17000000.gpu", "thermal-devfreq-0"])
def test_a_clock_that_the_kernel_cools_by_is_ours_and_goes_back(kind: str) -> None:
    # Such a kernel shows both bounds no higher than it allows at present.
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()
    gpu.request(at(1300))
    board.pin_found(1_122_000_000, 1_122_000_000)
    board.files["/sys/class/thermal/cooling_device3/type"] = kind
    board.files["/sys/class/thermal/cooling_device3/cur_state"] = "2"

    gpu.reset()

    assert bounds(board) == (306_000_000, 1_300_500_000)


def test_what_could_not_be_given_back_is_given_back_at_the_next_try() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()
    gpu.request(at(612))
    board.refusals["min_freq"] = ["input/output error"]
    # Raised to the top first, it cannot be put back: half is as found, half as asked.

    def write_once(path: str, text: str) -> None:
        board.take(path, text)
        board.refusals["max_freq"] = ["input/output error"]

    board.writer = write_once
    with pytest.raises(DeviceError, match="input/output error"):
        gpu.reset()
    board.writer = board.take
    board.refusals.clear()
    board.put("max_freq", "1020000000")

    gpu.reset()

    assert bounds(board) == (306_000_000, 1_300_500_000)


def test_what_is_somebody_elses_by_now_is_forgotten() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()
    gpu.request(at(612))
    gpu.forget_asked()

    gpu.reset()

    assert bounds(board) == (612_000_000, 612_000_000)


def test_symptom_permission_denied_setting_the_gpu_clock() -> None:
    # NVIDIA/DIGITS 1787 (TX1).
    board = KernelFiles("nano-jp4", is_root=False)
    gpu = board.open(",memory_lock=on")
    before = dict(board.files)

    with pytest.raises(NotPermitted) as caught:
        gpu.request(at(460))
    gpu.reset()
    with pytest.raises(NotPermitted):
        gpu.reset(Touched(knobs=SM))

    assert "root" in (caught.value.hint or "")
    assert board.files == before
    assert gpu.sample().power_w is not None
    assert gpu.sample().mem_clock_mhz is None


def test_symptom_empty_path_where_a_boards_node_is_not_there() -> None:
    # Pyrestone/jetson-fan-ctl 17: a script wrote to the empty path of a node that it had not found.
    board = KernelFiles("agx-orin-jp6")
    board.remove(board.node)

    with pytest.raises(NotSupported, match="no devfreq node"):
        board.open().request(at(612))
    assert board.written == []


def test_a_gpu_that_is_gone_says_so_whatever_it_is_asked() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()
    gpu.request(at(612))
    board.remove(board.node)

    for ask in (
        gpu.sample,
        gpu.clocks_mhz,
        gpu.knob_state,
        gpu.board_state,
        gpu.clock_grid,
        gpu.reset,
        lambda: gpu.request(at(510)),
        lambda: gpu.request(AUTO),
        lambda: gpu.reset(Touched(knobs=SM)),
        lambda: gpu.wait_for_energy_tick(1.0),
    ):
        with pytest.raises(DeviceLost):
            ask()


def test_a_gpu_that_comes_back_is_found_again_and_given_back() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()
    gpu.request(at(612))
    node = board.remove(board.node)
    with pytest.raises(DeviceLost):
        gpu.sample()

    board.files.update(node)
    gpu.reset()

    assert bounds(board) == (306_000_000, 1_300_500_000)


def _hz(clock_mhz: int) -> int:
    clocks: Sequence[int] = ORIN.sm_clocks_hz
    return next(one for one in clocks if one // 1_000_000 == clock_mhz)
