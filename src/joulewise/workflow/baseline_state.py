"""Whether a baseline is what it says: how the board is set before anything is measured against it.

A published study pinned its board at 816 MHz before each run, and gave back only the governor
before its baseline (esainulab/slmdvfs; the energies of its QNLI baseline and of its 816 MHz differ
by 0.5 %). What is pinned is told by both bounds of the clock; a governor alone proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from joulewise.domain.board_state import BoardState
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.ports import ReadBackGpu, WatchedGpu

_OF_POWER_MODE = (CaveatKind.TPCS_GATED, CaveatKind.POWER_MODE_CAPS)


def baseline_doubts(gpu: WatchedGpu) -> tuple[Caveat, ...]:
    """What is to be said of a baseline that is measured now, with every knob left as found.

    Ask under the lease and before the first point, or with every knob at auto: a point that is
    held is no baseline. None for a device that cannot be read back.

    Raises DeviceLost.
    """
    if not isinstance(gpu, ReadBackGpu):
        return ()
    doubts = doubts_of_state(gpu.board_state())
    # What the power mode does was seen when the device was opened, by the whole list of clocks.
    of_mode = (one for one in gpu.identity.caveats if one.kind in _OF_POWER_MODE)
    return with_baseline_doubts(doubts, of_mode)


def doubts_of_state(state: BoardState) -> tuple[Caveat, ...]:
    """BaselinePinned where this is not the stock state, TpcsGated where SMs are switched off.

    BaselineAssumed where too little can be read to tell: what is not known is not stock.
    """
    return tuple(_doubts(state))


def with_baseline_doubts(caveats: Iterable[Caveat], doubts: Iterable[Caveat]) -> tuple[Caveat, ...]:
    """Caveats of a result, and those of its baseline that it does not name already."""
    named = tuple(caveats)
    kinds = {one.kind for one in named}
    return (*named, *(one for one in doubts if one.kind not in kinds))


def _doubts(state: BoardState) -> Iterator[Caveat]:
    off_stock = state.off_stock
    if off_stock is not None:
        yield Caveat(
            kind=CaveatKind.BASELINE_PINNED,
            seen=off_stock,
            advice=_way_back(state),
        )
    elif state.untold is not None:
        yield Caveat(
            kind=CaveatKind.BASELINE_ASSUMED,
            seen=f"{state.untold}, so that it is only assumed to be as it starts",
            advice=_way_to_tell(state),
        )
    if state.gated_tpc_count:
        count = state.gated_tpc_count
        groups = "1 group of SMs (TPC)" if count == 1 else f"{count} groups of SMs (TPCs)"
        seen = f"{mode_text(state)} switches {groups} of {state.board} off"
        yield Caveat(kind=CaveatKind.TPCS_GATED, seen=seen)


def mode_text(state: BoardState) -> str:
    """`power mode MODE_30W (2)`."""
    if state.power_mode is None:
        return "its power mode"
    number = "" if state.power_mode_index is None else f" ({state.power_mode_index})"
    return f"power mode {state.power_mode}{number}"


def _way_to_tell(state: BoardState) -> str:
    if state.sm_clock_min_mhz is None or state.governor is None:
        return "Look at the files of the GPU's devfreq node: joulewise doctor names them."
    if not state.is_mem_lock_known:
        return "Run as root, with debugfs mounted."
    return "Compare with the governor right after a start of the board."


def _way_back(state: BoardState) -> str:
    """How the board comes to its stock state; a governor alone does not unpin it."""
    if state.is_jetson_clocks_on:
        return "Undo jetson_clocks before: sudo jetson_clocks --restore."
    if state.mem_clock_locked_mhz is not None and state.sm_clock_min_mhz != state.sm_clock_max_mhz:
        return "Let the memory clock go before, as whoever locked it does; else measure as it is."
    governor = f" and the governor to {state.stock_governor}" if state.stock_governor else ""
    return (
        f"Set the GPU's min_freq to {state.sm_clock_floor_mhz} MHz, its max_freq to "
        f"{state.sm_clock_ceiling_mhz} MHz{governor} before, or start the board anew."
    )
