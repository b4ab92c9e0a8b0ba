"""Whether the governor that a job is compared with is still the one that was there at first.

A baseline that somebody pins in the middle of it looks like a governor that wastes energy, and a
clock that saves nothing then seems to save. So the bounds of the clock are remembered as they were
before anything was set, and read again in every block that the governor has.
"""

from __future__ import annotations

from joulewise.domain.board_state import BoardState
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.ports import ReadBackGpu, WatchedGpu
from joulewise.workflow.baseline_state import doubts_of_state


def governed_state(gpu: WatchedGpu) -> BoardState | None:
    """How the board is set while every clock is as found; `None`: it cannot be read back.

    Ask under the lease, before the first point. Raises DeviceLost.
    """
    return gpu.board_state() if isinstance(gpu, ReadBackGpu) else None


def changed_since(found: BoardState, now: BoardState) -> tuple[Caveat, ...]:
    """ForeignControl where somebody has set the governor's bounds since; BaselinePinned, too.

    What does not read tells nothing.
    """
    moved = [
        f"{name} from {before} to {after}"
        for name, before, after in (
            ("the lowest GPU clock", _mhz(found.sm_clock_min_mhz), _mhz(now.sm_clock_min_mhz)),
            ("the highest GPU clock", _mhz(found.sm_clock_max_mhz), _mhz(now.sm_clock_max_mhz)),
            ("the governor", found.governor, now.governor),
            ("the memory clock's lock", *_locks(found, now)),
        )
        if None not in (before, after) and before != after
    ]
    if not moved:
        return ()
    seen = (
        f"somebody has set {', '.join(moved)} of {now.board} while it was measured under its "
        "governor"
    )
    pinned = [one for one in doubts_of_state(now) if one.kind is CaveatKind.BASELINE_PINNED]
    advice = "Stop the other controller, and run again."
    return (Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=seen, advice=advice), *pinned)


def _mhz(clock_mhz: int | None) -> str | None:
    return None if clock_mhz is None else f"{clock_mhz} MHz"


def _locks(found: BoardState, now: BoardState) -> tuple[str | None, str | None]:
    if not (found.is_mem_lock_known and now.is_mem_lock_known):
        return None, None
    return _mhz(found.mem_clock_locked_mhz) or "none", _mhz(now.mem_clock_locked_mhz) or "none"
