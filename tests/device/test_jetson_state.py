"""How a Jetson is set: what is stock, what somebody pinned, what its power mode allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jetson_kernel import DEBUGFS, KernelFiles

from joulewise.device.jetson_emc import EmcClock
from joulewise.device.jetson_modes import PowerMode
from joulewise.device.jetson_state import GpuSettings, board_state, sm_clock_ceiling_mhz
from joulewise.domain.board_state import BoardState
from joulewise.simulator.jetson_layouts import layout, layout_names


def state(
    board: KernelFiles, least_mhz: int | None, most_mhz: int | None, governor: str = "nvhost_podgov"
) -> BoardState:
    """The state of a board whose GPU is bounded so."""
    settings = GpuSettings(
        board=board.layout.board,
        governor=governor,
        stock_governor=board.layout.stock_governor,
        listed_mhz=board.layout.sm_clocks_mhz,
        least_mhz=least_mhz,
        most_mhz=most_mhz,
    )
    return board_state(board, settings, EmcClock(board, board.timer))


@pytest.mark.parametrize("name", layout_names())
def test_every_board_at_rest_in_every_mode_is_in_its_stock_state(name: str) -> None:
    for mode in layout(name).modes:
        board = KernelFiles(name, power_mode=mode.index)
        ceiling_mhz = board.layout.ceiling_hz(mode) // 1_000_000

        told = state(board, board.layout.sm_clocks_mhz[0], ceiling_mhz)

        assert told.off_stock is None
        assert not told.is_jetson_clocks_on
        assert told.sm_clock_ceiling_mhz == ceiling_mhz
        assert (told.power_mode, told.power_mode_index) == (mode.name, mode.index)


def test_jetson_clocks_pins_the_ceiling_of_the_mode_and_not_of_the_board() -> None:
    board = KernelFiles("agx-orin-jp6", power_mode=2)

    assert state(board, 612, 612).is_jetson_clocks_on
    assert state(board, 1300, 1300).is_jetson_clocks_on is False


def test_a_pinned_low_clock_is_not_jetson_clocks() -> None:
    # jtop takes every min == max for it.
    told = state(KernelFiles("agx-orin-jp6"), 816, 816)

    assert not told.is_jetson_clocks_on
    assert "pinned at 816 MHz" in (told.off_stock or "")


def test_symptom_jetson_clocks_inactive_while_clocks_are_maxed_and_cores_offline() -> None:
    # jetson_stats 187, TX2 NX: a core that is off has no clock to be at its highest.
    board = KernelFiles("tx2-jp4")
    for path in [path for path in board.files if path.endswith("/online")]:
        board.files[path] = "0"

    assert state(board, 1300, 1300).is_jetson_clocks_on


def test_bounds_that_cannot_be_read_do_not_tell_whether_jetson_clocks_is_on() -> None:
    told = state(KernelFiles("agx-orin-jp6"), None, None)

    assert told.is_jetson_clocks_on is None


def test_symptom_pinned_by_the_script_that_was_to_restore_it() -> None:
    # slmdvfs: restore_gpu_freq sets both bounds to the top "so the system isn't left capped".
    told = state(KernelFiles("agx-orin-jp6"), 1300, 1300)

    assert "pinned at 1300 MHz" in (told.off_stock or "")


def test_a_lock_of_the_memory_clock_is_off_stock() -> None:
    board = KernelFiles("agx-orin-jp6")
    emc = f"{DEBUGFS}/bpmp/debug/clk/emc"
    board.files |= {f"{emc}/rate": "2133000000", f"{emc}/mrq_rate_locked": "1"}

    told = state(board, 306, 1300)

    assert (True, 2133) == (told.is_mem_lock_known, told.mem_clock_locked_mhz)
    assert "memory clock" in (told.off_stock or "")


def test_without_debugfs_it_is_not_known_whether_the_memory_is_locked() -> None:
    told = state(KernelFiles("agx-orin-jp6", is_root=False), 306, 1300)

    assert not told.is_mem_lock_known
    assert told.mem_clock_locked_mhz is None


@pytest.mark.parametrize("name", layout_names())
def test_a_board_that_tells_all_leaves_nothing_open(name: str) -> None:
    told = KernelFiles(name).open().board_state()

    assert (told.untold, told.off_stock) == (None, None)


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("min_freq", "the bounds of its GPU clock"),
        ("max_freq", "the bounds of its GPU clock"),
        ("governor", "its governor"),
        ("available_governors", "the governor that it starts with"),
        ("mrq_rate_locked", "whether its memory clock is locked"),
    ],
)
def test_symptom_what_does_not_read_passes_for_the_stock_state(file: str, what: str) -> None:
    board = KernelFiles("agx-orin-jp6")
    if file == "mrq_rate_locked":
        del board.files[f"{DEBUGFS}/bpmp/debug/clk/emc/{file}"]
    else:
        board.put(file, "?" if file.endswith("_freq") else "")

    told = board.open().board_state()

    assert told.off_stock is None
    assert told.untold == f"NVIDIA Jetson AGX Orin Developer Kit does not tell {what}"


def test_a_board_without_nvpmodel_has_no_mode_and_its_highest_clock_for_a_ceiling() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.files.pop("/var/lib/nvpmodel/status")

    told = state(board, 306, 1300)

    assert (None, None, None) == (told.power_mode, told.power_mode_index, told.gated_tpc_count)
    assert told.sm_clock_ceiling_mhz == 1300


@given(
    st.lists(st.integers(76, 3000), min_size=1, max_size=15, unique=True).map(sorted),
    st.none() | st.integers(1, 4_000_000_000),
)
def test_the_ceiling_is_the_highest_listed_clock_that_the_cap_allows(
    listed: list[int], cap_hz: int | None
) -> None:
    cap = None if cap_hz is None else str(cap_hz)

    ceiling = sm_clock_ceiling_mhz(tuple(listed), PowerMode(index=0, name="x", gpu_cap=cap))

    allowed = [clock for clock in listed if cap_hz is None or clock <= cap_hz // 1_000_000]
    assert ceiling == (allowed[-1] if allowed else listed[0])
