"""The memory clock of a Jetson: what it runs at, who locked it, and locking it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jetson_kernel import DEBUGFS, KernelFiles

from joulewise.device.jetson_emc import EmcClock
from joulewise.domain.errors import DeviceError, NotPermitted, NotSupported
from joulewise.domain.points import FoundSetting
from joulewise.simulator.jetson_layouts import layout, layout_names

BPMP = f"{DEBUGFS}/bpmp/debug/clk/emc"
OVERRIDE = f"{DEBUGFS}/clk/override.emc"
ORIN = "agx-orin-jp6"
ORIN_MHZ = (204, 665, 2133, 3199)


class Memory(KernelFiles):
    """A board whose memory runs as asked, but where `rounded_hz` says otherwise."""

    def __init__(self, name: str, *, is_root: bool = True) -> None:
        super().__init__(name, is_root=is_root)
        self.rounded_hz: dict[str, str] = {}
        self.is_free = True
        """Whether it moves by itself as long as nobody locks it."""
        self.timer.tick = self._settle
        self.emc = EmcClock(self, self.timer)

    def _settle(self, _now_s: float) -> None:
        rate = self.files.get(f"{BPMP}/rate")
        if rate is not None:
            self.files[f"{BPMP}/rate"] = self.rounded_hz.get(rate, rate)
        if f"{OVERRIDE}/clk_rate" in self.files and self.files[f"{OVERRIDE}/clk_state"] == "1":
            self.files[f"{OVERRIDE}/clk_rate"] = self.files[f"{OVERRIDE}/clk_update_rate"]
        folder = self.layout.emc.folder
        if "min_freq" in str(self.names(folder)):
            self.files[f"{folder}/cur_freq"] = self.files[f"{folder}/max_freq"]

    def memory_texts(self) -> dict[str, str]:
        """What every file says by which the memory clock is set."""
        asked = ("rate", "mrq_rate_locked", "clk_update_rate", "clk_state", "min_freq", "max_freq")
        return {
            path: text
            for path, text in self.files.items()
            if "emc" in path and path.rpartition("/")[2] in asked
        }


@pytest.mark.parametrize("name", layout_names())
def test_every_board_locks_each_listed_rate_and_reads_it_back_exactly(name: str) -> None:
    board = Memory(name)
    listed = board.emc.listed_mhz

    for clock in listed:
        board.emc.lock(clock)

        assert (clock, clock) == (board.emc.locked_mhz(), board.emc.current_mhz())
        assert board.emc.exact_hz(clock) in layout(name).emc.rates_hz
    assert set(listed) <= set(layout(name).mem_clocks_mhz)
    assert len(listed) >= 2


@pytest.mark.parametrize("name", layout_names())
def test_every_board_is_put_back_as_it_was_found(name: str) -> None:
    board = Memory(name)
    found, texts = board.emc.settings(), board.memory_texts()

    board.emc.lock(board.emc.listed_mhz[-1])
    assert board.memory_texts() != texts
    board.emc.put_back(found)

    assert board.emc.locked_mhz() is None
    assert board.memory_texts() == texts
    assert {one.knob for one in found} == {"mem_clock_mhz"}


@pytest.mark.parametrize("name", layout_names())
def test_every_board_is_unlocked_whoever_locked_it(name: str) -> None:
    board = Memory(name)
    board.emc.lock(board.emc.listed_mhz[0])

    board.emc.unlock()

    assert board.emc.is_lock_known
    assert board.emc.locked_mhz() is None


def test_an_orin_lists_the_four_rates_that_it_stays_at() -> None:
    # jetson-latency-lab: 408 became 665.6, 1062 to 1866 became 2133, 2400 and more 3199.
    emc = Memory(ORIN).emc

    assert emc.listed_mhz == ORIN_MHZ
    assert emc.exact_hz(665) == 665_600_000


@pytest.mark.parametrize(
    ("bound", "rate", "listed"),
    [("max_rate", "2133000000", ORIN_MHZ[:3]), ("min_rate", "665600000", ORIN_MHZ[1:])],
)
def test_rates_beyond_what_this_board_runs_at_are_not_listed(
    bound: str, rate: str, listed: tuple[int, ...]
) -> None:
    board = Memory(ORIN)
    board.files[f"{BPMP}/{bound}"] = rate

    assert board.emc.listed_mhz == listed


@pytest.mark.parametrize(
    ("cap", "count"), [("2133000000", 3), ("-1", 4), ("0", 4), ("2147483647", 4), ("", 4)]
)
def test_rates_above_the_cap_of_the_power_mode_are_not_listed(cap: str, count: int) -> None:
    board = Memory(ORIN)
    board.files["/sys/kernel/nvpmodel_clk_cap/emc"] = cap

    assert board.emc.listed_mhz == ORIN_MHZ[:count]


@pytest.mark.parametrize(
    "rates",
    ["204000000 408000000 1866000000", "(204000, 408000, 1866000)", "408000\n204000 1866000"],
)
def test_a_list_of_the_firmware_counts_before_what_was_measured(rates: str) -> None:
    board = Memory(ORIN)
    board.files[f"{BPMP}/possible_rates"] = rates

    assert board.emc.listed_mhz == (204, 408, 1866)


def test_where_nothing_is_known_of_a_soc_its_two_ends_are_listed() -> None:
    board = Memory("xavier-nx-jp5")

    assert board.emc.listed_mhz == (204, 1866)


def test_a_rate_that_is_rounded_is_refused_and_the_lock_undone() -> None:
    # A log that was named emc1701 really ran at 2133 MHz.
    board = Memory("agx-xavier-jp5")
    board.files[f"{BPMP}/possible_rates"] = "204000000 1701000000 2133000000"
    board.rounded_hz = {"1701000000": "2133000000"}
    texts = board.memory_texts()

    with pytest.raises(DeviceError, match="asked for 1701 MHz, and 2133 MHz reads back"):
        board.emc.lock(1701)

    assert board.memory_texts() == texts


def test_what_reads_before_the_lag_is_over_is_not_believed() -> None:
    # Read-back was seen after 13 ms: what reads before that may be what was asked.
    board = Memory(ORIN)
    board.rounded_hz = {"2133000000": "665600000"}

    with pytest.raises(DeviceError, match=r"665\.6 MHz reads back"):
        board.emc.lock(2133)


def test_an_unlisted_clock_is_refused_before_anything_is_written() -> None:
    board = Memory(ORIN)

    with pytest.raises(NotSupported, match="no clock of 2000 MHz; the nearest is 2133 MHz"):
        board.emc.lock(2000)

    assert not board.written


def test_a_refused_write_leaves_nothing_locked_and_tells_the_kernels_words() -> None:
    board = Memory(ORIN)
    board.refusals["rate"] = ["device or resource busy"]

    with pytest.raises(DeviceError, match="device or resource busy"):
        board.emc.lock(2133)

    assert board.files[f"{BPMP}/mrq_rate_locked"] == "0"


def test_an_account_without_debugfs_knows_no_clock_and_no_lock() -> None:
    emc = Memory(ORIN, is_root=False).emc

    assert emc.current_mhz() is None
    assert emc.locked_mhz() is None
    assert not emc.is_lock_known
    assert emc.settings() == ()


def test_an_account_that_may_not_write_is_told_so_and_locks_nothing() -> None:
    board = Memory(ORIN, is_root=False)
    texts = board.memory_texts()

    with pytest.raises(NotPermitted, match="may not read"):
        board.emc.lock(2133)

    assert board.memory_texts() == texts
    assert board.emc.listed_mhz == ()


def test_debugfs_that_may_be_read_and_not_written_is_no_permission_either() -> None:
    board = Memory(ORIN)

    def deny(path: str, text: str) -> None:
        raise NotPermitted(f"{text} may not be written to {path}")

    board.writer = deny

    with pytest.raises(NotPermitted, match="1 may not be written"):
        board.emc.lock(2133)


def test_a_board_without_any_way_to_set_it_says_so() -> None:
    board = Memory(ORIN)
    board.remove(BPMP)
    emc = board.emc

    emc.unlock()
    emc.put_back([FoundSetting(knob="mem_clock_mhz", path=f"/board{BPMP}/rate", text="204000000")])

    assert not emc.is_present
    assert emc.listed_mhz == ()
    assert not board.written
    with pytest.raises(NotSupported, match="cannot be set"):
        emc.lock(204)


def test_debugfs_that_is_mounted_later_is_found_then() -> None:
    board = Memory(ORIN)
    gone = board.remove(BPMP)
    before = board.emc.is_present

    board.files |= gone

    assert (before, board.emc.is_present) == (False, True)
    assert board.emc.listed_mhz == ORIN_MHZ


def test_a_lock_of_somebody_else_is_seen_and_put_back() -> None:
    board = Memory(ORIN)
    board.files |= {f"{BPMP}/rate": "3199000000", f"{BPMP}/mrq_rate_locked": "1"}
    found = board.emc.settings()
    assert board.emc.locked_mhz() == 3199

    board.emc.lock(665)
    board.emc.put_back(found)

    assert (3199, 3199) == (board.emc.locked_mhz(), board.emc.current_mhz())


def test_the_rate_goes_back_while_it_is_locked_and_the_lock_comes_off_last() -> None:
    board = Memory(ORIN)
    found = board.emc.settings()
    board.emc.lock(3199)
    board.written.clear()

    board.emc.put_back(found)

    assert board.written == [("rate", "204000000"), ("mrq_rate_locked", "0")]


def test_a_rate_that_is_nobodys_is_left_alone() -> None:
    board = Memory(ORIN)
    found = board.emc.settings()
    board.files[f"{BPMP}/rate"] = "2133000000"

    board.emc.put_back(found)

    assert board.files[f"{BPMP}/rate"] == "2133000000"


def test_the_lock_comes_off_even_where_the_rate_is_refused() -> None:
    board = Memory(ORIN)
    found = board.emc.settings()
    board.emc.lock(3199)
    board.refusals["rate"] = ["invalid argument"]

    with pytest.raises(DeviceError, match="invalid argument"):
        board.emc.put_back(found)

    assert board.files[f"{BPMP}/mrq_rate_locked"] == "0"


def test_files_of_others_in_a_journal_are_passed_over() -> None:
    board = Memory(ORIN)
    forged = [
        FoundSetting(knob="mem_clock_mhz", path="/board/etc/passwd", text="0"),
        FoundSetting(knob="mem_clock_mhz", path=f"/board{BPMP}/rate", text="204000000; reboot"),
    ]

    board.emc.put_back(forged)

    assert not board.written


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2), max_size=8), st.booleans())
def test_bounds_of_a_devfreq_memory_never_cross(clocks: list[int], is_found_high: bool) -> None:  # noqa: FBT001
    board = Memory("thor-jp7")
    low, high = f"{board.layout.emc.folder}/min_freq", f"{board.layout.emc.folder}/max_freq"
    if is_found_high:
        board.files[low] = board.files[high]
    seen: list[tuple[int, int]] = []
    write = board.writer

    def watched(path: str, text: str) -> None:
        write(path, text)
        seen.append((int(board.files[low]), int(board.files[high])))

    board.writer = watched
    found = board.emc.settings()
    for clock in clocks:
        board.emc.lock(board.emc.listed_mhz[clock])
    board.emc.put_back(found)

    assert all(least <= most for least, most in seen)
    assert board.emc.settings() == found


def test_a_journal_of_another_boards_memory_clock_is_refused_and_writes_nothing() -> None:
    board = Memory(ORIN)
    named = FoundSetting(knob="mem_clock_mhz", path="/other/clk/emc/rate", text="204000000")

    with pytest.raises(DeviceError, match="is no file of this board"):
        board.emc.put_back([named])

    assert not board.written


@pytest.mark.parametrize("text", ["٢", "9" * 5000])
def test_a_journal_whose_rate_is_no_number_of_the_kernels_writes_none(text: str) -> None:
    board = Memory(ORIN)
    found = [replace(one, text=text) for one in board.emc.settings()]

    board.emc.put_back(found)

    assert not board.written
