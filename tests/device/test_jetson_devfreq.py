"""The devfreq node of a Jetson's GPU: its list, its bounds, and setting them safely."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jetson_kernel import KernelFiles

from joulewise.device.jetson_devfreq import ClockRange, Devfreq, label_mhz
from joulewise.domain.errors import DeviceError, DeviceLost, NotSupported

LISTED_HZ = tuple(KernelFiles("agx-orin-jp6").layout.sm_clocks_hz)
FLOOR_HZ, TOP_HZ = LISTED_HZ[0], LISTED_HZ[-1]
clocks_hz = st.sampled_from(LISTED_HZ)


def node_of(board: KernelFiles) -> Devfreq:
    return Devfreq(board, "/sys/class/devfreq/17000000.gpu", board.timer, title="AGX Orin")


def bounds(least: int, most: int) -> ClockRange:
    return ClockRange(least=str(least), most=str(most))


def test_labels_are_cut_off_as_tegrastats_prints_them() -> None:
    labels = {"1300500000": 1300, "114750000": 114, "665600000": 665, "999999999": 999}

    assert {text: label_mhz(text) for text in labels} == labels


def test_the_list_is_as_the_board_has_it_whatever_its_order() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.put("available_frequencies", "1300500000 306000000\n 816000000 junk -1 0 999")

    assert node_of(board).listed() == {306: "306000000", 816: "816000000", 1300: "1300500000"}


def test_of_two_clocks_with_one_label_the_higher_one_is_meant() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.put("available_frequencies", "1300000000 1300500000 306000000")

    assert node_of(board).listed()[1300] == "1300500000"


@pytest.mark.parametrize("text", [None, "", "<unsupported>"])
def test_symptom_no_available_frequencies_in_the_node(text: str | None) -> None:
    # OE4T/meta-tegra 1613: devfreq_dev/available_frequencies was missing.
    board = KernelFiles("agx-orin-jp6")
    if text is None:
        del board.files[f"{board.node}/available_frequencies"]
    else:
        board.put("available_frequencies", text)

    with pytest.raises(NotSupported, match=r"17000000\.gpu/available_frequencies") as caught:
        node_of(board).listed()
    assert caught.value.hint


@pytest.mark.parametrize(
    ("governors", "stock"),
    [
        ("simple_ondemand userspace performance nvhost_podgov", "nvhost_podgov"),
        ("userspace performance simple_ondemand", "simple_ondemand"),
        ("userspace performance", None),
        ("", None),
    ],
)
def test_the_stock_governor_is_never_one_that_somebody_has_to_set(
    governors: str, stock: str | None
) -> None:
    board = KernelFiles("agx-orin-jp6")
    board.put("available_governors", governors)

    assert node_of(board).stock_governor == stock


def test_a_file_that_is_empty_while_somebody_writes_it_is_read_again() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.put("min_freq", "")
    board.timer.tick = lambda now_s: board.put("min_freq", "408000000") if now_s > 0.003 else None

    assert node_of(board).clock_range == bounds(408_000_000, TOP_HZ)


@pytest.mark.parametrize("text", ["", "what?", "-1", "٣٠٦"])
def test_a_bound_that_stays_unreadable_is_no_bound(text: str) -> None:
    board = KernelFiles("agx-orin-jp6")
    board.put("max_freq", text)

    assert node_of(board).clock_range is None


def test_a_node_that_goes_before_a_write_is_a_lost_device() -> None:
    board = KernelFiles("agx-orin-jp6")

    def gone(path: str, text: str) -> None:
        board.remove(board.node)
        board.take(path, text)

    board.writer = gone
    with pytest.raises(DeviceLost, match="is gone"):
        node_of(board).set_range(bounds(816_000_000, 816_000_000))


def test_a_node_that_is_gone_is_a_lost_device() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.remove(board.node)

    with pytest.raises(DeviceLost, match=r"17000000\.gpu is gone"):
        _ = node_of(board).clock_range
    with pytest.raises(DeviceLost):
        node_of(board).set_range(bounds(FLOOR_HZ, TOP_HZ))


@pytest.mark.parametrize("kernel", ["older", "newer"])
def test_bounds_are_set_from_any_state_and_never_cross(kernel: str) -> None:
    ranks = (FLOOR_HZ, 510_000_000, 918_000_000, TOP_HZ)
    for found in product(ranks, ranks):
        for wanted in combinations_with_replacement(ranks, 2):
            board = KernelFiles("agx-orin-jp6")
            # Newer kernels keep whatever is asked for: the least may lie above the most.
            board.is_strict = kernel == "older"
            board.pin_found(*(sorted(found) if board.is_strict else found))

            node_of(board).set_range(bounds(*wanted))

            assert node_of(board).clock_range == bounds(*wanted)
            assert all(least <= most for least, most in board.bounds_hz), (found, wanted)


@settings(max_examples=50)
@given(clocks_hz, clocks_hz, st.sampled_from(["min_freq", "max_freq"]), st.sampled_from([0, 1]))
def test_a_write_that_the_kernel_refuses_leaves_both_bounds_as_they_were(
    first: int, second: int, name: str, before_count: int
) -> None:
    board = KernelFiles("agx-orin-jp6")
    least, most = sorted((first, second))
    board.pin_found(least, most)
    board.refusals[name] = ["device or resource busy"]

    with pytest.raises(DeviceError, match="device or resource busy"):
        node_of(board).set_range(bounds(LISTED_HZ[before_count], LISTED_HZ[before_count]))

    assert node_of(board).clock_range == bounds(least, most)
    assert all(low <= high for low, high in board.bounds_hz)


def test_what_cannot_be_put_back_is_told_beside_the_first_failure() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.refusals["min_freq"] = ["device or resource busy"]
    board.refusals["max_freq"] = []

    def write_once(path: str, text: str) -> None:
        board.take(path, text)
        board.refusals["max_freq"] = ["input/output error"]

    board.writer = write_once

    with pytest.raises(DeviceError, match="device or resource busy") as caught:
        node_of(board).set_range(bounds(816_000_000, 816_000_000))
    assert "input/output error" in caught.value.__notes__[0]


def test_bounds_that_show_a_moment_later_are_waited_for() -> None:
    board = KernelFiles("agx-orin-jp6")
    asked: list[tuple[str, str]] = []
    board.writer = lambda path, text: asked.append((path, text))

    def show(now_s: float) -> None:
        if now_s > 0.02:
            for path, text in asked:
                board.put(path.rpartition("/")[2], text)

    board.timer.tick = show

    node_of(board).set_range(bounds(816_000_000, 816_000_000))

    assert 0.02 < board.timer.now_s() < 0.05


def test_bounds_that_read_otherwise_are_refused_with_what_was_asked_and_what_reads() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.writer = lambda _path, _text: None

    with pytest.raises(DeviceError, match="816 to 816 MHz, and 306 to 1300 MHz read back"):
        node_of(board).set_range(bounds(816_000_000, 816_000_000))
    assert board.timer.now_s() == pytest.approx(0.1, abs=0.01)


def test_bounds_that_somebody_wrote_over_at_the_same_moment_are_set_once_more() -> None:
    board = KernelFiles("agx-orin-jp6")
    others = ["1122000000"]

    def write(path: str, text: str) -> None:
        board.take(path, text)
        if path.endswith("min_freq") and others:
            board.put("max_freq", others.pop())

    board.writer = write

    node_of(board).set_range(bounds(816_000_000, 816_000_000))

    assert node_of(board).clock_range == bounds(816_000_000, 816_000_000)


@pytest.mark.parametrize(("state", "is_taken"), [("1", True), ("0", False)])
def test_bounds_that_read_lower_while_the_kernel_cools_are_set(
    state: str, *, is_taken: bool
) -> None:
    board = KernelFiles("agx-orin-jp6")
    board.files["/sys/class/thermal/cooling_device0/type"] = "devfreq-17000000.gpu"
    board.files["/sys/class/thermal/cooling_device0/cur_state"] = state
    most = 816_000_000
    board.writer = lambda path, text: board.take(path, str(min(most, int(text))))
    asked = bounds(1_020_000_000, 1_020_000_000)

    if is_taken:
        node_of(board).set_range(asked)
    else:
        with pytest.raises(DeviceError, match="816 to 816 MHz read back"):
            node_of(board).set_range(asked)


def test_a_kernel_that_keeps_whole_kilohertz_holds_what_was_asked() -> None:
    board = KernelFiles("nano-jp4")
    board.put("available_frequencies", "76800500 921600000")
    asked = bounds(76_800_500, 76_800_500)
    board.writer = lambda path, text: board.take(path, f"{text[:-3]}000")

    Devfreq(board, board.node, board.timer, title="Nano").set_range(asked)

    assert board.at_node("max_freq") == "76800000"
